"""Forgeries of the clock: training that no clock sees, starts and stops that move, epochs that are cut out."""

from __future__ import annotations

import random

from tests.conformance.forgeries.logtext import Line, LogText, Unsuitable


def run_starts_after_an_epoch(log: LogText, rng: random.Random) -> None:
    """Move run_start, record and time, behind the first epochs."""
    log.put(log.last("run_start"), _end_of_early_epoch(log, rng))


def run_starts_in_the_first_epoch(log: LogText, rng: random.Random) -> None:
    """Move run_start between start and stop of the first epoch, and its time with it."""
    begin, end = log.first("epoch_start"), log.first("epoch_stop")
    log.put(log.last("run_start"), begin, begin.time + rng.uniform(0.2, 0.9) * (end.time - begin.time))
    _in_order(log)


def run_starts_after_all_but_one_epoch(log: LogText, rng: random.Random) -> None:
    """Move run_start right before the last epoch."""
    if len(log.numbers) < 2:
        raise Unsuitable("one epoch")
    log.put_before(log.last("run_start"), log.last("epoch_start"))


def init_and_run_start_after_an_epoch(log: LogText, rng: random.Random) -> None:
    """Move init_stop and run_start together: the first epochs look like initialisation."""
    late = _end_of_early_epoch(log, rng)
    log.put(log.last("init_stop"), late)
    log.put(log.last("run_start"), log.last("init_stop"))


def run_start_and_staging_after_an_epoch(log: LogText, rng: random.Random) -> None:
    """Move run_start and the staging that belongs to the run behind the first epochs."""
    if not log.all("staging_start"):
        raise Unsuitable("no staging")
    late = _end_of_early_epoch(log, rng)
    for key in ("run_start", "staging_start", "staging_stop"):
        late = log.put(log.last(key), late)


def whole_start_after_an_epoch(log: LogText, rng: random.Random) -> None:
    """Move init_start, init_stop and run_start: the log begins with the first epochs."""
    late = _end_of_early_epoch(log, rng)
    for key in ("init_start", "init_stop", "run_start"):
        late = log.put(log.last(key), late)


def run_start_again_after_an_epoch(log: LogText, rng: random.Random) -> None:
    """Write a second run_start behind the first epochs."""
    log.add(log.last("run_start"), _end_of_early_epoch(log, rng))


def time_of_run_start_late(log: LogText, rng: random.Random) -> None:
    """Change only the time of run_start: it lies within the epochs that follow."""
    log.last("run_start").time = _end_of_early_epoch(log, rng).time


def staging_over_training(log: LogText, rng: random.Random) -> None:
    """Let staging stop only after the first epochs: it is not training time then."""
    stops = log.all("staging_stop")
    if not stops:
        raise Unsuitable("no staging")
    log.put(stops[-1], _end_of_early_epoch(log, rng))


def staging_around_an_epoch(log: LogText, rng: random.Random) -> None:
    """Write a pair of staging records around an epoch."""
    number = log.numbers[log.inner(rng)]
    start, end = log.first("epoch_start", number), log.end_of(number)
    log.put(_event(log, "staging_stop", "INTERVAL_END"), end)
    log.put_before(_event(log, "staging_start", "INTERVAL_START"), start)


def first_epochs_cut_off(log: LogText, rng: random.Random) -> None:
    """Remove the first epochs and move run_start behind them; the others keep their numbers."""
    number = log.numbers[min(log.inner(rng), 8)]
    end = log.end_of(number)
    start = log.put(log.last("run_start"), end)
    log.remove(line for line in log.course if log.at(line) < log.at(start))


def first_epochs_forgotten(log: LogText, rng: random.Random) -> None:
    """Remove some of the first epochs and their time, and count the others from the start again."""
    without_first(log, min(log.inner(rng), 8))


def without_first(log: LogText, count: int) -> None:
    """Remove this many epochs from the start and their time, and count the others from the start again."""
    numbers = log.numbers
    start, end = log.first("epoch_start"), log.end_of(numbers[count - 1])
    log.delay(end, start.time - end.time)
    log.remove(log.lines[log.at(start) : log.at(end) + 1])
    for line in log.timed:
        if isinstance(line.number, (int, float)):
            line.number -= numbers[count] - numbers[0]
        line.record["metadata"].pop("step_num", None)


def epochs_cut_out(log: LogText, rng: random.Random) -> None:
    """Remove epochs in the middle and the time that they took; the others keep their numbers."""
    at = log.inner(rng, 1, 2)
    number, after = log.numbers[at], log.end_of(log.numbers[at - 1])
    count = rng.randint(1, min(5, len(log.numbers) - at - 1))
    last = log.end_of(log.numbers[at + count - 1])
    took = last.time - log.first("epoch_start", number).time
    gone = log.numbers[at : at + count]
    log.remove([line for line in log.course if line.number in gone])
    log.delay(after, -took)


def run_stops_before_the_last_evaluation(log: LogText, rng: random.Random) -> None:
    """Move run_stop before the evaluation that reaches the target."""
    start = log.all("eval_start")
    if not start:
        raise Unsuitable("no evaluation")
    log.put_before(log.last("run_stop"), start[-1])


def run_stops_before_the_last_result(log: LogText, rng: random.Random) -> None:
    """Move run_stop before the result that reaches the target."""
    log.put_before(log.last("run_stop"), log.results[-1])


def time_of_run_stop_early(log: LogText, rng: random.Random) -> None:
    """Change only the time of run_stop: it lies epochs before the last evaluation."""
    number = log.numbers[-1 - rng.randint(1, min(5, len(log.numbers) - 1))]
    log.last("run_stop").time = log.end_of(number).time


def run_stop_already_earlier(log: LogText, rng: random.Random) -> None:
    """Write a second run_stop behind an earlier epoch."""
    log.add(log.last("run_stop"), log.end_of(log.numbers[log.inner(rng)]))


def clock_set_back(log: LogText, rng: random.Random) -> None:
    """Set the clock back in the middle, by more than lies between the two records."""
    number = log.numbers[log.inner(rng)]
    start = log.first("epoch_start", number)
    before = [line for line in log.timed if log.at(line) < log.at(start)][-1]
    back = start.time - before.time + rng.uniform(2_000, 60_000)
    start.time -= back
    log.delay(start, -back)


def times_of_evaluations_shrunk(log: LogText, rng: random.Random) -> None:
    """Shrink the times of evaluations and results only: they lie within earlier epochs."""
    start, part = log.first("epoch_start").time, rng.uniform(0.3, 0.8)
    for line in log.all("eval_start", "eval_stop", log.target.key):
        line.time = start + (line.time - start) * part


def _end_of_early_epoch(log: LogText, rng: random.Random) -> Line:
    at = min(log.inner(rng, 0), 8)
    return log.end_of(log.numbers[at])


def _in_order(log: LogText) -> None:
    """Give lines behind run_start that were at the same place no earlier time than it."""
    start = log.last("run_start")
    for line in log.lines[log.at(start) :]:
        if line.record:
            line.time = max(line.time, start.time)


def _event(log: LogText, key: str, kind: str) -> Line:
    line = log.last("run_start").copy()
    line.record |= {"key": key, "event_type": kind}
    return line


FORGERIES = (
    run_starts_after_an_epoch,
    run_starts_in_the_first_epoch,
    run_starts_after_all_but_one_epoch,
    init_and_run_start_after_an_epoch,
    run_start_and_staging_after_an_epoch,
    whole_start_after_an_epoch,
    run_start_again_after_an_epoch,
    time_of_run_start_late,
    staging_over_training,
    staging_around_an_epoch,
    first_epochs_cut_off,
    epochs_cut_out,
    run_stops_before_the_last_evaluation,
    run_stops_before_the_last_result,
    time_of_run_stop_early,
    run_stop_already_earlier,
    clock_set_back,
    times_of_evaluations_shrunk,
)
