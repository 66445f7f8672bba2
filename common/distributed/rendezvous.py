"""Bring the ranks of a run together: in a store that rank 0 opens, and then on interfaces that reach each other.

Rank 0 opens the store at a port that the system chooses, and beside it a *door* at the first free one of the ports that
all ranks know. The door tells everyone who connects which ranks it belongs to and where their store is. So a port in
use by a service or by another job costs a moment; torch's own client would wait forever for a service that says nothing
(torch 2.13).

Gloo listens at the address of the own host name, which on Debian and Ubuntu is 127.0.1.1: no other node reaches it. So
each rank on several nodes looks for the interface whose address reaches rank 0, or by which the others reached rank 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch.distributed as td

from common.distributed.launch import LaunchError, Meeting, Place

PATIENCE_S: Final = 2.0
"""For a connection to a port, and then for what the door says; it says it at once."""
PROOF_S: Final = 5.0
"""So long, and twice in a row, all ports must belong to others: rank 0 may just be slow to answer."""
LONGEST_MESSAGE: Final = 4096
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
LOST: Final = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Broken pipe",
    "Connection was likely closed",
    "remote process exited",
)
"""What torch says when another process has ended without a word: gloo, the ranks' store, and, the last one, NCCL."""
_meetings = itertools.count()


def meet(place: Place, timeout: timedelta) -> tuple[td.TCPStore, int]:
    """Return the store through which the ranks find each other, and their number; LaunchError if they do not meet."""
    number = next(_meetings)  # so that a rank that comes to the next meeting first does not join this one
    if place.meeting is None or place.world_size is None:
        return _meet_by_mpi(place, timeout)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _join_agent(place, place.meeting, place.world_size, timeout), place.world_size
    job = f"{place.meeting.job or 'job'}, {place.world_size} ranks, meeting {number}"
    if place.rank == 0:
        listener = _listen(place.meeting.ports)
        if not place.meeting.job:
            _check_no_twin(listener, place.meeting.ports, job)
        return _open_store(listener, job, place.world_size, timeout), place.world_size
    return _find_store(place, place.meeting, job, timeout), place.world_size


def _meet_by_mpi(place: Place, timeout: timedelta) -> tuple[td.TCPStore, int]:
    """Return the same, with the address of rank 0 from MPI, which is then no longer needed."""
    try:
        from mpi4py import MPI  # an optional package
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
        raise LaunchError(
            f"{place.launcher} started rank {place.rank} without the address or the number of the ranks, and MPI is "
            f"not available ({error}): install mpi4py for the MPI that started this rank (the extra `mpi` has one), or "
            f"set RANK, WORLD_SIZE, MASTER_ADDR (rank 0's host) and MASTER_PORT (a free port there)"
        ) from error
    world = MPI.COMM_WORLD
    if world.rank != place.rank or place.world_size not in (None, world.size):
        raise LaunchError(
            f"{place.launcher} started rank {place.rank} of {place.world_size}, but mpi4py reports rank {world.rank} "
            f"of {world.size}: mpi4py uses another MPI library ({MPI.get_vendor()[0]}) than the launcher; "
            f"start with that library's mpirun, or install mpi4py from source for the launcher's library"
        )
    listener = _listen((0,)) if place.rank == 0 else None
    host = "localhost" if place.nodes == 1 else socket.gethostname()
    hosts, port = world.bcast(([host, *own_addresses()], listener.getsockname()[1]) if listener else None)
    size = world.size
    MPI.Finalize()
    job = f"mpirun, {size} ranks, port {port}"
    if listener:
        return _open_store(listener, job, size, timeout), size
    # A node that cannot resolve rank 0's name, or takes it for its own, finds rank 0 by one of its addresses.
    return _find_store(place, Meeting(tuple(hosts), (port,)), job, timeout), size


def _join_agent(place: Place, meeting: Meeting, world_size: int, timeout: timedelta) -> td.TCPStore:
    """Return torchrun's own store."""
    host, port = meeting.hosts[0], meeting.ports[0]
    try:
        return td.TCPStore(host, port, world_size, is_master=False, timeout=timeout)
    except RuntimeError as error:
        raise LaunchError(
            f"rank {place.rank} of {world_size} (started by {place.launcher}) did not reach torchrun's store at "
            f"{host}:{port} within {timeout.total_seconds():.0f} s: check that torchrun runs on all nodes with the "
            f"same --rdzv-endpoint, and that no firewall is between them. torch says: {_first_line(error)}"
        ) from error


# -- rank 0 ---------------------------------------------------------------------------------------------------


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
        f"rank 0 cannot listen on {socket.gethostname()}: the ports {_listed(ports)} are in use or not permitted; "
        f"set MASTER_ADDR to this host and MASTER_PORT to a free port above 1023, the same on all ranks"
    )


def _check_no_twin(listener: socket.socket, ports: Sequence[int], job: str) -> None:
    """Raise LaunchError if another job meets at an earlier port, whose ranks nothing tells from those of this one."""
    for port in ports[: ports.index(listener.getsockname()[1])]:
        if _ask("localhost", port, job).store:
            listener.close()
            raise LaunchError(
                f"another job with as many ranks meets on {socket.gethostname()}, port {port}, at this moment, and the "
                f"ranks of both may mix: stop both, and set another MASTER_PORT for each"
            )


def _open_store(listener: socket.socket, job: str, size: int, timeout: timedelta) -> td.TCPStore:
    """Return a new store after all ranks have come to it; the door at `listener` is then shut."""
    store = td.TCPStore("127.0.0.1", 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = listener.getsockname()[1]
    with _door(listener, {"ranks": job, "store": store.port}):
        _arrive(store, 0, job)
        missing = _await_others(store, size, timeout.total_seconds())
    told = ""
    if missing:
        told = (
            f"{len(missing)} of {size} ranks ({_listed(missing)}) did not come to rank 0 on {socket.gethostname()}, "
            f"port {port}, within {timeout.total_seconds():.0f} s (dist.timeout_s): see their output; check that all "
            f"ranks were started with the same address, and that no firewall is between the nodes"
        )
    store.set("met", told)
    if told:
        time.sleep(1)  # until the others have read it: the store ends with this process
        raise LaunchError(told)
    return store


@contextlib.contextmanager
def _door(listener: socket.socket, message: dict[str, Any]) -> Iterator[None]:
    """Send the message to everyone who connects to `listener`; close it at the end."""
    shut = threading.Event()
    listener.settimeout(0.1)
    greeter = threading.Thread(target=_greet, args=(listener, json.dumps(message).encode() + b"\n", shut), daemon=True)
    greeter.start()
    try:
        yield
    finally:
        shut.set()
        greeter.join()
        listener.close()


def _greet(listener: socket.socket, message: bytes, shut: threading.Event) -> None:
    while not shut.is_set():
        with contextlib.suppress(OSError):  # no one came, or left before the end
            guest, _ = listener.accept()
            with guest:
                guest.settimeout(PATIENCE_S)
                guest.sendall(message)


def _await_others(store: td.TCPStore, size: int, timeout_s: float) -> list[int]:
    """Wait until all ranks have come; return those that have not within the time."""
    for _ in _until(time.monotonic() + timeout_s, longest_pause_s=0.2):
        if store.add("here", 0) >= size:
            return []
    return [rank for rank in range(size) if not store.check([f"rank{rank}"])]


# -- the others -----------------------------------------------------------------------------------------------


def _find_store(place: Place, meeting: Meeting, job: str, timeout: timedelta) -> td.TCPStore:
    """Return the store that rank 0 has opened, after all ranks have come to it."""
    host, port = _find(place, meeting, job, timeout.total_seconds())
    try:
        store = td.TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
        _arrive(store, place.rank, job)
        for _ in _until(time.monotonic() + timeout.total_seconds() + 2 * PATIENCE_S):
            if store.check(["met"]):
                told = store.get("met").decode()
                break
        else:
            told = f"rank {place.rank} waited for the other ranks until dist.timeout_s was over"
    except RuntimeError as error:
        if isinstance(error, LaunchError):
            raise
        raise LaunchError(
            f"rank {place.rank} lost rank 0 at {host} before all ranks had met: see the output of rank 0; if it is "
            f"still running, a firewall lets port {port} through only in part. torch says: {_first_line(error)}"
        ) from error
    if told:
        raise LaunchError(told)
    return store


def _find(place: Place, meeting: Meeting, job: str, timeout_s: float) -> tuple[str, int]:
    """Return the address of the store, from the door; LaunchError as soon as none can be there."""
    where = [(host, port) for host in meeting.hosts for port in meeting.ports]
    answers: list[_Answer] = []
    taken_since: float | None = None
    for _ in _until(time.monotonic() + timeout_s, first_pause_s=0.1):
        began = time.monotonic()
        answers = [_ask(*where[0], job)]
        if not answers[0].store and len(where) > 1:
            with ThreadPoolExecutor(4 * len(meeting.ports)) as pool:
                asked = [pool.submit(_ask, host, port, job) for host, port in where[1:]]
            answers += [one.result() for one in asked]
        found = [answer.store for answer in answers if answer.store]
        if found:
            return found[0]
        if not all(answer.taken for answer in answers):
            taken_since = None
        elif taken_since is None:
            taken_since = began
        elif time.monotonic() - taken_since > PROOF_S:
            raise LaunchError(
                f"rank 0 cannot listen: on {' and '.join(meeting.hosts)} the port(s) {_listed(meeting.ports)} belong "
                f"to other services or jobs, seen by rank {place.rank}; set MASTER_ADDR to rank 0's host and "
                f"MASTER_PORT to a free port there, the same on all ranks"
            )
    said = list(dict.fromkeys(answer.said for answer in answers))
    raise LaunchError(
        f"rank {place.rank} of {place.world_size} (started by {place.launcher}) did not reach rank 0 at "
        f"{_listed(meeting.hosts)}, port(s) {_listed(meeting.ports)}, within {timeout_s:.0f} s (dist.timeout_s): "
        f"{'; '.join(said)}. Check that rank 0 was started, that it runs on this host (srun --distribution=arbitrary "
        f"may put it on another) and that no firewall is between; or set MASTER_ADDR (rank 0's host) and MASTER_PORT"
    )


@dataclass(frozen=True)
class _Answer:
    """What is at a port. store: address of the ranks' store; taken: there is another service; said: in words."""

    said: str
    store: tuple[str, int] | None = None
    taken: bool = False


def _ask(host: str, port: int, job: str) -> _Answer:
    try:
        with socket.create_connection((host, port), PATIENCE_S) as connection:
            message = _message(connection)
            address = _numeric(connection.getpeername())
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        return _Answer(f"{host}: {error}")
    if message.get("ranks") == job and type(message.get("store")) is int:
        return _Answer("found", (address, message["store"]))
    return _Answer(f"{host} has other services or jobs at some of them", taken=True)


def _message(connection: socket.socket) -> dict[str, Any]:
    """Return what a door says, and nothing for another service, which may say anything."""
    received, end = b"", time.monotonic() + PATIENCE_S
    with contextlib.suppress(OSError):
        while len(received) < LONGEST_MESSAGE and not received.endswith(b"\n") and time.monotonic() < end:
            part = connection.recv(LONGEST_MESSAGE)
            if not part:
                break
            received += part
    try:
        message = json.loads(received)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


# -- both -----------------------------------------------------------------------------------------------------


def _arrive(store: td.TCPStore, rank: int, job: str) -> None:
    if store.add(f"rank{rank}", 1) > 1:
        raise LaunchError(
            f"rank {rank} has met the others already ({job}): start each rank once, and set another MASTER_PORT for "
            f"a second job on the same node"
        )
    store.add("here", 1)


def _until(end: float, first_pause_s: float = 0.01, longest_pause_s: float = 1.0) -> Iterator[None]:
    """Yield at once, and then after pauses that grow until the time `end` is over."""
    pause = first_pause_s
    yield
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, longest_pause_s)
        yield


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return shown + (f" and {len(values) - 8} more" if len(values) > 8 else "")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# -- the interface --------------------------------------------------------------------------------------------


def route(store: td.TCPStore) -> tuple[str, str]:
    """Return the address from which this rank reaches the store and that of the store; nothing is sent."""
    for family, kind, _, _, address in socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(address)
            return _numeric(probe.getsockname()), _numeric(probe.getpeername())
    return "", ""


def choose_interface(routes: Sequence[Sequence[str]], rank: int) -> str | None:
    """Let gloo use the interface by which this rank and the others reach each other, and return its name.

    routes: `route` of all ranks. Do nothing if the user has chosen one, if all ranks are on one machine, or if no
    interface has the address (behind an address translation); then return None.
    """
    address = own_address(routes, rank)
    if os.environ.get(INTERFACE) or address is None:
        return None
    name = interface_of(address)
    if name:
        os.environ[INTERFACE] = name  # for the groups that are made later, too
    return name


def own_address(routes: Sequence[Sequence[str]], rank: int) -> str | None:
    """Return the address by which other machines reach this rank; None if all are on one machine, or it is unknown."""
    reached = [remote for local, remote in routes if _between_machines(local, remote)]
    local, remote = routes[rank]
    if not reached or not local:
        return None
    # A rank beside rank 0 reaches it by any of its addresses; the ranks elsewhere know which of them is reached.
    return local if _between_machines(local, remote) else reached[0]


def _between_machines(local: str, remote: str) -> bool:
    return bool(local) and local != remote and not _parsed(local).is_loopback


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has the address; None if none has."""
    if "%" in address:
        return address.partition("%")[2]
    return next((name for name, other in _interfaces() if _parsed(other) == _parsed(address)), None)


def own_addresses() -> list[str]:
    """Return the addresses by which other machines may reach this one."""
    return [address for _, address in _interfaces() if not (_parsed(address).is_loopback or "%" in address)]


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address without its interface, an IPv4 address in the clothes of IPv6 as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _numeric(address: Any) -> str:
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


class _Entry(ctypes.Structure):
    """The beginning of `struct ifaddrs`, the same in all C libraries of Linux."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def _interfaces() -> list[tuple[str, str]]:
    """Return names and addresses of the interfaces of this machine; nothing on another system than Linux."""
    if sys.platform != "linux":
        return []
    library = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        return []
    try:
        return list(_read_interfaces(first))
    finally:
        library.freeifaddrs(first)


def _read_interfaces(entry: Any) -> Iterator[tuple[str, str]]:
    while entry:
        name, address = entry.contents.name.decode(), entry.contents.address
        family = ctypes.c_ushort.from_address(address).value if address else None
        if family == socket.AF_INET:
            yield name, socket.inet_ntop(family, ctypes.string_at(address + 4, 4))
        elif family == socket.AF_INET6:
            found = socket.inet_ntop(family, ctypes.string_at(address + 8, 16))
            yield name, f"{found}%{name}" if _parsed(found).is_link_local else found
        entry = entry.contents.next


# -- errors of the groups -------------------------------------------------------------------------------------


def is_lost(error: BaseException) -> bool:
    """Tell whether it is torch's error for a lost connection between ranks; gloo's has no type of its own."""
    of_ranks = isinstance(error, td.DistError) or (type(error) is RuntimeError and "gloo/transport" in str(error))
    return of_ranks and any(sign in str(error) for sign in LOST)


@contextlib.contextmanager
def connecting(rank: int, backend: str) -> Iterator[None]:
    """Explain the errors of torch inside the `with`, where the ranks connect to each other: raise LaunchError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LaunchError):
            raise
        raise LaunchError(
            f"rank {rank} on {socket.gethostname()} met the other ranks, but cannot connect to them ({backend}). "
            f"{_of_gloo()}. Check that the interface reaches the other nodes (GLOO_SOCKET_IFNAME, for nccl "
            f"NCCL_SOCKET_IFNAME and NCCL_DEBUG=WARN), that no firewall is between (all ports above 1023), and that "
            f"all ranks come within dist.timeout_s. torch says: {_first_line(error)}"
        ) from error


def _of_gloo() -> str:
    if name := os.environ.get(INTERFACE):
        return f"gloo uses the interface {name}"
    try:
        addresses = list(dict.fromkeys(info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)))
    except OSError:
        return "gloo uses the loopback interface, since this host name has no address (see /etc/hosts)"
    return f"gloo uses {_listed(addresses)}, the address of this host name (see /etc/hosts)"
