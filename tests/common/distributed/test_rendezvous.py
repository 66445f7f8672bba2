"""common.distributed.rendezvous: ranks that meet beside other services, and the interface that reaches rank 0.

The ranks are threads of this process here; those of test_dist.py are processes.
"""

import errno
import itertools
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

pytest.importorskip("torch")

import torch.distributed as td

from common.distributed import rendezvous
from common.distributed.launch import LaunchError, Meeting, Place

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Shorten the patience; all ranks of a test are at their first meeting."""
    monkeypatch.setattr(rendezvous, "PATIENCE_S", 0.3)
    monkeypatch.setattr(rendezvous, "PROOF_S", 0.2)
    monkeypatch.setattr(rendezvous, "_meetings", itertools.repeat(0))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.delenv(rendezvous.INTERFACE, raising=False)


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
    """Let the ranks meet, and return what each got: the store or the error."""

    def one(rank):
        place = Place("environment", rank, size, meeting=Meeting(hosts, ports, job))
        try:
            return rendezvous.meet(place, timedelta(seconds=timeout_s))[0]
        except LaunchError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))


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
        rendezvous._listen((1, 2, 3))
    assert len(asked) == tried


def test_missing_ranks_are_named_to_all():
    results = meet([0, 2], free_ports(1), size=4, timeout_s=1)
    assert len({str(result) for result in results}) == 1
    assert str(results[0]).startswith(f"2 of 4 ranks (1, 3) did not come to rank 0 on {socket.gethostname()}, port")


def test_rank_0_is_missing():
    port = free_ports(1)
    (error,) = meet([1], port, timeout_s=0.5, hosts=("localhost", "no-such-host.invalid"))
    assert "rank 1 of 2 (started by environment) did not reach rank 0 at localhost, no-such-host.invalid" in str(error)
    assert "Connection refused" in str(error) and "no-such-host.invalid: [Errno" in str(error)


def test_a_rank_comes_twice():
    results = meet([0, 1, 1], free_ports(1), size=3, timeout_s=1.5)
    assert "rank 1 has met the others already" in " ".join(map(str, results))


def test_two_jobs_at_the_same_port(monkeypatch):
    monkeypatch.setattr(rendezvous, "PATIENCE_S", 2.0)  # the first one may not have opened its door yet
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
def test_addresses_that_reach_the_other_machines(routes, addresses):
    assert [rendezvous.own_address(routes, rank) for rank in range(len(routes))] == addresses


def test_the_interface_of_an_address(monkeypatch):
    assert rendezvous.interface_of("127.0.0.1") == "lo" and rendezvous.interface_of("::ffff:127.0.0.1") == "lo"
    assert rendezvous.interface_of("192.0.2.77") is None  # an address for examples
    assert rendezvous.interface_of("fe80::1%ib0") == "ib0"
    monkeypatch.setattr(rendezvous, "_interfaces", lambda: [("lo", "127.0.0.1"), ("ib0", "10.0.0.1"), ("x", "fd00::1")])
    routes = [("127.0.0.1", "127.0.0.1"), ("10.0.0.2", "10.0.0.1")]
    assert rendezvous.choose_interface(routes[:1], 0) is None and rendezvous.INTERFACE not in os.environ
    assert rendezvous.choose_interface(routes, 1) is None, "the address is of no interface here"
    monkeypatch.setenv(rendezvous.INTERFACE, "eth7")
    assert rendezvous.choose_interface(routes, 0) is None and os.environ[rendezvous.INTERFACE] == "eth7"
    monkeypatch.setenv(rendezvous.INTERFACE, "")
    assert rendezvous.choose_interface(routes, 0) == "ib0" == os.environ[rendezvous.INTERFACE]
    assert rendezvous.own_addresses() == ["10.0.0.1", "fd00::1"]


def test_the_way_to_a_store():
    store = td.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    assert rendezvous.route(store) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("interface", ["", "eth7"])
def test_errors_of_the_groups_say_what_to_look_at(interface, monkeypatch):
    monkeypatch.setenv(rendezvous.INTERFACE, interface)
    hint = "interface eth7" if interface else "/etc/hosts"
    with (
        pytest.raises(
            LaunchError, match=f"rank 3 on .* cannot connect to them .gloo.*{hint}.*firewall.*says: refused$"
        ),
        rendezvous.connecting(3, "gloo"),
    ):
        raise RuntimeError("refused\nmore")
    with pytest.raises(ValueError, match="mine"), rendezvous.connecting(3, "gloo"):
        raise ValueError("mine")
