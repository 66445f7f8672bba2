"""The use of resources by training steps: time by its kind, bytes read and reduced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from common.ranks.dist import Dist

READS: Final = Path("/proc/self/io")


class Span(NamedTuple):
    """A time on a device between two stamps, which are seconds or, of an accelerator, events."""

    begin: Any
    end: Any

    @property
    def seconds(self) -> float:
        """How long it took; the device has finished its work."""
        if isinstance(self.begin, float):
            return float(self.end - self.begin)
        return float(self.begin.elapsed_time(self.end)) / 1000


def take_stamp(device: torch.device) -> Any:
    """Return the time now: in seconds, or as an event that the device will reach."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event


class Traffic:
    """Measures the messages of a step. A rank's communication is hidden until its last message is ready to be sent.

    Untested on accelerators, where the stamps are events of the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ready: Any = None
        self._done: Any = None
        self._bytes = 0
        self.own_s = 0.0
        """CPU time in these methods."""

    def begin_message(self, message: Tensor) -> None:
        """Note that a message is ready to be sent."""
        begin = time.thread_time()
        self._ready = take_stamp(self._device)
        self._bytes += message.nbytes
        self.own_s += time.thread_time() - begin

    def end_message(self) -> None:
        """Note that a message has arrived everywhere; messages end in the order in which they began."""
        begin = time.thread_time()
        self._done = take_stamp(self._device)
        self.own_s += time.thread_time() - begin

    def take_counts(self) -> tuple[Span, int]:
        """Return the exposed time and the bytes since the last call."""
        exposed, sent = Span(self._ready, self._done), self._bytes
        self._ready, self._done, self._bytes = None, None, 0
        return (exposed if exposed.begin is not None else Span(0.0, 0.0)), sent


class StepUse(NamedTuple):
    """A step of a rank. communicating_s: for gradients, while there was nothing else to do."""

    seconds: float
    waiting_s: float
    communicating_s: float
    bytes_reduced: int


class RankUse(NamedTuple):
    """The steps of a rank. read: bytes from files and from devices. own_s: CPU time of the meter, part of cpu_s."""

    steps: Sequence[StepUse]
    read: tuple[int, int] | None
    cpu_s: float
    own_s: float


class Meter:
    """Measures the steps of this rank. Make it before the `Step`, whose messages it counts."""

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        dist.traffic = self._traffic = Traffic(dist.device)
        # Of each step, which an accelerator may not have finished: all of it, seconds waited, messages, their bytes.
        self._steps: list[tuple[Span, float, Span, int]] = []
        self._own_s = 0.0
        self.clear_steps()

    def clear_steps(self) -> None:
        """Forget the steps so far."""
        self._steps.clear()
        self._own_s = self._traffic.own_s = 0.0
        self._traffic.take_counts()
        self._cpu_s = time.process_time()
        self._reads = process_reads()

    def run_step(self, step: Callable[[], float]) -> None:
        """Make a step, which returns the seconds that it waited for data. An accelerator is not waited for."""
        begin_stamp = take_stamp(self.dist.device)
        waited_s = step()
        end_stamp = take_stamp(self.dist.device)
        own_begin_s = time.thread_time()
        self._steps.append((Span(begin_stamp, end_stamp), waited_s, *self._traffic.take_counts()))
        self._own_s += time.thread_time() - own_begin_s

    def last_s(self) -> float:
        """Return how long the last step took, in seconds, once the accelerator has finished it."""
        self._finish_steps()
        return self._steps[-1][0].seconds

    def gather_use(self) -> tuple[list[float], dict[str, Any]]:
        """Return what the steps of all ranks used, see `combine_ranks`. A collective call."""
        self._finish_steps()
        cpu_s = time.process_time() - self._cpu_s
        own_s = self._own_s + self._traffic.own_s
        steps = [StepUse(span.seconds, wait_s, sent.seconds, size) for span, wait_s, sent, size in self._steps]
        before, now = self._reads, process_reads()
        read = before and now and (now.files - before.files - before.asking, now.devices - before.devices)
        ranks = self.dist.gather_json([steps, read, cpu_s, own_s])
        uses = [RankUse([StepUse(*step) for step in steps], read, cpu_s, own_s) for steps, read, cpu_s, own_s in ranks]
        times, use = self.dist.broadcast_json(combine_ranks(uses) if uses else None)
        return times, use

    def _finish_steps(self) -> None:
        if self.dist.device.type != "cpu":
            torch.accelerator.synchronize(self.dist.device)


def combine_ranks(ranks: Sequence[RankUse]) -> tuple[list[float], dict[str, Any]]:
    """Return the seconds of each step on its slowest rank, and fields of `common.measure.fom.Measurement`.

    In the median: waiting_ms: for data, on the rank that waits most. communicating_ms: on the rank that spends least on
    it, since the others wait for that one, too. computing_ms: all that is left. wait_share: part of all time, on the
    rank that waits most.
    In the mean: bytes_read_per_step: from files, by all ranks; None where the system does not tell.
    stored_bytes_per_step: the part of them that came from a device rather than from the kernel's cache.
    bytes_reduced_per_step: gradients of a rank, in the format in which they are sent. cpu_ms_per_step: CPU time of all
    ranks. meter_cpu_share: CPU time of the meter by that of the process.
    """
    steps = list(zip(*(rank.steps for rank in ranks), strict=True))
    times = [max(use.seconds for use in step) for step in steps]
    waiting = [max(use.waiting_s for use in step) for step in steps]
    communicating = [min(use.communicating_s for use in step) for step in steps]
    parts = zip(times, waiting, communicating, strict=True)
    bytes_read = [sum(column) / len(steps) for column in zip(*(rank.read for rank in ranks if rank.read), strict=True)]
    return times, {
        "waiting_ms": 1000 * median(waiting),
        "communicating_ms": 1000 * median(communicating),
        "computing_ms": 1000 * median(max(0.0, total - wait - sent) for total, wait, sent in parts),
        "wait_share": max(sum(s.waiting_s for s in rank.steps) / sum(s.seconds for s in rank.steps) for rank in ranks),
        "bytes_read_per_step": bytes_read[0] if bytes_read else None,
        "stored_bytes_per_step": bytes_read[1] if bytes_read else None,
        "bytes_reduced_per_step": fmean(use.bytes_reduced for step in steps for use in step),
        "cpu_ms_per_step": 1000 * sum(rank.cpu_s for rank in ranks) / len(steps),
        "meter_cpu_share": max(rank.own_s / max(rank.cpu_s, 1e-9) for rank in ranks),
    }


class Reads(NamedTuple):
    """Bytes that this process has read: from files, from devices, and by asking for these numbers."""

    files: int
    devices: int
    asking: int


def process_reads() -> Reads | None:
    """Return what this process has read; None where the system does not tell.

    What it maps into memory counts as read from devices only. gloo's messages are in neither.
    """
    try:
        text = READS.read_text(encoding="ascii")
    except OSError:
        return None
    counters = dict(line.split(": ") for line in text.splitlines())
    return Reads(int(counters["rchar"]), int(counters["read_bytes"]), len(text))


def count_bytes(work: Callable[[], object]) -> int:
    """Return the bytes of inputs and outputs of all operations in `work`, each operation by itself.

    Memory moves less where caches keep what one operation leaves to the next, and more where one reads twice. Kernels
    of Triton are not seen.
    """
    with _ByteCounter() as counter:
        work()
    return int(counter.total)


class _ByteCounter(TorchDispatchMode):
    """Adds up the bytes of what is called inside it; views and new memory cost nothing, and filling reads nothing."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not func.is_view and name != "_unsafe_view" and "empty" not in name:
            touched = tree_leaves(result if name in ("fill_", "zero_") else (args, kwargs, result))
            self.total += sum(leaf.nbytes for leaf in touched if isinstance(leaf, Tensor) and not leaf.is_sparse)
        return result
