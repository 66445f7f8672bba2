"""Valid variants of runs: of several ranks, other clocks, disturbed machines and restarts, as published ones are."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.conformance.variants.logtext import COURSE, POINT, Line, LogText, map_times, require, take_arguments
from tests.conformance.variants.table import Random

# -- several ranks write into one log -----------------------------------------------------------------------------


Change = Callable[[Line, Random], Any]


@take_arguments
def repeat_lines(
    log: LogText, rng: Random, times: Callable[[Random], int], later: Callable[[Random], int], *keys: str
) -> None:
    """Write lines again, so often and so much later."""
    for line in log.all(*keys):
        for _ in range(times(rng)):
            log.add(line, line, later(rng))


@take_arguments
def by_ranks(
    log: LogText, rng: Random, *keys: str, spread_ms: int = 3, change: Change = lambda line, rng: None
) -> None:
    """Let two to four ranks log lines, by clocks that are apart; no keys: the results."""
    ranks = rng.randint(2, 4)
    for line in log.all(*(keys or (log.target.key,))):
        line.record["metadata"]["rank"] = 0
        last = line
        for rank in range(1, ranks):
            following = log.lines[log.at(last) + 1 :][:1]
            room = following[0].time - last.time if following and following[0].record else 0
            last = log.add(last, last, min(rng.randint(0, spread_ms), max(0, room)), {"rank": rank})
            change(last, rng)


def differ_by_rounding(line: Line, rng: Random) -> None:
    """Change a result by its last digits."""
    line.record["value"] *= 1 + rng.uniform(-1e-9, 1e-9)


def require_far_from_the_target(log: LogText, rng: Random) -> None:
    """Refuse a log with a result next to the target."""
    require(all(abs(line.record["value"] / log.target.value - 1) >= 1e-6 for line in log.results), "next to the target")


def log_results_of_two_ranks(log: LogText, rng: Random) -> None:
    """Let two ranks log each result, which differ by rounding."""
    for line in log.results:
        value = line.record["value"] * (1 + 1e-9)
        if log.target.met(value) == log.met(line):
            log.add(line, line, value=value)


def stop_late(log: LogText, rng: Random) -> None:
    """Let a late rank log the end of an epoch when the next one has begun."""
    for number, later in pairwise(log.numbers):
        stops = log.of_epoch(number, "epoch_stop")
        if stops:
            log.add(stops[-1], log.first("epoch_start", later), 0, {"rank": 1})


def log_losses(log: LogText, rng: Random) -> None:
    """Let each rank log its loss, by clocks that are some milliseconds apart."""
    for line in log.all("epoch_stop", "eval_start"):
        for rank in range(4):
            value, early = rng.random(), rng.randint(0, 9)
            log.add(line, line, -early, {"rank": rank}, key="train_loss", event_type=POINT, value=value)


def swap_lines(log: LogText, rng: Random) -> None:
    """Write lines that were logged within two milliseconds in another order, as buffers of two ranks do."""
    for line in log.all("train_loss", "learning_rate", "train_accuracy") or log.all("epoch_stop"):
        at, before = log.at(line), log.before(line)
        if before.record and before.key not in ("run_start", "run_stop", *COURSE) and line.time - before.time <= 2:
            log.lines[at - 1], log.lines[at] = line, before


# -- clocks -------------------------------------------------------------------------------------------------------


def choose_inner(log: LogText, rng: Random) -> Line:
    """Return a line of the course behind run_start, not the last ones before run_stop."""
    start, stop = log.at(log.last("run_start")), log.at(log.last("run_stop"))
    lines = [line for line in log.course[:-4] if start < log.at(line) < stop]
    require(lines, "too short")
    return rng.choice(lines)


@take_arguments
def set_clock(log: LogText, rng: Random, first_ms: int, last_ms: int, sign: int = 1) -> None:
    """Set the clock by some milliseconds within training."""
    log.delay(choose_inner(log, rng), sign * rng.randint(first_ms, last_ms))


def set_clock_often(log: LogText, rng: Random) -> None:
    """Set the clock by some milliseconds again and again."""
    for _ in range(rng.randint(3, 8)):
        log.delay(choose_inner(log, rng), rng.randint(-30, 30))


def drift(log: LogText, rng: Random) -> None:
    """Let the clock go wrong by up to a second in an hour, each node's in its own way."""
    first, rate = log.timed[0].time, 1 + rng.uniform(-3e-4, 3e-4)
    map_times(log.timed, lambda time_ms: int(first + (time_ms - first) * rate))


def start_run_before_init_stop(log: LogText, rng: Random) -> None:
    """Take the time of run_start some milliseconds before that of init_stop: another rank wrote it first."""
    log.last("run_start").time = log.last("init_stop").time - rng.randint(1, 4)


def log_by_another_clock(log: LogText, rng: Random) -> None:
    """Let a node whose clock is late by some 100 ms log what no rule asks for."""
    late = rng.randint(-400, 400)
    for line in log.all("epoch_stop", "eval_stop"):
        log.add(line, line, late, {"host": "n9"}, key="gpu_temperature", event_type=POINT, value=61.5)


# -- pace ---------------------------------------------------------------------------------------------------------


def slow_some_epochs(log: LogText, rng: Random) -> None:
    """Let a few epochs take 4 to 61 times as long: cold caches, compilation, a stalled file system."""
    log.keep_own_times()
    for number in rng.sample(log.numbers, max(1, len(log.numbers) // 4)):
        start = log.first("epoch_start", number)
        length_ms = log.end_of(number).time - start.time
        log.delay(start, int(length_ms * rng.choice((3, 5, 60))))


def disturb_all_the_time(log: LogText, rng: Random) -> None:
    """Let the speed of the machine change all the time, by up to three."""
    log.keep_own_times()
    for line, following in pairwise(log.timed[log.timed.index(log.last("run_start")) :]):
        log.delay(line, int((following.time - line.time) * rng.uniform(0, 2)))


def stretch(log: LogText, rng: Random, number: Any, factor: float) -> None:
    """Let an epoch take longer, by a stall somewhere in it."""
    log.keep_rates()
    start, stop = log.first("epoch_start", number), log.last("epoch_stop", number)
    end = min([stop, *log.of_epoch(number, "eval_start")], key=log.at)
    inner = [line for line in log.lines[log.at(start) : log.at(end)] if line.record]
    require(inner, "another course")
    log.delay(rng.choice(inner), round((factor - 1) * (end.time - start.time)))


Choose = Callable[[list[Any], Random], list[Any]]
Factor = Callable[[Random, int, int], float]


@take_arguments
def slow(log: LogText, rng: Random, epochs: Choose, draw: Callable[[Random], Factor], few: bool = False) -> None:
    """Slow epochs down.

    epochs: which. draw: by how much each, from its position and their number. few: of runs of 9 to 14 epochs.
    """
    factor = draw(rng)
    numbers = log.require_epochs(9 if few else 5)
    require(not few or len(numbers) <= 14, "not short")
    for at, number in enumerate(epochs(numbers, rng)):
        stretch(log, rng, number, factor(rng, at, len(numbers)))


@take_arguments
def evenly(_: Random, first: float, last: float) -> Factor:
    """Return a factor for each epoch, from a range."""
    return lambda rng, at, count: rng.uniform(first, last)


def cool_down(rng: Random) -> Factor:
    """Return less and less: the data are read for the first time."""
    factor = rng.uniform(2, 20)
    return lambda rng, at, count: 1 + factor / (1 + at)


def heat_up(rng: Random) -> Factor:
    """Return 2 to 10 % more for each epoch than for the one before."""
    rate = rng.uniform(1.02, 1.1)
    return lambda rng, at, count: min(5, rate**at)


def by_one_factor(rng: Random) -> Factor:
    """Return the same for all."""
    factor = rng.uniform(1.2, 1.8)
    return lambda rng, at, count: factor


def two_or_three(numbers: list[Any], rng: Random) -> list[Any]:
    """Return two or three epochs."""
    return rng.sample(numbers, rng.randint(2, 3))


def all_epochs(numbers: list[Any], rng: Random) -> list[Any]:
    """Return all epochs."""
    return numbers


def slow_for_a_while(log: LogText, rng: Random) -> None:
    """Let half of the epochs, one after another, take 1.5 to 3 times as long."""
    numbers = log.require_epochs(5)
    first, factor = rng.randrange(len(numbers) // 2), rng.uniform(1.5, 3)
    for number in numbers[first : first + len(numbers) // 2]:
        stretch(log, rng, number, factor)


def write_checkpoints(log: LogText, rng: Random) -> None:
    """Write a checkpoint for 1 to 300 s between some epochs."""
    took = rng.randint(1_000, 300_000)
    for number in log.numbers[1 :: rng.choice((1, 2, 5))]:
        log.delay(log.before(log.first("epoch_start", number)), took + rng.randint(0, took // 10))


def choose_start(log: LogText, rng: Random) -> Line:
    """Return the start of an epoch that is not the first one."""
    return log.first("epoch_start", rng.choice(log.require_epochs(5)[1:]))


def wait_for_ranks(log: LogText, rng: Random) -> None:
    """Wait up to 4 s for all ranks between init_stop and run_start."""
    require(log.at(log.last("init_stop")) < log.at(log.last("run_start")), "another order")
    log.delay(log.last("init_stop"), rng.randint(500, 3_900))


# -- restarts -----------------------------------------------------------------------------------------------------


@take_arguments
def start_again(log: LogText, rng: Random, key: str, times: int = 1, staged: bool = False, **metadata: Any) -> None:
    """Start an epoch or evaluation again after it failed in the middle."""
    log.keep_rates()
    starts = [line for line in log.behind(log.last("run_start")) if line.key == key]
    require(len(starts) >= 3, "too short")
    start = rng.choice(starts[1:-1])
    for _ in range(times):
        lost = rng.randint(20_000, 90_000)
        log.delay(start, lost)
        start = log.add(start, start, lost, metadata)
    if staged:
        stage_before(log, start)


def stage_before(log: LogText, start: Line) -> None:
    """Stage the data again before an epoch."""
    require(log.all("staging_start"), "not staged before")
    before = log.before(start)
    for key, kind, earlier in (("staging_start", "INTERVAL_START", 9_000), ("staging_stop", "INTERVAL_END", 1)):
        before = log.add(start, before, 0, key=key, event_type=kind)
        before.record["metadata"].pop("epoch_num", None)
        before.time = start.time - earlier


def start_epoch_again(log: LogText, rng: Random) -> None:
    """Let an epoch fail within and start again, as elastic training does."""
    log.keep_own_times()
    start = log.first("epoch_start", log.numbers[log.inner(rng)])
    lost_ms = rng.randint(2_000, 90_000)
    log.delay(log.add(start, start, lost_ms), lost_ms)


def stage_between_epochs(log: LogText, rng: Random) -> None:
    """Let a run that another suite's code resumes stage its data again between two epochs."""
    log.keep_own_times()
    end = log.end_of(log.numbers[log.inner(rng) - 1])
    require(log.lines[log.at(end) + 1].key == "epoch_start", "not between epochs")
    start = log.add(log.last("run_start"), end, 1, key="staging_start", event_type="INTERVAL_START")
    stop = log.add(start, start, 40_000, key="staging_stop", event_type="INTERVAL_END")
    log.delay(stop, 40_001)


def resume(log: LogText, rng: Random) -> None:
    """Resume from a checkpoint, as this suite does: the log goes on behind the last epoch that is in it."""
    require(log.all("provenance"), "not by this suite")
    before = log.before(choose_start(log, rng))
    lost = rng.randint(60_000, 3_600_000)
    log.delay(before, lost)
    line = log.add(before, before, lost - 5, key="run_resumed", event_type=POINT, value=None)
    line.record["metadata"].pop("epoch_num", None)


def resume_and_stage(log: LogText, rng: Random) -> None:
    """Resume from the checkpoint of an epoch, and stage the data again before the next one starts."""
    log.keep_rates()
    start = choose_start(log, rng)
    log.delay(log.before(start), rng.randint(20_000, 90_000))
    stage_before(log, start)


# -- what published logs have ---


def steps_of(log: LogText) -> float:
    """Return the steps of a full epoch, with a fraction."""
    size, samples = log.value("global_batch_size"), log.value("train_samples")
    has_steps = any("step_num" in line.record["metadata"] for line in log.course)
    require(log.benchmark != "openfold" and samples >= 4 * size and not has_steps, "no steps, or has them already")
    return samples / size


def set_steps(log: LogText, steps: int, last: float = 1.0) -> None:
    """Log the steps of all epochs; last: the part of the last one that was trained."""
    numbers = log.numbers
    for at, number in enumerate(numbers):
        ended = (at + 1) * steps if at + 1 < len(numbers) else at * steps + max(1, int(last * steps))
        for line in log.of_epoch(number):
            line.record["metadata"]["step_num"] = at * steps if line.key == "epoch_start" else ended


def cut_last_epoch(log: LogText, rng: Random) -> None:
    """Stop in the last epoch, at the target: it has fewer steps and takes less time."""
    log.keep_rates()
    share, last = rng.uniform(0.3, 0.9), log.numbers[-1]
    set_steps(log, math.floor(steps_of(log)), share)
    start, starts = log.first("epoch_start", last), log.of_epoch(last, "eval_start")
    end = min([*log.of_epoch(last, "epoch_stop"), *starts], key=log.at)
    require(log.at(end) - log.at(start) <= 1 and starts, "records within the epoch")
    log.delay(start, -round((1 - share) * (end.time - start.time)))


@take_arguments
def add_stats(
    log: LogText,
    rng: Random,
    benchmark: str,
    steps: Callable[[LogText], float],
    describe: Callable[..., tuple[float, dict[str, Any]]],
) -> None:
    """Log a throughput behind each epoch of a benchmark, and where it was written."""
    each = steps(log)
    require(log.benchmark == benchmark and not log.all("tracked_stats"), "another benchmark, or has them already")
    for at, stop in enumerate(log.all("epoch_stop")):
        rate, metadata = describe(log, rng, stop, at, each)
        members = {"metadata": {"file": "trainer.py", **metadata}, "value": {"throughput": rate}}
        log.add(stop, stop, 0, key="tracked_stats", event_type=POINT, **members)


def count_something_else(log: LogText, rng: Random, stop: Any, at: int, steps: float) -> tuple[float, dict[str, Any]]:
    """Return a throughput that counts something else, and the epoch as step, as in NVIDIA's oc20."""
    return rng.uniform(2e4, 3e4), {"lineno": 296, "step": at + 1, "instance": 0}


def count_samples(log: LogText, rng: Random, stop: Any, at: int, steps: float) -> tuple[float, dict[str, Any]]:
    """Return the samples per second of an epoch without its pauses, and its last step, as in Dell's deepcam."""
    seconds = (stop.time - log.first("epoch_start", stop.number).time) / 1000
    rate = log.value("train_samples") / seconds * rng.uniform(1, 1.03)
    return rate, {"lineno": 612, "epoch": at + 1, "step": (at + 1) * math.floor(steps)}


def log_samples(log: LogText, rng: Random) -> None:
    """Log the samples so far beside the epochs."""
    samples = log.value("train_samples")
    for line in log.course if log.benchmark != "openfold" else ():
        done = log.numbers.index(line.number) + (line.key != "epoch_start") if line.number in log.numbers else 0
        line.record["metadata"]["samples_count"] = done * samples


def log_rank_batch(log: LogText, rng: Random) -> None:
    """Log also the batch size of a rank, and how many batches make a step."""
    size = log.last("global_batch_size")
    ranks = log.value("number_of_nodes") * log.value("accelerators_per_node")
    stated = {line.record["value"] for line in log.all("number_of_ranks")} | {ranks}
    require(
        ranks and stated == {ranks} and not size.record["value"] % ranks and not log.all("gradient_accumulation_steps"),
        "other ranks",
    )
    log.add(size, size, 0, key="local_batch_size", value=size.record["value"] // ranks)
    log.add(size, size, 0, key="gradient_accumulation_steps", value=1)


def stage_before_run_start(log: LogText, rng: Random) -> None:
    """Take the time of staging up to 158 ms before run_start, as openfold did."""
    require((log.benchmark, log.round) == ("openfold", "3.0") and not log.all("staging_start"), "not openfold of 3.0")
    start, stop = log.last("run_start"), log.last("init_stop")
    log.delay(stop, 160)
    early = rng.randint(20, 158)
    anchor = log.before(stop)
    for key in ("staging_stop", "staging_start"):
        log.add(start, anchor, 0, key=key, event_type=POINT).time = start.time - early


def suspend(log: LogText, rng: Random) -> None:
    """Suspend the machine for up to an hour between two epochs."""
    log.delay(log.before(choose_start(log, rng)), rng.randint(600_000, 3_600_000))
