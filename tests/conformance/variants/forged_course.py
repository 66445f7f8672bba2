"""Forged courses of runs: training that no clock sees, and numbers of epochs that were not trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.conformance.variants import valid_logs as valid
from tests.conformance.variants.logtext import (
    EPOCH_KEYS,
    EVALUATION_KEYS,
    Line,
    LogText,
    map_times,
    require,
    take_arguments,
)
from tests.conformance.variants.table import Case, LogEdit, Random, each

VARIED_SHARE = 0.4
VARIED: tuple[LogEdit, ...] = (
    valid.add_other_keys,
    valid.say_more_in_metadata,
    valid.leave_out_members,
    valid.write_epochs_with_a_point,
    valid.write_times_with_a_fraction,
    valid.count_from_the_other,
    valid.move_results("eval_stop"),
    valid.move_results("epoch_stop"),
    valid.move_results_into_evaluations,
    valid.evaluate_within_epochs,
    valid.start_next_epochs_early,
    valid.log_steps,
)
"""Some logs are varied first, so that the rules do not depend on how one tool writes its logs."""

Place = Callable[[LogText, Random], Line]
Select = Callable[[LogText], Iterable[Line]]
Change = Callable[[Any], Any]
Draw = Callable[[LogText, Random], Change]


def forged(name: str, rules: str, edit: LogEdit, reason: str) -> Case:
    """Return the row of a forged log, which one of these rules names."""

    def forge(log: LogText, rng: Random) -> Any:
        if rng.random() < VARIED_SHARE:
            rng.choice(VARIED)(log, rng)
        return edit(log, rng)

    return Case(name, each(forge), tuple(rules.split()), "log", reason)


# -- the clock --------------------------------------------------------------------------------------------------


def choose_early_end(log: LogText, rng: Random, first: int = 0) -> Line:
    """Return the end of one of the first epochs, before which there are at least so many."""
    return log.end_of(log.numbers[min(log.inner(rng, first), 8)])


def choose_end(log: LogText, rng: Random) -> Line:
    """Return the end of an inner epoch."""
    return log.end_of(log.numbers[log.inner(rng)])


@take_arguments
def move(log: LogText, rng: Random, *keys: str, behind: Place, needs: str = "run_start") -> None:
    """Move records, and their times, behind a line, one behind the other."""
    log.last(needs)
    line = behind(log, rng)
    for key in keys:
        line = log.put(log.last(key), line)


@take_arguments
def move_before(log: LogText, rng: Random, key: str, place: Select) -> None:
    """Move a record, and its time, before the last of some lines."""
    lines = list(place(log))
    require(lines, "no such line")
    log.put_before(log.last(key), lines[-1])


@take_arguments
def repeat(log: LogText, rng: Random, key: str, behind: Place) -> None:
    """Write a record again behind a line."""
    log.add(log.last(key), behind(log, rng))


@take_arguments
def set_time(log: LogText, rng: Random, key: str, place: Place) -> None:
    """Give a record the time of a line; it stays where it is."""
    log.last(key).time = place(log, rng).time


def choose_last_ends(log: LogText, rng: Random) -> Line:
    """Return the end of one of the last epochs, not of the very last."""
    return log.end_of(log.numbers[-1 - rng.randint(1, min(5, len(log.numbers) - 1))])


def start_in_the_first_epoch(log: LogText, rng: Random) -> None:
    """Move run_start between start and stop of the first epoch; nothing behind it is earlier."""
    begin, end = log.first("epoch_start"), log.first("epoch_stop")
    start = log.put(log.last("run_start"), begin, begin.time + rng.uniform(0.2, 0.9) * (end.time - begin.time))
    map_times(log.behind(start), lambda time_ms: max(time_ms, start.time))


def stage_around_an_epoch(log: LogText, rng: Random) -> None:
    """Write a pair of staging records around an epoch."""
    number = log.numbers[log.inner(rng)]
    like, end = log.last("run_start"), log.end_of(number)
    log.add(like, end, 0, key="staging_stop", event_type="INTERVAL_END")
    begin = log.put_before(like.copy(), log.first("epoch_start", number))
    begin.record |= {"key": "staging_start", "event_type": "INTERVAL_START"}


def cut_off_first_epochs(log: LogText, rng: Random) -> None:
    """Remove the first epochs and move run_start behind them."""
    start = log.put(log.last("run_start"), choose_early_end(log, rng, 1))
    log.remove(line for line in log.course if log.at(line) < log.at(start))


def cut_out_epochs(log: LogText, rng: Random) -> None:
    """Remove epochs in the middle and the time that they took."""
    at = log.inner(rng, 1, 2)
    number, after = log.numbers[at], log.end_of(log.numbers[at - 1])
    count = rng.randint(1, min(5, len(log.numbers) - at - 1))
    took = log.end_of(log.numbers[at + count - 1]).time - log.first("epoch_start", number).time
    gone = log.numbers[at : at + count]
    log.remove(line for line in log.course if line.number in gone)
    log.delay(after, -took)


def set_clock_back(log: LogText, rng: Random) -> None:
    """Set the clock back in the middle, by more than lies between the two records."""
    start = log.first("epoch_start", log.numbers[log.inner(rng)])
    before = [line for line in log.timed if log.at(line) < log.at(start)][-1]
    log.delay(before, before.time - start.time - rng.uniform(2_000, 60_000))


def shrink_times_of_evaluations(log: LogText, rng: Random) -> None:
    """Shrink the times of evaluations and results only."""
    start, part = log.first("epoch_start").time, rng.uniform(0.3, 0.8)
    map_times(evaluations(log), lambda time_ms: start + (time_ms - start) * part)


def drop_first_epochs(log: LogText, count: int) -> None:
    """Remove this many epochs from the start and their time, and count the others from the start again."""
    numbers = log.numbers
    start, end = log.first("epoch_start"), log.end_of(numbers[count - 1])
    log.delay(end, start.time - end.time)
    log.remove(log.lines[log.at(start) : log.at(end) + 1])
    change_numbers(log.timed, lambda number: number - (numbers[count] - numbers[0]))
    for line in log.timed:
        line.record["metadata"].pop("step_num", None)


CLOCK = (
    forged("run_starts_after_an_epoch", "ORD04", move("run_start", behind=choose_early_end), "record and time"),
    forged("run_starts_in_the_first_epoch", "ORD04", start_in_the_first_epoch, "record and time"),
    forged(
        "run_starts_after_all_but_one_epoch",
        "ORD04",
        move_before("run_start", lambda log: log.require_epochs(2) and log.all("epoch_start")),
        "right before the last epoch",
    ),
    forged(
        "init_and_run_start_after_an_epoch",
        "ORD04",
        move("init_stop", "run_start", behind=choose_early_end),
        "the first epochs look like initialisation",
    ),
    forged(
        "run_start_and_staging_after_an_epoch",
        "ORD03",
        move("run_start", "staging_start", "staging_stop", behind=choose_early_end, needs="staging_start"),
        "with the staging that belongs to the run",
    ),
    forged(
        "whole_start_after_an_epoch",
        "ORD04",
        move("init_start", "init_stop", "run_start", behind=choose_early_end),
        "the log begins with the first epochs",
    ),
    forged("run_start_again_after_an_epoch", "ORD04", repeat("run_start", choose_early_end), "a second record"),
    forged("time_of_run_start_late", "ORD09", set_time("run_start", choose_early_end), "within the epochs that follow"),
    forged(
        "staging_over_training",
        "ORD03",
        move("staging_stop", behind=choose_early_end, needs="staging_stop"),
        "the first epochs are not training time then",
    ),
    forged("staging_around_an_epoch", "ORD03", stage_around_an_epoch, "a pair of records around an epoch"),
    forged("first_epochs_cut_off", "ORD11", cut_off_first_epochs, "the others keep their numbers"),
    forged("epochs_cut_out", "ORD11", cut_out_epochs, "with their time; the others keep their numbers"),
    forged(
        "run_stops_before_the_last_evaluation",
        "QUA01",
        move_before("run_stop", lambda log: log.all("eval_start")),
        "that which reaches the target",
    ),
    forged(
        "run_stops_before_the_last_result",
        "QUA01 QUA04",
        move_before("run_stop", lambda log: log.results),
        "that which reaches the target",
    ),
    forged("time_of_run_stop_early", "ORD09", set_time("run_stop", choose_last_ends), "epochs before the evaluation"),
    forged("run_stop_already_earlier", "ORD05", repeat("run_stop", choose_end), "a second record"),
    forged("clock_set_back", "ORD09", set_clock_back, "by more than lies between two records"),
    forged("times_of_evaluations_shrunk", "ORD09", shrink_times_of_evaluations, "they lie within earlier epochs"),
)


# -- numbers: the run seems to need more, or fewer, epochs than it did -------------------------------------------


def is_number(number: Any) -> bool:
    """Tell whether something is a number of an epoch."""
    return isinstance(number, (int, float))


def step_of(log: LogText) -> int:
    """Return by how much the numbers grow: 1; of openfold by the samples between two evaluations."""
    numbers = log.numbers
    require(len(numbers) >= 2 and all(map(is_number, numbers)), "too few numbers")
    return numbers[1] - numbers[0]


def change_numbers(lines: Iterable[Line], change: Change) -> None:
    """Change the numbers of the lines that have one; also that of the first epoch of a block."""
    for line in lines:
        metadata = line.record.get("metadata") or {}
        for name in ("epoch_num", "first_epoch_num"):
            if is_number(metadata.get(name)):
                metadata[name] = change(metadata[name])


@take_arguments
def renumber(
    log: LogText,
    rng: Random,
    lines: Select,
    draw: Draw,
    late: int = 0,
    needs: str = "",
    first: Callable[[LogText], None] = lambda log: None,
) -> None:
    """Change numbers.

    late: only those from an epoch on, before which there are so many. needs: a key that must have numbers. first: what
    is done to the log when the change is drawn.
    """
    require(not needs or any(is_number(line.number) for line in log.all(needs)), "no numbers")
    numbers = log.numbers[log.inner(rng, late, 0) :] if late else None
    change = draw(log, rng)
    first(log)
    change_numbers(lines(log), lambda number: change(number) if numbers is None or number in numbers else number)


@take_arguments
def add(log: LogText, rng: Random, draw: Callable[[LogText, Random], float]) -> Change:
    """Return the change that adds a number."""
    shift = draw(log, rng)
    return lambda number: number + shift


@take_arguments
def multiply(log: LogText, rng: Random, draw: Callable[[Random], float]) -> Change:
    """Return the change that multiplies by a number."""
    factor = draw(rng)
    return lambda number: number * factor


def shift(least: int = 1) -> Draw:
    """Return the change that adds at least so many epochs."""
    return add(lambda log, rng: step_of(log) * rng.randint(least, 20))


def write_as_text(log: LogText, rng: Random) -> Change:
    """Return the change to a higher number, as text."""
    change = shift()(log, rng)
    return lambda number: str(change(number))


@take_arguments
def only_openfold(log: LogText, rng: Random, edit: LogEdit) -> None:
    """Edit a log of openfold, which counts samples."""
    require(log.benchmark == "openfold", "not openfold")
    edit(log, rng)


def multiply_samples(log: LogText, rng: Random) -> Change:
    """Return the change to more samples per evaluation."""
    factor = rng.choice((1.5, 2, 3))
    return lambda number: int(number * factor)


def grow_samples(log: LogText, rng: Random) -> Change:
    """Return the change to more and more samples per evaluation."""
    numbers = {number: int(number * (1 + 0.05 * at)) for at, number in enumerate(log.numbers)}
    return lambda number: numbers.get(number, number)


def to_blocks(log: LogText) -> None:
    """Log blocks of one epoch instead of epochs."""
    valid.require_epochs(log)
    valid.log_blocks(log, Random())


def claim_more_epochs_in_blocks(log: LogText, rng: Random) -> None:
    """Log blocks that claim more epochs than the numbers of their first epochs leave room for."""
    to_blocks(log)
    for line in log.all("block_start"):
        line.record["metadata"]["epoch_count"] = rng.randint(2, 5)


def name_two_numbers(log: LogText, rng: Random) -> None:
    """Let the result that reaches the target name two numbers."""
    line = log.results[-1]
    require(is_number(line.number), "no number")
    once = b'"epoch_num": ' + json.dumps(line.number).encode()
    twice = once + b', "epoch_num": ' + json.dumps(shift()(log, rng)(line.number)).encode()
    log.lines[log.at(line)] = Line(line.bytes().replace(once, twice, 1), {})


def put_in_epochs_of_no_time(log: LogText, rng: Random) -> None:
    """Put in epochs that take no time, without evaluation, and count them."""
    at, count = log.inner(rng, 1, 0), rng.randint(3, 12)
    before, number, step = log.end_of(log.numbers[at - 1]), log.numbers[at - 1], step_of(log)
    pair = [log.first(key, number) for key in EPOCH_KEYS]
    count_on(log, at, count * step)
    for extra in range(1, count + 1):
        for line in pair:
            before = log.add(line, before, number=number + extra * step)


def count_on(log: LogText, at: int, more: float) -> None:
    """Add to the numbers of all epochs from a position on."""
    later = log.numbers[at:]
    change_numbers(log.timed, lambda number: number + more if number in later else number)


def divide_epochs(log: LogText, parts: int, numbers: list[Any]) -> None:
    """Give the records of these epochs the number of the last of their parts; later ones move up."""
    valid.require_epochs(log)
    last = {number: number + (parts - 1) * (at + 1) for at, number in enumerate(numbers)}
    change_numbers(log.course, lambda number: last.get(number, number))


def count_epochs_twice(log: LogText, rng: Random) -> None:
    """Count every epoch as two that start and stop at the same time, or one a little later than the other."""
    lengths = [log.last("epoch_stop", n).time - log.first("epoch_start", n).time for n in log.numbers]
    later_ms = rng.choice((0, 0.15)) * min(lengths)
    divide_epochs(log, 2, log.numbers)
    for line in log.all(*EPOCH_KEYS):
        first = log.put_before(line.copy(), line)
        first.number -= 1
        if line.key == "epoch_start":
            line.time += later_ms
        else:
            first.time -= later_ms


def divide_last_epoch(log: LogText, rng: Random) -> None:
    """Count the last epoch as several, each with its part of the time."""
    first = log.require_epochs(6)[-1]
    parts = rng.randint(4, 9)
    start, stop = log.first("epoch_start", first), log.last("epoch_stop", first)
    part_ms = (stop.time - start.time) / parts
    divide_epochs(log, parts, [first])
    start.number = first
    for part in range(1, parts):
        end = log.add(stop, start, part_ms, number=first + part - 1)
        start = log.add(start, end, number=first + part)


def start_epochs_that_never_stop(log: LogText, rng: Random) -> None:
    """Start many epochs before the last evaluation, which is that of the last of them."""
    number, parts = log.numbers[-1], rng.randint(4, 20)
    evaluation = log.last("eval_start", number)
    divide_epochs(log, parts, [number])
    for line in log.of_epoch(number + parts - 1, *EPOCH_KEYS):
        line.number = number
    for part in range(1, parts):
        log.put_before(log.first("epoch_start").copy(), evaluation).number = number + part


def claim_many_epochs_in_a_block(log: LogText, rng: Random) -> None:
    """Log blocks, of which one claims many epochs in the time of one."""
    number, more = log.numbers[log.inner(rng, 2, 2)], rng.randint(3, 20)
    to_blocks(log)
    blocks = log.all("block_start", "block_stop")
    own = [line for line in blocks if line.record["metadata"]["first_epoch_num"] == number]
    own[0].record["metadata"]["epoch_count"] = 1 + more
    others = [line for line in log.timed if line not in own]
    change_numbers(others, lambda found: found + more if found >= number else found)


def everything(log: LogText) -> list[Line]:
    """Return all records."""
    return log.timed


def evaluations(log: LogText) -> list[Line]:
    """Return the evaluations and results."""
    return log.all(*EVALUATION_KEYS, log.target.key)


def last_result(log: LogText) -> list[Line]:
    """Return the result that reaches the target."""
    return log.results[-1:]


@take_arguments
def keys(log: LogText, *names: str) -> list[Line]:
    """Return the lines of some keys."""
    return log.all(*names)


NUMBERING = (
    forged("all_from_a_later_number", "ORD11", renumber(everything, shift(2)), "above one"),
    forged(
        "all_from_two",
        "ORD11",
        renumber(everything, add(lambda log, rng: 2 * step_of(log) - log.numbers[0])),
        "from the second number",
    ),
    forged(
        "all_from_a_negative_number",
        "ORD11",
        renumber(everything, add(lambda log, rng: -log.numbers[0] - step_of(log) * rng.randint(1, 8))),
        "below zero",
    ),
    forged(
        "all_multiplied",
        "ORD11",
        renumber(everything, multiply(lambda rng: rng.randint(2, 5))),
        "in steps of two or more",
    ),
    forged(
        "all_in_fractions",
        "ORD11",
        renumber(everything, multiply(lambda rng: rng.choice((0.5, 0.75, 1.25, 1.5)))),
        "in steps that are not whole numbers",
    ),
    forged("late_ones_later", "ORD11", renumber(everything, shift(), late=1), "a gap from some epoch on"),
    forged("late_evaluations_later", "ORD11", renumber(evaluations, shift(), late=1), "a gap, not in those of epochs"),
    forged("late_results_later", "QUA08", renumber(lambda log: log.results, shift(), late=1), "a gap in results only"),
    forged(
        "last_epoch_later",
        "ORD11",
        renumber(lambda log: log.of_epoch(log.numbers[-1]), shift()),
        "with its evaluation and its result",
    ),
    forged(
        "last_evaluation_later",
        "ORD11",
        renumber(lambda log: log.of_epoch(log.numbers[-1], *EVALUATION_KEYS, log.target.key), shift()),
        "with its result",
    ),
    forged("last_result_later", "QUA08", renumber(last_result, shift()), "that which reaches the target"),
    forged(
        "last_result_one_later",
        "QUA08",
        renumber(last_result, add(lambda log, rng: step_of(log))),
        "the next epoch was not trained",
    ),
    forged(
        "last_result_earlier",
        "QUA08",
        renumber(last_result, add(lambda log, rng: -step_of(log) * rng.randint(1, min(10, len(log.numbers) - 1)))),
        "the number of an earlier epoch",
    ),
    forged(
        "last_result_in_a_fraction",
        "QUA08",
        renumber(last_result, add(lambda log, rng: step_of(log) * rng.choice((-0.5, -0.25, 0.5)))),
        "a number between two epochs",
    ),
    forged("results_later", "QUA08", renumber(lambda log: log.results, shift()), "not epochs and evaluations"),
    forged(
        "results_multiplied",
        "QUA08",
        renumber(lambda log: log.results, multiply(lambda rng: rng.randint(2, 5))),
        "not epochs and evaluations",
    ),
    forged("evaluations_later", "ORD11", renumber(evaluations, shift()), "with results, not epochs"),
    forged(
        "evaluation_intervals_later",
        "ORD11",
        renumber(keys(*EVALUATION_KEYS), shift(), needs="eval_start"),
        "higher than those of their results",
    ),
    forged("epochs_later", "ORD11", renumber(keys(*EPOCH_KEYS), shift()), "no evaluation"),
    forged("epoch_starts_later", "ORD12", renumber(keys("epoch_start"), shift()), "only the starts"),
    forged("epoch_stops_later", "ORD12", renumber(keys("epoch_stop"), shift(), needs="epoch_stop"), "only the stops"),
    forged(
        "numbers_repeated",
        "ORD11 QUA08",
        renumber(everything, add(lambda log, rng: -step_of(log)), late=1),
        "an epoch has the number of the one before it: the run seems to be shorter",
    ),
    forged("numbers_as_text", "QUA02", renumber(lambda log: log.results, write_as_text), "higher ones, in results"),
    forged("number_of_the_last_result_twice", "FRM05", name_two_numbers, "readers take the second"),
    forged("epochs_of_no_time_put_in", "ORD18", put_in_epochs_of_no_time, "without evaluation, and counted"),
    forged(
        "openfold_samples_multiplied",
        "ORD11",
        only_openfold(renumber(everything, multiply_samples)),
        "more than val_every_iters times the batch size",
    ),
    forged(
        "openfold_samples_from_later",
        "ORD11",
        only_openfold(
            renumber(
                everything,
                add(
                    lambda log, rng: rng.choice(
                        (rng.randrange(1, int(step_of(log))), step_of(log) * rng.randint(1, 5)),
                    )
                ),
            )
        ),
        "some more from the start on",
    ),
    forged(
        "openfold_samples_go_back",
        "ORD11 QUA08",
        only_openfold(renumber(everything, add(lambda log, rng: -step_of(log) * rng.randint(1, 2)), late=3)),
        "from a lower number again in the middle",
    ),
    forged(
        "openfold_samples_grow_unevenly",
        "ORD11",
        only_openfold(renumber(everything, grow_samples)),
        "more and more per evaluation",
    ),
    forged("blocks_of_several_epochs", "ORD11", claim_more_epochs_in_blocks, "more than their numbers leave room for"),
    forged("blocks_with_a_gap", "ORD11", renumber(everything, shift(), late=1, first=to_blocks), "from a block on"),
    forged("blocks_with_later_results", "ORD11", renumber(evaluations, shift(), first=to_blocks), "than the blocks"),
    forged("epochs_counted_twice", "ORD18", count_epochs_twice, "at the same time, or nearly"),
    forged("last_epoch_divided", "ORD18", divide_last_epoch, "several, each with its part of the time"),
    forged("epochs_that_never_stop", "ORD12", start_epochs_that_never_stop, "before the last evaluation"),
    forged("block_of_more_epochs", "AMT03", claim_many_epochs_in_a_block, "in the time of one"),
)
