"""Time work by the device's own events, and replay it as a graph; on a CPU a stand-in with the same calls.

The stand-in is for the dry run: it makes every call, on the host's clock, and its times mean nothing.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import torch

Call = Callable[[], Any]


class Clock:
    """Times work on a CPU.

    rounds: how often a piece of work is timed, twice.
    """

    rounds = 1
    least_ms = 0.0
    """How long one timed round of small work should be, so that its start and end do not matter."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def mark(self) -> Any:
        """Return a mark at this place of the device's work."""
        return time.perf_counter()

    def between_ms(self, first: Any, last: Any) -> float:
        """Return the time between two marks, both of which the device has passed."""
        return float(last - first) * 1e3

    def finish(self) -> None:
        """Wait for all work of the device."""

    def graph(self, calls: Sequence[Call]) -> Call:
        """Return a function that makes all calls on the same memory; RuntimeError if they cannot be recorded."""

        def replay() -> None:
            for call in calls:
                call()

        return replay

    def memory_mb(self) -> float:
        """Return the most memory of the device that was taken since `forget`."""
        return 0.0

    def forget(self) -> None:
        """Give memory back that is not in use, and forget how much it was."""
        gc.unfreeze()  # the trainer freezes what lives as long as its run, which is over here
        gc.collect()

    def poison(self, block_bytes: int = 2**12) -> None:
        """Fill memory that is handed out next with NaN, so that outputs which nobody writes are seen."""
        for size in (block_bytes, 2**10):
            blocks = [torch.full((size // 4,), math.nan, device=self.device) for _ in range(16)]
            del blocks

    @contextlib.contextmanager
    def waits(self) -> Iterator[list[str]]:
        """Note the places of all calls inside that wait for the device."""
        yield []

    def steps_ms(self, marks: Sequence[Any]) -> dict[str, float]:
        """Return the medians of the times between neighbouring marks, of each half of them."""
        self.finish()
        times = [self.between_ms(first, last) for first, last in pairwise(marks)]
        half = len(times) // 2
        return {"ms": median(times[:half] or times), "ms_again": median(times[half:])}

    def per_call_ms(self, calls: Sequence[Call]) -> dict[str, Any]:
        """Return the time of one of the calls: the same work on several inputs, together larger than caches.

        They are recorded as a graph, so that the host's time does not count, where that is possible.
        """
        for call in calls:
            call()
        self.finish()
        begin = self.mark()
        for call in calls:  # keeping nothing: outputs keep nodes of this stream, which would end a recording
            call()
        end = self.mark()
        self.finish()
        repeats = max(1, min(200, round(self.least_ms / max(self.between_ms(begin, end), 1e-3))))
        try:
            replay, graphed = self.graph([*calls] * repeats), True
        except (RuntimeError, ImportError) as error:
            replay, graphed = Clock.graph(self, [*calls] * repeats), False
            warnings.warn(f"not recorded as a graph: {str(error).splitlines()[0]}", stacklevel=2)
        times = []
        for _ in range(2 * self.rounds):
            begin, _, end = self.mark(), replay(), self.mark()
            self.finish()
            times.append(self.between_ms(begin, end) / len(calls) / repeats)
        return {"ms": median(times[: self.rounds]), "ms_again": median(times[self.rounds :]), "graphed": graphed}


class CudaClock(Clock):
    """Times work on an NVIDIA GPU by its events."""

    rounds = 20
    least_ms = 2.0

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last))

    def finish(self) -> None:
        torch.cuda.synchronize(self.device)

    def graph(self, calls: Sequence[Call]) -> Call:
        def work() -> None:
            for call in calls:
                call()

        from common.training.graph import CudaGraphs  # needs packages that other measurements do not

        torch.cuda.synchronize(self.device)
        recorder = CudaGraphs(self.device)  # each with memory of its own, which is free when it is dropped
        recorder.prepare(work)
        return recorder.record(work)

    def memory_mb(self) -> float:
        return torch.cuda.max_memory_reserved(self.device) / 1e6  # graphs keep theirs without allocating it

    def poison(self, block_bytes: int = 2**28) -> None:
        super().poison(block_bytes)

    def forget(self) -> None:
        super().forget()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)

    @contextlib.contextmanager
    def waits(self) -> Iterator[list[str]]:
        places: list[str] = []
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield places
            finally:
                torch.cuda.set_sync_debug_mode("default")
                # Not torch's notice that the mode is a prototype, which speaks of synchronizing operations too.
                calls = [one for one in found if "called a synchronizing" in str(one.message)]
                places += [f"{one.filename}:{one.lineno}" for one in calls]


def clock(device: torch.device) -> Clock:
    """Return the clock of a device."""
    return CudaClock(device) if device.type == "cuda" else Clock(device)
