"""The connections of this process: how many the system allows, and the end of those that a call of torch waits on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat

from common.ranks.launch import LaunchError


def check_open_files(rank: int, world_size: int, lazy: bool) -> None:
    """Let this process have as many open files as the system allows; LaunchError if the ranks need more.

    Rank 0 has two connections of each rank to the store, and all have one to each other by gloo; lazy: few have.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # Beside its connections a rank had 40 open files.
    needed = 100 + (3 * world_size if rank == 0 else 0 if lazy else world_size)
    if most < needed:
        raise LaunchError(
            f"rank {rank} on {socket.gethostname()} needs about {needed:,} open files for {world_size:,} ranks, but "
            f"the limit is {most:,}: raise it (ulimit -Hn, nofile in limits.conf, LimitNOFILE of slurmd)"
        )


def open_sockets() -> set[tuple[int, int]]:
    """Return the sockets of this process: file descriptors, and inodes, which tell them from later sockets."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def cut_connections(former: set[tuple[int, int]], store_port: int) -> None:
    """Shut the TCP connections that this process opened after `former`, except those to the ranks' store."""
    for number, _ in open_sockets() - former:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            internet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if internet and store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)  # of the original, too
