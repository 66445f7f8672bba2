"""The connections of a process."""

import socket

import pytest

pytest.importorskip("torch")

from common.network import cut_connections, open_sockets


def test_what_is_not_of_the_network_stays_and_hides_no_connection():
    """A tracker, NCCL and worker processes have sockets of the system, which have no port."""
    former = open_sockets()
    with socket.create_server(("localhost", 0)) as server:
        pairs = [socket.socketpair() for _ in range(8)]
        with socket.create_connection(server.getsockname()) as ours, server.accept()[0] as theirs:
            cut_connections(former, 1)
            assert (ours.recv(1), theirs.recv(1)) == (b"", b"")
        for here, there in pairs:
            here.sendall(b"x")
            assert there.recv(1) == b"x"
            here.close()
            there.close()
