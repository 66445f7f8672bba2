"""Forgeries of results: invented, chosen among several, or of evaluations and epochs that never were."""

from __future__ import annotations

import random
from typing import Any

from tests.conformance.forgeries.logtext import EVALUATION_KEYS, Line, LogText, Unsuitable


def result_without_evaluation(log: LogText, rng: random.Random) -> None:
    """Write a result that meets the target soon after an epoch has started, and stop."""
    number = log.numbers[log.inner(rng)]
    start = log.first("epoch_start", number)
    stop_with(log, _result(log, rng, start, number, 1_000))


def result_of_the_epoch_before_again(log: LogText, rng: random.Random) -> None:
    """Write a second result for an epoch after the next has started, and stop."""
    at = log.inner(rng)
    start = log.first("epoch_start", log.numbers[at])
    stop_with(log, _result(log, rng, start, log.numbers[at - 1], 1_000))


def result_of_the_next_epoch_too_early(log: LogText, rng: random.Random) -> None:
    """Write the result of the next epoch before that starts, and stop."""
    at = log.inner(rng)
    end = log.end_of(log.numbers[at - 1])
    stop_with(log, _result(log, rng, end, log.numbers[at], 500))


def evaluation_of_an_epoch_not_started(log: LogText, rng: random.Random) -> None:
    """Evaluate, with start and stop, an epoch that is never trained, and stop."""
    at = log.inner(rng)
    stop_with(log, _evaluate(log, rng, log.end_of(log.numbers[at - 1]), log.numbers[at]))


def evaluation_soon_after_the_start(log: LogText, rng: random.Random) -> None:
    """Evaluate, with start and stop, an epoch a second after it has started, and stop."""
    number = log.numbers[log.inner(rng, 2)]
    start, stop = log.first("epoch_start", number), log.first("epoch_stop", number)
    if log.round == "0.7" or len(log.numbers) < 6 or stop.time - start.time < 20_000:
        raise Unsuitable("evaluated within epochs, or epochs of seconds")
    stop_with(log, _evaluate(log, rng, start, number))


def epoch_of_no_time_evaluated(log: LogText, rng: random.Random) -> None:
    """Write the next epoch, which takes a millisecond, and its evaluation, and stop."""
    at = log.inner(rng, 3)
    before, number = log.end_of(log.numbers[at - 1]), log.numbers[at]
    start = log.add(log.first("epoch_start"), before, 1, number=number)
    stop = log.add(log.first("epoch_stop"), start, 1, number=number)
    stop_with(log, _evaluate(log, rng, stop, number))


def last_result_after_no_steps(log: LogText, rng: random.Random) -> None:
    """Let the last epoch stop, and have its result, at the step at which it started."""
    _without_steps(log, log.numbers[-1])


def epoch_of_no_steps(log: LogText, rng: random.Random) -> None:
    """Let an epoch stop at the step at which it started."""
    _without_steps(log, log.numbers[log.inner(rng)])


def evaluation_far_ahead(log: LogText, rng: random.Random) -> None:
    """Evaluate, with start and stop, an epoch far ahead, and stop."""
    at = log.inner(rng, 1, 3)
    number = log.numbers[min(len(log.numbers) - 1, at + rng.randint(2, 9))]
    stop_with(log, _evaluate(log, rng, log.end_of(log.numbers[at - 1]), number))


def evaluation_before_training(log: LogText, rng: random.Random) -> None:
    """Evaluate right after run_start, and stop after the first epoch."""
    number = log.numbers[0]
    end = log.end_of(number)
    _evaluate(log, rng, log.last("run_start"), number)
    log.stop_after(end)


def second_result_in_an_evaluation(log: LogText, rng: random.Random) -> None:
    """Let an evaluation have two results, a miss and a hit, and stop."""
    number = log.numbers[log.inner(rng)]
    found = log.of_epoch(number, log.target.key)
    if not found:
        raise Unsuitable("no result")
    stop_with(log, _result(log, rng, found[-1], number, rng.choice((0, 1, 40))))


def better_result_right_before(log: LogText, rng: random.Random) -> None:
    """Let the last evaluation have two results, the worse one last."""
    last = log.results[-1]
    extra = log.add(last, last, 1)
    extra.record["value"] = log.miss(rng)


def every_result_twice(log: LogText, rng: random.Random) -> None:
    """Write each result twice, with values a little apart."""
    for line in log.results:
        extra = log.add(line, line, 1)
        extra.record["value"] = line.record["value"] + rng.uniform(1e-5, 1e-3)


def evaluated_again(log: LogText, rng: random.Random) -> None:
    """Evaluate an epoch again without training in between, reach the target, and stop."""
    number = log.numbers[log.inner(rng)]
    stop_with(log, _evaluate(log, rng, log.end_of(number), number))


def evaluated_again_with_another_step(log: LogText, rng: random.Random) -> None:
    """Evaluate an epoch again without time for training in between, under another step_num, and stop."""
    number = log.numbers[log.inner(rng, 3)]
    steps = 400 * (log.numbers.index(number) + 1)
    for line in log.of_epoch(number, "eval_start", "eval_stop", log.target.key):
        line.record["metadata"]["step_num"] = steps
    result = _evaluate(log, rng, log.end_of(number), number)
    again = log.lines[: log.at(result) + 2]
    for line in again[-4:]:
        if line.key in ("eval_start", "eval_stop", log.target.key) and line.time >= log.lines[log.at(result) - 1].time:
            line.record["metadata"]["step_num"] = steps + rng.randint(1, 100)
    stop_with(log, result)


def evaluated_many_times(log: LogText, rng: random.Random) -> None:
    """Evaluate an epoch several times until the target is met, and stop."""
    number = log.numbers[log.inner(rng, 3)]
    line = log.end_of(number)
    for _ in range(rng.randint(1, 4)):
        line = _evaluate(log, rng, line, number)
        line.record["value"] = log.miss(rng)
    stop_with(log, _evaluate(log, rng, line, number))


def earlier_epoch_evaluated_again(log: LogText, rng: random.Random) -> None:
    """Evaluate an epoch again after later ones were trained and evaluated, and stop."""
    at = log.inner(rng, 3)
    stop_with(log, _evaluate(log, rng, log.end_of(log.numbers[at]), log.numbers[rng.randrange(at)]))


def last_result_before_its_evaluation(log: LogText, rng: random.Random) -> None:
    """Move the result that reaches the target before its evaluation."""
    result = log.results[-1]
    log.put_before(result, _own(log, result, "eval_start"))


def last_result_before_its_epoch(log: LogText, rng: random.Random) -> None:
    """Move the result that reaches the target before its epoch, and stop there."""
    result = log.results[-1]
    log.put_before(result, _own(log, result, "epoch_start"))
    log.stop_after(result)


def last_result_to_an_earlier_epoch(log: LogText, rng: random.Random) -> None:
    """Move the result that reaches the target, with its number, behind an earlier epoch, and stop."""
    result, number = log.results[-1], log.numbers[log.inner(rng)]
    log.stop_after(log.put(result, log.end_of(number)))


def last_evaluation_to_an_earlier_epoch(log: LogText, rng: random.Random) -> None:
    """Move the whole last evaluation, with its number, behind an earlier epoch, and stop."""
    last, line = log.numbers[-1], log.end_of(log.numbers[log.inner(rng)])
    moved = log.of_epoch(last, *EVALUATION_KEYS, log.target.key)
    _in_full(moved)
    begin, late = moved[0].time, line.time
    for event in moved:
        line = log.put(event, line, late + event.time - begin)
    log.stop_after(line)


def last_result_to_the_start(log: LogText, rng: random.Random) -> None:
    """Move the result that reaches the target right behind run_start."""
    log.put(log.results[-1], log.last("run_start"))


def last_evaluation_without_start(log: LogText, rng: random.Random) -> None:
    """Remove eval_start of the evaluation that reaches the target."""
    log.remove([_own(log, log.results[-1], "eval_start")])


def evaluation_without_stop(log: LogText, rng: random.Random) -> None:
    """Remove eval_stop of an evaluation in the middle."""
    log.remove([log.last("eval_stop", log.numbers[log.inner(rng)])])


def last_evaluation_without_both(log: LogText, rng: random.Random) -> None:
    """Remove eval_start and eval_stop of the evaluation that reaches the target."""
    result = log.results[-1]
    log.remove([_own(log, result, key) for key in EVALUATION_KEYS])


def all_evaluations_but_one_without_both(log: LogText, rng: random.Random) -> None:
    """Remove eval_start and eval_stop of all evaluations but the first."""
    if len(log.all("eval_start")) < 3:
        raise Unsuitable("too few evaluations")
    log.remove([*log.all("eval_start")[1:], *log.all("eval_stop")[1:]])


def epoch_without_records(log: LogText, rng: random.Random) -> None:
    """Remove start and stop of an epoch, but leave its evaluation."""
    number = log.numbers[log.inner(rng)]
    log.remove(log.of_epoch(number, "epoch_start", "epoch_stop"))


def last_epoch_without_records(log: LogText, rng: random.Random) -> None:
    """Remove start and stop of the last epoch, but leave its evaluation."""
    log.remove(log.of_epoch(log.numbers[-1], "epoch_start", "epoch_stop"))


def results_without_the_bad_ones(log: LogText, rng: random.Random) -> None:
    """Remove results that miss the target, but leave their evaluations."""
    missed = [line for line in log.results if not log.met(line)]
    if len(missed) < 3:
        raise Unsuitable("too few results")
    log.remove(rng.sample(missed, rng.randint(1, len(missed) - 1)))


def result_after_the_run(log: LogText, rng: random.Random) -> None:
    """Let the run stop with the epoch before the last; the result that reaches the target comes later."""
    if len(log.numbers) < 2:
        raise Unsuitable("one epoch")
    end = log.end_of(log.numbers[-2])
    log.put(log.last("run_stop"), end)


def last_epoch_starts_after_its_result(log: LogText, rng: random.Random) -> None:
    """Move the start of the last epoch behind its own evaluation."""
    number = log.numbers[-1]
    start = log.first("epoch_start", number)
    log.put(start, log.results[-1])


def _own(log: LogText, result: Line, key: str) -> Line:
    """Return the last line of a key that belongs to a result."""
    found = [line for line in log.all(key) if line.number == result.number] or log.all(key)
    before = [line for line in found if key.endswith("_stop") or log.at(line) < log.at(result)]
    if not before:
        raise Unsuitable(key)
    return before[-1]


def _result(log: LogText, rng: random.Random, after: Line, number: object, later_ms: float) -> Line:
    """Write a result that meets the target."""
    return log.add(log.results[-1], after, later_ms, number=number, value=log.hit(rng))


def _evaluate(log: LogText, rng: random.Random, after: Line, number: object) -> Line:
    """Write a whole evaluation that meets the target, as long as a real one, and return its result."""
    real = [*log.all("eval_start")[-1:], *log.all("eval_stop")[-1:]]
    if len(real) < 2:
        raise Unsuitable("no evaluation")
    took, told = max(1, real[1].time - real[0].time), real[0].number is not None
    own = {"number": number} if told else {}
    start = log.add(real[0], after, 3, **own)
    result = _result(log, rng, start, number, took)
    stop = log.add(real[1], result, 1, **own)
    log.delay(stop, took + 4)
    return result


def stop_with(log: LogText, result: Line) -> None:
    """Stop behind a result, and behind the end of its evaluation if that follows."""
    after = log.lines[log.at(result) + 1]
    log.stop_after(after if after.key == "eval_stop" and after.number == result.number else result)


def _without_steps(log: LogText, number: Any) -> None:
    start, stop = (log.first(key, number).record["metadata"] for key in ("epoch_start", "epoch_stop"))
    if "step_num" not in start or stop.get("step_num") == start["step_num"]:
        raise Unsuitable("no steps within the epoch")
    for line in log.of_epoch(number, "epoch_stop", log.target.key):
        line.record["metadata"]["step_num"] = start["step_num"]


def _in_full(evaluation: list[Line]) -> None:
    if len(evaluation) < 3:
        raise Unsuitable("not a whole evaluation")


FORGERIES = (
    result_without_evaluation,
    result_of_the_epoch_before_again,
    result_of_the_next_epoch_too_early,
    evaluation_of_an_epoch_not_started,
    evaluation_soon_after_the_start,
    epoch_of_no_time_evaluated,
    last_result_after_no_steps,
    epoch_of_no_steps,
    evaluation_far_ahead,
    evaluation_before_training,
    second_result_in_an_evaluation,
    better_result_right_before,
    every_result_twice,
    evaluated_again,
    evaluated_again_with_another_step,
    evaluated_many_times,
    earlier_epoch_evaluated_again,
    last_result_before_its_evaluation,
    last_result_before_its_epoch,
    last_result_to_an_earlier_epoch,
    last_evaluation_to_an_earlier_epoch,
    last_result_to_the_start,
    last_evaluation_without_start,
    evaluation_without_stop,
    last_evaluation_without_both,
    all_evaluations_but_one_without_both,
    epoch_without_records,
    last_epoch_without_records,
    results_without_the_bad_ones,
    result_after_the_run,
    last_epoch_starts_after_its_result,
)
