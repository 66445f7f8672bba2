"""Bring the ranks of a run together in a store, and tell each of them which ranks share its node.

They meet as torch's `env://` has it: rank 0 opens the store at MASTER_PORT, and the others connect to it at
MASTER_ADDR; torchrun has opened a store of its own. Where an mpirun names no address, the system chooses the port, and
rank 0 says by MPI where it is.

Each rank tells the store its facts under the name of its host; rank 0 reads them once, and leaves for each rank what it
needs to know. So no message holds all ranks.

Gloo listens at the address of the own host name, which on Debian and Ubuntu is 127.0.1.1: no other node reaches it. So
each rank on several nodes looks for the interface whose address reaches rank 0, or by which the others reached rank 0.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar

import torch.distributed as td

from common.bad_json import decode_json
from common.command import list_some
from common.errors import LaunchError
from common.network import find_interface, find_loopback, own_addresses, parse_address
from common.processes import call_in_thread
from common.ranks.launch import RankPosition, blame_environment, guess_node
from common.stop import STOP

PATIENCE_S: Final = 2.0
"""For a connection to a host."""
ANSWER_S: Final = 30.0
"""For the first answers of rank 0's store, which 10,000 ranks may ask at once."""
T = TypeVar("T")
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
FAN_OUT: Final = 8
"""Ranks of a group of the control plane."""
MOST_LISTED: Final = 8


def open_store(position: RankPosition, timeout_s: float) -> tuple[td.TCPStore, int]:
    """Return the store in which the ranks find each other, and their number. Rank 0 keeps it until its process ends.

    Raises LaunchError if rank 0 cannot be reached, or cannot listen.
    """
    try:
        if position.address is None or position.world_size is None:
            return _open_by_mpi(position, timeout_s)
        host, port = position.address
        if position.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return _serve_once(port, timeout_s), position.world_size
        return _find_store(position, (host,), port, timeout_s), position.world_size
    except LaunchError as error:
        raise LaunchError(f"{blame_environment(os.environ)}{error}") from error


def serve_store(port: int, timeout_s: float) -> td.TCPStore:
    """Return a store that listens at the port; 0: at one that the system chooses."""
    with _brief_lookups():
        try:
            return td.TCPStore(
                find_loopback(),
                port,
                is_master=True,
                timeout=timedelta(seconds=timeout_s),
                wait_for_workers=False,
                multi_tenant=True,
            )
        except RuntimeError as error:
            raise LaunchError(
                f"rank 0 cannot listen on {socket.gethostname()}, port {port}: another job or service may have it; "
                f"set MASTER_ADDR to this host and MASTER_PORT to a free port above 1023, the same on all ranks. torch "
                f"says: {first_line(error)}"
            ) from error


@contextlib.contextmanager
def _brief_lookups() -> Iterator[None]:
    """Let threads that begin inside the `with` wait a second at most for the name of a host.

    The thread of torch's store looks up the name of each client that connects, one by one (torch 2.13): where no
    name server answers, that takes 5 seconds by default.
    """
    former = os.environ.get("RES_OPTIONS", "")  # resolv.conf(5): glibc reads it once in each thread
    os.environ["RES_OPTIONS"] = f"{former} timeout:1 attempts:1"
    try:
        yield
    finally:
        os.environ["RES_OPTIONS"] = former


_serve_once: Final = cache(serve_store)
"""For the store of all ranks: a process may connect more than once."""


def _find_store(position: RankPosition, hosts: Sequence[str], port: int, timeout_s: float) -> td.TCPStore:
    """Return the store that listens at the port of the first of the hosts that answers."""
    reasons: dict[str, str] = {}
    for _ in STOP.poll(timeout_s, first_pause_s=0.1):
        for host in hosts:
            try:
                socket.create_connection((host, port), PATIENCE_S).close()
                return connect_to_store(host, port, timeout_s)
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
                reasons[host] = str(error)
    raise LaunchError(
        f"rank {position.rank} of {position.world_size} (started by {position.launcher}) did not reach rank 0 at "
        f"{list_some(hosts, MOST_LISTED)}, port {port}, within {timeout_s:.0f} s (dist.start_timeout_s): "
        f"{'; '.join(reasons.values())}. Check that all ranks were started, that rank 0 runs on this host, and that no "
        f"firewall is between; or set MASTER_ADDR (rank 0's host) and MASTER_PORT (a free port there)"
    )


def connect_to_store(host: str, port: int, timeout_s: float) -> td.TCPStore:
    """Return the store that a rank serves there; LaunchError if there is none."""
    patience = timedelta(seconds=min(ANSWER_S, timeout_s))
    connect = partial(td.TCPStore, host, port, is_master=False, timeout=patience, wait_for_workers=False)
    try:
        with _brief_lookups():
            store: td.TCPStore = call_within(2 * patience.total_seconds(), connect)
    except RuntimeError as error:
        raise LaunchError(
            f"{host} listens on port {port}, but not as the store of the ranks: another service or job has the port, "
            f"or a firewall is between; see the output of rank 0, and set MASTER_PORT to a port that is free there. "
            f"torch says: {first_line(error)}"
        ) from error
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def call_within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call of torch's store returns; torch's DistStoreError after some seconds.

    Calls wait forever for a server that is stopped, or that is another service and says nothing (torch 2.13). They are
    five waits, of which a job that is suspended as a whole loses one: the clock goes on meanwhile.
    """
    result = call_in_thread(call)
    for _ in range(5):
        with contextlib.suppress(TimeoutError):
            return result.result(seconds / 5)
    raise td.DistStoreError("the store of the ranks does not answer")


class AnsweringStore:
    """A store whose calls raise RuntimeError after some seconds; torch's wait forever for a server that is stopped."""

    def __init__(self, store: Any, seconds: float) -> None:
        self._store, self._seconds = store, seconds

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: call_within(self._seconds, partial(getattr(self._store, name), *arguments))


def _open_by_mpi(position: RankPosition, timeout_s: float) -> tuple[td.TCPStore, int]:
    """Return the store and the number of the ranks; rank 0 tells the others by MPI where it is. MPI then ends."""
    try:
        import mpi4py  # an optional package

        mpi4py.rc(initialize=False)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
        raise LaunchError(
            f"{position.launcher} started rank {position.rank} without the address or the number of the ranks, and MPI "
            f"is not available ({error}): install mpi4py for the MPI that started this rank (the extra `mpi` has one), "
            f"or set RANK, WORLD_SIZE, MASTER_ADDR (rank 0's host) and MASTER_PORT (a free port there)"
        ) from error
    store = _serve_once(0, timeout_s) if position.rank == 0 else None
    message = bytearray(4096)
    if store:
        # A node that cannot resolve rank 0's name, or takes it for its own, finds rank 0 by one of its addresses.
        hosts = [find_loopback()] if position.nodes == 1 else [socket.gethostname(), *own_addresses()][:16]
        message[:] = json.dumps([hosts, store.port]).encode().ljust(len(message), b"\0")
    # While MPI waits for a rank that failed before, no thread of Python runs, and no signal is heard.
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    if not MPI.Is_initialized():  # by the script around this call
        MPI.Init()
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    MPI.COMM_WORLD.Bcast(message)
    MPI.Finalize()
    faulthandler.cancel_dump_traceback_later()
    if rank != position.rank or position.world_size not in (None, size):
        raise LaunchError(
            f"{position.launcher} started rank {position.rank} of {position.world_size}, but mpi4py reports rank "
            f"{rank} of {size}: mpi4py uses another MPI library ({MPI.get_vendor()[0]}) than the launcher; start with "
            "that library's mpirun, or install mpi4py from source for the launcher's library"
        )
    hosts, port = json.loads(message.rstrip(b"\0"))
    return store or _find_store(position, hosts, port, timeout_s), size


def claim_rank(store: Any, rank: int, size: int) -> None:
    """Take a place among the ranks that meet in the store; LaunchError if another job has the store, or the rank.

    To be called before this process could disturb that job.
    """
    first_size = store.compare_set("size", "", str(size)).decode()
    if first_size != str(size) or store.add(f"rank{rank}", 1) > 1:
        owner = f"another job, of {first_size} ranks," if first_size != str(size) else "this rank"
        raise LaunchError(
            f"rank {rank} of {size}: {owner} has come to this MASTER_PORT already; start each rank once, and set "
            "another MASTER_PORT for a second job on the same node"
        )


class Facts(NamedTuple):
    """What a rank says of itself.

    cores: equal for ranks that share them. device: the identity of the only one that it sees, see
    `identify_only_device`. local, remote: its address on the way to rank 0's store, and that of the store.
    """

    rank: int
    cores: int
    device: int
    local: str
    remote: str


class Seat(NamedTuple):
    """The place of a rank in a group of `size` ranks. level, leader: of the group; its leader is its first rank."""

    level: int
    leader: int
    number: int
    size: int


class Neighbours(NamedTuple):
    """What rank 0 tells a rank of the others.

    local_rank, local_size, node_rank, nodes: by the names of the hosts. sharing: ranks on the node with the same cores.
    devices: how many there are on the node, if each of its ranks sees one alone. reached_at: the address by which other
    nodes reached rank 0; "" if there are none. seats: of the rank in the control plane.
    """

    local_rank: int
    local_size: int
    node_rank: int
    nodes: int
    sharing: int
    devices: int
    reached_at: str
    seats: list[Seat]


def complete_position(position: RankPosition, world_size: int, neighbours: Neighbours) -> RankPosition:
    """Return the position with its gaps filled by what the ranks of its node say of themselves."""
    if None in (position.local_rank, position.local_size, position.node_rank, position.nodes):
        local_rank, local_size, node_rank, nodes, *_ = neighbours
        position = replace(position, local_rank=local_rank, local_size=local_size, node_rank=node_rank, nodes=nodes)
    return replace(position, world_size=world_size)


def introduce_ranks(store: Any, facts: Facts, size: int, timeout_s: float) -> Neighbours:
    """Tell the store the facts of this rank; return what rank 0 says after all ranks have come.

    Raises LaunchError if a rank does not come in time.
    """
    rank, host = facts.rank, socket.gethostname()
    if store.add(f"ranks of {host}", 1) == 1:
        store.append("hosts", f"{host}\n")
    store.append(f"facts of {host}", json.dumps(facts, separators=(",", ":")) + "\n")
    store.add("here", 1)
    if rank == 0:
        _wait_for_ranks(store, size, timeout_s)
        _publish_neighbours(store)
        store.set("met", "")
    # Rank 0 says who is missing, a moment before.
    elif not any(store.check(["met"]) for _ in STOP.poll(timeout_s + 2 * PATIENCE_S)):
        raise LaunchError(f"rank {rank} waited {timeout_s:.0f} s for the other ranks (dist.start_timeout_s)")
    return _decode(store.get(f"neighbours of {rank}"), Neighbours)


def _decode(content: bytes, kind: type[T]) -> T:
    """Return what a rank has left in the store; LaunchError for anything else."""
    try:
        return decode_json(content, kind)
    except ValueError as error:
        raise LaunchError(f"a rank said what makes no sense ({error}): is the port open to others?") from None


def _wait_for_ranks(store: Any, size: int, timeout_s: float) -> None:
    if any(store.add("here", 0) >= size for _ in STOP.poll(timeout_s, longest_pause_s=0.2)):
        return
    missing = [rank for rank in range(size) if not store.check([f"rank{rank}"])]
    named = [" on ".join(filter(None, (f"{rank}", guess_node(rank, os.environ)))) for rank in missing[:MOST_LISTED]]
    raise LaunchError(
        f"{blame_environment(os.environ)}"
        f"{len(missing)} of {size} ranks ({list_some([*named, *missing[MOST_LISTED:]], MOST_LISTED)}) did not come to "
        f"rank 0 on {socket.gethostname()} within {timeout_s:.0f} s (dist.start_timeout_s): see their output; check "
        f"that all ranks were started with the same address, and that no firewall is between the nodes"
    )


def _publish_neighbours(store: Any) -> None:
    """Leave its `Neighbours` for each rank; nodes are counted in the order of their first ranks."""
    nodes: list[list[Facts]] = []
    for host in store.get("hosts").decode().split():
        lines = store.get(f"facts of {host}").splitlines()
        nodes.append(sorted(_decode(line, Facts) for line in lines))
    nodes.sort()
    everyone = [facts for node in nodes for facts in node]
    routes = ((facts.local, facts.remote) for facts in everyone)
    reached_at = next((remote for local, remote in routes if _is_between_machines(local, remote)), "")
    node_of = {facts.rank: number for number, node in enumerate(nodes) for facts in node}
    seats = seat_ranks([node_of[rank] for rank in range(len(node_of))])
    for number, node in enumerate(nodes):
        cores, devices = Counter(facts.cores for facts in node), len({facts.device for facts in node})
        for local_rank, facts in enumerate(node):
            own = [local_rank, len(node), number, len(nodes), cores[facts.cores], devices, reached_at]
            text = json.dumps([*own, seats[facts.rank]], separators=(",", ":"))
            store.set(f"neighbours of {facts.rank}", text)


def seat_ranks(nodes: Sequence[Hashable]) -> list[list[Seat]]:
    """Return the seats of each rank, from its node upwards; it is the first in all but its last group.

    nodes: of each rank.
    """
    seats: list[list[Seat]] = [[] for _ in nodes]
    by_node: dict[Hashable, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    leaders, level = [rank for rank, *_ in by_node.values()], 0
    for teams in (list(by_node.values()), [leaders]):
        while any(len(team) > 1 for team in teams):
            parts = [[team[i : i + FAN_OUT] for i in range(0, len(team), FAN_OUT)] for team in teams]
            for group in (group for team in parts for group in team if len(group) > 1):
                for number, rank in enumerate(group):
                    seats[rank].append(Seat(level, group[0], number, len(group)))
            teams, level = [[group[0] for group in team] for team in parts], level + 1
    return seats


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the paths of the machine that built torch."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return line.partition("] ")[2] if line.startswith("[/") and "] " in line else line


# -- the interface --------------------------------------------------------------------------------------------


def find_address(facts: Facts, reached_at: str) -> str:
    """Return the address by which the other ranks reach this one. reached_at: as in `Neighbours`."""
    # A rank beside rank 0 reaches it by any of its addresses; the ranks elsewhere know which of them is reached.
    return facts.local if _is_between_machines(facts.local, facts.remote) else reached_at or find_loopback()


def choose_interface(address: str) -> None:
    """Let gloo use the interface of an address, unless the user has chosen one.

    Nothing is chosen for one that no interface has, behind an address translation.
    """
    if not os.environ.get(INTERFACE) and (name := find_interface(address)):
        os.environ[INTERFACE] = name  # for the groups that are made later, too


def _is_between_machines(local: str, remote: str) -> bool:
    return bool(local) and local != remote and not parse_address(local).is_loopback
