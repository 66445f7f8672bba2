"""common.ranks.meeting: the store of the ranks, other services at its port, and the interface that reaches rank 0.

The ranks are threads of this process here; those of test_dist.py are processes.
"""

import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as td

from common import network
from common.errors import LaunchError
from common.ranks import groups, meeting
from common.ranks.launch import RankPosition
from common.ranks.meeting import Neighbours, complete_position

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Shorten the patience."""
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.3)
    monkeypatch.setattr(meeting, "ANSWER_S", 0.5)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.delenv(meeting.INTERFACE, raising=False)


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def service(port, message=None):
    """Listen at the port as another service does: with a message for everyone, or in silence."""

    def serve():
        with suppress(OSError):
            while True:
                with server.accept()[0] as guest:
                    guest.sendall(message)

    with socket.create_server(("", port)) as server:
        if message is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield


def meet(ranks, port, size=2, timeout_s=TIMEOUT_S, host="localhost"):
    """Let the ranks meet, and return what each got: the store or the error."""

    def meet_others(rank):
        position = RankPosition("environment", rank, size, address=(host, port))
        try:
            store, _ = meeting.open_store(position, timeout_s)
            meeting.claim_rank(store, rank, size)
            facts = meeting.Facts(rank, 7, rank, *network.find_route(store.host, store.port))
            seats = [(0, 0, rank, size)]
            neighbours = meeting.introduce_ranks(store, facts, size, timeout_s)
            assert neighbours == Neighbours(rank, size, 0, 1, size, size, "", seats)
            return store
        except (LaunchError, RuntimeError) as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(meet_others, ranks))


def talk(stores):
    """Check that all ranks are in one store."""
    stores[0].set("word", "from rank 0")
    assert {store.get("word") for store in stores} == {b"from rank 0"}


def test_ranks_meet():
    talk(meet([1, 0, 2], free_port(), size=3))


def test_a_store_that_this_process_has_at_the_port_is_shared():
    """Another library may have opened it, by torch's `env://` too."""
    other = td.TCPStore("localhost", 0, 1, is_master=True, wait_for_workers=False, multi_tenant=True)
    talk(meet([0, 1], other.port))


SERVICES = {"silent": None, "talkative": b"220 mail.example.org ESMTP\r\n", "much": b"x" * 100_000}


@pytest.mark.parametrize("message", SERVICES.values(), ids=SERVICES)
def test_a_port_in_use_is_one_clear_line_on_every_rank(message):
    with service(port := free_port(), message):
        first, second = meet([0, 1], port)
    assert f"rank 0 cannot listen on {socket.gethostname()}, port {port}" in str(first) and "\n" not in str(first)
    assert f"localhost listens on port {port}, but not as the store of the ranks" in str(second)
    assert "MASTER_PORT to a free port" in str(first) and "set MASTER_PORT" in str(second) and "\n" not in str(second)


def test_missing_ranks_and_their_nodes_are_named(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "nid[1-2]")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2)")
    results = meet([0, 2], free_port(), size=4, timeout_s=0.5)
    assert "2 of 4 ranks (1 on nid1, 3 on nid2) did not come to rank 0 on" in str(results[0])
    assert "start_timeout_s" in str(results[0]) and isinstance(results[1], Exception)
    assert str(results[0]).startswith("RANK=0 in the environment")


def test_rank_0_is_missing(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    (error,) = meet([1], free_port(), timeout_s=0.5)
    assert str(error).startswith("RANK=1 in the environment") and "`unset RANK`" in str(error)
    assert "rank 1 of 2 (started by environment) did not reach rank 0 at localhost" in str(error)
    assert "Connection refused" in str(error)
    (error,) = meet([1], free_port(), timeout_s=0.5, host="no-such-host.invalid")
    assert "rank 0 at no-such-host.invalid" in str(error) and "[Errno" in str(error)


def test_a_rank_comes_twice():
    results = meet([0, 1, 1], free_port(), size=3, timeout_s=1.5)
    assert "rank 1 of 3: this rank has come to this MASTER_PORT already" in " ".join(map(str, results))


def test_ranks_of_other_jobs_at_the_port_do_not_disturb_the_ranks():
    """They find their rank taken, or another number of ranks, and leave nothing in the store."""
    stores = meet([0, 1], port := free_port())
    for rank, size, found in ((1, 2, "this rank"), (5, 8, "another job, of 2 ranks,")):
        (error,) = meet([rank], port, size=size)
        assert f"rank {rank} of {size}: {found} has come to this MASTER_PORT already" in str(error)
    talk(stores)
    assert not stores[0].check(["rank5"]) and not stores[0].check(["news/0"])


ROUTES = {
    "one machine": (
        [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "127.0.1.1"), ("10.0.0.1", "10.0.0.1")],
        ["127.0.0.1"] * 3,
    ),
    "two machines": (
        [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "127.0.1.1"), ("10.0.0.2", "10.0.0.1")],
        ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
    ),
    "rank 0's node by its own address": (
        [("127.0.0.1", "127.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("10.0.0.2", "10.0.0.1")],
        ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
    ),
    "IPv6": ([("::1", "::1"), ("fd00::2", "fd00::1")], ["fd00::1", "fd00::2"]),
    "one without a route": (
        [("127.0.0.1", "127.0.0.1"), ("", ""), ("10.0.0.2", "10.0.0.1")],
        ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
    ),
}


@pytest.mark.parametrize(("routes", "addresses"), ROUTES.values(), ids=ROUTES)
def test_addresses_that_reach_the_other_machines(routes, addresses):
    store = td.HashStore()
    store.set("hosts", "a\n")
    facts = [meeting.Facts(rank, 0, 0, *route) for rank, route in enumerate(routes)]
    store.set("facts of a", "\n".join(map(json.dumps, facts)))
    meeting._publish_neighbours(store)
    reached_at = [Neighbours(*json.loads(store.get(f"neighbours of {rank}"))).reached_at for rank in range(len(routes))]
    assert list(map(meeting.find_address, facts, reached_at)) == addresses


def test_the_ranks_of_a_node_fill_the_gaps():
    """Ranks dealt out to the nodes in turn; what the launcher has told is kept."""
    neighbours = [(rank // 2, 3 - rank % 2, rank % 2, 2, 1, 1, "", []) for rank in range(5)]
    settled = [
        complete_position(RankPosition("pmix", rank, None), 5, Neighbours(*neighbours[rank])).require_facts()
        for rank in range(5)
    ]
    assert settled == [(5, 0, 3, 0, 2), (5, 0, 2, 1, 2), (5, 1, 3, 0, 2), (5, 1, 2, 1, 2), (5, 2, 3, 0, 2)]
    told = RankPosition("torchrun", 5, 8, 1, 4, 1, 2)
    assert complete_position(told, 8, Neighbours(5, 8, 0, 1, 8, 1, "", [])) == told


def test_the_interface_of_an_address(monkeypatch):
    assert network.find_interface("127.0.0.1") == "lo" and network.find_interface("::ffff:127.0.0.1") == "lo"
    assert network.find_interface("192.0.2.77") is None  # an address for examples
    assert network.find_interface("fe80::1%ib0") == "ib0"
    interfaces = [("lo", "127.0.0.1"), ("ib0", "10.0.0.1"), ("x", "fd00::1")]
    monkeypatch.setattr(network, "_list_addresses", lambda: interfaces)
    meeting.choose_interface("10.0.0.2")  # an address of no interface here
    assert meeting.INTERFACE not in os.environ
    monkeypatch.setenv(meeting.INTERFACE, "eth7")
    meeting.choose_interface("10.0.0.1")
    assert os.environ[meeting.INTERFACE] == "eth7"
    monkeypatch.setenv(meeting.INTERFACE, "")
    meeting.choose_interface("10.0.0.1")
    assert os.environ[meeting.INTERFACE] == "ib0"
    assert network.own_addresses() == ["10.0.0.1", "fd00::1"]


def test_the_way_to_a_store():
    store = td.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    assert network.find_route(store.host, store.port) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("interface", ["", "eth7"])
def test_errors_of_the_groups_say_what_to_look_at(interface, monkeypatch):
    monkeypatch.setenv(meeting.INTERFACE, interface)
    hint = "interface eth7" if interface else "/etc/hosts"
    with (
        pytest.raises(
            LaunchError, match=f"rank 3 on .* cannot connect to them .gloo.*{hint}.*firewall.*says: refused$"
        ),
        groups.explain_connecting(3, torch.device("cpu")),
    ):
        raise RuntimeError("refused\nmore")
    with pytest.raises(ValueError, match="mine"), groups.explain_connecting(3, torch.device("cpu")):
        raise ValueError("mine")
