"""The page about traced steps: where their time goes, the heaviest operations, and what to look at next."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import Any, Final, NamedTuple

import torch
from torch.autograd import DeviceType

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
"""Share from which waiting and communication are what to look at, whatever else takes more."""
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


def summary(events: Sequence[Any], steps: int, device: torch.device, head: str) -> str:
    """Return the page about the events of a trace. head: says which steps they are."""
    times = measured(events, steps, device)
    most = sorted(times.kinds.items(), key=lambda kind: -kind[1])
    return "\n".join(
        (
            head,
            f"{1000 * times.seconds / steps:,.1f} ms a step on {device.type}, of which tracing takes a part",
            "",
            f"{'share':>6} {'ms a step':>10}  kind",
            *(_row(seconds, times, steps, kind) for kind, seconds in most if seconds > 0),
            "",
            "the heaviest operations, without those that they call (GFLOP/s where the profiler knows the count):",
            f"{'share':>6} {'ms a step':>10}  {'calls':>6} {'GFLOP/s':>8}  operation and shapes",
            *_heaviest(times, steps),
            "",
            f"next: {advice(times)}",
            "",
        )
    )


def advice(times: Times) -> str:
    """Return what to look at next: waiting or communication if they are often, else what takes most."""
    share = {kind: seconds / times.seconds for kind, seconds in times.kinds.items()}
    most = max(share, key=share.__getitem__)
    kind = next((kind for kind in (WAITING, COMMUNICATION) if share.get(kind, 0) >= OFTEN), most)
    return f"{kind}, {share[kind]:.0%} of the time: {ADVICE[kind]}"


def measured(events: Sequence[Any], steps: int, device: torch.device) -> Times:
    """Return the times of the first steps in the events of a trace."""
    marks = sorted((event for event in events if _on_cpu(event) and event.name == STEP), key=_start)[:steps]
    begin, end = _start(marks[0]), max(event.time_range.end for event in marks)
    inside = [event for event in events if _on_cpu(event) and begin <= _start(event) < end]
    beside = [event for event in inside if event.is_async or event.thread != marks[0].thread]
    main = [event for event in inside if event.thread == marks[0].thread and not event.is_async]
    # With a device the backward pass has a thread of its own.
    operations = list(_operations(main if device.type == "cpu" else inside, device))
    kinds: dict[str, float] = defaultdict(float)
    for one in operations:
        kinds[one.kind] += one.seconds
    seconds = sum(event.time_range.elapsed_us() for event in marks) / 1e6  # without what lies between steps
    if device.type == "cpu":
        sent = min(kinds[HOST], _exposed_s(main, beside))
        kinds[HOST] -= sent
        kinds[COMMUNICATION] += sent
    else:
        kernels = [event for event in events if not _on_cpu(event) and not event.is_user_annotation]
        kernels = [event for event in kernels if _start(event) >= begin]
        seconds = (max([end, *(event.time_range.end for event in kernels)]) - begin) / 1e6
        busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6
        kinds[RECORDED] += max(0.0, busy - sum(kinds.values()))
        kinds[IDLE] += max(0.0, seconds - busy)
    return Times(seconds, kinds, operations)


def _operations(events: Sequence[Any], device: torch.device) -> Iterator[Operation]:
    for event in events:
        callers = list(_callers(event))
        kind = _kind(event.name)
        if any(caller.name.startswith("Optimizer.") for caller in (event, *callers)):
            kind = OPTIMIZER
        time_us = event.self_cpu_time_total if device.type == "cpu" else event.self_device_time_total
        flop = next((one.flops for one in (event, *callers) if one.flops and _kind(one.name) == kind), 0)
        yield Operation(event.name, kind, _shapes(event), time_us / 1e6, flop)


def _shapes(event: Any) -> str:
    return ", ".join("×".join(map(str, shape)) for shape in event.input_shapes or () if shape)


def _exposed_s(main: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the seconds in which other threads sent messages while the main thread made no operation."""
    working = _united((_start(one), one.time_range.end) for one in main if _kind(one.name) != HOST)
    sending = _united((_start(one), one.time_range.end) for one in others if _kind(one.name) == COMMUNICATION)
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in sending for b in working)
    return float(sum(stop - start for start, stop in sending) - both) / 1e6


def _united(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the same times as intervals that do not overlap."""
    united: list[tuple[float, float]] = []
    for start, stop in sorted(intervals):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(stop, united[-1][1]))
        else:
            united.append((start, stop))
    return united


def _heaviest(times: Times, steps: int) -> Iterator[str]:
    """Yield a row for each of the operations that take most, those of one name and the same shapes together."""
    groups: dict[tuple[str, str], list[Operation]] = {}
    for one in times.operations:
        if one.kind not in (HOST, WAITING):
            groups.setdefault((one.name, one.shapes), []).append(one)
    ordered = sorted(groups.items(), key=lambda group: -sum(one.seconds for one in group[1]))
    for (name, shapes), calls in ordered[:HEAVIEST]:
        seconds = sum(one.seconds for one in calls)
        flop = sum(one.flop for one in calls)
        rate = f"{flop / seconds / 1e9:,.1f}" if flop and seconds else "-"
        what = f"{name} {shorten(shapes, SHAPES, placeholder=' …')}".rstrip()
        yield _row(seconds, times, steps, f"{len(calls) / steps:>6.4g} {rate:>8}  {what}")


def _row(seconds: float, times: Times, steps: int, what: str) -> str:
    return f"{seconds / times.seconds:>6.1%} {1000 * seconds / steps:>10,.2f}  {what}"


def _kind(name: str) -> str:
    return next((kind for kind, pattern in BY_NAME.items() if pattern.search(name)), HOST)


def _callers(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _on_cpu(event: Any) -> bool:
    return bool(event.device_type == DeviceType.CPU)


def _start(event: Any) -> float:
    return float(event.time_range.start)
