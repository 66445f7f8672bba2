"""The control plane: how ranks exchange what is in main memory, such as facts, requests to stop, and small JSON.

Gloo connects all ranks of a group with each other, and what these tell each other before grows with the cube of their
number. So no group has more than FAN_OUT ranks. The ranks of a node form groups, then the first ranks of these, until
one leads the node; then the leaders of the nodes do likewise. Messages go up to rank 0 and down again, and no rank has
more than some dozens of connections. The ranks of a group meet in a store of its first rank; the store of the job only
tells them where that is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import torch
import torch.distributed as td
from torch import Tensor

from common.errors import LaunchError
from common.ranks.meeting import INTERFACE, Seat, call_within, connect_to_store, seat_ranks, serve_store

LONGEST: Final = 2**32
"""Bytes of a message, such as the list of the files to be staged, or a batch of predictions."""

Operation = Literal["sum", "max", "min"]
OPERATIONS: Final = {"sum": td.ReduceOp.SUM, "max": td.ReduceOp.MAX, "min": td.ReduceOp.MIN}


class Rendezvous(NamedTuple):
    """How a rank meets others. store: of them all. seats: its own. address: where others reach its process."""

    store: Any
    seats: Sequence[Seat]
    address: str


class ControlPlane:
    """The groups of a rank. All calls are collective, and take tensors in main memory."""

    def __init__(self, rank: int, rendezvous: Rendezvous, timeout: timedelta) -> None:
        """Connect the ranks; RuntimeError if one does not come in time."""
        self.rank, self.rendezvous = rank, rendezvous
        store, seats, address = rendezvous
        self._groups: list[Any] = []
        if not seats:
            return
        gloo, interface, seconds = td.ProcessGroupGloo, os.environ.get(INTERFACE), timeout.total_seconds()
        options = gloo._Options()
        options._timeout = timeout
        # One for all groups, since each looks up the name of this host.
        options._devices = [gloo.create_device(interface=interface) if interface else gloo.create_default_device()]
        own = None if seats[0].number else serve_store(0, seconds)
        if own:
            store.set(f"plane/{rank}", f"{own.port} {address}")
        for seat in seats:
            server = own
            if seat.number:
                port, host = call_within(seconds, partial(store.get, f"plane/{seat.leader}")).decode().split()
                server = connect_to_store(host, int(port), seconds)
            meeting = td.PrefixStore(f"{seat.level}/{seat.leader}", server)
            self._groups.append(call_within(seconds, partial(gloo, meeting, seat.number, seat.size, options)))

    def form_part(self, rank: int, nodes: Sequence[int], name: str, timeout: timedelta) -> ControlPlane:
        """Return the plane of some of the ranks, of which this one has the number `rank`. nodes: of each of these."""
        store = td.PrefixStore(name, self.rendezvous.store)
        return ControlPlane(rank, self.rendezvous._replace(store=store, seats=seat_ranks(nodes)[rank]), timeout)

    def all_reduce(self, tensor: Tensor, operation: Operation) -> None:
        """Reduce a tensor element-wise over all ranks, in place."""
        for group in self._groups:
            group.reduce(tensor, 0, OPERATIONS[operation]).wait()
        self.broadcast(tensor)

    def broadcast(self, tensor: Tensor, src: int = 0) -> None:
        """Copy rank `src`'s values to all ranks; each receives them once."""
        senders = [0] * len(self._groups)
        has_values = self.rank == src
        if src:
            # Up from it to rank 0. Who sends in a group is known only there: no rank has a list of all ranks.
            for level, group in enumerate(self._groups):
                sender = torch.tensor(group.rank() + 1 if has_values else 0)
                group.allreduce(sender, td.ReduceOp.MAX).wait()
                if sender:
                    group.broadcast(tensor, int(sender) - 1).wait()
                    senders[level], has_values = -1, True
        for group, sender in zip(reversed(self._groups), reversed(senders), strict=True):
            if sender == 0:
                group.broadcast(tensor, 0).wait()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order and as JSON has them, on rank 0, and nothing on the others."""
        content = format_json([[self.rank, value]])
        for group in self._groups:
            size = torch.tensor(len(content))
            group.allreduce(size, td.ReduceOp.MAX).wait()
            packed = pack_bytes(content, int(size), group.size())
            received = [] if group.rank() else [torch.empty_like(packed) for _ in range(group.size())]
            group.gather(received, packed, 0).wait()
            content = format_json([row for part in received for row in parse_json(part.numpy().tobytes())])
        return [value for _, value in sorted(parse_json(content), key=lambda row: row[0])] if self.rank == 0 else []

    def close(self) -> None:
        """Leave the groups."""
        self._groups.clear()


def format_json(value: Any) -> bytes:
    """Return a value as JSON; NaN and infinity are written as Python has them."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse_json(content: bytes) -> Any:
    """Return the value in JSON that a rank sent, padded by blanks; LaunchError for anything else."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"a rank sent what is not JSON ({error}): is this port open to others?") from None


def pack_bytes(content: bytes, size: int, ranks: int = 1) -> Tensor:
    """Return bytes as a tensor, with blanks up to `size`, which may be 0; LaunchError for too many of all ranks."""
    if not 0 <= size * ranks <= LONGEST:
        raise LaunchError(f"the ranks announce a message of {size * ranks:,} bytes, expected at most {LONGEST:,}")
    return torch.frombuffer(bytearray(content.ljust(max(size, 1))), dtype=torch.uint8)[:size]
