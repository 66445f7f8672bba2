"""The connections of this process: how many the system allows, and the end of those that a call of torch waits on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
from typing import NamedTuple

from common.ranks.launch import LaunchError


def check_open_files(rank: int, world_size: int, lazy: bool) -> None:
    """Let this process have as many open files as the system allows; LaunchError if the ranks need more.

    Rank 0 has two connections of each rank to the store, and all have one to each other by gloo; lazy: few have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**20 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    # Beside its connections a rank had 40 open files.
    needed = 100 + (3 * world_size if rank == 0 else 0 if lazy else world_size)
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise LaunchError(
            f"rank {rank} on {socket.gethostname()} needs about {needed:,} open files for {world_size:,} ranks, but "
            f"the limit is {soft:,}: raise it (ulimit -Hn, nofile in limits.conf, LimitNOFILE of slurmd)"
        )


class OpenSocket(NamedTuple):
    """A socket of this process. inode: tells it from a later one with the same file descriptor."""

    descriptor: int
    inode: int


def open_sockets() -> set[OpenSocket]:
    """Return the sockets of this process."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add(OpenSocket(int(name), status.st_ino))
    return found


def cut_connections(former: set[OpenSocket], store_port: int) -> None:
    """Shut the TCP connections that this process opened after `former`, except those to the ranks' store."""
    for number, _ in open_sockets() - former:
        with contextlib.suppress(OSError):
            connection = socket.socket(fileno=number)
            try:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                    connection.shutdown(socket.SHUT_RDWR)
            finally:
                connection.detach()
