"""When things happened in a run: its clock, its staging, the parts of its time, and how fast it trained.

The time of a run is from init_start to run_stop. Where intervals overlap, time counts once: as staging
before evaluation, evaluation before training (many logs evaluate inside an epoch, ours between epochs), training
before initialisation (openfold stages inside it); what is left is the rest. They are T_stage, T_eval and T_train
of the benchmarks' authors, who count from run_start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from itertools import accumulate
from math import inf
from operator import attrgetter, itemgetter, le
from typing import Any, Final, NamedTuple

from common.reference import Reference
from common.rounds import TRAINING
from common.values import is_number
from compliance.logs.course import Course, find_unit
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Record

PARTS: Final = ("init", "staging", "train", "eval", "rest")
"""The parts of a run's time, in the order in which they are shown."""
INTERVALS: Final = {"staging": ("staging",), "eval": ("eval",), "train": ("epoch", "block"), "init": ("init",)}
"""The intervals that make up the parts; time in several of them belongs to the first."""
OUTSIDE: Final[dict[str, tuple[str, ...]]] = {
    "init_stop": (),
    "run_start": ("init_stop",),
    "staging_start": (),
    "staging_stop": ("staging_start",),
    "run_stop": ("run_start", "course"),
}
"""The events that belong to no epoch, with what must precede them."""
RANKS: Final = {"epoch_start": 0, "block_start": 0, "eval_start": 1}
"""The events of an epoch that come one after another; what follows them has no order."""
Span = tuple[float, float]


def clock(log: Log) -> tuple[float | None, float | None]:
    """Return run_start and run_stop in ms: the last start before the first stop, as the official summary does."""
    starts, stops = log["run_start"], log["run_stop"]
    if not starts or not stops:
        return (starts[-1].time_ms if starts else None), (stops[0].time_ms if stops else None)
    if stops[0].order < starts[0].order:
        stop = next(record for record in reversed(stops) if record.order < starts[0].order)
        return starts[0].time_ms, stop.time_ms
    start = next(record for record in reversed(starts) if record.order < stops[0].order)
    return start.time_ms, stops[0].time_ms


def staging_ms(log: Log, start_ms: float | None, stop_ms: float | None) -> tuple[float, float]:
    """Return the time between each staging_start and the staging_stop that follows it, and its part outside the clock.

    start_ms, stop_ms: the clock. Times are in ms; without a run_start nothing is known to lie outside.
    """
    spans = [staged[:2] for staged in _pair_intervals(log, "staging", (-inf, inf)) if staged.whole]
    total = sum(end - begin for begin, end in spans)
    if start_ms is None:
        return total, 0.0
    last_ms = inf if stop_ms is None else stop_ms
    inside = sum(max(0.0, min(end, last_ms) - max(begin, start_ms)) for begin, end in spans)
    return total, max(0.0, total - inside)


class Phases(NamedTuple):
    """How long the epochs and evaluations of a run took, up to run_stop; those without a stop are left out.

    epoch_seconds: time in epochs or evaluations, which may lie inside or between them. evaluations: how many;
    evaluation_seconds: time in them. unclosed: the numbers of the epochs without a stop, -inf where one has no
    number. first: the number of the first epoch, 0 or 1 in most logs; None without a number.
    """

    epoch_seconds: float
    evaluations: int
    evaluation_seconds: float
    unclosed: tuple[float, ...]
    first: float | None


class Timeline:
    """The intervals of a run, from init_start to run_stop, each kind paired once.

    by_number: see `_pair_intervals`.
    """

    def __init__(self, log: Log, by_number: bool = True) -> None:
        self.extent = _time_extent(log)
        kinds = [kind for part in INTERVALS.values() for kind in part] if self.extent else []
        self._intervals = {kind: list(_pair_intervals(log, kind, self.extent or (0, 0), by_number)) for kind in kinds}
        self._by_number, self._counts_blocks = by_number, not log["epoch_start"]
        self._trained = self._intervals.get("block" if self._counts_blocks else "epoch", [])

    def seconds_by_part(self) -> dict[str, float]:
        """Return the seconds of each of PARTS, together the time of the run; {} for a log without times."""
        if self.extent is None:
            return {}
        seconds, spans, before = {}, [], 0.0
        for part, kinds in INTERVALS.items():
            spans += [interval for kind in kinds for interval in self._intervals[kind]]
            covered = _covered_ms(spans)
            seconds[part], before = (covered - before) / 1000, covered
        seconds["rest"] = max(0.0, (self.extent[1] - self.extent[0] - before) / 1000)
        return {part: seconds[part] for part in PARTS}

    def epoch_seconds(self) -> Iterator[float]:
        """Yield the length of each whole epoch; in a log with blocks only, that of a block by its epoch_count.

        Nothing is known of those that are not paired by number.
        """
        for interval in self._trained if self._by_number else ():  # others may be parts of epochs, or all of them
            count = interval.start.meta("epoch_count") if self._counts_blocks else 1
            if interval.whole and is_number(count) and count > 0:
                yield (interval.end - interval.begin) / count / 1000

    def phases(self) -> Phases:
        """Return how long the epochs and evaluations took."""
        evaluated = [interval for interval in self._intervals.get("eval", ()) if interval.whole]
        whole = [interval for interval in self._trained if interval.whole]
        numbered = [(epoch_number(interval.start), interval) for interval in self._trained]
        return Phases(
            _covered_ms((*whole, *evaluated)) / 1000,
            len(evaluated),
            _covered_ms(evaluated) / 1000,
            tuple(-inf if number is None else number for number, interval in numbered if not interval.whole),
            min((number for number, _ in numbered if number is not None), default=None),
        )


class StepBack(NamedTuple):
    """A record with an earlier time than another that precedes it in the file, and must; by_ms: by how much."""

    record: Record
    before: Record
    by_ms: float


Moment = tuple[float, Record]


def find_steps_back(log: Log) -> list[StepBack]:
    """Return the records of the run that are earlier than one that must precede them, as if a clock was set back."""
    if log.is_in_order:
        return []
    return [
        StepBack(record, before, time_ms - record.time_ms)
        for record, (time_ms, before) in zip(log.ordered, _find_earliest(log.ordered), strict=True)
        if time_ms > record.time_ms
    ]


def find_late_line(log: Log) -> StepBack | None:
    """Return the first event whose line was written long after its time, in a log whose events are ordered by time."""
    lines = [event.line for event in log.events]
    if all(map(le, lines, lines[1:])):
        return None
    written = sorted(log.ordered, key=attrgetter("line"))
    latest = accumulate(written, partial(max, key=attrgetter("time_ms")))
    late = (StepBack(event, last, last.time_ms - event.time_ms) for event, last in zip(written, latest, strict=True))
    return next((step for step in late if step.by_ms > 500), None)  # lines of several processes mix within this time


def order_by_time(log: Log) -> Log:
    """Return the log with epochs and evaluations in the order of their times: a buffered writer writes lines late.

    What would then precede what it must follow stays behind it. The start and end of the run and of its staging stay
    where they are, and so does what is written after run_stop: the committee's tool goes by these lines.
    """
    if log.is_in_order:
        return log
    stop = log.first("run_stop")
    end = stop.order if stop else log.record_count
    times = [event.time_ms for event in log.ordered if event.order < end and event.key not in OUTSIDE]
    if all(map(le, times, times[1:])):  # then none of these precedes what it must follow
        return log
    placed = zip(log.ordered, _find_earliest(log.ordered), strict=True)
    course = [(time_ms, event) for event, (time_ms, _) in placed if event.order < end and event.key not in OUTSIDE]
    by_time = sorted(course, key=itemgetter(0))
    moved: dict[int, Record] = {}
    for (_, event), (_, record) in zip(course, by_time, strict=True):
        if event is not record:
            moved[record.order] = copy(record)
            moved[record.order].order = event.order
    if not moved:
        return log
    keys = {record.key for record in moved.values()}
    return log.replace(
        {key: sorted((moved.get(record.order, record) for record in log[key]), key=FILE_ORDER) for key in keys}
    )


def _find_earliest(events: list[Record]) -> Iterator[Moment]:
    """Yield when each event came at the earliest, by its own time and those before it, and whose time that is.

    Of one event that several ranks log, the first counts. An epoch comes after those of smaller numbers, an evaluation
    after the start of its epoch, and all but staging within the run.
    """
    latest: dict[Any, Moment] = {}
    begins: dict[Any, Moment | None] = {}
    logged: dict[tuple[str, Any], float] = {}
    for event in events:
        number, rank = epoch_number(event), RANKS.get(event.key, len(RANKS))
        if event.key in OUTSIDE:
            part, after = event.key, [latest.get(key) for key in OUTSIDE[event.key]]
        else:
            part = "course"
            begin = begins.setdefault(number, latest.get(part)) if number is not None else latest.get(part)
            after = [latest.get("run_start"), begin, *(latest.get((number, before)) for before in range(rank))]
        moment = max([(event.time_ms, event), *filter(None, after)], key=itemgetter(0))
        yield moment
        first_ms = logged.setdefault((event.key, number), event.time_ms)
        # Ranks log one event within a second.
        if event.time_ms == first_ms or event.time_ms - first_ms > 1000:
            for key in (part, (number, rank)):
                latest[key] = max(latest.get(key, moment), (moment[0], event), key=itemgetter(0))


def samples_per_second(log: Log, reference: Reference) -> float | None:
    """Return samples trained per second from the first epoch's start to the last one's end; None if not logged."""
    course = log.derive(Course, reference.target.key)
    starts = course.epochs.records or [block.start for block in course.blocks]
    stops = course.epoch_stops.records or log["block_stop"]
    samples = _trained_samples(log, reference, course)
    end_ms = stops[-1].time_ms if len(stops) >= len(starts) > 0 else clock(log)[1]
    if not starts or not samples or end_ms is None:
        return None
    seconds = (end_ms - starts[0].time_ms) / 1000
    # A log has its times to the millisecond: a shorter training is taken for one.
    return samples / max(seconds, 0.001) if is_number(seconds) and seconds >= 0 else None


def _trained_samples(log: Log, reference: Reference, course: Course) -> float | None:
    """Return how many samples the run trains on, epoch after epoch."""
    unit, last, each = find_unit(log, reference), max(course.results.numbers, default=None), log.value("train_samples")
    if unit != "epochs":
        return last if unit == "samples" else None
    epochs = last if reference.usage == TRAINING else course.trained
    return float(each) * epochs if epochs is not None and is_number(each) and each > 0 else None


def _time_extent(log: Log) -> Span | None:
    """Return init_start and run_stop, or the first and last structural record in place of one that is missing."""
    times = [record.time_ms for record in log.events if is_number(record.time_ms)]
    if not times:
        return None
    begins = [record.time_ms for record in log["init_start"] if is_number(record.time_ms)]
    stop = clock(log)[1]
    begin = min(begins, default=times[0])
    return begin, max(begin, times[-1] if stop is None or not is_number(stop) else stop)


def _covered_ms(intervals: Iterable[_Interval]) -> float:
    """Return the total length that the intervals cover, counting overlaps once."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(interval[:2] for interval in intervals):
        if end > reached:
            covered += end - max(begin, reached)
            reached = end
    return covered


class _Interval(NamedTuple):
    """Time between two records, cut to the extent of the run; whole: nothing of it is missing or was cut off."""

    begin: float
    end: float
    whole: bool
    start: Record


def _pair_intervals(log: Log, kind: str, extent: Span, by_number: bool = True) -> Iterator[_Interval]:
    """Yield the intervals of a kind ("epoch": epoch_start to epoch_stop) that have a part inside the extent.

    Start and stop belong together by the number of their epoch: an epoch may begin before the one before it was
    evaluated. Of the same start from several ranks the first counts. An interval without its stop lasts until the next
    structural record of any kind: what came then is unknown.

    by_number: false for MLPerf Training, where a start may count what was trained before, and a stop all of it, or be
    logged after run_stop: then an interval lasts until the next stop, at most until the end of the run.
    """
    stop_key = f"{kind}_stop"
    opened: dict[float | None, Record] = {}
    for record in log.in_order(f"{kind}_start", stop_key):
        number = epoch_number(record) if by_number else None
        if not is_number(record.time_ms):
            continue
        if record.key != stop_key:
            opened.setdefault(number, record)
            continue
        opening = opened.pop(number, None) or opened.pop(None, None)
        if opening is None and number is None and opened:
            opening = opened.popitem()[1]
        if opening:
            end_ms = record.time_ms if by_number else min(record.time_ms, extent[1])
            yield from _cut_interval(opening, end_ms, True, extent)
    for start in opened.values():
        later = range(bisect_right(log.events, start.order, key=FILE_ORDER), len(log.events))
        end_ms = next(filter(is_number, (log.events[at].time_ms for at in later)), start.time_ms)
        yield from _cut_interval(start, end_ms if by_number else extent[1], not by_number, extent)


def _cut_interval(start: Record, end: float, whole: bool, extent: Span) -> Iterator[_Interval]:
    first, last = max(start.time_ms, extent[0]), min(end, extent[1])
    if first <= last:
        yield _Interval(first, last, whole and (first, last) == (start.time_ms, end), start)


def epoch_number(record: Record) -> float | None:
    """Return the number of the epoch, or of the first epoch or sample of the block, that a record is about."""
    return next(filter(is_number, map(record.meta, ("epoch_num", "first_epoch_num", "samples_count"))), None)
