"""Trace a few training steps: a file for a trace viewer, and a page about them.

The page says where their time goes, which operations are the heaviest, and what to look at next.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, Final, NamedTuple, Self, TypeVar

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from common.command import as_called
from common.files import naming, open_whole_file, write_whole_file
from common.ranks.dist import Dist
from common.settings.machine import ProfileConfig

FOLDER: Final = "profile"
TRACE: Final = "trace.json.gz"
SUMMARY: Final = "summary.txt"
STEP: Final = "ProfilerStep*"
"""The name that torch.profiler gives to steps."""
WAITING: Final = "waiting for data"
COMMUNICATION: Final = "communication"
OPTIMIZER: Final = "optimizer"
HOST: Final = "Python and autograd"
RECORDED: Final = "in recorded graphs"
IDLE: Final = "device idle"
BY_NAME: Final = {
    kind: re.compile(pattern, re.IGNORECASE)
    for kind, pattern in {
        WAITING: f"^{WAITING}$",
        COMMUNICATION: "c10d|gloo:|nccl|^mpi:|record_param_comms",
        "convolutions": "conv",
        "normalisation": "(batch|layer|group|instance)_?norm",
        "matrix products": r"mm$|matmul|::(mkldnn_)?linear|::mv$|::dot$|einsum",
        "copies": r"copy|clone|contiguous|::(to|cat|stack|fill_|zero_|constant_pad_nd)$|reorder|memcpy|memset",
        "other operations": "^(?!autograd::|torch::autograd).*::",
    }.items()
}
"""Kinds of operations: the first pattern that is found in the name decides."""
OFTEN: Final = 0.1
"""From this share on, waiting and communication come first in the advice, even if something else takes more."""
ADVICE: Final = {
    WAITING: "read with more threads (data.workers), from memory (data.cache) or from a faster disk (staging.mode)",
    COMMUNICATION: "give each rank more samples per step (train.global_batch_size), or send less (dist.gradients=bf16)",
    IDLE: "give the device more work at a time: train.graph=auto, or more samples per step",
    HOST: "make fewer and larger operations: more samples per step, train.accumulation=1, on CUDA train.graph=auto",
    RECORDED: "train.graph=off shows the operations in them",
    OPTIMIZER: "try the other values of optim.fused, and more samples per step",
    "convolutions": "see how near they are to what the machine allows: python -m common.measure roofline",
    "matrix products": "see how near they are to what the machine allows: python -m common.measure roofline",
    "normalisation": "it moves more data than it computes: on CUDA, fuse it (model.kernels, compile)",
    "copies": "find in the trace which operation asks for the largest of them: another layout or format may avoid it",
    "other operations": "find the heaviest in the table; most move more data than they compute, and could be fused",
}
"""What to look at next if most time is of a kind."""
HEAVIEST: Final = 10
SHAPES: Final = 60
"""Characters of an operation's shapes that the page shows."""

B = TypeVar("B")


class Profiler:
    """Traces steps on rank 0 inside its first `with`, and then writes the files; on other ranks it does nothing.

    folder: of the files; made at once, so that one that cannot be is known before the run. say: prints a line.
    """

    def __init__(self, config: ProfileConfig, folder: Path, dist: Dist, say: Callable[[str], None]) -> None:
        self.config, self.folder, self._dist, self._say = config, folder, dist, say
        self._waits = config.steps > 0 and dist.is_main
        self._trace: Any = None
        self._counted = 0
        if self._waits:
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        if self._waits:
            self._waits = False
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # lower levels print that tracing starts and stops
            activities = [ProfilerActivity.CPU]
            if self._dist.device.type != "cpu":
                activities.append(ProfilerActivity[self._dist.device.type.upper()])
            when = schedule(wait=self.config.skip - 1, warmup=1, active=self.config.steps, repeat=1)
            self._trace = profile(activities=activities, schedule=when, record_shapes=True, with_flops=True)
            self._trace.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._trace is not None:
            self._stop_trace(failed=kind is not None)

    def watched(self, batches: Iterator[B]) -> Iterator[B]:
        """Return the batches; while steps are traced, the trace shows how long the loop waited for them."""
        return batches if self._trace is None else _watch_batches(batches)

    def step_done(self) -> None:
        """Count a step; after the last one, write the files."""
        if self._trace is not None:
            self._counted += 1
            self._trace.step()
            if self._counted == self.config.needed:
                self._stop_trace()

    def _stop_trace(self, failed: bool = False) -> None:
        trace, self._trace = self._trace, None
        trace.stop()
        traced = self._counted - self.config.skip
        if failed:
            return
        if traced <= 0:
            self._say(
                f"profile: no step traced: {self._counted} step(s) were made, and profile.skip={self.config.skip}"
            )
            return
        try:
            self._write_files(trace, traced)
        except OSError as error:  # such as a full disk
            self._say(f"profile: {error}; going on without it")

    def _write_files(self, trace: Any, traced: int) -> None:
        path = self.folder / TRACE
        with open_whole_file(path) as output, tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch, "trace.json")
            trace.export_chrome_trace(str(plain))
            with naming(path), plain.open("rb") as source, gzip.open(output, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(source, packed)
        steps = self.config.steps
        fewer = f", fewer than profile.steps={steps}: there were no more" if traced < steps else ""
        head = f"{traced} step(s) of rank 0 of {self._dist.world_size}, after {self.config.skip} others{fewer}"
        page = self.folder / SUMMARY
        write_whole_file(page, format_page(trace.events(), traced, self._dist.device, head))
        self._say(f"profile: {traced} step(s) traced{fewer}; read {page}, and open {path} in ui.perfetto.dev")


def _watch_batches(batches: Iterator[B]) -> Iterator[B]:
    while True:
        with record_function(WAITING):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


# -- the page ------------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One call. seconds: without the operations that it calls. flop: 0 where the profiler does not know it."""

    name: str
    kind: str
    shapes: str
    seconds: float
    flop: int


class Times(NamedTuple):
    """The steps. seconds: how long they took, with a device until it was done. kinds: seconds of each kind."""

    seconds: float
    kinds: dict[str, float]
    operations: list[Operation]


def format_page(events: Sequence[Any], steps: int, device: torch.device, head: str) -> str:
    """Return the page about the events of a trace. head: says which steps they are."""
    times = measure_times(events, steps, device)
    most = sorted(times.kinds.items(), key=lambda kind: -kind[1])
    shares = {kind: seconds / times.seconds for kind, seconds in most}
    # Waiting or communication if they are often, else what takes most.
    first = next((kind for kind in (WAITING, COMMUNICATION) if shares.get(kind, 0) >= OFTEN), most[0][0])
    return "\n".join(
        (
            head,
            f"{1000 * times.seconds / steps:,.1f} ms a step on {device.type}, of which tracing takes a part",
            "",
            f"{'share':>6} {'ms a step':>10}  kind",
            *(_format_row(seconds, times, steps, kind) for kind, seconds in most if seconds > 0),
            "",
            "the heaviest operations, without those that they call (GFLOP/s where the profiler knows the count):",
            f"{'share':>6} {'ms a step':>10}  {'calls':>6} {'GFLOP/s':>8}  operation and shapes",
            *_list_heaviest(times, steps),
            "",
            as_called(f"next: {first}, {shares[first]:.0%} of the time: {ADVICE[first]}"),
            "",
        )
    )


def measure_times(events: Sequence[Any], steps: int, device: torch.device) -> Times:
    """Return the times of the first steps in the events of a trace."""
    marks = sorted((event for event in events if _on_cpu(event) and event.name == STEP), key=_start_us)[:steps]
    begin, end = _start_us(marks[0]), max(event.time_range.end for event in marks)
    inside = [event for event in events if _on_cpu(event) and begin <= _start_us(event) < end]
    beside = [event for event in inside if event.is_async or event.thread != marks[0].thread]
    main = [event for event in inside if event.thread == marks[0].thread and not event.is_async]
    # With a device the backward pass has a thread of its own.
    operations = list(_list_operations(main if device.type == "cpu" else inside, device))
    kinds: dict[str, float] = defaultdict(float)
    for operation in operations:
        kinds[operation.kind] += operation.seconds
    seconds = sum(event.time_range.elapsed_us() for event in marks) / 1e6  # without what lies between steps
    if device.type == "cpu":
        sent = min(kinds[HOST], _exposed_s(main, beside))
        kinds[HOST] -= sent
        kinds[COMMUNICATION] += sent
    else:
        kernels = [event for event in events if not _on_cpu(event) and not event.is_user_annotation]
        kernels = [event for event in kernels if _start_us(event) >= begin]
        seconds = (max([end, *(event.time_range.end for event in kernels)]) - begin) / 1e6
        busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6
        kinds[RECORDED] += max(0.0, busy - sum(kinds.values()))
        kinds[IDLE] += max(0.0, seconds - busy)
    return Times(seconds, kinds, operations)


def _list_operations(events: Sequence[Any], device: torch.device) -> Iterator[Operation]:
    for event in events:
        callers = list(_list_callers(event))
        kind = _kind_of(event.name)
        if any(caller.name.startswith("Optimizer.") for caller in (event, *callers)):
            kind = OPTIMIZER
        time_us = event.self_cpu_time_total if device.type == "cpu" else event.self_device_time_total
        flops = (caller.flops for caller in (event, *callers) if caller.flops and _kind_of(caller.name) == kind)
        shapes = ", ".join("×".join(map(str, shape)) for shape in event.input_shapes or () if shape)
        yield Operation(event.name, kind, shapes, time_us / 1e6, next(flops, 0))


def _exposed_s(main: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the seconds in which other threads sent messages while the main thread made no operation."""
    working = _unite((_start_us(event), event.time_range.end) for event in main if _kind_of(event.name) != HOST)
    sending = _unite(
        (_start_us(event), event.time_range.end) for event in others if _kind_of(event.name) == COMMUNICATION
    )
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in sending for b in working)
    return float(sum(stop - start for start, stop in sending) - both) / 1e6


def _unite(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the same times as intervals that do not overlap."""
    united: list[tuple[float, float]] = []
    for start, stop in sorted(intervals):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(stop, united[-1][1]))
        else:
            united.append((start, stop))
    return united


def _list_heaviest(times: Times, steps: int) -> Iterator[str]:
    """Yield a row for each of the operations that take most, those of one name and the same shapes together."""
    groups: dict[tuple[str, str], list[Operation]] = {}
    for operation in times.operations:
        if operation.kind not in (HOST, WAITING):
            groups.setdefault((operation.name, operation.shapes), []).append(operation)
    ordered = sorted(groups.items(), key=lambda group: -sum(call.seconds for call in group[1]))
    for (name, shapes), calls in ordered[:HEAVIEST]:
        seconds = sum(call.seconds for call in calls)
        flop = sum(call.flop for call in calls)
        rate = f"{flop / seconds / 1e9:,.1f}" if flop and seconds else "-"
        label = f"{name} {shorten(shapes, SHAPES, placeholder=' …')}".rstrip()
        yield _format_row(seconds, times, steps, f"{len(calls) / steps:>6.4g} {rate:>8}  {label}")


def _format_row(seconds: float, times: Times, steps: int, label: str) -> str:
    return f"{seconds / times.seconds:>6.1%} {1000 * seconds / steps:>10,.2f}  {label}"


def _kind_of(name: str) -> str:
    return next((kind for kind, pattern in BY_NAME.items() if pattern.search(name)), HOST)


def _list_callers(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _on_cpu(event: Any) -> bool:
    return bool(event.device_type == DeviceType.CPU)


def _start_us(event: Any) -> float:
    return float(event.time_range.start)
