"""Prefetching: threads read samples ahead, and batches are copied to the accelerator while it computes."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from common.data.ring import Copies, Fresh, Ring, Slot, side_stream
from common.data.split import Split
from common.processes import usable_cores

T = TypeVar("T")
B = TypeVar("B")
M = TypeVar("M", bound="Movable")
AHEAD: Final = 4
"""Batches that are read ahead of their use."""
Job = tuple[T, Sequence[Callable[[], object]]]
"""A result, and the calls that fill it, in any order or concurrently."""


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """Samples on the device, in the order of `indices`; there may be none. The benchmark says what x and y are.

    indices: int64 (B,). wait_s: seconds that the consumer waited.
    """

    x: Tensor
    y: Tensor
    indices: np.ndarray
    wait_s: float


class Movable(Protocol):
    """A tensor, or something that consists of tensors."""

    def to(self, device: torch.device, *, non_blocking: bool) -> Self: ...

    def record_stream(self, stream: torch.Stream) -> None: ...


def time_batches(source: Generator[tuple[Any, ...]], batch: Callable[..., B]) -> Generator[B]:
    """Yield batches made of what `source` yields and the seconds spent waiting for it.

    The source is closed when the iteration ends, however it ends.
    """
    with closing(source):
        while True:
            begin = time.perf_counter()
            read = next(source, None)
            if read is None:
                return
            yield batch(*read, time.perf_counter() - begin)


def read_batches(samples: Split, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield a batch on the device for each array of indices, read ahead by threads.

    On an accelerator a batch is valid until the consumer asks for the next: its memory is used again, see `ring`.
    An error of a sample is raised when its batch is due.
    """
    on_cpu = device.type == "cpu"
    allocate = partial(samples.buffer, pinned=not on_cpu)
    memory = Fresh(allocate) if on_cpu else Ring(allocate, AHEAD, Copies(device))

    def list_jobs() -> Iterator[Job[tuple[Slot, np.ndarray]]]:
        for batch_indices in indices:
            slot = memory.take_slot(len(batch_indices))
            targets = zip(batch_indices, *(tensor.numpy() for tensor in slot.tensors), strict=True)
            yield (slot, batch_indices), [partial(samples.load, int(i), tuple(arrays)) for i, *arrays in targets]

    with (
        closing(in_order(list_jobs(), reading_threads(samples.config.workers, device), AHEAD)) as ready,
        closing(memory.carry_batches(ready)) as batches,
    ):
        for (x, y), batch_indices, wait_s in batches:
            yield TensorBatch(x, y, batch_indices, wait_s)


def reading_threads(workers: int | None, device: torch.device) -> int:
    """Return the number of threads that read: `workers`, or where it is None a number for this device and its cores.

    An accelerator's work takes a core or two: one launches it, one runs backward passes. On a CPU training needs all of
    them, and a few threads are enough to overlap it with waiting for files.
    """
    if workers is not None:
        return workers
    cores = usable_cores()
    return max(2, min(4, cores) if device.type == "cpu" else cores - 2)


def in_order(jobs: Iterable[Job[T]], workers: int, ahead: int) -> Generator[T]:
    """Yield the result of each job once its calls have returned; meanwhile threads work on the next `ahead` jobs.

    An error of a call is raised here, in order. However the iteration ends, no thread is left afterwards.
    """
    jobs = iter(jobs)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prefetch")
    pending: deque[tuple[T, list[Future[object]]]] = deque()

    def submit_jobs(count: int) -> None:
        for result, calls in itertools.islice(jobs, count):
            pending.append((result, [pool.submit(call) for call in calls]))

    try:
        submit_jobs(ahead)
        while pending:
            result, futures = pending.popleft()
            for future in futures:
                future.result()
            submit_jobs(1)
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def on_device(batches: Iterator[Sequence[M]], device: torch.device) -> Generator[tuple[M, ...]]:
    """Yield batches of tensors on the device; the next batch is copied on a separate stream meanwhile.

    The batches should be in pinned memory that is not written again. On a CPU they are passed on unchanged.
    """
    if device.type == "cpu":
        yield from map(tuple, batches)
        return
    side = side_stream(device)
    previous: tuple[tuple[M, ...], torch.Event] | None = None
    for batch in batches:
        with side:
            # PyTorch does not reuse pinned memory, here of a batch that goes out of scope, before the copy is done.
            tensors = tuple(tensor.to(device, non_blocking=True) for tensor in batch)
            event = side.record_event()
        if previous is not None:
            yield _await_copy(*previous)
        previous = tensors, event
    if previous is not None:
        yield _await_copy(*previous)


def _await_copy(tensors: tuple[M, ...], event: torch.Event) -> tuple[M, ...]:
    """Return the tensors, safe to use on the current stream, which waits for the copy; the host does not."""
    current = torch.accelerator.current_stream()
    current.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(current)  # its memory belongs to the side stream
    return tensors


def send_values(values: np.ndarray, device: torch.device) -> Tensor:
    """Return the values as a tensor on the device; neither the host nor the device waits for the other."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
