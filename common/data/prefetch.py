"""Prefetching: threads read samples ahead, and batches are copied to the accelerator while it computes."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from common.data.split import Split
from common.processes import usable_cores
from common.stop import STOP

T = TypeVar("T")
AHEAD: Final = 4
"""Batches that are read ahead of their use."""
IN_USE: Final = 2
"""Batches whose work the device may not have done yet: the host gets no further ahead, which limits their memory."""
Job = tuple[T, Sequence[Callable[[], object]]]
"""A result, and the calls that fill it, in any order or concurrently."""


class Batch(Protocol):
    """A rank's part of a step or an evaluation, which may be empty: a frozen dataclass with tensors.

    They may be in other dataclasses, too. `wait_s` are the seconds that the training loop waited.
    """

    @property
    def wait_s(self) -> float: ...


B = TypeVar("B", bound=Batch)


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """Samples on the device, in the order of `indices`; there may be none. The benchmark says what x and y are.

    indices: int64 (B,). wait_s: seconds that the consumer waited.
    """

    x: Tensor
    y: Tensor
    indices: np.ndarray
    wait_s: float = 0.0


def read_batches(samples: Split, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield a batch on the device for each array of indices, read ahead by threads.

    An error of a sample is raised when its batch is due.
    """

    def list_jobs() -> Iterator[Job[TensorBatch]]:
        for batch_indices in indices:
            x, y = samples.buffer(len(batch_indices), pinned=device.type != "cpu")
            targets = zip(batch_indices.tolist(), x.numpy(), y.numpy(), strict=True)
            yield TensorBatch(x, y, batch_indices), [partial(samples.load, i, tuple(arrays)) for i, *arrays in targets]

    with closing(in_order(list_jobs(), reading_threads(samples.config.workers, device), AHEAD)) as ready:
        yield from carry_batches(ready, device)


def carry_batches(ready: Iterator[B], device: torch.device) -> Iterator[B]:
    """Yield batches on the device; on an accelerator the next one is copied on a separate stream meanwhile.

    ready: yields filled batches; those for an accelerator are in pinned memory, which is not written again.
    """
    yield from time_batches(ready) if device.type == "cpu" else _send_batches(time_batches(ready), device)


def time_batches(ready: Iterator[B]) -> Iterator[B]:
    """Yield batches with the seconds spent waiting for each."""
    while True:
        begin = time.perf_counter()
        if (batch := next(ready, None)) is None:
            return
        STOP.check()
        yield replace(batch, wait_s=time.perf_counter() - begin)  # type: ignore[type-var]  # a dataclass, by contract


def _send_batches(batches: Iterator[B], device: torch.device) -> Iterator[B]:
    """Yield the batches on an accelerator."""
    side = side_stream(device)
    in_use: deque[torch.Event] = deque()
    previous: tuple[B, torch.Event] | None = None

    def hand_over(batch: B, copied: torch.Event) -> Iterator[B]:
        """Yield the batch, safe to use on the current stream, which waits for the copy; the host does not."""
        current = torch.accelerator.current_stream(device)
        current.wait_event(copied)
        yield map_tensors(batch, partial(_keep_memory, stream=current))
        in_use.append(current.record_event())
        if len(in_use) > IN_USE:
            in_use.popleft().synchronize()

    for batch in batches:
        with side:
            # PyTorch does not reuse pinned memory, here of a batch that goes out of scope, before the copy is done.
            sent = map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
            copied = side.record_event()
        if previous is not None:
            yield from hand_over(*previous)
        previous = sent, copied
    if previous is not None:
        yield from hand_over(*previous)


def _keep_memory(tensor: Tensor, stream: torch.Stream) -> Tensor:
    """Keep the memory of a tensor, which belongs to the side stream, until the work of another stream is done."""
    tensor.record_stream(stream)
    return tensor


@cache
def side_stream(device: torch.device) -> torch.Stream:
    """Return the stream for copies to a device, always the same: freed memory is kept for the stream that had it."""
    return torch.Stream(device)


def map_tensors(value: T, function: Callable[[Tensor], Any]) -> T:
    """Return a value with a function applied to each tensor in it, also in nested dataclasses and tuples, in order."""
    changed: Any = value
    if isinstance(value, Tensor):
        changed = function(value)
    elif isinstance(value, tuple):
        changed = tuple(map_tensors(part, function) for part in value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: map_tensors(getattr(value, field.name), function) for field in fields(value)}
        changed = replace(value, **parts)
    return changed


def list_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dataclasses and tuples, in order."""
    return (tensor for _, tensor in name_tensors(value))


def name_tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors as `list_tensors`, each with the name of its field; `name` if it has none."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for part in value:
            yield from name_tensors(part, name)
    elif is_dataclass(value):
        for field in fields(value):
            yield from name_tensors(getattr(value, field.name), field.name)


def sum_flaws(batch: Any) -> Tensor | float:
    """Return 0 for a batch of finite numbers, otherwise NaN, also if the sum of a tensor is beyond float32.

    The device adds it to what the host reads anyhow, such as the sum of the losses.
    """
    parts = (part for part in list_tensors(batch) if part.is_floating_point())
    return 0.0 * sum(part.sum(dtype=torch.promote_types(part.dtype, torch.float32)) for part in parts)


def reading_threads(workers: int | None, device: torch.device) -> int:
    """Return the number of threads that read: `workers`, or where it is None a number for this device and its cores.

    An accelerator's work takes a core or two: one launches it, one runs backward passes. On a CPU training needs all of
    them, and a few threads are enough to overlap it with waiting for files. More than 16 were not measured; where the
    launcher binds no rank to cores of its own, all would have as many threads as the node has cores.
    """
    if workers is not None:
        return workers
    cores = usable_cores()
    return max(2, min(4, cores) if device.type == "cpu" else min(16, cores - 2))


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


def send_values(values: np.ndarray, device: torch.device) -> Tensor:
    """Return the values as a tensor on the device; neither the host nor the device waits for the other."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
