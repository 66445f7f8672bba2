"""Batches on their way to an accelerator, through memory that is allocated once and used in turn.

    readers ──> host slots (pinned) ──copy, on a stream of its own──> device slots ──> the consumer's stream

A slot has an event after which it may be written again: for a host slot the end of its copy, for a device slot the end
of the consumer's work on its batch. So a batch is the consumer's until it asks for the next one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

DEVICE_SLOTS: Final = 3
"""For the batch in use, the next one on its way, and the last one, whose work the device may not have done."""

Tensors = tuple[Tensor, ...]


class Slot:
    """Memory for a batch.

    tensors: the part of it that the current batch takes. free: when it may be written again; None: now.
    """

    def __init__(self) -> None:
        self._memory: Tensors = ()
        self.tensors: Tensors = ()
        self.free: torch.Event | None = None

    def take_memory(self, count: int, allocate: Callable[[int], Tensors]) -> bool:
        """Set `tensors` for `count` samples; return whether memory was allocated, for more than ever before."""
        grows = not self._memory or len(self._memory[0]) < count
        if grows:
            self._memory = allocate(count)
        self.tensors = tuple(tensor[:count] for tensor in self._memory)
        return grows


class Arrived(NamedTuple):
    """A batch that was read: its tensors, the indices of its samples, and the seconds of waiting for the readers."""

    tensors: Tensors
    indices: np.ndarray
    wait_s: float


class Copies:
    """Copies to a device, on a stream beside the consumer's, which is the current one at each call."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._side = side_stream(device)

    def allocate_like(self, count: int, like: Tensors) -> Tensors:
        """Return memory on the device for `count` samples."""
        return tuple(torch.empty((count, *tensor.shape[1:]), dtype=tensor.dtype, device=self.device) for tensor in like)

    def start_copy(self, sources: Tensors, targets: Tensors, free: torch.Event) -> torch.Event:
        """Copy as soon as `free` has happened; return the event of the end."""
        self._side.wait_event(free)
        with self._side:
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source, non_blocking=True)
        copied: torch.Event = self._side.record_event()
        return copied

    def await_copy(self, copied: torch.Event) -> None:
        """Let the consumer's stream, not the host, wait for the end of a copy."""
        torch.accelerator.current_stream(self.device).wait_event(copied)

    def record_use(self) -> torch.Event:
        """Return the event at which the consumer's stream has done all its work so far."""
        done: torch.Event = torch.accelerator.current_stream(self.device).record_event()
        return done

    def await_copies(self) -> None:
        """Keep the device's memory from other uses until the copies that were started are done."""
        self.await_copy(self._side.record_event())


@cache
def side_stream(device: torch.device) -> torch.Stream:
    """Return the stream for copies to a device, always the same: freed memory is kept for the stream that had it."""
    return torch.Stream(device)


class Fresh:
    """Memory for batches on a CPU: each has its own, which the consumer may keep.

    allocate: returns the memory for a number of samples.
    """

    def __init__(self, allocate: Callable[[int], Tensors]) -> None:
        self._allocate = allocate

    def take_slot(self, count: int) -> Slot:
        """Return a slot to be written."""
        slot = Slot()
        slot.take_memory(count, self._allocate)
        return slot

    def carry_batches(self, ready: Iterator[tuple[Slot, np.ndarray]]) -> Generator[Arrived]:
        """Yield the batches that the readers have filled."""
        for slot, indices, wait_s in _time_waiting(ready):
            yield Arrived(slot.tensors, indices, wait_s)


class Ring(Fresh):
    """Memory for the batches of one pass, on the host and on a device. ahead: batches that are read ahead."""

    def __init__(self, allocate: Callable[[int], Tensors], ahead: int, copies: Copies) -> None:
        super().__init__(allocate)
        self._copies = copies
        # Beside the batches that are read ahead: the batch in use, and the batch on its way.
        self._host = [Slot() for _ in range(ahead + 2)]
        self._device = itertools.cycle([Slot() for _ in range(DEVICE_SLOTS)])
        self._next = 0

    def take_slot(self, count: int) -> Slot:
        """Return the next host slot, once it is free."""
        self._await_free_slot()
        slot = self._host[self._next]
        self._next = (self._next + 1) % len(self._host)
        slot.take_memory(count, self._allocate)
        return slot

    def carry_batches(self, ready: Iterator[tuple[Slot, np.ndarray]]) -> Generator[Arrived]:
        """Yield the batches on the device; the next one is on its way meanwhile."""
        previous: tuple[Slot, torch.Event, Arrived] | None = None
        try:
            for source, indices, wait_s in _time_waiting(ready, self._await_free_slot):
                target, arrived = self._start_copy(source)
                if previous is not None:
                    yield from self._hand_over(*previous)
                previous = target, arrived, Arrived(target.tensors, indices, wait_s)
            if previous is not None:
                yield from self._hand_over(*previous)
        finally:
            self._copies.await_copies()

    def _await_free_slot(self) -> None:
        """Wait until the next host slot is free: for the device, if the host is far ahead of it."""
        if (free := self._host[self._next].free) is not None:
            free.synchronize()

    def _start_copy(self, source: Slot) -> tuple[Slot, torch.Event]:
        """Start the copy of a batch; return its device slot and the event of its arrival."""
        target, tensors = next(self._device), source.tensors
        grown = target.take_memory(len(tensors[0]), lambda count: self._copies.allocate_like(count, tensors))
        if grown or target.free is None:  # the consumer's stream may have given this memory back a moment ago
            target.free = self._copies.record_use()
        source.free = self._copies.start_copy(tensors, target.tensors, target.free)
        return target, source.free

    def _hand_over(self, slot: Slot, arrived: torch.Event, batch: Arrived) -> Generator[Arrived]:
        self._copies.await_copy(arrived)
        yield batch
        slot.free = self._copies.record_use()


def _time_waiting(
    ready: Iterator[tuple[Slot, np.ndarray]], before: Callable[[], None] = lambda: None
) -> Iterator[tuple[Slot, np.ndarray, float]]:
    """Yield what the readers have filled, with the seconds of waiting for them.

    before: waits for anything else, so that this is not counted.
    """
    while True:
        before()
        begin = time.perf_counter()
        if (batch := next(ready, None)) is None:
            return
        yield *batch, time.perf_counter() - begin
