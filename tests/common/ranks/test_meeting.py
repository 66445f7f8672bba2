"""common.ranks.meeting: ranks that meet beside other services, and the interface that reaches rank 0.

The ranks are threads of this process here; those of test_dist.py are processes.
"""

import errno
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("torch")

import torch.distributed as td

from common.ranks import groups, meeting
from common.ranks.launch import LaunchError, Meeting, Node, RankPosition

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Shorten the patience; all ranks of a test are at their first meeting."""
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.3)
    monkeypatch.setattr(meeting, "PROOF_S", 0.2)
    monkeypatch.delenv(meeting.JOB_KEY, raising=False)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.delenv(meeting.INTERFACE, raising=False)


def free_ports(count):
    with_sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in with_sockets]
    for server in with_sockets:
        server.close()
    return tuple(ports)


@contextmanager
def service(port, message=None):
    """Listen at the port as another service does: with a message for everyone, or in silence."""
    server = socket.create_server(("", port))

    def serve():
        guests = []
        with suppress(OSError):
            while True:
                guest, _ = server.accept()
                guests.append(guest)
                guest.sendall(message)
                guest.close()

    if message is not None:
        threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        server.close()


def meet(ranks, ports, size=2, timeout_s=TIMEOUT_S, job="", hosts=("localhost",)):
    """Let the ranks meet, and return what each got: the store or the error. Each is a rank of a node of its own."""

    def meet_others(rank):
        position = RankPosition("environment", rank, size, meeting=Meeting(hosts, ports, job))
        try:
            with meeting.opened_store(position, 0, timeout_s) as (store, _):
                facts = [f"fact {rank}", meeting.find_route(store)]
                node = meeting.introduce_ranks(store, position, size, facts, timeout_s)
                assert [fact for fact, _ in node.facts] == [f"fact {rank}" for rank in range(size)]
                assert (node.number, node.count, node.ranks, node.reached_at) == (0, 1, list(range(size)), "")
                return store
        except (LaunchError, RuntimeError) as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(meet_others, ranks))


def talk(stores):
    """Check that all ranks are in one store."""
    stores[0].set("word", "from rank 0")
    assert {store.get("word") for store in stores} == {b"from rank 0"}


NEIGHBOURS = {
    "silent": None,
    "talkative": b"220 mail.example.org ESMTP\r\n",
    "much": b"x" * 100_000,
    "ranks of another job": json.dumps({"ranks": "Slurm step 8.0, 2 ranks, meeting 0", "store": 1}).encode() + b"\n",
    "nested": b"[" * 5000 + b"\n",
    "no port": json.dumps({"ranks": "Slurm step 7.0, 2 ranks, meeting 0", "store": "x"}).encode() + b"\n",
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_a_port_in_use_is_passed_over(neighbour):
    ports = free_ports(2)
    with service(ports[0], neighbour):
        talk(meet([1, 0], ports, job="Slurm step 7.0"))


def test_a_store_of_this_process_is_passed_over():
    """Another library may have opened a store at MASTER_PORT in the same process."""
    other = td.TCPStore("localhost", 0, 1, is_master=True, wait_for_workers=False, multi_tenant=True)
    talk(meet([0, 1], (other.port, *free_ports(1))))
    assert other.add("mine", 1) == 1


def test_the_ports_are_free_after_the_meeting_and_another_can_follow():
    ports = free_ports(1)
    for _ in range(2):
        talk(meet([0, 1, 2], ports, size=3))


@pytest.mark.parametrize("neighbour", [None, b"SSH-2.0-x\r\n"], ids=["silent", "talkative"])
def test_all_ranks_know_at_once_that_rank_0_cannot_listen(neighbour):
    ports = free_ports(2)
    with service(ports[0], neighbour), service(ports[1], neighbour):
        began = time.monotonic()
        first, second = meet([0, 1], ports)
    assert time.monotonic() - began < TIMEOUT_S / 4
    shown = f"{ports[0]}, {ports[1]}"
    assert f"rank 0 cannot listen on {socket.gethostname()}: the ports {shown} are in use" in str(first)
    assert f"rank 0 cannot listen: on localhost the port(s) {shown} belong to other services" in str(second)
    assert "set MASTER_ADDR" in str(first) and "set MASTER_ADDR" in str(second)


@pytest.mark.parametrize(("number", "tried"), [(errno.EADDRINUSE, 3), (errno.EACCES, 3), (errno.ENOBUFS, 1)])
def test_only_a_taken_port_leads_to_the_next(number, tried, monkeypatch):
    asked = []

    def create_server(address, **_):
        asked.append(address[1])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "create_server", create_server)
    with pytest.raises(LaunchError, match="rank 0 cannot listen"):
        meeting._listen((1, 2, 3))
    assert len(asked) == tried


def test_missing_ranks_and_their_nodes_are_named(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NODELIST", "nid[1-2]")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2)")
    results = meet([0, 2], free_ports(1), size=4, timeout_s=0.5)
    assert "2 of 4 ranks (1 on nid1, 3 on nid2) did not come to rank 0 on" in str(results[0])
    assert "start_timeout_s" in str(results[0]) and isinstance(results[1], Exception)


@pytest.mark.parametrize("keys", [("right", "wrong"), ("", "right"), ("right", "")], ids=str)
def test_a_rank_that_does_not_know_the_key_is_refused(keys, monkeypatch):
    """Its rank 0 is a stranger for the others, and its other ranks are for rank 0."""
    ports, knows = free_ports(1), threading.local()
    monkeypatch.setattr(meeting, "prove", lambda text: f"{knows.key} {text}" if knows.key else "")
    message = {"ranks": "job, 2 ranks, meeting 0", "store": 7, "proof": ""}
    knows.key = keys[0]
    message["proof"] = meeting.prove("job, 2 ranks, meeting 0 7")
    knows.key = keys[1]
    with service(ports[0], json.dumps(message).encode() + b"\n"):
        answer = meeting._ask_port("localhost", ports[0], "job, 2 ranks, meeting 0")
    assert answer.is_others and meeting.JOB_KEY in answer.reason
    store = td.HashStore()
    position = RankPosition("environment", 1, 2)
    store.set("met", "")
    store.set(f"node {socket.gethostname()}", "[0, 1, [0, 1], [[], []]]")
    meeting.introduce_ranks(store, position, 2, [("", "")], 1)
    knows.key = keys[0]
    with pytest.raises(LaunchError, match="does not know this rank's"):
        meeting._describe_nodes(store)


def test_rank_0_is_missing():
    port = free_ports(1)
    (error,) = meet([1], port, timeout_s=0.5, hosts=("localhost", "no-such-host.invalid"))
    assert "rank 1 of 2 (started by environment) did not reach rank 0 at localhost, no-such-host.invalid" in str(error)
    assert "Connection refused" in str(error) and "no-such-host.invalid: [Errno" in str(error)


def test_a_rank_comes_twice():
    results = meet([0, 1, 1], free_ports(1), size=3, timeout_s=1.5)
    assert "rank 1 has met the others already" in " ".join(map(str, results))


def test_two_jobs_at_the_same_port(monkeypatch):
    monkeypatch.setattr(meeting, "PATIENCE_S", 2.0)  # the first one may not have opened its door yet
    results = " ".join(map(str, meet([0, 0], free_ports(2), timeout_s=1.5)))
    assert "another job with as many ranks meets on" in results and "set another MASTER_PORT for each" in results


def test_rank_0_on_another_of_the_hosts():
    """`srun --distribution=arbitrary` gives no order; a host that is missing does not matter."""
    talk(meet([0, 1], free_ports(2), hosts=("no-such-host.invalid", "127.0.0.1")))


ROUTES = {
    "one machine": ([("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "127.0.1.1"), ("10.0.0.1", "10.0.0.1")], [None] * 3),
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
        ["10.0.0.1", None, "10.0.0.2"],
    ),
}


@pytest.mark.parametrize(("routes", "addresses"), ROUTES.values(), ids=ROUTES)
def test_addresses_that_reach_the_other_machines(routes, addresses, monkeypatch):
    store, chosen = td.HashStore(), []
    store.set("hosts", "a\n")
    rows = [json.dumps([rank, [route]]) for rank, route in enumerate(routes)]
    store.set("facts of a", "\n".join(json.dumps([row, ""]) for row in rows))
    meeting._describe_nodes(store)
    node = Node(*json.loads(store.get("node a")))
    monkeypatch.setattr(meeting, "find_interface", chosen.append)
    for route in routes:
        before = len(chosen)
        meeting.choose_interface(route, node.reached_at)
        chosen += [None] * (before == len(chosen))
    assert chosen == addresses


def test_the_interface_of_an_address(monkeypatch):
    assert meeting.find_interface("127.0.0.1") == "lo" and meeting.find_interface("::ffff:127.0.0.1") == "lo"
    assert meeting.find_interface("192.0.2.77") is None  # an address for examples
    assert meeting.find_interface("fe80::1%ib0") == "ib0"
    interfaces = [("lo", "127.0.0.1"), ("ib0", "10.0.0.1"), ("x", "fd00::1")]
    monkeypatch.setattr(meeting, "_list_addresses", lambda: interfaces)
    here, there = ("127.0.0.1", "127.0.0.1"), ("10.0.0.2", "10.0.0.1")
    assert meeting.choose_interface(here, "") is None and meeting.INTERFACE not in os.environ
    assert meeting.choose_interface(there, "10.0.0.1") is None, "the address is of no interface here"
    monkeypatch.setenv(meeting.INTERFACE, "eth7")
    assert meeting.choose_interface(here, "10.0.0.1") is None and os.environ[meeting.INTERFACE] == "eth7"
    monkeypatch.setenv(meeting.INTERFACE, "")
    assert meeting.choose_interface(here, "10.0.0.1") == "ib0" == os.environ[meeting.INTERFACE]
    assert meeting.own_addresses() == ["10.0.0.1", "fd00::1"]


def test_the_way_to_a_store():
    store = td.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    assert meeting.find_route(store) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("interface", ["", "eth7"])
def test_errors_of_the_groups_say_what_to_look_at(interface, monkeypatch):
    monkeypatch.setenv(meeting.INTERFACE, interface)
    hint = "interface eth7" if interface else "/etc/hosts"
    with (
        pytest.raises(
            LaunchError, match=f"rank 3 on .* cannot connect to them .gloo.*{hint}.*firewall.*says: refused$"
        ),
        groups.connecting(3, "gloo"),
    ):
        raise RuntimeError("refused\nmore")
    with pytest.raises(ValueError, match="mine"), groups.connecting(3, "gloo"):
        raise ValueError("mine")
