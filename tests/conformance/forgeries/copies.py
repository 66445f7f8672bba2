"""Forgeries of whole runs: a log that is made of another, disguised in one of several ways, and where it is put."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.conformance.forgeries.clock import without_first
from tests.conformance.forgeries.logtext import EPOCH_KEYS, EVALUATION_KEYS, Line, LogText, Unsuitable

DAY_MS = 86_400_000
Disguise = Callable[[LogText, LogText, random.Random], None]
MOVED_MS = (60, 100, 150, 200, 1000)
CLOSE = (0, 1e-5, 3e-5)
"""By which part of themselves results are changed that still prove a copy, if there are FEWEST of them."""
FEWEST = 6


# -- how a copy is disguised; `other` is another run of the same result -------------------------------------------


def as_it_is(log: LogText, other: LogText, rng: random.Random) -> None:
    """Change nothing but what every copy changes: the seed."""


def shifted(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move all times by the same."""
    by_ms = rng.choice((-1, 1)) * rng.randint(1_000, 30 * DAY_MS)
    for line in log.timed:
        line.time += by_ms


def scaled(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply all intervals by the same."""
    factor = rng.choice((rng.uniform(0.5, 0.99), rng.uniform(1.01, 1.5)))
    _stretch(log, factor)


def scaled_by_little(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply all intervals by nearly one."""
    _stretch(log, 1 + rng.choice((-1, 1)) * rng.uniform(0.001, 0.01))


def jittered_by_ms(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move every time by a few milliseconds."""
    most = rng.choice((1, 2, 5))
    shifted(log, other, rng)
    _each_time(log, lambda time_ms: time_ms + rng.randint(-most, most))


def jittered_by_percent(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply every interval by its own number near one."""
    shifted(log, other, rng)
    _each_interval(log, lambda interval_ms: interval_ms * rng.uniform(0.99, 1.01))


def scaled_and_jittered(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply all intervals by the same, and each by its own number near one."""
    scaled(log, other, rng)
    _each_interval(log, lambda interval_ms: interval_ms * rng.uniform(0.99, 1.01))


def rounded_to_seconds(log: LogText, other: LogText, rng: random.Random) -> None:
    """Round all times to seconds."""
    shifted(log, other, rng)
    _each_time(log, lambda time_ms: time_ms // 1000 * 1000)


def intervals_exchanged(log: LogText, other: LogText, rng: random.Random) -> None:
    """Put the intervals of epochs into another order."""
    lines = [line for line in log.timed if log.at(line) > log.at(log.last("run_start"))]
    if len(lines) < 8:
        raise Unsuitable("too short")
    before = [log.last("run_start"), *lines[:-1]]
    intervals = [line.time - earlier.time for line, earlier in zip(lines, before, strict=True)]
    rng.shuffle(intervals)
    time_ms = before[0].time
    for line, interval in zip(lines, intervals, strict=True):
        time_ms += interval
        line.time = time_ms


def other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Leave the times, change all results a little."""
    _noise(log, rng)


def shifted_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move all times by the same, change all results a little."""
    shifted(log, other, rng)
    _noise(log, rng)


def scaled_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply all intervals by the same, change all results a little."""
    scaled(log, other, rng)
    _noise(log, rng)


def jittered_by_ms_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move every time by a few milliseconds, change all results a little."""
    jittered_by_ms(log, other, rng)
    _noise(log, rng)


def one_interval_changed(log: LogText, other: LogText, rng: random.Random) -> None:
    """Let one epoch take longer, and move all times by the same."""
    shifted(log, other, rng)
    log.delay(log.end_of(log.numbers[log.inner(rng)]), rng.randint(1_000, 20_000))


def one_interval_and_values_changed(log: LogText, other: LogText, rng: random.Random) -> None:
    """Let one epoch take longer, move all times by the same, change all results a little."""
    one_interval_changed(log, other, rng)
    _noise(log, rng)


def tail_exchanged(log: LogText, other: LogText, rng: random.Random) -> None:
    """Take the last epochs from another run."""
    number = log.numbers[max(1, int(len(log.numbers) * rng.uniform(0.6, 0.9)))]
    _join(log, log.end_of(number), other, other.end_of(number))
    shifted(log, other, rng)


def head_exchanged(log: LogText, other: LogText, rng: random.Random) -> None:
    """Take the first epochs from another run."""
    number = log.numbers[max(1, int(len(log.numbers) * rng.uniform(0.1, 0.4)))]
    end, late = other.end_of(number), log.end_of(number)
    head = [line.copy() for line in other.lines[other.at(other.last("run_start")) + 1 : other.at(end) + 1]]
    by_ms = log.last("run_start").time - other.last("run_start").time
    for line in head:
        if line.record:
            line.time += by_ms
    start, last = log.at(log.last("run_start")), log.at(late)
    gap = head[-1].time - late.time
    log.delay(late, gap)
    log.lines[start + 1 : last + 1] = head
    shifted(log, other, rng)


def records_left_out(log: LogText, other: LogText, rng: random.Random) -> None:
    """Leave out records that no rule needs, and the stops of some evaluations with their starts; move all times."""
    known = (*EPOCH_KEYS, *EVALUATION_KEYS, log.target.key)
    after = log.at(log.last("run_start"))
    extra = [line for line in log.timed if log.at(line) > after and line.key not in (*known, "run_stop")]
    log.remove(extra)
    shifted(log, other, rng)


def records_put_in(log: LogText, other: LogText, rng: random.Random) -> None:
    """Put in records of other keys, and move all times."""
    shifted(log, other, rng)
    for line in rng.sample(log.course, min(5, len(log.course))):
        log.add(line, line, 0, key="tracked_stats", event_type="POINT_IN_TIME", value={"throughput": rng.random()})


def numbered_otherwise(log: LogText, other: LogText, rng: random.Random) -> None:
    """Count from 0 instead of 1, or from 1 instead of 0, and move all times."""
    numbers = log.numbers
    if numbers[0] not in (0, 1) or len(numbers) < 2 or numbers[1] - numbers[0] != 1:
        raise Unsuitable("not numbered from 0 or 1")
    for line in log.timed:
        if isinstance(line.number, int):
            line.number += 1 - 2 * numbers[0]
    shifted(log, other, rng)


def all_but_header_of_another(log: LogText, other: LogText, rng: random.Random) -> None:
    """Keep the header of another run and its start; all epochs are those of this one."""
    start = log.last("run_start")
    body = [line.copy() for line in log.lines[log.at(start) + 1 :]]
    late = other.last("run_start")
    for line in body:
        if line.record:
            line.time += late.time - start.time
    log.lines = [line.copy() for line in other.lines[: other.at(late) + 1]] + body


def rounded_to_seconds_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Round all times to seconds, change all results a little."""
    rounded_to_seconds(log, other, rng)
    _noise(log, rng)


def scaled_and_jittered_by_ms_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply all intervals by the same, move every time by some milliseconds, change all results a little."""
    scaled(log, other, rng)
    _each_time(log, lambda time_ms: time_ms + rng.randint(-5, 5))
    _noise(log, rng)


def scaled_in_two_parts_with_other_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply the intervals of the first and of the second half by two numbers, change all results a little."""
    middle = log.end_of(log.numbers[len(log.numbers) // 2]).time
    first, second = rng.uniform(0.8, 0.95), rng.uniform(1.05, 1.2)
    start = log.timed[0].time
    for line in log.timed:
        early, late = min(line.time, middle) - start, max(0, line.time - middle)
        line.time = round(start + DAY_MS + early * first + late * second)
    _noise(log, rng)


def jittered_by_percent_with_rounded_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Multiply every interval by its own number near one, and write results with fewer digits."""
    jittered_by_percent(log, other, rng)
    for line in log.results:
        met, value = log.met(line), round(line.record["value"], 6)
        if log.target.met(value) == met:
            line.record["value"] = value


def stops_written_twice(log: LogText, other: LogText, rng: random.Random) -> None:
    """Write the stops of epochs again a little later, move all times by the same, change all results a little."""
    shifted_with_other_values(log, other, rng)
    for line in log.all("epoch_stop"):
        log.add(line, line, 1)


def without_some_evaluations(log: LogText, other: LogText, rng: random.Random) -> None:
    """Leave out some evaluations, move all times by the same, change all results a little."""
    shifted_with_other_values(log, other, rng)
    some = [number for number in log.numbers[:-1] if rng.random() < 0.3]
    log.remove(line for number in some for line in log.of_epoch(number, *EVALUATION_KEYS, log.target.key))


def without_the_first_epochs(log: LogText, other: LogText, rng: random.Random) -> None:
    """Leave out up to eight epochs of the start, so that four are left, and count these from the start again."""
    without_first(log, min(log.inner(rng, 1, 3), 8))
    shifted_with_other_values(log, other, rng)


def with_parts_of_a_millisecond(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move all times by the same, which is not whole, change all results a little."""
    shifted_with_other_values(log, other, rng)
    for line in log.timed:
        line.time += 0.37


def moved_with_close_values(log: LogText, other: LogText, rng: random.Random) -> None:
    """Move every time by up to a second, so that no interval stays, and change all results in their fifth digit."""
    move_each(rng.choice(MOVED_MS), rng.choice(CLOSE))(log, other, rng)


def move_each(most_ms: int, part: float) -> Disguise:
    """Return a disguise that moves every time by up to so much, and every result by up to a part of itself."""

    def disguise(log: LogText, other: LogText, rng: random.Random) -> None:
        if len(log.results) < FEWEST:
            raise Unsuitable("too few results")
        shifted(log, other, rng)
        _each_time(log, lambda time_ms: time_ms + rng.randint(-most_ms, most_ms))
        _noise(log, rng, part)

    return disguise


def _stretch(log: LogText, factor: float) -> None:
    first = log.timed[0].time
    moved = random.Random(f"{factor}").randint(1_000, 30 * DAY_MS)
    for line in log.timed:
        line.time = round(first + moved + (line.time - first) * factor)


def _each_time(log: LogText, change: Callable[[float], float]) -> None:
    """Change each time by itself; none goes back."""
    late = float("-inf")
    for line in log.timed:
        late = line.time = max(late, change(line.time))


def _each_interval(log: LogText, change: Callable[[float], float]) -> None:
    lines = log.timed
    before = now = lines[0].time
    for line in lines[1:]:
        now, before = now + round(change(line.time - before)), line.time
        line.time = now


def _noise(log: LogText, rng: random.Random, most: float = 1e-3) -> None:
    """Change all results by up to a part of themselves; which of them meet the target stays."""
    for line in log.results:
        met, value = log.met(line), line.record["value"]
        for part in (most, most / 100, 0):
            line.record["value"] = value * (1 + part * rng.uniform(-1, 1))
            if log.met(line) == met:
                break


def _join(log: LogText, end: Line, other: LogText, late: Line) -> None:
    """Replace what comes behind `end` by what comes behind `late` in another log."""
    tail = [line.copy() for line in other.lines[other.at(late) + 1 :]]
    for line in tail:
        if line.record:
            line.time += end.time - late.time
    log.lines[log.at(end) + 1 :] = tail


DISGUISES = (
    as_it_is,
    shifted,
    scaled,
    scaled_by_little,
    jittered_by_ms,
    jittered_by_percent,
    scaled_and_jittered,
    rounded_to_seconds,
    intervals_exchanged,
    other_values,
    shifted_with_other_values,
    scaled_with_other_values,
    jittered_by_ms_with_other_values,
    one_interval_changed,
    one_interval_and_values_changed,
    tail_exchanged,
    head_exchanged,
    records_left_out,
    records_put_in,
    numbered_otherwise,
    all_but_header_of_another,
    scaled_and_jittered_by_ms_with_other_values,
    jittered_by_percent_with_rounded_values,
    stops_written_twice,
    without_some_evaluations,
    without_the_first_epochs,
    with_parts_of_a_millisecond,
    moved_with_close_values,
)
