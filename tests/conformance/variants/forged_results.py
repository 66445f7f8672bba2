"""Forged results and seeds: results that never were, what no log shows, and runs with one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_course import choose_end, drop_first_epochs, forged
from tests.conformance.variants.logtext import (
    EPOCH_KEYS,
    EVALUATION_KEYS,
    Line,
    LogText,
    map_times,
    require,
    take_arguments,
)
from tests.conformance.variants.table import Case, Random

# -- results: invented, chosen among several, or of evaluations and epochs that never were ------------------------


def add_result(log: LogText, rng: Random, after: Line, number: object, later_ms: float) -> Line:
    """Write a result that meets the target."""
    return log.add(log.results[-1], after, later_ms, number=number, value=log.hit(rng))


def add_evaluation(log: LogText, rng: Random, after: Line, number: object) -> Line:
    """Write a whole evaluation that meets the target, as long as a real one, and return its result."""
    real = [log.last(key) for key in EVALUATION_KEYS]
    took = max(1, real[1].time - real[0].time)
    own = {"number": number} if real[0].number is not None else {}
    start = log.add(real[0], after, 3, **own)
    result = add_result(log, rng, start, number, took)
    stop = log.add(real[1], result, 1, **own)
    log.delay(stop, took + 4)
    return result


def stop_with(log: LogText, result: Line) -> None:
    """Stop behind a result, and behind the end of its evaluation if that follows."""
    after = log.lines[log.at(result) + 1]
    log.stop_after(after if after.key == "eval_stop" and after.number == result.number else result)


def start_of(log: LogText, at: int) -> Line:
    """Return the start of the epoch at a position."""
    return log.first("epoch_start", log.numbers[at])


def end_of(log: LogText, at: int) -> Line:
    """Return the end of the epoch at a position."""
    return log.end_of(log.numbers[at])


@take_arguments
def stop_at(
    log: LogText, rng: Random, make: Callable[[LogText, Random, int], Line], first: int = 1, last: int = 1
) -> None:
    """Write a result at an epoch, which has so many before and behind it, and stop there."""
    stop_with(log, make(log, rng, log.inner(rng, first, last)))


def evaluate_soon(log: LogText, rng: Random, at: int) -> Line:
    """Evaluate, with start and stop, an epoch a second after it has started."""
    start, stop = start_of(log, at), log.first("epoch_stop", log.numbers[at])
    require(
        log.round != "0.7" and len(log.numbers) >= 6 and stop.time - start.time >= 20_000,
        "evaluated within epochs, or epochs of seconds",
    )
    return add_evaluation(log, rng, start, log.numbers[at])


def evaluate_epoch_of_no_time(log: LogText, rng: Random, at: int) -> Line:
    """Write the next epoch, which takes a millisecond, and its evaluation."""
    before, number = end_of(log, at - 1), log.numbers[at]
    start = log.add(log.first("epoch_start"), before, 1, number=number)
    stop = log.add(log.first("epoch_stop"), start, 1, number=number)
    return add_evaluation(log, rng, stop, number)


def evaluate_with_another_step(log: LogText, rng: Random, at: int) -> Line:
    """Evaluate an epoch again without time for training in between, under another step_num."""
    number, steps, known = log.numbers[at], 400 * (at + 1), (*EVALUATION_KEYS, log.target.key)
    for line in log.of_epoch(number, *known):
        line.record["metadata"]["step_num"] = steps
    result = add_evaluation(log, rng, end_of(log, at), number)
    begin = log.before(result)
    for line in log.lines[: log.at(result) + 2][-4:]:
        if line.key in known and line.time >= begin.time:
            line.record["metadata"]["step_num"] = steps + rng.randint(1, 100)
    return result


def evaluate_many_times(log: LogText, rng: Random, at: int) -> Line:
    """Evaluate an epoch several times until the target is met."""
    line = end_of(log, at)
    for _ in range(rng.randint(1, 4)):
        line = add_evaluation(log, rng, line, log.numbers[at])
        line.record["value"] = log.miss(rng)
    return add_evaluation(log, rng, line, log.numbers[at])


def evaluate_before_training(log: LogText, rng: Random) -> None:
    """Evaluate right after run_start, and stop after the first epoch."""
    end = end_of(log, 0)
    add_evaluation(log, rng, log.last("run_start"), log.numbers[0])
    log.stop_after(end)


@take_arguments
def take_away_steps(log: LogText, rng: Random, choose: Callable[[LogText, Random], int]) -> None:
    """Let an epoch stop, and have its result, at the step at which it started."""
    number = log.numbers[choose(log, rng)]
    start, stop = (log.first(key, number).record["metadata"] for key in EPOCH_KEYS)
    require("step_num" in start and stop.get("step_num") != start["step_num"], "no steps within the epoch")
    for line in log.of_epoch(number, "epoch_stop", log.target.key):
        line.record["metadata"]["step_num"] = start["step_num"]


def write_results_twice(log: LogText, rng: Random) -> None:
    """Write each result twice, with values a little apart."""
    for line in log.results:
        log.add(line, line, 1, value=line.record["value"] + rng.uniform(1e-5, 1e-3))


def find_own(log: LogText, key: str) -> Line:
    """Return the last line of a key that belongs to the last result."""
    result = log.results[-1]
    found = [line for line in log.all(key) if line.number == result.number] or log.all(key)
    before = [line for line in found if key.endswith("_stop") or log.at(line) < log.at(result)]
    require(before, key)
    return before[-1]


def move_evaluation_to_an_earlier_epoch(log: LogText, rng: Random) -> None:
    """Move the whole last evaluation, with its number, behind an earlier epoch, and stop."""
    last, line = log.numbers[-1], choose_end(log, rng)
    moved = log.of_epoch(last, *EVALUATION_KEYS, log.target.key)
    require(len(moved) >= 3, "not a whole evaluation")
    begin, late = moved[0].time, line.time
    for event in moved:
        line = log.put(event, line, late + event.time - begin)
    log.stop_after(line)


@take_arguments
def without(log: LogText, rng: Random, select: Callable[[LogText, Random], Iterable[Line]]) -> None:
    """Remove lines."""
    log.remove(select(log, rng))


def choose_missed(log: LogText, rng: Random) -> list[Line]:
    """Return some of the results that miss the target."""
    missed = [line for line in log.results if not log.met(line)]
    require(len(missed) >= 3, "too few results")
    return rng.sample(missed, rng.randint(1, len(missed) - 1))


def all_but_first_evaluation(log: LogText) -> list[Line]:
    """Return starts and stops of all evaluations but the first."""
    require(len(log.all("eval_start")) >= 3, "too few evaluations")
    return [*log.all("eval_start")[1:], *log.all("eval_stop")[1:]]


RESULTS = (
    forged(
        "result_without_evaluation",
        "QUA08",
        stop_at(lambda log, rng, at: add_result(log, rng, start_of(log, at), log.numbers[at], 1_000)),
        "soon after an epoch has started",
    ),
    forged(
        "result_of_the_epoch_before_again",
        "QUA08",
        stop_at(lambda log, rng, at: add_result(log, rng, start_of(log, at), log.numbers[at - 1], 1_000)),
        "after the next has started",
    ),
    forged(
        "result_of_the_next_epoch_too_early",
        "ORD07 QUA08",
        stop_at(lambda log, rng, at: add_result(log, rng, end_of(log, at - 1), log.numbers[at], 500)),
        "before that starts",
    ),
    forged(
        "evaluation_of_an_epoch_not_started",
        "ORD11",
        stop_at(lambda log, rng, at: add_evaluation(log, rng, end_of(log, at - 1), log.numbers[at])),
        "and never trained",
    ),
    forged("evaluation_soon_after_the_start", "ORD18", stop_at(evaluate_soon, 2), "a second after it"),
    forged("epoch_of_no_time_evaluated", "ORD18", stop_at(evaluate_epoch_of_no_time, 3), "it takes a millisecond"),
    forged("last_result_after_no_steps", "QUA08", take_away_steps(lambda log, rng: -1), "as at the start"),
    forged("epoch_of_no_steps", "QUA08", take_away_steps(lambda log, rng: log.inner(rng)), "as at the start"),
    forged(
        "evaluation_far_ahead",
        "ORD11",
        stop_at(
            lambda log, rng, at: add_evaluation(
                log, rng, end_of(log, at - 1), log.numbers[min(len(log.numbers) - 1, at + rng.randint(2, 9))]
            ),
            1,
            3,
        ),
        "of an epoch that is not trained",
    ),
    forged("evaluation_before_training", "ORD11", evaluate_before_training, "right after run_start"),
    forged(
        "second_result_in_an_evaluation",
        "QUA08",
        stop_at(
            lambda log, rng, at: add_result(
                log, rng, log.last(log.target.key, log.numbers[at]), log.numbers[at], rng.choice((0, 1, 40))
            )
        ),
        "a miss and a hit",
    ),
    forged(
        "better_result_right_before",
        "QUA08",
        lambda log, rng: log.add(log.results[-1], log.results[-1], 1, value=log.miss(rng)),
        "two results of the last evaluation, the worse one last",
    ),
    forged("every_result_twice", "QUA08", write_results_twice, "values a little apart"),
    forged(
        "evaluated_again",
        "QUA08",
        stop_at(lambda log, rng, at: add_evaluation(log, rng, end_of(log, at), log.numbers[at])),
        "without training in between",
    ),
    forged("evaluated_again_with_another_step", "QUA08", stop_at(evaluate_with_another_step, 3), "no time to train"),
    forged("evaluated_many_times", "QUA08", stop_at(evaluate_many_times, 3), "until the target is met"),
    forged(
        "earlier_epoch_evaluated_again",
        "ORD11",
        stop_at(lambda log, rng, at: add_evaluation(log, rng, end_of(log, at), log.numbers[rng.randrange(at)]), 3),
        "after later ones were trained and evaluated",
    ),
    forged(
        "last_result_before_its_evaluation",
        "QUA08",
        lambda log, rng: log.put_before(log.results[-1], find_own(log, "eval_start")),
        "that which reaches the target",
    ),
    forged(
        "last_result_before_its_epoch",
        "QUA08",
        lambda log, rng: log.stop_after(log.put_before(log.results[-1], find_own(log, "epoch_start"))),
        "and the run stops there",
    ),
    forged(
        "last_result_to_an_earlier_epoch",
        "QUA08",
        lambda log, rng: log.stop_after(log.put(log.results[-1], choose_end(log, rng))),
        "with its number, and the run stops there",
    ),
    forged("last_evaluation_to_an_earlier_epoch", "ORD11", move_evaluation_to_an_earlier_epoch, "with its number"),
    forged(
        "last_result_to_the_start",
        "QUA01",
        lambda log, rng: log.put(log.results[-1], log.last("run_start")),
        "right behind run_start",
    ),
    forged("last_evaluation_without_start", "ORD12", without(lambda log, rng: [find_own(log, "eval_start")]), "gone"),
    forged(
        "evaluation_without_stop",
        "ORD12",
        without(lambda log, rng: [log.last("eval_stop", log.numbers[log.inner(rng)])]),
        "in the middle",
    ),
    forged(
        "last_evaluation_without_both",
        "QUA08",
        without(lambda log, rng: [find_own(log, key) for key in EVALUATION_KEYS]),
        "that which reaches the target",
    ),
    forged(
        "all_evaluations_but_one_without_both",
        "QUA08",
        without(lambda log, rng: all_but_first_evaluation(log)),
        "the results stay",
    ),
    forged(
        "epoch_without_records",
        "ORD11",
        without(lambda log, rng: log.of_epoch(log.numbers[log.inner(rng)], *EPOCH_KEYS)),
        "its evaluation stays",
    ),
    forged(
        "last_epoch_without_records",
        "ORD11",
        without(lambda log, rng: log.of_epoch(log.numbers[-1], *EPOCH_KEYS)),
        "its evaluation stays",
    ),
    forged("results_without_the_bad_ones", "QUA06", without(choose_missed), "their evaluations stay"),
    forged(
        "result_after_the_run",
        "QUA01 QUA04",
        lambda log, rng: log.put(log.last("run_stop"), log.end_of(log.require_epochs(2)[-2])),
        "the run stops with the epoch before the last",
    ),
    forged(
        "last_epoch_starts_after_its_result",
        "ORD11",
        lambda log, rng: log.put(log.first("epoch_start", log.numbers[-1]), log.results[-1]),
        "behind its own evaluation",
    ),
)


# -- what contradicts nothing: the docs list it -------------------------------------------------------------------


def halve_intervals(log: LogText, rng: Random) -> None:
    """Divide all times from the start on by two."""
    first = log.timed[0].time
    map_times(log.timed, lambda time_ms: first + (time_ms - first) // 2)


def shorten_an_epoch(log: LogText, rng: Random) -> None:
    """Take a part of the time of an epoch away."""
    number = log.numbers[log.inner(rng)]
    start, stop = log.first("epoch_start", number), log.last("epoch_stop", number)
    log.delay(start, -round((stop.time - start.time) * rng.uniform(0.05, 0.3)))


def better_a_result(log: LogText, rng: Random) -> None:
    """Replace the result of an earlier evaluation by one that meets the target, and stop."""
    numbers = [line.number for line in log.results]
    number = numbers[log.inner(rng, 3, 1) if len(numbers) == len(log.numbers) else len(numbers) // 2]
    log.last(log.target.key, number).record["value"] = log.hit(rng)
    stop_with(log, log.end_of(number))


UNSEEN = (
    forged("all_intervals_halved", "", halve_intervals, "from the start on"),
    forged("one_epoch_shorter", "", shorten_an_epoch, "by a part"),
    forged("better_result_and_stop", "", better_a_result, "of an earlier evaluation"),
    forged(
        "first_epochs_forgotten",
        "",
        lambda log, rng: drop_first_epochs(log, min(log.inner(rng), 8)),
        "with their time; the others count from the start",
    ),
)


# -- seeds: runs with one seed that look as if each had its own ----------------------------------------------------


SeedEdit = Callable[[LogText, Random, int], Any]


def first_seed(log: LogText) -> Line:
    """Return the first seed record; a log without one gets it, as a forger would write it."""
    if not log.all("seed"):
        like = log.first("submission_benchmark")
        log.add(like, like, 0, key="seed", value=log.at(like) + int(like.time) % 1_000_000)
    return log.first("seed")


def draw_seed(rng: Random) -> int:
    """Return a new seed."""
    return rng.randint(1_000, 2**31)


def choose_pair(logs: list[LogText], rng: Random) -> list[LogText]:
    """Return two logs; all get seed records, as a forger would write them."""
    for log in logs:
        first_seed(log)
    return rng.sample(logs, 2)


def add_own(log: LogText, rng: Random, number: int = 0) -> Line:
    """Write a seed of its own behind the first one."""
    return log.add(log.first("seed"), log.first("seed"), 0, value=draw_seed(rng))


def add_own_before(log: LogText, rng: Random, number: int = 0, key: str = "seed") -> None:
    """Write a seed of its own before the record of a key."""
    log.put_before(log.first("seed").copy(), log.first(key)).record["value"] = draw_seed(rng)


def name_place(log: LogText, which: int, **place: Any) -> None:
    """Write a seed from another place in the code."""
    log.all("seed")[which].record["metadata"] |= place


def add_own_and_repeat(log: LogText, rng: Random, number: int) -> None:
    """Write a seed of its own, and the first one again."""
    log.add(log.first("seed"), add_own(log, rng))


@take_arguments
def in_all(logs: list[LogText], rng: Random, *edits: SeedEdit) -> None:
    """Write the same seed in all logs, and then do more to each."""
    value = draw_seed(rng)
    for log in logs:
        first_seed(log).record["value"] = value
    for edit in edits:
        for number, log in enumerate(logs):
            edit(log, rng, number)


@take_arguments
def in_one(logs: list[LogText], rng: Random, edit: SeedEdit) -> None:
    """Give one log the seed of another, and then do more to it."""
    one, other = choose_pair(logs, rng)
    first_seed(other).record["value"] = first_seed(one).record["value"]
    edit(other, rng, 0)


@take_arguments
def spell(logs: list[LogText], rng: Random, draw: Callable[[Random], Callable[[int], Any]]) -> None:
    """Give one log the seed of another, spelled in another way."""
    spelling = draw(rng)
    one, other = choose_pair(logs, rng)
    value = draw_seed(rng)
    first_seed(one).record["value"], first_seed(other).record["value"] = value, spelling(value)


def share_from_another_line(logs: list[LogText], rng: Random) -> None:
    """Give one log the seed of another, each from another source file and line."""
    spell(lambda rng: int)(logs, rng)
    for log in logs:
        name_place(log, 0, file=rng.choice(("a.py", "b.py")), lineno=rng.randint(1, 500))


def exchange_pairs(logs: list[LogText], rng: Random) -> None:
    """Write the same two seeds in two logs, in different order."""
    one, other = choose_pair(logs, rng)
    first, second = draw_seed(rng), draw_seed(rng)
    for log, values in ((one, (first, second)), (other, (second, first))):
        seed = first_seed(log)
        seed.record["value"] = values[0]
        log.add(seed, seed, 0, value=values[1])


def forged_seeds(name: str, edit: Callable[[list[LogText], Random], None], reason: str) -> Case:
    """Return the row of a result with forged seeds."""

    def forge(submission: Submission, rng: Random) -> None:
        require(
            submission.round != "0.7" and b'"open"' not in submission.files[submission.description].lower(),
            "no rule about seeds",
        )
        edit(submission.texts(), rng)

    return Case(name, forge, ("RUN04",), "result", reason)


SPELLINGS = (str, "{} ".format, " {}".format, "+{}".format, "00{}".format)
SEEDS = (
    forged_seeds("own_seed_behind", in_all(add_own), "the same seed in all logs, and one of its own"),
    forged_seeds("own_seed_before", in_all(add_own_before), "the same seed in all logs, and before it one of its own"),
    forged_seeds(
        "own_seed_of_another_file",
        in_all(add_own, lambda log, rng, number: name_place(log, -1, file="loader.py", lineno=rng.randint(1, 500))),
        "from another source file and line",
    ),
    forged_seeds("own_seed_in_one_log", in_one(add_own), "the seed of another log, and a second one"),
    forged_seeds(
        "own_seed_at_the_end",
        in_one(lambda log, rng, number: add_own_before(log, rng, key="run_stop")),
        "the second one right before run_stop",
    ),
    forged_seeds("exchanged_pairs", exchange_pairs, "the same two seeds in different order"),
    forged_seeds("spelled_as_text", spell(lambda rng: rng.choice(SPELLINGS)), "the seed of another log"),
    forged_seeds("spelled_as_float", spell(lambda rng: float), "the seed of another log"),
    forged_seeds("from_another_line", share_from_another_line, "the seed of another log"),
    forged_seeds(
        "same_in_all_from_other_lines",
        in_all(lambda log, rng, number: name_place(log, 0, lineno=10 + number)),
        "the same seed in all logs",
    ),
    forged_seeds("repeated_in_one_log", in_one(add_own_and_repeat), "with one of its own between"),
)
