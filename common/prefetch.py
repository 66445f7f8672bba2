"""Work that is done ahead of its use: samples read by threads, batches copied to the accelerator beside its work."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Job = tuple[T, Sequence[Callable[[], object]]]
"""A result, and the calls that fill it, in any order and at the same time."""


def in_order(jobs: Iterable[Job[T]], workers: int, ahead: int) -> Generator[T]:
    """Yield the result of each job when its calls have returned; meanwhile threads work on the next `ahead` jobs.

    What a call raises is raised here, in its turn. However the iteration ends, no thread is left when it has ended.
    """
    jobs = iter(jobs)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prefetch")
    pending: deque[tuple[T, list[Future[object]]]] = deque()

    def start(count: int) -> None:
        for result, calls in itertools.islice(jobs, count):
            pending.append((result, [pool.submit(call) for call in calls]))

    try:
        start(ahead)
        while pending:
            result, futures = pending.popleft()
            for future in futures:
                future.result()
            start(1)
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def on_device(batches: Iterator[Sequence[Tensor]], device: torch.device) -> Generator[tuple[Tensor, ...]]:
    """Yield the tensors on the device; the next batch is copied on a stream of its own beside the work on this one.

    The batches should lie in pinned memory that nobody writes to again. On a CPU they are passed on as they are.
    """
    if device.type == "cpu":
        yield from map(tuple, batches)
        return
    side = torch.Stream(device)
    waiting: tuple[tuple[Tensor, ...], torch.Event] | None = None
    for batch in batches:
        with side:
            # PyTorch does not reuse pinned memory, here of a batch that goes out of scope, before the copy is done.
            copied = tuple(tensor.to(device, non_blocking=True) for tensor in batch)
            event = side.record_event()
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = copied, event
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(tensors: tuple[Tensor, ...], event: torch.Event) -> tuple[Tensor, ...]:
    """The tensors, safe to use on the current stream, whose work waits for the copy; the host does not."""
    current = torch.accelerator.current_stream()
    current.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(current)  # its memory belongs to the side stream
    return tensors
