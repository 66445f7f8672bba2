"""Bring the ranks of a run together in a store, and tell each of them which ranks share its node.

Rank 0 opens the store at a port that the system chooses, and beside it a *door* at the first free one of the ports that
all ranks know. The door tells everyone who connects which ranks it belongs to and where their store is. So a port in
use by a service or by another job costs a moment; torch's own client would wait forever for a service that says nothing
(torch 2.13). Where the ranks have a key in common (JOB_KEY), the door and each rank prove that they know it.

Each rank tells the store its facts under the name of its host; rank 0 reads them once and leaves for each host what its
ranks need to know. So no message holds all ranks.

Gloo listens at the address of the own host name, which on Debian and Ubuntu is 127.0.1.1: no other node reaches it. So
each rank on several nodes looks for the interface whose address reaches rank 0, or by which the others reached rank 0.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch.distributed as td

from common.ranks.launch import LaunchError, Meeting, Node, RankPosition, guess_node
from common.record import parse_object
from common.stop import STOP

PATIENCE_S: Final = 2.0
"""For a connection to a port, and then for what the door says; it says it at once."""
PROOF_S: Final = 5.0
"""So long, and twice in a row, all ports must belong to others: rank 0 may just be slow to answer."""
LONGEST_MESSAGE: Final = 4096
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
JOB_KEY: Final = "MLPERF_HPC_JOB_KEY"
"""A secret of the job, in the environment of all its ranks; without it the ranks cannot tell a stranger from a rank."""


def prove(text: str) -> str:
    """Return what only those who know the job's key can compute of a text; "" without a key."""
    key = os.environ.get(JOB_KEY, "")
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest() if key else ""


def is_proof(proof: Any, text: str) -> bool:
    """Tell whether the proof of a text is that of a process that knows the job's key; True without a key."""
    return isinstance(proof, str) and hmac.compare_digest(proof, prove(text))


@contextlib.contextmanager
def opened_store(position: RankPosition, number: int, timeout_s: float) -> Iterator[tuple[td.TCPStore, int]]:
    """Yield the store of the ranks and their number; inside the `with` they find it, and rank 0 waits for all there.

    number: of this meeting in this process, so that a rank that comes to the next one first does not join this one.
    Raises LaunchError if rank 0 cannot be reached, or cannot listen.
    """
    timeout = timedelta(seconds=timeout_s)
    if position.meeting is None or position.world_size is None:
        listener, job, meeting, size = _find_address_by_mpi(position)
    elif os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        yield _join_agent(position, position.meeting, position.world_size, timeout), position.world_size
        return
    else:
        meeting, size = position.meeting, position.world_size
        job = f"{meeting.job or 'job'}, {size} ranks, meeting {number}"
        listener = _listen(meeting.ports) if position.rank == 0 else None
        if listener and not meeting.job:
            _check_no_twin(listener, meeting.ports, job)
    if listener is None:
        host, port = _find_store(position, meeting, job, timeout_s)
        yield _connect_to_store(host, port, timeout), size
        return
    with _brief_lookups():
        store = td.TCPStore("127.0.0.1", 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    with _open_door(listener, {"ranks": job, "store": store.port, "proof": prove(f"{job} {store.port}")}):
        yield store, size


def _connect_to_store(host: str, port: int, timeout: timedelta) -> td.TCPStore:
    try:
        return td.TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
    except RuntimeError as error:
        raise LaunchError(
            f"rank 0 at {host} opened its store at port {port}, which does not answer: see the output of rank 0; if it "
            f"is still running, a firewall lets only some ports through. torch says: {first_line(error)}"
        ) from error


def _find_address_by_mpi(position: RankPosition) -> tuple[socket.socket | None, str, Meeting, int]:
    """Return what the others learn from rank 0 by MPI, which is then no longer needed: its address, and their number.

    The first value is rank 0's socket.
    """
    try:
        from mpi4py import MPI  # an optional package
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
        raise LaunchError(
            f"{position.launcher} started rank {position.rank} without the address or the number of the ranks, and MPI "
            f"is not available ({error}): install mpi4py for the MPI that started this rank (the extra `mpi` has one), "
            f"or set RANK, WORLD_SIZE, MASTER_ADDR (rank 0's host) and MASTER_PORT (a free port there)"
        ) from error
    world = MPI.COMM_WORLD
    if world.rank != position.rank or position.world_size not in (None, world.size):
        raise LaunchError(
            f"{position.launcher} started rank {position.rank} of {position.world_size}, but mpi4py reports rank "
            f"{world.rank} of {world.size}: mpi4py uses another MPI library ({MPI.get_vendor()[0]}) than the launcher; "
            f"start with that library's mpirun, or install mpi4py from source for the launcher's library"
        )
    listener = _listen((0,)) if position.rank == 0 else None
    message = bytearray(LONGEST_MESSAGE)
    if listener:
        host = "localhost" if position.nodes == 1 else socket.gethostname()
        address = json.dumps([[host, *own_addresses()][:16], listener.getsockname()[1]]).encode()
        message[: len(address)] = address
    world.Bcast(message)
    size = world.size
    MPI.Finalize()
    hosts, port = json.loads(message.rstrip(b"\0"))
    # A node that cannot resolve rank 0's name, or takes it for its own, finds rank 0 by one of its addresses.
    return listener, f"mpirun, {size} ranks, port {port}", Meeting(tuple(hosts), (port,)), size


def _join_agent(position: RankPosition, meeting: Meeting, world_size: int, timeout: timedelta) -> td.TCPStore:
    """Return torchrun's own store."""
    host, port = meeting.hosts[0], meeting.ports[0]
    try:
        return td.TCPStore(host, port, world_size, is_master=False, timeout=timeout)
    except RuntimeError as error:
        raise LaunchError(
            f"rank {position.rank} of {world_size} (started by {position.launcher}) did not reach torchrun's store at "
            f"{host}:{port} within {timeout.total_seconds():.0f} s: check that torchrun runs on all nodes with the "
            f"same --rdzv-endpoint, and that no firewall is between them. torch says: {first_line(error)}"
        ) from error


# -- rank 0 ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _brief_lookups() -> Iterator[None]:
    """Let threads that begin inside the `with` wait a second at most for the name of a host.

    The thread of torch's store looks up the name of each client that connects, one by one (torch 2.13): where no
    name server answers, that takes 5 seconds by default.
    """
    former = os.environ.get("RES_OPTIONS")  # resolv.conf(5): glibc reads it once in each thread
    os.environ["RES_OPTIONS"] = f"{former or ''} timeout:1 attempts:1".strip()
    try:
        yield
    finally:
        if former is None:
            del os.environ["RES_OPTIONS"]
        else:
            os.environ["RES_OPTIONS"] = former


def _listen(ports: Sequence[int]) -> socket.socket:
    """Return a socket that listens on the first port that is free."""
    for port in ports:
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True)
            return socket.create_server(("", port), backlog=4096)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise LaunchError(f"rank 0 cannot listen on {socket.gethostname()}, port {port}: {error}") from error
    raise LaunchError(
        f"rank 0 cannot listen on {socket.gethostname()}: the ports {list_some(ports)} are in use or not permitted; "
        f"set MASTER_ADDR to this host and MASTER_PORT to a free port above 1023, the same on all ranks"
    )


def _check_no_twin(listener: socket.socket, ports: Sequence[int], job: str) -> None:
    """Raise LaunchError if another job meets at an earlier port, whose ranks nothing tells from those of this one."""
    for port in ports[: ports.index(listener.getsockname()[1])]:
        if _ask_port("localhost", port, job).store:
            listener.close()
            raise LaunchError(
                f"another job with as many ranks meets on {socket.gethostname()}, port {port}, at this moment, and the "
                f"ranks of both may mix: stop both, and set another MASTER_PORT for each"
            )


@contextlib.contextmanager
def _open_door(listener: socket.socket, message: dict[str, Any]) -> Iterator[None]:
    """Send the message to everyone who connects to `listener`; close it at the end."""
    content, shut = json.dumps(message).encode() + b"\n", threading.Event()

    def greet() -> None:
        while not shut.is_set():
            with contextlib.suppress(OSError):  # no one came, or left before the end
                guest, _ = listener.accept()
                with guest:
                    guest.settimeout(PATIENCE_S)
                    guest.sendall(content)

    listener.settimeout(0.1)
    greeter = threading.Thread(target=greet, daemon=True)
    greeter.start()
    try:
        yield
    finally:
        shut.set()
        greeter.join()
        listener.close()


# -- the others -----------------------------------------------------------------------------------------------


def _find_store(position: RankPosition, meeting: Meeting, job: str, timeout_s: float) -> tuple[str, int]:
    """Return the address of the store, from the door; LaunchError as soon as none can be there."""
    where = [(host, port) for host in meeting.hosts for port in meeting.ports]
    answers: list[_Answer] = []
    others_since: float | None = None
    for _ in poll(timeout_s, first_pause_s=0.1):
        began = time.monotonic()
        answers = [_ask_port(*where[0], job)]
        if not answers[0].store and len(where) > 1:
            with ThreadPoolExecutor(4 * len(meeting.ports)) as pool:
                answers += pool.map(lambda address: _ask_port(address[0], address[1], job), where[1:])
        stores = [answer.store for answer in answers if answer.store]
        if stores:
            return stores[0]
        if not all(answer.is_others for answer in answers):
            others_since = None
        elif others_since is None:
            others_since = began
        elif time.monotonic() - others_since > PROOF_S:
            raise LaunchError(
                f"rank 0 cannot listen: on {' and '.join(meeting.hosts)} the port(s) {list_some(meeting.ports)} belong "
                f"to other services or jobs, seen by rank {position.rank}; set MASTER_ADDR to rank 0's host and "
                f"MASTER_PORT to a free port there, the same on all ranks"
            )
    reasons = list(dict.fromkeys(answer.reason for answer in answers))
    raise LaunchError(
        f"rank {position.rank} of {position.world_size} (started by {position.launcher}) did not reach rank 0 at "
        f"{list_some(meeting.hosts)}, port(s) {list_some(meeting.ports)}, within {timeout_s:.0f} s "
        f"(dist.start_timeout_s): {'; '.join(reasons)}. Check that rank 0 was started, that it runs on this host (srun "
        f"--distribution=arbitrary may put it on another) and that no firewall is between; or set MASTER_ADDR (rank "
        f"0's host) and MASTER_PORT"
    )


@dataclass(frozen=True)
class _Answer:
    """What is at a port. store: address of the ranks' store; is_others: there is another service; reason: in words."""

    reason: str
    store: tuple[str, int] | None = None
    is_others: bool = False


def _ask_port(host: str, port: int, job: str) -> _Answer:
    try:
        with socket.create_connection((host, port), PATIENCE_S) as connection:
            message = _read_message(connection)
            address = _numeric(connection.getpeername())
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        return _Answer(f"{host}: {error}")
    store = message.get("store")
    if message.get("ranks") == job and type(store) is int:
        if is_proof(message.get("proof", ""), f"{job} {store}"):
            return _Answer("found", (address, store))
        return _Answer(f"{host}, port {port}: who listens there does not know this rank's {JOB_KEY}", is_others=True)
    return _Answer(f"{host} has other services or jobs at some of them", is_others=True)


def _read_message(connection: socket.socket) -> dict[str, Any]:
    """Return what a door says, and nothing for another service, which may say anything."""
    received, end = b"", time.monotonic() + PATIENCE_S
    with contextlib.suppress(OSError):
        while len(received) < LONGEST_MESSAGE and not received.endswith(b"\n") and time.monotonic() < end:
            part = connection.recv(LONGEST_MESSAGE)
            if not part:
                break
            received += part
    return parse_object(received)


# -- all ------------------------------------------------------------------------------------------------------


def introduce_ranks(store: Any, position: RankPosition, size: int, facts: list[Any], timeout_s: float) -> Node:
    """Tell the store the facts of this rank; return its node after all ranks have come.

    facts: as JSON has them, the last one being `find_route`. Raises LaunchError if a rank comes twice, or not in time.
    """
    rank, host = position.rank, socket.gethostname()
    if store.add(f"rank{rank}", 1) > 1:
        raise LaunchError(
            f"rank {rank} has met the others already: start each rank once, and set another MASTER_PORT for a second "
            "job on the same node"
        )
    introduction = json.dumps([rank, facts])
    if store.add(f"ranks of {host}", 1) == 1:
        store.append("hosts", f"{host}\n")
    store.append(f"facts of {host}", json.dumps([introduction, prove(introduction)]) + "\n")
    store.add("here", 1)
    if rank == 0:
        _wait_for_ranks(store, size, timeout_s)
        _describe_nodes(store)
        store.set("met", "")
    # Rank 0 says who is missing, a moment before.
    elif not any(store.check(["met"]) for _ in poll(timeout_s + 2 * PATIENCE_S)):
        raise LaunchError(f"rank {rank} waited {timeout_s:.0f} s for the other ranks (dist.start_timeout_s)")
    return Node(*json.loads(store.get(f"node {host}")))


def _wait_for_ranks(store: Any, size: int, timeout_s: float) -> None:
    if any(store.add("here", 0) >= size for _ in poll(timeout_s, longest_pause_s=0.2)):
        return
    missing = [rank for rank in range(size) if not store.check([f"rank{rank}"])]
    where = [f"{rank}{f' on {node}' if (node := guess_node(rank, os.environ)) else ''}" for rank in missing[:8]]
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    raise LaunchError(
        f"{len(missing)} of {size} ranks ({', '.join(where)}{more}) did not come to rank 0 on {socket.gethostname()} "
        f"within {timeout_s:.0f} s (dist.start_timeout_s): see their output; check that all ranks were started with "
        f"the same address, and that no firewall is between the nodes"
    )


def _describe_nodes(store: Any) -> None:
    """Leave a `Node` for each host, in the order of their first ranks."""
    nodes: list[tuple[str, list[list[Any]]]] = []
    for host in store.get("hosts").decode().split():
        rows = []
        for line in store.get(f"facts of {host}").decode().splitlines():
            introduction, proof = json.loads(line)
            if not is_proof(proof, introduction):
                raise LaunchError(f"a rank on {host} does not know this rank's {JOB_KEY}: a stranger, or another job's")
            rows.append(json.loads(introduction))
        nodes.append((host, sorted(rows)))
    nodes.sort(key=lambda node: node[1][0][0])
    routes = (facts[-1] for _, rows in nodes for _, facts in rows)
    reached_at = next((remote for local, remote in routes if _is_between_machines(local, remote)), "")
    for number, (host, rows) in enumerate(nodes):
        ranks, facts = zip(*rows, strict=True)
        store.set(f"node {host}", json.dumps([number, len(nodes), ranks, facts, reached_at]))


def poll(timeout_s: float, first_pause_s: float = 0.01, longest_pause_s: float = 1.0) -> Iterator[None]:
    """Yield at once, and then after pauses that grow until the time is over; raise as STOP.check does.

    A call of torch that waits hears no signal.
    """
    end, pause = time.monotonic() + timeout_s, first_pause_s
    STOP.check()
    yield
    while (left := end - time.monotonic()) > 0:
        STOP.sleep(min(pause, left))
        pause = min(1.5 * pause, longest_pause_s)
        yield


def list_some(values: Sequence[Any]) -> str:
    """Return the first values in a line, and how many there are more."""
    shown = ", ".join(map(str, values[:8]))
    return shown + (f" and {len(values) - 8} more" if len(values) > 8 else "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the paths of the machine that built torch."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return line.partition("] ")[2] if line.startswith("[/") and "] " in line else line


# -- the interface --------------------------------------------------------------------------------------------


def find_route(store: td.TCPStore) -> tuple[str, str]:
    """Return the address from which this rank reaches the store and that of the store; nothing is sent."""
    for family, kind, _, _, address in socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(address)
            return _numeric(probe.getsockname()), _numeric(probe.getpeername())
    return "", ""


def choose_interface(route: tuple[str, str], reached_at: str) -> str | None:
    """Let gloo use the interface by which this rank and the others reach each other, and return its name.

    reached_at: as in Node. Do nothing if the user has chosen one, if all ranks are on one machine, or if no interface
    has the address (behind an address translation); then return None.
    """
    local, remote = route
    if os.environ.get(INTERFACE) or not reached_at or not local:
        return None
    # A rank beside rank 0 reaches it by any of its addresses; the ranks elsewhere know which of them is reached.
    name = find_interface(local if _is_between_machines(local, remote) else reached_at)
    if name:
        os.environ[INTERFACE] = name  # for the groups that are made later, too
    return name


def _is_between_machines(local: str, remote: str) -> bool:
    return bool(local) and local != remote and not _parse_address(local).is_loopback


def find_interface(address: str) -> str | None:
    """Return the name of the interface that has the address; None if none has."""
    if "%" in address:
        return address.partition("%")[2]
    return next((name for name, other in _list_addresses() if _parse_address(other) == _parse_address(address)), None)


def own_addresses() -> list[str]:
    """Return the addresses by which other machines may reach this one."""
    return [address for _, address in _list_addresses() if not (_parse_address(address).is_loopback or "%" in address)]


def _list_addresses() -> list[tuple[str, str]]:
    """Return the interfaces of this machine, each with an address of it."""
    import psutil  # no other module needs it

    families = (socket.AF_INET, socket.AF_INET6)
    by_name = psutil.net_if_addrs().items()
    return [(name, entry.address) for name, entries in by_name for entry in entries if entry.family in families]


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address without its interface, an IPv4 address in the clothes of IPv6 as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _numeric(address: Any) -> str:
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
