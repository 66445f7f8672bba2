"""What the log of one run shows beyond its `Run`: how quality grew, where the time went, with which settings.

Definitions: the time of a run is from init_start to run_stop. Where intervals overlap, time counts once: as staging
before evaluation, evaluation before training (many logs evaluate inside an epoch, ours between epochs), training
before initialisation (openfold stages inside it); what is left is the rest. The symbols T_stage, T_eval and T_train
of the authors of the benchmarks are these, but of the time from run_start on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from common.reference import Reference, is_number
from compliance.benchmarks import reference_of
from compliance.logs.log import SETTINGS, Log, read_log
from compliance.logs.record import FILE_ORDER, Record
from compliance.model.report import Report
from compliance.model.run import Run, clock, counted_evaluations

PARTS: Final = ("init", "staging", "train", "eval", "rest")
"""The parts of a run's time, in the order in which they are shown."""
INTERVALS: Final = {"staging": ("staging",), "eval": ("eval",), "train": ("epoch", "block"), "init": ("init",)}
"""The intervals that make the parts; time that is in several of them is of the first."""
SETTING_KEYS: Final = tuple(dict.fromkeys(setting.key for setting in SETTINGS))
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation that counts: its epoch_num (openfold: samples; None if it says none), result, time and line."""

    epoch: float | None
    value: float
    time_ms: float
    line: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one log shows.

    evaluations: between the first epoch and run_stop, in file order; those without a number are left out.
    epoch_seconds: length of each whole epoch (of a log with blocks only: of a block, by its epoch_count).
    seconds: of init, staging, train, eval and rest; together the time of the run; empty if the log has no times.
    settings: value of each hyperparameter as logged first. samples_per_epoch: train_samples as logged.
    provenance: what a log of this suite says of versions, sources, data and configuration; else empty.
    """

    path: str
    evaluations: tuple[Evaluation, ...] = ()
    epoch_seconds: tuple[float, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples_per_epoch: int | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


def gather(report: Report) -> dict[str, Evidence]:
    """Return the evidence of every log of a report by its path; reads the logs once more."""
    from tqdm import tqdm  # here, so that what only imports this module starts light

    runs = tqdm(report.runs, desc="reading", unit=" logs", delay=2, leave=False, disable=None)
    return {run.path: read_evidence(run, reference_of(run.benchmark, run.variant)) for run in runs}


def read_evidence(run: Run, reference: Reference | None) -> Evidence:
    """Return what the log of a run shows; never raises: of a log that cannot be read there is none.

    Standard input is not there a second time: a run from it has no evidence.
    """
    return evidence_of(Log(run.path) if run.path == "-" else read_log(run.path), reference)


def evidence_of(log: Log, reference: Reference | None) -> Evidence:
    """Return what a log that was read shows; without a reference no evaluation counts."""
    samples, provenance = log.value("train_samples"), log.value("provenance")
    return Evidence(
        log.path,
        tuple(_evaluations(log, reference)) if reference else (),
        tuple(_epoch_seconds(log)),
        _seconds(log),
        {key: log.value(key) for key in SETTING_KEYS if log[key]},
        int(samples) if is_number(samples) and samples > 0 else None,
        provenance if isinstance(provenance, dict) else {},
    )


def _evaluations(log: Log, reference: Reference) -> Iterator[Evaluation]:
    for record in counted_evaluations(log, reference.target):
        if is_number(record.value) and is_number(record.time_ms):
            epoch = record.meta("epoch_num")
            yield Evaluation(epoch if is_number(epoch) else None, record.value, record.time_ms, record.line)


def _extent(log: Log) -> Span | None:
    """Return init_start and run_stop, or the first and last structural record in place of one that is missing."""
    times = [record.time_ms for record in log.events if is_number(record.time_ms)]
    if not times:
        return None
    begins = [record.time_ms for record in log["init_start"] if is_number(record.time_ms)]
    stop = clock(log)[1]
    begin = min(begins, default=times[0])
    return begin, max(begin, times[-1] if stop is None or not is_number(stop) else stop)


def _seconds(log: Log) -> dict[str, float]:
    extent = _extent(log)
    if extent is None:
        return {}
    seconds, spans, before = {}, [], 0.0
    for part, kinds in INTERVALS.items():
        spans += [(found.begin, found.end) for kind in kinds for found in _intervals(log, kind, extent)]
        covered = _covered_ms(spans)
        seconds[part], before = (covered - before) / 1000, covered
    seconds["rest"] = max(0.0, (extent[1] - extent[0] - before) / 1000)
    return {part: seconds[part] for part in PARTS}


def _covered_ms(spans: Iterable[Span]) -> float:
    """Return the length of what at least one of the spans covers."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > reached:
            covered += end - max(begin, reached)
            reached = end
    return covered


def _epoch_seconds(log: Log) -> Iterator[float]:
    extent = _extent(log)
    kind = "epoch" if log["epoch_start"] else "block"
    for found in _intervals(log, kind, extent) if extent else ():
        count = found.start.meta("epoch_count") if kind == "block" else 1
        if found.whole and is_number(count) and count > 0:
            yield (found.end - found.begin) / count / 1000


class _Interval(NamedTuple):
    """Time between two records, cut to the extent of the run; whole: nothing of it is missing or was cut off."""

    begin: float
    end: float
    whole: bool
    start: Record


def _intervals(log: Log, kind: str, extent: Span) -> Iterator[_Interval]:
    """Yield the intervals of a kind ("epoch": epoch_start to epoch_stop) that have a part inside the extent.

    Start and stop belong together by the number of their epoch: an epoch may begin before the one before it was
    evaluated. Of the same start from several ranks the first counts. An interval without its stop lasts until the next
    structural record of any kind: nobody knows what came then.
    """
    stop_key = f"{kind}_stop"
    opened: dict[float | None, Record] = {}
    for record in log.in_order(f"{kind}_start", stop_key):
        number = _number(record)
        if not is_number(record.time_ms):
            continue
        if record.key != stop_key:
            opened.setdefault(number, record)
            continue
        found = opened.pop(number, None) or opened.pop(None, None)
        if found is None and number is None and opened:
            found = opened.popitem()[1]
        if found:
            yield from _cut(found, record.time_ms, True, extent)
    for start in opened.values():
        yield from _cut(start, _next_time(log, start), False, extent)


def _cut(start: Record, end: float, whole: bool, extent: Span) -> Iterator[_Interval]:
    first, last = max(start.time_ms, extent[0]), min(end, extent[1])
    if first <= last:
        yield _Interval(first, last, whole and (first, last) == (start.time_ms, end), start)


def _number(record: Record) -> float | None:
    """Return the number of the epoch or of the first epoch of the block that a record is about."""
    numbers = (record.meta("epoch_num"), record.meta("first_epoch_num"))
    return next((number for number in numbers if is_number(number)), None)


def _next_time(log: Log, record: Record) -> float:
    events = log.events
    later = range(bisect_right(events, record.order, key=FILE_ORDER), len(events))
    return next((events[at].time_ms for at in later if is_number(events[at].time_ms)), record.time_ms)
