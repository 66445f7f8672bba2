"""Forged runs: a log that is made of another, disguised in one of several ways, and where it is put."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from compliance.benchmarks import benchmarks_of
from tests.conformance.variants import valid_logs as valid
from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_course import drop_first_epochs
from tests.conformance.variants.logtext import (
    EPOCH_KEYS,
    EVALUATION_KEYS,
    POINT,
    LogText,
    map_times,
    require,
    take_arguments,
)
from tests.conformance.variants.table import Case, LogEdit, Random

DAY_MS = 86_400_000
MOVED_MS = (60, 100, 150, 200, 1000)
CLOSE = (0, 1e-5, 3e-5)
"""By which part of themselves results are changed that still prove a copy, if there are FEWEST of them."""
FEWEST = 6
LATER = {"0.7": "1.0", "1.0": "2.0", "2.0": "3.0"}

Disguise = Callable[[LogText, LogText, Random], Any]
"""Changes a copy; the second log is another run of the same result."""
Change = Callable[[Random], Callable[[float], float]]


# -- how a copy is disguised --------------------------------------------------------------------------------------


@take_arguments
def disguise(log: LogText, other: LogText, rng: Random, *edits: Disguise) -> None:
    """Disguise a copy by several edits, one after another."""
    for edit in edits:
        edit(log, other, rng)


def shift(log: LogText, other: LogText, rng: Random) -> None:
    """Move all times by the same."""
    log.shift(rng.choice((-1, 1)) * rng.randint(1_000, 30 * DAY_MS))


@take_arguments
def scale(log: LogText, other: LogText, rng: Random, draw: Callable[[Random], float]) -> None:
    """Multiply all intervals by the same."""
    factor, first = draw(rng), log.timed[0].time
    moved = Random(f"{factor}").randint(1_000, 30 * DAY_MS)
    map_times(log.timed, lambda time_ms: round(first + moved + (time_ms - first) * factor))


@take_arguments
def each_time(log: LogText, other: LogText, rng: Random, draw: Change, *before: Disguise) -> None:
    """Change each time by itself; before: what is done when the change is drawn."""
    change = draw(rng)
    disguise(*before)(log, other, rng)
    log.change_times(change)


@take_arguments
def jitter(rng: Random, *most_ms: int) -> Callable[[float], float]:
    """Return the change of a time by some milliseconds."""
    most = rng.choice(most_ms) if len(most_ms) > 1 else most_ms[0]
    return lambda time_ms: time_ms + rng.randint(-most, most)


def jitter_intervals(log: LogText, other: LogText, rng: Random) -> None:
    """Multiply every interval by its own number near one."""
    log.change_intervals(lambda interval_ms: interval_ms * rng.uniform(0.99, 1.01))


@take_arguments
def noise(log: LogText, other: LogText, rng: Random, most: float = 1e-3) -> None:
    """Change all results by up to a part of themselves; which meet the target stays."""
    for line in log.results:
        value = line.record["value"]
        for part in (most, most / 100, 0):
            if log.change_result(line, value * (1 + part * rng.uniform(-1, 1))):
                break


@take_arguments
def alone(log: LogText, other: LogText, rng: Random, edit: LogEdit) -> None:
    """Edit a copy without regard to the other run."""
    edit(log, rng)


def exchange_intervals(log: LogText, other: LogText, rng: Random) -> None:
    """Put the intervals of epochs into another order."""
    start = log.last("run_start")
    lines = [start, *log.behind(start)]
    require(len(lines) >= 9, "too short")
    intervals = [line.time - earlier.time for earlier, line in pairwise(lines)]
    rng.shuffle(intervals)
    for interval, (earlier, line) in zip(intervals, pairwise(lines), strict=True):
        line.time = earlier.time + interval


def lengthen_an_epoch(log: LogText, other: LogText, rng: Random) -> None:
    """Let one epoch take longer."""
    log.delay(log.end_of(log.numbers[log.inner(rng)]), rng.randint(1_000, 20_000))


def exchange_tail(log: LogText, other: LogText, rng: Random) -> None:
    """Take the last epochs from another run."""
    number = log.numbers[max(1, int(len(log.numbers) * rng.uniform(0.6, 0.9)))]
    end, late = log.end_of(number), other.end_of(number)
    tail = [line.copy() for line in other.lines[other.at(late) + 1 :]]
    for line in tail:
        if line.record:
            line.time += end.time - late.time
    log.lines[log.at(end) + 1 :] = tail


def exchange_head(log: LogText, other: LogText, rng: Random) -> None:
    """Take the first epochs from another run."""
    number = log.numbers[max(1, int(len(log.numbers) * rng.uniform(0.1, 0.4)))]
    end, late = other.end_of(number), log.end_of(number)
    head = [line.copy() for line in other.lines[other.at(other.last("run_start")) + 1 : other.at(end) + 1]]
    by_ms = log.last("run_start").time - other.last("run_start").time
    for line in head:
        if line.record:
            line.time += by_ms
    start, last = log.at(log.last("run_start")), log.at(late)
    log.delay(late, head[-1].time - late.time)
    log.lines[start + 1 : last + 1] = head


def leave_out_records(log: LogText, other: LogText, rng: Random) -> None:
    """Leave out records that no rule needs."""
    known = (*EPOCH_KEYS, *EVALUATION_KEYS, log.target.key, "run_stop")
    log.remove([line for line in log.behind(log.last("run_start")) if line.key not in known])


def put_in_records(log: LogText, other: LogText, rng: Random) -> None:
    """Put in records of other keys."""
    for line in rng.sample(log.course, min(5, len(log.course))):
        log.add(line, line, 0, key="tracked_stats", event_type=POINT, value={"throughput": rng.random()})


def number_otherwise(log: LogText, other: LogText, rng: Random) -> None:
    """Count from 0 instead of 1, or from 1 instead of 0."""
    first, second = log.require_epochs(2)[:2]
    require(second - first == 1, "counts samples")
    valid.count_from_the_other(log, rng)


def take_header(log: LogText, other: LogText, rng: Random) -> None:
    """Keep the header of another run and its start; all epochs are those of this one."""
    start, late = log.last("run_start"), other.last("run_start")
    body = [line.copy() for line in log.lines[log.at(start) + 1 :]]
    for line in body:
        if line.record:
            line.time += late.time - start.time
    log.lines = [line.copy() for line in other.lines[: other.at(late) + 1]] + body


def scale_two_parts(log: LogText, other: LogText, rng: Random) -> None:
    """Multiply the intervals of the first and of the second half by two numbers."""
    middle = log.end_of(log.numbers[len(log.numbers) // 2]).time
    first, second = rng.uniform(0.8, 0.95), rng.uniform(1.05, 1.2)
    start = log.timed[0].time
    for line in log.timed:
        early, late = min(line.time, middle) - start, max(0, line.time - middle)
        line.time = round(start + DAY_MS + early * first + late * second)


def stop_epochs_twice(log: LogText, other: LogText, rng: Random) -> None:
    """Write the stops of epochs again a little later."""
    for line in log.all("epoch_stop"):
        log.add(line, line, 1)


def leave_out_evaluations(log: LogText, other: LogText, rng: Random) -> None:
    """Leave out some evaluations."""
    some = [number for number in log.numbers[:-1] if rng.random() < 0.3]
    log.remove(line for number in some for line in log.of_epoch(number, *EVALUATION_KEYS, log.target.key))


@take_arguments
def forget_epochs(log: LogText, other: LogText, rng: Random, choose: Callable[[LogText, Random], int]) -> None:
    """Leave out epochs of the start, and count the others from the start again."""
    drop_first_epochs(log, choose(log, rng))


def require_results(log: LogText, other: LogText, rng: Random) -> None:
    """Refuse a log of few results."""
    require(len(log.results) >= FEWEST, "too few results")


def move_each(most_ms: int, part: float) -> Disguise:
    """Return the disguise that moves every time by up to so much, and every result by up to a part of itself."""
    return disguise(require_results, shift, each_time(jitter(most_ms)), noise(part))


def move_with_close_values(log: LogText, other: LogText, rng: Random) -> None:
    """Move every time by up to a second, so that no interval stays, and change all results in their fifth digit."""
    move_each(rng.choice(MOVED_MS), rng.choice(CLOSE))(log, other, rng)


scale_much = scale(lambda rng: rng.choice((rng.uniform(0.5, 0.99), rng.uniform(1.01, 1.5))))
scale_little = scale(lambda rng: 1 + rng.choice((-1, 1)) * rng.uniform(0.001, 0.01))
jitter_ms = each_time(jitter(1, 2, 5), shift)
round_to_seconds = disguise(shift, each_time(lambda rng: lambda time_ms: time_ms // 1000 * 1000))
shift_and_change = disguise(shift, noise())


# -- where the copies are put -------------------------------------------------------------------------------------


def copy_run(submission: Submission, number: int, edit: Disguise, rng: Random) -> bytes:
    """Return a disguised copy of a run, with a seed of its own."""
    paths = submission.log_paths
    log, other = submission.read(paths[number]), submission.read(paths[(number + 1) % len(paths)])
    edit(log, other, rng)
    for line in log.all("seed"):
        line.record["value"] = rng.randint(10**6, 10**9)
    return log.bytes()


def copy_within_the_result(submission: Submission, edit: Disguise, rng: Random) -> None:
    """Replace one run by a copy of another."""
    source, target = rng.sample(range(len(submission.log_paths)), 2)
    submission.files[submission.log_paths[target]] = copy_run(submission, source, edit, rng)


Place = Callable[[Submission, Disguise, Random], None]


@take_arguments
def copy_to(
    submission: Submission,
    edit: Disguise,
    rng: Random,
    locate: Callable[[Submission], dict[str, str]],
    runs: int | None = None,
    change: Callable[[bytes], bytes] = bytes,
) -> None:
    """Submit copies of all runs, or of some, as another result.

    locate: the parts of its path that are others. change: what is done to the copied logs and to the description.
    """
    folder, description = submission.locate(**locate(submission))
    count = len(submission.log_paths) if runs is None else runs
    logs = [copy_run(submission, number, edit, rng) for number in range(count)]
    submission.files[description] = change(submission.files[submission.description])
    submission.files |= {f"{folder}/result_{number}.txt": change(log) for number, log in enumerate(logs)}


def find_next_round(submission: Submission) -> dict[str, str]:
    """Return the round after."""
    later = LATER.get(submission.round, "")
    require(later and submission.benchmark in benchmarks_of(later), "the last round")
    return {"round_": later}


def find_other_scaling(submission: Submission) -> dict[str, str]:
    """Return throughput for time to train, or time to train for throughput."""
    require(submission.round != "0.7", "no throughput in this round")
    return {"scaling": "weak" if submission.scaling == "strong" else "strong"}


def find_open_system(submission: Submission) -> dict[str, str]:
    """Return another system, of a closed result."""
    require(b'"closed"' in submission.files[submission.description], "not closed")
    return {"system": "another_system"}


def copy_of_another_tree(submission: Submission, edit: Disguise, rng: Random) -> None:
    """Submit copies alone; the originals are in the tree to compare with."""
    submission.against = dict(submission.files)
    under_another_organisation(submission, edit, rng)
    submission.files = {path: data for path, data in submission.files.items() if path not in submission.against}


under_another_system = copy_to(lambda submission: {"system": "another_system"})
under_another_organisation = copy_to(lambda submission: {"organisation": "Another"})
in_the_other_division = copy_to(find_open_system, change=lambda data: data.replace(b'"closed"', b'"open"'))
PLACES: tuple[Place, ...] = (
    copy_within_the_result,
    under_another_system,
    under_another_organisation,
    copy_to(find_next_round),
    copy_to(find_other_scaling),
    copy_to(lambda submission: {"system": "another_system"}, runs=1),
    copy_of_another_tree,
    in_the_other_division,
)


# -- the table ----------------------------------------------------------------------------------------------------


@take_arguments
def copy_runs(submission: Submission, rng: Random, *edits: Disguise, place: Place | None = None) -> None:
    """Submit disguised copies in this place, or in each in turn."""
    (place or PLACES[submission.turn % len(PLACES)])(submission, disguise(*edits), rng)


def copied(name: str, rules: str, *edits: Disguise, place: Place | None = None) -> Case:
    """Return the row of copied runs, in this place, or in each in turn."""
    allowed = () if rules else OTHER_RULES
    return Case(name, copy_runs(*edits, place=place), tuple(rules.split()), "distinct runs", "a copy", allowed=allowed)


OTHER_RULES = ("ORD", "PKG", "RCP", "SET", "RUN01", "RUN02", "RUN03", "RUN06", "RUN09")
"""Rules that may complain of an unseen copy: of where it was put."""
ALIKE = "RUN05 RUN12"
ROWS: tuple[Any, ...] = (
    ("as_it_is", "RUN05 RUN12"),
    ("shifted", ALIKE, shift),
    ("scaled", ALIKE, scale_much),
    ("scaled_by_little", ALIKE, scale_little),
    ("jittered_by_ms", ALIKE, jitter_ms),
    ("jittered_by_percent", ALIKE, shift, jitter_intervals),
    ("scaled_and_jittered", ALIKE, scale_much, jitter_intervals),
    ("rounded_to_seconds", ALIKE, round_to_seconds),
    ("intervals_exchanged", ALIKE, exchange_intervals),
    ("other_values", ALIKE, noise()),
    ("shifted_with_other_values", ALIKE, shift_and_change),
    ("scaled_with_other_values", ALIKE, scale_much, noise()),
    ("jittered_by_ms_with_other_values", ALIKE, jitter_ms, noise()),
    ("one_interval_changed", ALIKE, shift, lengthen_an_epoch),
    ("one_interval_and_values_changed", ALIKE, shift, lengthen_an_epoch, noise()),
    ("tail_exchanged", ALIKE, exchange_tail, shift),
    ("head_exchanged", ALIKE, exchange_head, shift),
    ("records_left_out", ALIKE, leave_out_records, shift),
    ("records_put_in", ALIKE, shift, put_in_records),
    ("numbered_otherwise", ALIKE, number_otherwise, shift),
    ("all_but_header_of_another", ALIKE, take_header),
    ("scaled_and_jittered_by_ms_with_other_values", ALIKE, scale_much, each_time(jitter(5)), noise()),
    ("jittered_by_percent_with_rounded_values", ALIKE, shift, jitter_intervals, alone(valid.round_results(6))),
    ("stops_written_twice", ALIKE, shift_and_change, stop_epochs_twice),
    ("without_some_evaluations", ALIKE, shift_and_change, leave_out_evaluations),
    (
        "without_the_first_epochs",  # up to eight, so that four are left
        ALIKE,
        forget_epochs(lambda log, rng: min(log.inner(rng, 1, 3), 8)),
        shift_and_change,
    ),
    ("with_parts_of_a_millisecond", ALIKE, shift_and_change, lambda log, other, rng: log.shift(0.37)),
    ("moved_with_close_values", ALIKE, move_with_close_values),
)
"""Names, the rules of which one names the copy, and what disguises it."""
UNSEEN_ROWS: tuple[Any, ...] = (
    ("remade", "", shift, jitter_intervals, noise()),  # another run could look like this
    ("rounded_to_seconds_with_other_values", "", round_to_seconds, noise()),
    ("scaled_in_two_parts_with_other_values", "", scale_two_parts, noise()),
    (
        "of_which_one_epoch_is_left",  # one interval proves nothing
        "",
        forget_epochs(lambda log, rng: len(log.numbers) - 1),
        shift_and_change,
    ),
)
"""What a copy with its original cannot show; the docs list it."""
CASES = tuple(copied(*row) for row in ROWS)
ELSEWHERE = tuple(copied(*row, place=copy_of_another_tree) for row in ROWS)
"""The same copies, and their originals only in the tree to compare with."""
UNSEEN = tuple(copied(*row) for row in UNSEEN_ROWS)
