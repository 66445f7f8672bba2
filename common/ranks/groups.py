"""The process groups of torch: their connections, how they begin and end, and what their errors mean."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as td

from common.errors import LaunchError
from common.network import cut_connections
from common.ranks.meeting import INTERFACE, first_line


def check_open_files(rank: int, world_size: int, connected: bool) -> None:
    """Let this process have as many open files as the system allows; LaunchError if the ranks need more.

    Rank 0 has two connections of each rank to the store. connected: all have one to each other.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    needed = 200  # beside these connections a rank had 120 open files
    needed += world_size * ((2 if rank == 0 else 0) + connected)
    if most < needed:
        raise LaunchError(
            f"rank {rank} on {socket.gethostname()} needs about {needed:,} open files for {world_size:,} ranks, but "
            f"the limit is {most:,}: raise it (ulimit -Hn, nofile in limits.conf, LimitNOFILE of slurmd)"
        )


LOST: Final = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Broken pipe",
    "Connection was likely closed",
    "remote process exited",
    "does not answer",
)
"""What torch says when another process has ended without a word: gloo, the ranks' store, NCCL, and `call_within`."""


def begin_group(rank: int, world_size: int, store: Any, device: torch.device, timeout: timedelta) -> Any:
    """Connect the ranks that find each other in the store, and return their group, which is torch's default one."""
    # NCCL: before its watchdog ends a process whose collective came too late, it writes what each rank was in.
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    backend = td.get_default_backend_for_device(device.type)
    td.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
    if device.type != "cpu":
        td.all_reduce(torch.zeros(1, device=device))  # connect now, where the error is explained
    return td.group.WORLD


def leave_group(group: Any = None) -> None:
    """End a group of torch, by default that of all ranks, if there is one; its connections may be cut.

    Nothing else may hold it at last, such as a network that was wrapped for several ranks: that would hold Python's
    lock while it waits for the threads of the group to end, and they may need the lock to free the last tensor.
    """
    if not td.is_initialized():
        return
    last = td.group.WORLD if group is None else group
    td.destroy_process_group(group)
    gc.collect()
    del last


def end_collectives(former: set[tuple[int, int]], store_port: int) -> None:
    """End what this process waits for in its groups. former: its `open_sockets` from before them."""
    # gloo has no other way to end an all_reduce that waits for a rank: it still waits after `abort` (torch 2.13).
    cut_connections(former, store_port)
    with contextlib.suppress(RuntimeError):  # some backends have no `abort`
        if td.is_initialized() and td.get_backend() != "gloo":
            td.group.WORLD.abort()


def is_lost(error: BaseException) -> bool:
    """Tell whether it is torch's error for a lost connection between ranks; gloo's has no type of its own."""
    return _is_of_ranks(error) and any(sign in str(error) for sign in LOST)


def is_late(error: BaseException) -> bool:
    """Tell whether it is torch's error for a collective in which this rank waited too long for another."""
    return _is_of_ranks(error) and ("imed out" in str(error) or "timeout" in str(error))


def _is_of_ranks(error: BaseException) -> bool:
    return isinstance(error, td.DistError) or (type(error) is RuntimeError and "gloo/transport" in str(error))


@contextlib.contextmanager
def explain_connecting(rank: int, device: torch.device) -> Iterator[None]:
    """Explain the errors of torch inside the `with`, where the ranks connect to each other: raise LaunchError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LaunchError):
            raise
        interface = os.environ.get(INTERFACE) or "of the address of this host name, see /etc/hosts"
        raise LaunchError(
            f"rank {rank} on {socket.gethostname()} met the other ranks, but cannot connect to them "
            f"({td.get_default_backend_for_device(device.type)}). gloo uses the interface {interface}. Check that it "
            f"reaches the other nodes (GLOO_SOCKET_IFNAME, for nccl NCCL_SOCKET_IFNAME and NCCL_DEBUG=WARN), that no "
            f"firewall is between (all ports above 1023), and that all ranks come within dist.timeout_s. torch says: "
            f"{first_line(error)}"
        ) from error
