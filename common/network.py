"""The network of this machine and the connections of this process."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from typing import Any


def find_interface(address: str) -> str | None:
    """Return the name of the interface that has the address; None if none has."""
    if "%" in address:
        return address.partition("%")[2]
    return next((name for name, other in _list_addresses() if parse_address(other) == parse_address(address)), None)


def own_addresses() -> list[str]:
    """Return the addresses by which other machines may reach this one."""
    return [address for _, address in _list_addresses() if not (parse_address(address).is_loopback or "%" in address)]


def _list_addresses() -> list[tuple[str, str]]:
    """Return the interfaces of this machine, each with an address of it."""
    import psutil  # few runs need it

    families = (socket.AF_INET, socket.AF_INET6)
    by_name = psutil.net_if_addrs().items()
    return [(name, entry.address) for name, entries in by_name for entry in entries if entry.family in families]


def parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address without its interface, an IPv4 address in the clothes of IPv6 as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def find_route(host: str, port: int) -> tuple[str, str]:
    """Return the address from which this machine reaches a port and that of its host; nothing is sent."""
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(address)
            return _format_address(probe.getsockname()), _format_address(probe.getpeername())
    return "", ""


def _format_address(address: Any) -> str:
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


def find_loopback() -> str:
    """Return the address by which this machine reaches itself, that of IPv6 where it has no other."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 0)):
        return "127.0.0.1"
    return "::1"


def open_sockets() -> set[tuple[int, int]]:
    """Return the sockets of this process: file descriptors, and inodes, which tell them from later sockets."""
    sockets = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                sockets.add((int(name), status.st_ino))
    return sockets


def cut_connections(former: set[tuple[int, int]], store_port: int) -> None:
    """Shut the TCP connections that this process opened after `former`, except those to the ranks' store."""
    for number, _ in open_sockets() - former:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            internet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if internet and store_port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)  # of the original, too
