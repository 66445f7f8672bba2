"""Valid variants of logs and submissions, in groups: as other tools, launchers, machines and centres write them.

A variant is a function that changes a submission and makes it no worse; with a number it is always the same one.
`python -m tests.conformance.valid_variants --corpus FOLDER` lists those that the checker wrongly complains about.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from compliance.model.judging import Finding
from compliance.samples.package import SYSTEM, SamplePackage
from tests.conformance import variations
from tests.conformance.forgeries.logtext import COURSE, Line, LogText, Unsuitable
from tests.conformance.valid_submissions import (
    ORGANISATION,
    Stock,
    Submission,
    Variant,
    build,
    in_each_file,
    in_each_log,
    in_some_logs,
    records_of,
    rewrite,
    vary,
)

EACH = 3
"""How often each variant is made, of other results."""
JUSTIFIED = {
    "readme_beside_logs": {"PKG03"},
    "plots_beside_logs": {"PKG03"},
    "waived_result": {"RCP01"},
    "counted_from_the_other": {"RCP01"},
}
"""Rules that may complain: the committee's tool refuses such files, and takes epochs as they are numbered."""
TOLERATED = ("failed_run_without_a_seed", "failed_run_without_a_record", "failed_run_cut_off")
"""Variants in which a run fails as one may: they have findings, but the result does not fail."""
Log = LogText
Random = random.Random


# -- launchers: what stands before, between and behind records --------------------------------------------------


@in_each_file
def numbered_ranks(data: bytes, rng: Random) -> bytes:
    """Write the number of the rank before each line, as srun -l does."""
    width = rng.randint(1, 5)
    return b"".join(b"%*d: %s\n" % (width, 0, line) for line in data.splitlines())


@in_each_file
def times_before_lines(data: bytes, rng: Random) -> bytes:
    """Write a time before each line, as mpirun --timestamp-output does."""
    lines = enumerate(data.splitlines())
    return b"".join(
        b"Wed Sep  6 10:%02d:%02d 2023[1,0]<stdout>:%s\n" % (at // 60 % 60, at % 60, line) for at, line in lines
    )


@in_each_file
def lines_of_kubernetes(data: bytes, rng: Random) -> bytes:
    """Write the lines as a container's log."""
    lines = enumerate(data.splitlines())
    return b"".join(
        b"2023-09-06T10:%02d:%02d.%09dZ stdout F %s\n" % (at // 60 % 60, at % 60, at, line) for at, line in lines
    )


@in_each_file
def progress_bars(data: bytes, rng: Random) -> bytes:
    """Draw a progress bar into some lines, before the record."""
    bar = b"\rEpoch:  45%|####5     | 57/128 [00:31<00:38,  1.86it/s]\r"
    return b"".join((bar if rng.random() < 0.3 else b"") + line + b"\n" for line in data.splitlines())


@in_each_file
def output_of_other_ranks(data: bytes, rng: Random) -> bytes:
    """Let other ranks warn between the records."""
    lines = data.splitlines()
    warning = b"[rank3]: UserWarning: lr_scheduler.step() before optimizer.step()\n[rank3]:   warnings.warn(\n"
    return b"".join(line + b"\n" + (warning if rng.random() < 0.2 else b"") for line in lines)


@in_each_file
def coloured_lines(data: bytes, rng: Random) -> bytes:
    """Colour what stands before each record."""
    return b"".join(
        b"\x1b[36m(train pid=9%d, ip=10.0.0.7)\x1b[0m %s\n" % (at % 9, line)
        for at, line in enumerate(data.splitlines())
    )


@in_each_file
def output_of_the_job(data: bytes, rng: Random) -> bytes:
    """Keep what the job's script wrote before and behind."""
    before = b"Currently Loaded Modules:\n  1) gcc/11.2   2) openmpi/4.1\n+ srun --mpi=pmix python train.py\n"
    return before + data + b"\nreal\t12m3.1s\nuser\t0m1.0s\nENDING TIMING RUN AT 2023-09-06 10:31:03 AM\n"


@in_each_file
def byte_order_mark(data: bytes, rng: Random) -> bytes:
    """Begin with a mark of the encoding, as editors of Windows do, and end lines as they do."""
    return b"\xef\xbb\xbf" + b"".join(line + b"\r\n" for line in data.splitlines())


@in_each_file
def members_before_records(data: bytes, rng: Random) -> bytes:
    """Write fields of a logging library before each record."""
    return b"".join(b'{"rank": 0, "level": "INFO", "key": "x"} ' + line + b"\n" for line in data.splitlines())


@in_each_file
def some_lines_prefixed(data: bytes, rng: Random) -> bytes:
    """Write the prefix before those lines only that came through the launcher."""
    return b"".join((b"[1,0]<stdout>: " if rng.random() < 0.5 else b"") + line + b"\n" for line in data.splitlines())


@in_each_file
def text_before_records(data: bytes, rng: Random) -> bytes:
    """Write the record behind other text of the same line."""
    return b"".join(b"INFO:mlperf:step %d of 4096 done; %s\n" % (at, line) for at, line in enumerate(data.splitlines()))


# -- emitters: how records are spelled --------------------------------------------------------------------------


@in_each_file
def members_in_another_order(data: bytes, rng: Random) -> bytes:
    """Write the members of all objects in another order in each record."""

    def shuffle(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shuffle(value[name]) for name in rng.sample(list(value), len(value))}
        return value

    return rewrite(data, lambda record: json.dumps(shuffle(record)))


@in_each_file
def compact_json(data: bytes, rng: Random) -> bytes:
    """Write no space, and members in the order of their names."""
    return rewrite(data, lambda record: json.dumps(record, separators=(",", ":"), sort_keys=True))


@in_each_file
def spaced_json(data: bytes, rng: Random) -> bytes:
    """Write many spaces."""
    return rewrite(data, lambda record: json.dumps(record, separators=("  ,  ", "  :  ")))


class _Spelled(float):
    """A float that is written in its own way."""

    form = "{!r}"

    def __repr__(self) -> str:
        return self.form.format(float(self))


def _spell_floats(data: bytes, form: str) -> bytes:
    kind = type("_Own", (_Spelled,), {"form": form})

    def spell(value: Any) -> Any:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(name)}: {spell(member)}" for name, member in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(spell, value)) + "]"
        return repr(kind(value)) if type(value) is float and value - value == 0 else json.dumps(value)

    return rewrite(data, spell)


@in_each_file
def floats_with_exponents(data: bytes, rng: Random) -> bytes:
    """Write 0.05 as 5.0000000000000003e-02, as C does."""
    return _spell_floats(data, rng.choice(("{:.16e}", "{:.16E}")))


@in_each_file
def floats_of_seventeen_digits(data: bytes, rng: Random) -> bytes:
    """Write 0.05 as 0.050000000000000003."""
    return _spell_floats(data, "{:.17g}")


@in_each_file
def escaped_texts(data: bytes, rng: Random) -> bytes:
    """Write letters of texts as escapes."""

    def spell(record: dict[str, Any]) -> str:
        text = json.dumps(record)
        return re.sub(r'(?<=")[a-z](?=[a-z_]*")', lambda match: f"\\u{ord(match[0]):04x}", text).replace("/", "\\/")

    return rewrite(data, spell)


@in_each_log
def more_members(log: Log, rng: Random) -> None:
    """Add members to records and metadata."""
    for at, line in enumerate(log.timed):
        line.record |= {"job": "4711", "sequence": at}
        line.record["metadata"] |= {"host": "n17", "rank": 0, "gpu": {"name": "x", "index": [0, 1]}}


@in_each_log
def no_file_and_line(log: Log, rng: Random) -> None:
    """Leave out where in the code a record was written, but for the seed, by whose file the official tool sorts."""
    for line in [line for line in log.timed if line.key != "seed"]:
        line.record["metadata"].pop("file", None)
        line.record["metadata"].pop("lineno", None)


@in_each_log
def times_as_floats(log: Log, rng: Random) -> None:
    """Write times as floats with microseconds."""
    for line in log.timed:
        line.time = float(line.time) + 0.125


@in_each_log
def epochs_and_settings_as_floats(log: Log, rng: Random) -> None:
    """Write all whole numbers with a point."""
    variations.numbers_with_a_point(log, rng)
    variations.epochs_with_a_point(log, rng)


@in_each_log
def more_keys(log: Log, rng: Random) -> None:
    """Log much that no rule asks for."""
    for line in list(log.course):
        for key in ("train_loss", "learning_rate", "gpu_memory_mb"):
            log.add(line, line, 0, key=key, event_type="POINT_IN_TIME", value=rng.random())


# -- interleaving: several ranks write into one log -------------------------------------------------------------


def _repeat(
    log: Log, rng: Random, *keys: str, spread_ms: int = 3, change: Callable[[Line], None] | None = None
) -> None:
    ranks = rng.randint(2, 4)
    for line in log.all(*keys):
        line.record["metadata"]["rank"] = 0
        last = line
        for rank in range(1, ranks):
            at = log.at(last)
            room = log.lines[at + 1].time - last.time if at + 1 < len(log.lines) and log.lines[at + 1].record else 0
            last = log.add(last, last, min(rng.randint(0, spread_ms), max(0, room)))
            last.record["metadata"]["rank"] = rank
            if change is not None:
                change(last)


@in_each_log
def starts_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log that an epoch or evaluation starts."""
    _repeat(log, rng, "epoch_start", "eval_start")


@in_each_log
def epoch_starts_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log that an epoch starts, some half a second late."""
    _repeat(log, rng, "epoch_start", spread_ms=500)


@in_each_log
def evaluations_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log start and stop of evaluations."""
    _repeat(log, rng, "eval_start", "eval_stop")


@in_each_log
def stops_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log that an epoch or evaluation stops."""
    _repeat(log, rng, "epoch_stop", "eval_stop")


@in_each_log
def results_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log the same result."""
    _repeat(log, rng, log.target.key)


@in_each_log
def results_of_ranks_apart(log: Log, rng: Random) -> None:
    """Let two to four ranks log results that differ by rounding."""

    def change(line: Line) -> None:
        line.record["value"] *= 1 + rng.uniform(-1e-9, 1e-9)

    if any(abs(line.record["value"] / log.target.value - 1) < 1e-6 for line in log.results):
        raise Unsuitable("next to the target")
    _repeat(log, rng, log.target.key, change=change)


@in_each_log
def everything_by_several_ranks(log: Log, rng: Random) -> None:
    """Let several ranks log all of the course."""
    _repeat(log, rng, *COURSE)


@in_each_log
def stop_of_a_late_rank(log: Log, rng: Random) -> None:
    """Let a late rank log the end of an epoch when the next one has begun."""
    for number, later in pairwise(log.numbers):
        stops = log.of_epoch(number, "epoch_stop")
        if stops:
            log.add(stops[-1], log.first("epoch_start", later), 0).record["metadata"]["rank"] = 1


@in_each_log
def losses_of_each_rank(log: Log, rng: Random) -> None:
    """Let each rank log its loss, by clocks that are some milliseconds apart."""
    for line in list(log.all("epoch_stop", "eval_start")):
        for rank in range(4):
            members: dict[str, Any] = {"key": "train_loss", "event_type": "POINT_IN_TIME", "value": rng.random()}
            log.add(line, line, -rng.randint(0, 9), **members).record["metadata"]["rank"] = rank


@in_each_log
def lines_of_ranks_swapped(log: Log, rng: Random) -> None:
    """Write lines that were logged within two milliseconds in another order, as buffers of two ranks do."""
    losses_of_each_rank_lines = log.all("train_loss", "learning_rate", "train_accuracy")
    for line in losses_of_each_rank_lines or log.all("epoch_stop"):
        at = log.at(line)
        before = log.lines[at - 1]
        if before.record and before.key not in ("run_start", "run_stop", *COURSE) and line.time - before.time <= 2:
            log.lines[at - 1], log.lines[at] = line, before


# -- clocks -----------------------------------------------------------------------------------------------------


def _inner_line(log: Log, rng: Random) -> Line:
    """Return a line of the course behind run_start, not the last ones before run_stop."""
    start, stop = log.at(log.last("run_start")), log.at(log.last("run_stop"))
    lines = [line for line in log.course[:-4] if start < log.at(line) < stop]
    if not lines:
        raise Unsuitable("too short")
    return rng.choice(lines)


@in_some_logs
def clock_set_back(log: Log, rng: Random) -> None:
    """Set the clock back by less than a second within training."""
    log.delay(_inner_line(log, rng), -rng.randint(1, 900))


@in_some_logs
def clock_set_forward(log: Log, rng: Random) -> None:
    """Set the clock forward by less than a second within training."""
    log.delay(_inner_line(log, rng), rng.randint(1, 900))


@in_each_log
def clock_set_often(log: Log, rng: Random) -> None:
    """Set the clock by some milliseconds again and again."""
    for _ in range(rng.randint(3, 8)):
        log.delay(_inner_line(log, rng), rng.randint(-30, 30))


@in_each_log
def clock_that_drifts(log: Log, rng: Random) -> None:
    """Let the clock go wrong by up to a second in an hour, each node's in its own way."""
    first, rate = log.timed[0].time, 1 + rng.uniform(-3e-4, 3e-4)
    for line in log.timed:
        line.time = int(first + (line.time - first) * rate)


@in_each_log
def times_in_tens_of_milliseconds(log: Log, rng: Random) -> None:
    """Know the time to 10 ms, as some kernels do."""
    for line in log.timed:
        line.time = line.time // 10 * 10


@in_each_log
def times_in_whole_seconds(log: Log, rng: Random) -> None:
    """Know the time in whole seconds."""
    variations.times_in_seconds(log, rng)


@in_each_log
def run_start_before_init_stop(log: Log, rng: Random) -> None:
    """Take the time of run_start some milliseconds before that of init_stop: another rank wrote it first."""
    start, stop = log.last("run_start"), log.last("init_stop")
    start.time = stop.time - rng.randint(1, 4)


@in_each_log
def clock_of_another_node(log: Log, rng: Random) -> None:
    """Let a node whose clock is late by some 100 ms log what no rule asks for."""
    late = rng.randint(-400, 400)
    for line in list(log.all("epoch_stop", "eval_stop")):
        members: dict[str, Any] = {"key": "gpu_temperature", "event_type": "POINT_IN_TIME", "value": 61.5}
        log.add(line, line, late, **members).record["metadata"]["host"] = "n9"


# -- evaluations ------------------------------------------------------------------------------------------------


def _evaluated_late(log: Log, later: int, in_flight: bool = True) -> None:
    """Move end and result of each evaluation behind an epoch that comes later, and train so many epochs more."""
    numbers = log.numbers
    if len(numbers) < later + 2 or log.benchmark == "openfold":
        raise Unsuitable("too short, or evaluated every so many steps")
    for number in numbers:
        keys = ("epoch_start", "epoch_stop", "eval_start", "eval_stop", log.target.key)
        if [len(log.of_epoch(number, key)) for key in keys] != [1] * 5:
            raise Unsuitable("another course")
        if log.at(log.first("epoch_stop", number)) > log.at(log.first("eval_start", number)):
            raise Unsuitable("evaluated within the epoch")
    _train_more(log, later, evaluated=in_flight)
    extended = log.numbers
    for at, number in enumerate(numbers):
        anchor = log.first("epoch_stop", extended[at + later])
        starts = log.of_epoch(extended[at + later], "eval_start")
        anchor = starts[0] if starts and log.at(starts[0]) > log.at(anchor) else anchor
        for key in (log.target.key, "eval_stop"):
            log.put(log.first(key, number), anchor)
    _close_gaps(log)


def _train_more(log: Log, epochs: int, evaluated: bool) -> None:
    """Add epochs at the end that have no result yet when the run stops."""
    last, before = log.numbers[-1], log.numbers[-2]
    lines, previous = log.of_epoch(last, "epoch_start", "epoch_stop"), log.end_of(last)
    took = lines[-1].time - lines[0].time
    steps = variations.last_step(log.of_epoch(last)) - variations.last_step(log.of_epoch(before))
    stop = log.last("run_stop")
    for more in range(1, epochs + 1):
        begin_ms = previous.time + 1
        keys = ["epoch_start", "epoch_stop"] + ["eval_start"] * evaluated
        for key in keys:
            like = log.first(key, last)
            previous = log.add(like, previous, 0, number=last + more * (last - before))
            previous.time = begin_ms if key == "epoch_start" else begin_ms + took
            step = previous.record["metadata"].get("step_num")
            if isinstance(step, int):
                previous.record["metadata"]["step_num"] = step + more * steps
    late = previous.time + 2 - stop.time
    for line in log.lines[log.at(stop) :]:
        if line.record:
            line.time += late
    if stop.number is not None:
        stop.number = last


def _close_gaps(log: Log) -> None:
    """Start each epoch when the one before stops, as nothing waits for evaluations."""
    for number, later in pairwise(log.numbers):
        gap = log.first("epoch_start", later).time - log.first("epoch_stop", number).time
        before = log.lines[log.at(log.first("epoch_start", later)) - 1]
        if gap > 2:
            log.delay(before, 2 - gap)
    late = float("-inf")
    for line in log.timed:
        late = line.time = max(late, line.time)


@in_each_log
def asynchronous_evaluations(log: Log, rng: Random) -> None:
    """Evaluate while the next one to three epochs are trained."""
    _evaluated_late(log, rng.randint(1, 3))


@in_each_log
def five_evaluations_in_flight(log: Log, rng: Random) -> None:
    """Stop the run while five evaluations are still at work."""
    _evaluated_late(log, 5)


@in_each_log
def evaluations_never_started(log: Log, rng: Random) -> None:
    """Evaluate late, and leave the last epochs without evaluation, since the target is met."""
    _evaluated_late(log, rng.randint(1, 4), in_flight=False)


@in_each_log
def last_evaluation_without_a_stop(log: Log, rng: Random) -> None:
    """Stop the run at the result, before the evaluation logs its end."""
    log.remove([log.last("eval_stop")])


@in_each_log
def long_evaluations(log: Log, rng: Random) -> None:
    """Evaluate for as long as an epoch takes."""
    _keep_rates(log)
    for start in log.all("eval_start")[:-1]:
        log.delay(start, rng.randint(60_000, 90_000))


@in_each_log
def target_met_in_the_next_epoch(log: Log, rng: Random) -> None:
    """Stop within an epoch, as soon as the evaluation of the one before has its result."""
    last = log.numbers[-1]
    if len(log.numbers) < 2 or log.benchmark == "openfold":
        raise Unsuitable("too short")
    starts = log.of_epoch(last, "eval_start")
    if len(starts) != 1 or log.at(log.last("epoch_stop", last)) > log.at(starts[0]):
        raise Unsuitable("evaluated within the epoch")
    begin = log.first("epoch_start", last)
    log.add(begin, starts[0], 1, number=last + (last - log.numbers[-2]))


def _from(change: Callable[[Log, Random], None]) -> Variant:
    return in_each_log(change)


# -- pace -------------------------------------------------------------------------------------------------------


def _keep_rates(log: Log) -> None:
    if log.benchmark != "oc20" and log.all("tracked_stats"):
        raise Unsuitable("states its own rates")


def _stretch(log: Log, rng: Random, number: Any, factor: float) -> None:
    """Let an epoch take longer, by a stall somewhere in it."""
    _keep_rates(log)
    start, stop = log.first("epoch_start", number), log.last("epoch_stop", number)
    starts = log.of_epoch(number, "eval_start")
    end = min([stop, *starts], key=log.at)
    inner = [line for line in log.lines[log.at(start) : log.at(end)] if line.record]
    if not inner:
        raise Unsuitable("another course")
    log.delay(rng.choice(inner), round((factor - 1) * (end.time - start.time)))


def _full_epochs(log: Log) -> list[Any]:
    if len(log.numbers) < 5:
        raise Unsuitable("too short")
    return log.numbers


@in_some_logs
def slow_epoch(log: Log, rng: Random) -> None:
    """Let one epoch take 2 to 60 times as long."""
    _stretch(log, rng, rng.choice(_full_epochs(log)), rng.choice((2, 4, 6, 13, 30, 60)))


@in_some_logs
def slow_epochs(log: Log, rng: Random) -> None:
    """Let two or three epochs take 4 to 6 times as long, as a file system that stalls does."""
    for number in rng.sample(_full_epochs(log), rng.randint(2, 3)):
        _stretch(log, rng, number, rng.uniform(4, 6))


@in_some_logs
def slow_epochs_of_a_short_run(log: Log, rng: Random) -> None:
    """Let two or three epochs of 9 to 14 take 4 to 6 times as long."""
    if not 9 <= len(log.numbers) <= 14:
        raise Unsuitable("not short")
    for number in rng.sample(log.numbers, rng.randint(2, 3)):
        _stretch(log, rng, number, rng.uniform(4, 6))


@in_some_logs
def very_slow_epochs(log: Log, rng: Random) -> None:
    """Let two or three epochs take 20 to 60 times as long."""
    for number in rng.sample(_full_epochs(log), rng.randint(2, 3)):
        _stretch(log, rng, number, rng.uniform(20, 60))


@in_each_log
def cold_first_epochs(log: Log, rng: Random) -> None:
    """Read the data for the first time in the first one to three epochs."""
    factor = rng.uniform(2, 20)
    for at, number in enumerate(_full_epochs(log)[: rng.randint(1, 3)]):
        _stretch(log, rng, number, 1 + factor / (1 + at))


@in_each_log
def machine_that_slows_down(log: Log, rng: Random) -> None:
    """Let each epoch take 2 to 10 % longer than the one before."""
    rate = rng.uniform(1.02, 1.1)
    for at, number in enumerate(_full_epochs(log)):
        _stretch(log, rng, number, min(5, rate**at))


@in_each_log
def machine_that_speeds_up(log: Log, rng: Random) -> None:
    """Let each epoch take less than the one before, as neighbours leave."""
    numbers = _full_epochs(log)
    for at, number in enumerate(numbers):
        _stretch(log, rng, number, 1 + rng.uniform(0.05, 0.1) * (len(numbers) - at))


@in_some_logs
def slow_for_a_while(log: Log, rng: Random) -> None:
    """Let half of the epochs, one after another, take 1.5 to 3 times as long."""
    numbers = _full_epochs(log)
    first, factor = rng.randrange(len(numbers) // 2), rng.uniform(1.5, 3)
    for number in numbers[first : first + len(numbers) // 2]:
        _stretch(log, rng, number, factor)


@in_each_log
def machine_with_neighbours(log: Log, rng: Random) -> None:
    """Let each epoch take up to 1.6 times as long, by chance."""
    for number in _full_epochs(log):
        _stretch(log, rng, number, rng.uniform(1, 1.6))


@in_each_log
def fast_and_slow_in_turn(log: Log, rng: Random) -> None:
    """Let every second epoch take longer: its half of the data lies on a slower disk."""
    factor = rng.uniform(1.2, 1.8)
    for number in _full_epochs(log)[:: rng.choice((2, 3))]:
        _stretch(log, rng, number, factor)


@in_each_log
def checkpoints_between(log: Log, rng: Random) -> None:
    """Write a checkpoint for 1 to 300 s between some epochs."""
    took = rng.randint(1_000, 300_000)
    for number in log.numbers[1 :: rng.choice((1, 2, 5))]:
        start = log.first("epoch_start", number)
        log.delay(log.lines[log.at(start) - 1], took + rng.randint(0, took // 10))


@in_some_logs
def hour_between_epochs(log: Log, rng: Random) -> None:
    """Suspend the machine for up to an hour between two epochs."""
    start = log.first("epoch_start", rng.choice(_full_epochs(log)[1:]))
    log.delay(log.lines[log.at(start) - 1], rng.randint(600_000, 3_600_000))


@in_some_logs
def slow_evaluation(log: Log, rng: Random) -> None:
    """Let one evaluation take up to half an hour, as its data are read for the first time."""
    log.delay(rng.choice(log.all("eval_start")), rng.randint(60_000, 1_800_000))


def slow_run(submission: Submission, rng: Random) -> None:
    """Let one run of the result take up to 1.4 times as long as the others."""
    log, factor = rng.choice(submission.texts()), rng.uniform(1.15, 1.4)
    _keep_rates(log)
    first = log.last("run_start").time
    for line in log.lines[log.at(log.last("run_start")) :]:
        if line.record:
            line.time = round(first + (line.time - first) * factor)


@in_each_log
def pause_before_run_start(log: Log, rng: Random) -> None:
    """Wait up to 5 s for all ranks between init_stop and run_start."""
    if log.at(log.last("init_stop")) > log.at(log.last("run_start")):
        raise Unsuitable("another order")
    log.delay(log.last("init_stop"), rng.randint(500, 4_500))


# -- submissions ------------------------------------------------------------------------------------------------


def _built(submission: Submission, *rounds: str) -> SamplePackage:
    if submission.package is None or submission.round not in (rounds or ("1.0", "2.0", "3.0")):
        raise Unsuitable("published, or another round")
    return submission.package


def text_files_at_the_top(submission: Submission, rng: Random) -> None:
    """Add what a repository has: README, licence, notes."""
    for name in rng.sample(("README.md", "LICENSE", "LICENSE.md", "CHANGELOG.md", "NOTES.txt"), 3):
        submission.files[f"{submission.organisation}/{name}"] = b"# Results\n"


def readme_beside_logs(submission: Submission, rng: Random) -> None:
    """Put a README beside the logs."""
    submission.files[f"{submission.folder}/README.md"] = b"# How these were made\n"


def plots_beside_logs(submission: Submission, rng: Random) -> None:
    """Put plots of the learning curves beside the logs."""
    submission.files[f"{submission.folder}/curves.png"] = b"\x89PNG\r\n\x1a\n"


def readme_of_the_system(submission: Submission, rng: Random) -> None:
    """Put a README into the folder of the system's results."""
    submission.files[f"{submission.folder.rpartition('/')[0]}/README.md"] = b"# This system\n"


def documentation(submission: Submission, rng: Random) -> None:
    """Add a folder of documents."""
    for name in ("calibration.md", "system.pdf", "plots/curve.png"):
        submission.files[f"{submission.organisation}/documentation/{name}"] = b"%PDF-1.4\n"


def system_with_a_version(submission: Submission, rng: Random) -> None:
    """Name the system after the version of its framework."""
    name = rng.choice(("pytorch-2.0", "runs_v1.0", "torch_1.0", "cluster_3.0", "A100-80GB_v0.7"))
    submission.describe(lambda fields: fields | {"system_name": name})
    submission.rename(submission.system, name)


def runs_in_a_folder_with_a_version(submission: Submission, rng: Random) -> None:
    """Keep the runs in a folder of one's own, not in a submission."""
    if submission.is_throughput or submission.round == "0.7":
        raise Unsuitable("needs its package")
    name = rng.choice(("pytorch-2.0", "runs_v1.0", "torch-1.0", "results-3.0"))
    paths = {path: f"{name}/{submission.benchmark}/{path.rpartition('/')[2]}" for path in submission.log_paths}
    submission.files = {new: submission.files[path] for path, new in paths.items()}


def organisation_with_a_version(submission: Submission, rng: Random) -> None:
    """Name the folder of the organisation like a version, below one that names the round."""
    name = rng.choice(("NVIDIA-2.0", "Site 1.0", "Lab_v3.0"))
    submission.rename(submission.organisation, f"hpc_results_v{submission.round}/{name}")


def results_repository(submission: Submission, rng: Random) -> None:
    """Lie in a clone of the repository of published results, in a folder of a user."""
    submission.rename(f"v{submission.round}/", f"clones-1.0/hpc_results_v{submission.round}/")


def description_in_another_order(submission: Submission, rng: Random) -> None:
    """Write the description of the system in another order and form."""
    submission.describe(lambda fields: {name: fields[name] for name in rng.sample(list(fields), len(fields))}, 4)


def description_with_more(submission: Submission, rng: Random) -> None:
    """Say more of the system than the rules ask for."""
    more = {"cooling": "warm water, 45 °C", "commissioned": "2021", "host_vendor_id": "0x1002", "power_meter": "none"}
    submission.describe(lambda fields: fields | more)


def several_systems(submission: Submission, rng: Random) -> None:
    """Submit results of a second system, with runs of its own."""
    package = _built(submission)
    other = SamplePackage(package.benchmark, package.round, runs=0)
    other.folder = package.folder
    other._add_runs(package.folder, len(submission.log_paths), 300)
    other.system(system_name="second_n64")
    renamed = {path.replace(SYSTEM, "second_n64"): data for path, data in other.files.items()}
    other.files = {path: data for path, data in renamed.items() if not path.startswith("benchmarks")}
    submission.add_package(other)
    code = [path for path in submission.files if path.startswith(f"{submission.organisation}/benchmarks/")]
    submission.files |= {path.replace(SYSTEM, "second_n64"): submission.files[path] for path in code}


def several_benchmarks(submission: Submission, rng: Random) -> None:
    """Submit results of all benchmarks for the system."""
    package = _built(submission, "2.0", "3.0")
    for benchmark in {"cosmoflow", "deepcam"} - {package.benchmark}:
        submission.add_package(SamplePackage(benchmark, package.round))


def pruned_instances(submission: Submission, rng: Random) -> None:
    """Keep the instances of a throughput result that took longest as pruned ones."""
    _built(submission, "3.0")
    benchmark = rng.choice(("cosmoflow", "deepcam"))
    package = SamplePackage(benchmark, scaling="weak", runs=rng.randint(8, 20)).with_time_to_train()
    _replace(submission, package.prune(rng.randint(1, 3)))


def many_instances(submission: Submission, rng: Random) -> None:
    """Submit a throughput result of many instances."""
    _built(submission, "3.0")
    package = SamplePackage(rng.choice(("cosmoflow", "deepcam")), scaling="weak", runs=rng.randint(20, 48))
    _replace(submission, package.with_time_to_train())


def throughput_and_time_to_train(submission: Submission, rng: Random) -> None:
    """Submit a throughput result beside one of time to train."""
    _built(submission, "3.0")
    _replace(submission, SamplePackage("cosmoflow", scaling="weak", runs=12).with_time_to_train())


def waived_result(submission: Submission, rng: Random) -> None:
    """Waive the convergence test of a result that converges too fast."""
    _built(submission, "3.0")
    package = SamplePackage("cosmoflow", epochs=16)
    _replace(submission, package)
    name = f"3.0/{ORGANISATION}/{SYSTEM}/strong/cosmoflow"
    submission.waivers = {name: "the committee agreed in its meeting of 2023-10-12"}


def open_division(submission: Submission, rng: Random) -> None:
    """Submit in the open division, with settings of one's own."""
    _built(submission, "3.0")
    package = SamplePackage(rng.choice(("cosmoflow", "deepcam")), "3.0", "open", settings={"opt_weight_decay": 0.02})
    _replace(submission, package)


def numbered_from_zero(submission: Submission, rng: Random) -> None:
    """Count the logs from 0."""
    paths = submission.log_paths
    numbers = sorted(int(re.sub(r"\D", "", path.rpartition("/")[2])) for path in paths)
    if numbers != list(range(1, len(paths) + 1)) or submission.power_paths:
        raise Unsuitable("not numbered from 1")
    new = {path: f"{submission.folder}/result_{number}.txt" for number, path in enumerate(paths)}
    submission.files = {new.get(path, path): data for path, data in submission.files.items()}


def _failing(submission: Submission, rng: Random, damage: Callable[[bytes], bytes]) -> None:
    if submission.is_throughput:
        raise Unsuitable("throughput")
    path = rng.choice(submission.log_paths)
    submission.files[path] = damage(submission.files[path])


def failed_run_without_a_seed(submission: Submission, rng: Random) -> None:
    """Let one run die before it logged its seed."""
    _failing(submission, rng, lambda data: b"".join(data.splitlines(keepends=True)[: rng.randint(1, 5)]))


def failed_run_without_a_record(submission: Submission, rng: Random) -> None:
    """Let one run leave an empty log, or only what its script said."""
    _failing(submission, rng, lambda data: rng.choice((b"", b"+ srun python train.py\nsrun: error: node failure\n")))


def failed_run_cut_off(submission: Submission, rng: Random) -> None:
    """Let one run die in the middle."""
    _failing(submission, rng, lambda data: data[: data.rfind(b"\n", 0, len(data) // 2) + 1])


def runs_at_once(submission: Submission, rng: Random) -> None:
    """Start all runs in the same second, as an ensemble does."""
    variations.started_together(submission.texts(), rng)


def runs_one_after_another(submission: Submission, rng: Random) -> None:
    """Start each run when the one before stops."""
    variations.right_after_each_other(submission.texts(), rng)


def runs_from_one_checkpoint(submission: Submission, rng: Random) -> None:
    """Let the first results of all runs be the same."""
    variations.first_results_equal(submission.texts(), rng)


def very_regular_runs(submission: Submission, rng: Random) -> None:
    """Let the epochs of all runs take nearly the same time, as on a machine without other users."""
    for log in submission.texts():
        _keep_rates(log)
    variations.very_regular(submission.texts(), rng)


def same_last_result(submission: Submission, rng: Random) -> None:
    """Let all runs reach the same rounded result at the end."""
    variations.same_last_result(submission.texts(), rng)


@in_each_log
def results_of_few_digits(log: Log, rng: Random) -> None:
    """Log results with four digits behind the point."""
    for line in log.results:
        value = round(line.record["value"], 4)
        if log.target.met(value) == log.met(line):
            line.record["value"] = value


def more_code(submission: Submission, rng: Random) -> None:
    """Submit code in several folders and languages."""
    package = _built(submission)
    folder = f"{submission.organisation}/benchmarks/{package.benchmark}/implementations"
    for name in (
        "torch/src/model.cu",
        "torch/tests/test_model.py",
        "torch/Dockerfile",
    ):
        submission.files[f"{folder}/{name}"] = b"# code\n"


def _replace(submission: Submission, package: SamplePackage) -> None:
    other = build(package)
    submission.files, submission.folder, submission.package = other.files, other.folder, package
    submission.benchmark = package.benchmark


# -- restarts ---------------------------------------------------------------------------------------------------


def _start_again(log: Log, rng: Random, key: str, times: int = 1, **metadata: Any) -> list[Line]:
    """Start an epoch or evaluation again after it failed in the middle; return the new starts."""
    _keep_rates(log)
    starts = [line for line in log.all(key) if log.at(line) > log.at(log.last("run_start"))]
    if len(starts) < 3:
        raise Unsuitable("too short")
    start = rng.choice(starts[1:-1])
    again = []
    for _ in range(times):
        lost = rng.randint(20_000, 90_000)
        log.delay(start, lost)
        new = log.add(start, start, lost)
        new.record["metadata"] |= metadata
        again.append(new)
        start = new
    return again


@in_some_logs
def epoch_starts_again(log: Log, rng: Random) -> None:
    """Start an epoch again after a failure in it, as elastic training does."""
    _start_again(log, rng, "epoch_start")


@in_some_logs
def epoch_starts_again_elsewhere(log: Log, rng: Random) -> None:
    """Start an epoch again on another node."""
    _start_again(log, rng, "epoch_start", host="spare-03", restart=1)


@in_some_logs
def epoch_starts_three_times(log: Log, rng: Random) -> None:
    """Start an epoch again twice."""
    _start_again(log, rng, "epoch_start", times=2)


@in_some_logs
def evaluation_starts_again(log: Log, rng: Random) -> None:
    """Start an evaluation again after a failure in it."""
    _start_again(log, rng, "eval_start")


@in_some_logs
def run_resumed(log: Log, rng: Random) -> None:
    """Resume from a checkpoint, as this suite does: the log goes on behind the last epoch that is in it."""
    if not log.all("provenance"):
        raise Unsuitable("not by this suite")
    before = log.lines[log.at(log.first("epoch_start", rng.choice(_full_epochs(log)[1:]))) - 1]
    lost = rng.randint(60_000, 3_600_000)
    log.delay(before, lost)
    line = log.add(before, before, lost - 5, key="run_resumed", event_type="POINT_IN_TIME", value=None)
    line.record["metadata"].pop("epoch_num", None)


@in_some_logs
def data_staged_again(log: Log, rng: Random) -> None:
    """Start an epoch again, and stage the data again before."""
    _stage_before(log, _start_again(log, rng, "epoch_start")[0])


@in_some_logs
def data_staged_again_between_epochs(log: Log, rng: Random) -> None:
    """Resume from the checkpoint of an epoch, and stage the data again before the next one starts."""
    _keep_rates(log)
    start = log.first("epoch_start", rng.choice(_full_epochs(log)[1:]))
    log.delay(log.lines[log.at(start) - 1], rng.randint(20_000, 90_000))
    _stage_before(log, start)


def _stage_before(log: Log, start: Line) -> None:
    if not log.all("staging_start"):
        raise Unsuitable("not staged before")
    before = log.lines[log.at(start) - 1]
    for key, kind, earlier in (("staging_start", "INTERVAL_START", 9_000), ("staging_stop", "INTERVAL_END", 1)):
        before = log.add(start, before, 0, key=key, event_type=kind)
        before.record["metadata"].pop("epoch_num", None)
        before.time = start.time - earlier


@in_some_logs
def evaluated_after_a_restart(log: Log, rng: Random) -> None:
    """Fail between an epoch and its evaluation, and lose up to an hour."""
    stops = log.all("epoch_stop")
    log.delay(rng.choice(stops[1:-1]), rng.randint(60_000, 3_600_000))


# -- power ------------------------------------------------------------------------------------------------------

READING = "power_measurement"


def _power(submission: Submission, nodes: int = 2) -> None:
    _built(submission, "3.0")
    _replace(submission, SamplePackage("deepcam").power(nodes=nodes, margin_ms=3_000))


def _change_power(submission: Submission, change: Callable[[list[dict[str, Any]]], Any], part: str = "/node_") -> None:
    _power(submission)
    for path in submission.power_paths:
        if part in path:
            records = list(records_of(submission.files[path]))
            records = change(records) or records
            submission.files[path] = b"".join(b":::MLLOG " + json.dumps(r).encode() + b"\n" for r in records)


def _is_reading(record: dict[str, Any]) -> bool:
    return record["event_type"] == "POINT_IN_TIME" and "measurement_type" not in record["metadata"]


def meters_without_change(submission: Submission, rng: Random) -> None:
    """Measure the power of a result."""
    _power(submission)


def more_nodes(submission: Submission, rng: Random) -> None:
    """Measure more nodes."""
    _power(submission, rng.randint(3, 8))


def one_reading_missing(submission: Submission, rng: Random) -> None:
    """Lose one reading of a meter."""
    _change_power(submission, lambda records: records.pop(rng.randrange(10, len(records) - 10)) and None)


def meters_start_earlier(submission: Submission, rng: Random) -> None:
    """Start the meters some seconds before the run."""

    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = next(record for record in records if _is_reading(record))
        early = rng.randint(1, 3)
        for record in records[: records.index(first)]:
            record["time_ms"] -= 1000 * early
        at = records.index(first)
        more = [
            first | {"time_ms": first["time_ms"] - 1000 * back, "value": first["value"] * rng.uniform(0.9, 1)}
            for back in range(early, 0, -1)
        ]
        return records[:at] + more + records[at:]

    _change_power(submission, change)


def whole_watts(submission: Submission, rng: Random) -> None:
    """Know the power in whole watts."""

    def change(records: list[dict[str, Any]]) -> None:
        for record in filter(_is_reading, records):
            record["value"] = round(record["value"])

    _change_power(submission, change)


def coarse_watts(submission: Submission, rng: Random) -> None:
    """Know the power in steps of 5 W."""

    def change(records: list[dict[str, Any]]) -> None:
        for record in filter(_is_reading, records):
            record["value"] = 5 * round(record["value"] / 5)

    _change_power(submission, change)


def uneven_readings(submission: Submission, rng: Random) -> None:
    """Read the meters by a clock that is late by up to 400 ms."""

    def change(records: list[dict[str, Any]]) -> None:
        for record in filter(_is_reading, records[3:-3]):
            record["time_ms"] += rng.randint(0, 400)

    _change_power(submission, change)


def meters_name_themselves(submission: Submission, rng: Random) -> None:
    """Say more in the metadata of the readings."""

    def change(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["metadata"] |= {"meter": "PDU 7, outlet 3", "unit": "W", "firmware": "2.1.0"}

    _change_power(submission, change)


def idle_at_both_ends(submission: Submission, rng: Random) -> None:
    """Let the nodes draw less before and after the run."""

    def change(records: list[dict[str, Any]]) -> None:
        readings = list(filter(_is_reading, records))
        for record in (*readings[:2], *readings[-2:]):
            record["value"] *= 0.4

    _change_power(submission, change)


# -- what published logs have -----------------------------------------------------------------------------------


@in_each_log
def counted_from_the_other(log: Log, rng: Random) -> None:
    """Count epochs from 0 instead of 1, or from 1 instead of 0."""
    variations.counted_from_the_other(log, rng)


def _steps(log: Log) -> float:
    """Return the steps of a full epoch, with a fraction."""
    size, samples = (log.last(key).record["value"] for key in ("global_batch_size", "train_samples"))
    if (
        log.benchmark == "openfold"
        or samples < 4 * size
        or any("step_num" in line.record["metadata"] for line in log.course)
    ):
        raise Unsuitable("no steps, or has them already")
    return samples / size


@in_each_log
def steps_rounded_down(log: Log, rng: Random) -> None:
    """Log the steps of epochs that leave out the last samples."""
    _set_steps(log, math.floor(_steps(log)))


@in_each_log
def steps_rounded_up(log: Log, rng: Random) -> None:
    """Log the steps of epochs whose last step has fewer samples."""
    _set_steps(log, math.ceil(_steps(log)))


def _set_steps(log: Log, steps: int, last: float = 1.0) -> None:
    numbers = log.numbers
    for at, number in enumerate(numbers):
        ended = (at + 1) * steps if at + 1 < len(numbers) else at * steps + max(1, int(last * steps))
        for line in log.of_epoch(number):
            line.record["metadata"]["step_num"] = at * steps if line.key == "epoch_start" else ended


@in_each_log
def last_epoch_cut(log: Log, rng: Random) -> None:
    """Stop in the last epoch, at the target: it has fewer steps and takes less time."""
    _keep_rates(log)
    share, last = rng.uniform(0.3, 0.9), log.numbers[-1]
    _set_steps(log, math.floor(_steps(log)), share)
    start, starts = log.first("epoch_start", last), log.of_epoch(last, "eval_start")
    end = min([*log.of_epoch(last, "epoch_stop"), *starts], key=log.at)
    if log.at(end) - log.at(start) > 1 or not starts:
        raise Unsuitable("records within the epoch")
    log.delay(start, -round((1 - share) * (end.time - start.time)))


@in_each_log
def tracked_stats_of_other_meaning(log: Log, rng: Random) -> None:
    """Log a throughput that counts something else, and the epoch as step, as NVIDIA's oc20 did."""
    if log.benchmark != "oc20" or log.all("tracked_stats"):
        raise Unsuitable("not oc20")
    for at, stop in enumerate(log.all("epoch_stop")):
        members: dict[str, Any] = {"key": "tracked_stats", "event_type": "POINT_IN_TIME"}
        line = log.add(stop, stop, 0, value={"throughput": rng.uniform(2e4, 3e4)}, **members)
        line.record["metadata"] = {"file": "trainer.py", "lineno": 296, "step": at + 1, "instance": 0}


@in_each_log
def tracked_stats_of_an_epoch(log: Log, rng: Random) -> None:
    """Log the samples per second of each epoch, without the pauses in it, and its last step, as Dell's deepcam did."""
    steps, samples = math.floor(_steps(log)), log.last("train_samples").record["value"]
    if log.benchmark != "deepcam" or log.all("tracked_stats"):
        raise Unsuitable("not deepcam, or has them already")
    for at, stop in enumerate(log.all("epoch_stop")):
        seconds = (stop.time - log.first("epoch_start", stop.number).time) / 1000
        rate = {"throughput": samples / seconds * rng.uniform(1, 1.03)}
        line = log.add(stop, stop, 0, key="tracked_stats", event_type="POINT_IN_TIME", value=rate)
        line.record["metadata"] = {"file": "trainer.py", "lineno": 612, "epoch": at + 1, "step": (at + 1) * steps}


@in_each_log
def samples_in_the_metadata(log: Log, rng: Random) -> None:
    """Log the samples so far beside the epochs."""
    samples = log.last("train_samples").record["value"]
    for line in log.course if log.benchmark != "openfold" else ():
        done = log.numbers.index(line.number) + (line.key != "epoch_start") if line.number in log.numbers else 0
        line.record["metadata"]["samples_count"] = done * samples


@in_each_log
def batch_size_of_a_rank(log: Log, rng: Random) -> None:
    """Log also the batch size of a rank, and how many batches make a step."""
    size = log.last("global_batch_size")
    ranks = log.last("number_of_nodes").record["value"] * log.last("accelerators_per_node").record["value"]
    stated = {line.record["value"] for line in log.all("number_of_ranks")} | {ranks}
    if not ranks or stated != {ranks} or size.record["value"] % ranks or log.all("gradient_accumulation_steps"):
        raise Unsuitable("other ranks")
    log.add(size, size, 0, key="local_batch_size", value=size.record["value"] // ranks)
    log.add(size, size, 0, key="gradient_accumulation_steps", value=1)


def no_accelerators(submission: Submission, rng: Random) -> None:
    """Train on processors only."""
    _built(submission)
    _set_size(submission, nodes=rng.choice((16, 128, 512)), accelerators=0)
    submission.describe(lambda fields: fields | {"accelerator_model_name": "N/A"})


def ranks_of_processors(submission: Submission, rng: Random) -> None:
    """Train on processors only, with one to eight ranks on each node."""
    nodes = rng.choice((16, 128, 512))
    _built(submission)
    _set_size(submission, nodes, accelerators=0)
    _set_ranks(submission, nodes * rng.choice((1, 2, 4, 8)))


def ranks_of_accelerators(submission: Submission, rng: Random) -> None:
    """Log the ranks, one for each accelerator."""
    _built(submission)
    _set_ranks(submission, 64)


def _set_size(submission: Submission, nodes: int, accelerators: int) -> None:
    for log in submission.texts():
        log.last("number_of_nodes").record["value"] = nodes
        log.last("accelerators_per_node").record["value"] = accelerators
    submission.describe(
        lambda fields: fields | {"number_of_nodes": str(nodes), "accelerators_per_node": str(accelerators)}
    )


def _set_ranks(submission: Submission, ranks: int) -> None:
    for log in submission.texts():
        log.add(log.last("number_of_nodes"), log.last("number_of_nodes"), 0, key="number_of_ranks", value=ranks)


@in_each_log
def staged_before_run_start(log: Log, rng: Random) -> None:
    """Take the time of staging up to 158 ms before run_start, as openfold did."""
    if log.benchmark != "openfold" or log.round != "3.0" or log.all("staging_start"):
        raise Unsuitable("not openfold of 3.0")
    start = log.last("run_start")
    log.delay(log.last("init_stop"), 160)
    early = rng.randint(20, 158)
    anchor = log.lines[log.at(log.last("init_stop")) - 1]
    for key in ("staging_stop", "staging_start"):
        log.add(start, anchor, 0, key=key, event_type="POINT_IN_TIME").time = start.time - early


@in_each_log
def caches_cleared(log: Log, rng: Random) -> None:
    """Say that the caches were cleared."""
    for line in log.all("cache_clear"):
        line.record["value"] = True


GROUPS: dict[str, tuple[Variant, ...]] = {
    "launchers": (
        numbered_ranks,
        times_before_lines,
        lines_of_kubernetes,
        progress_bars,
        output_of_other_ranks,
        coloured_lines,
        output_of_the_job,
        byte_order_mark,
        members_before_records,
        some_lines_prefixed,
        text_before_records,
    ),
    "emitters": (
        members_in_another_order,
        compact_json,
        spaced_json,
        floats_with_exponents,
        floats_of_seventeen_digits,
        escaped_texts,
        more_members,
        no_file_and_line,
        times_as_floats,
        epochs_and_settings_as_floats,
        more_keys,
    ),
    "interleaving": (
        starts_by_several_ranks,
        epoch_starts_by_several_ranks,
        evaluations_by_several_ranks,
        stops_by_several_ranks,
        results_by_several_ranks,
        results_of_ranks_apart,
        everything_by_several_ranks,
        stop_of_a_late_rank,
        losses_of_each_rank,
        lines_of_ranks_swapped,
    ),
    "clocks": (
        clock_set_back,
        clock_set_forward,
        clock_set_often,
        clock_that_drifts,
        times_in_tens_of_milliseconds,
        times_in_whole_seconds,
        run_start_before_init_stop,
        clock_of_another_node,
    ),
    "evaluations": (
        asynchronous_evaluations,
        five_evaluations_in_flight,
        evaluations_never_started,
        last_evaluation_without_a_stop,
        long_evaluations,
        target_met_in_the_next_epoch,
        *map(
            _from,
            (
                variations.result_behind_eval_stop,
                variations.result_behind_epoch_stop,
                variations.evaluation_within_the_epoch,
                variations.next_epoch_starts_early,
                variations.epoch_stop_of_the_last_missing,
                variations.few_evaluations,
                variations.goes_on_after_the_target,
            ),
        ),
    ),
    "pace": (
        slow_epoch,
        slow_epochs,
        slow_epochs_of_a_short_run,
        very_slow_epochs,
        cold_first_epochs,
        machine_that_slows_down,
        machine_that_speeds_up,
        slow_for_a_while,
        machine_with_neighbours,
        fast_and_slow_in_turn,
        checkpoints_between,
        hour_between_epochs,
        slow_evaluation,
        slow_run,
        pause_before_run_start,
    ),
    "submissions": (
        text_files_at_the_top,
        readme_beside_logs,
        plots_beside_logs,
        readme_of_the_system,
        documentation,
        system_with_a_version,
        runs_in_a_folder_with_a_version,
        organisation_with_a_version,
        results_repository,
        description_in_another_order,
        description_with_more,
        several_systems,
        several_benchmarks,
        pruned_instances,
        many_instances,
        throughput_and_time_to_train,
        waived_result,
        open_division,
        numbered_from_zero,
        failed_run_without_a_seed,
        failed_run_without_a_record,
        failed_run_cut_off,
        runs_at_once,
        runs_one_after_another,
        runs_from_one_checkpoint,
        very_regular_runs,
        same_last_result,
        results_of_few_digits,
        more_code,
    ),
    "restarts": (
        epoch_starts_again,
        epoch_starts_again_elsewhere,
        epoch_starts_three_times,
        evaluation_starts_again,
        run_resumed,
        data_staged_again,
        data_staged_again_between_epochs,
        evaluated_after_a_restart,
    ),
    "power": (
        meters_without_change,
        more_nodes,
        one_reading_missing,
        meters_start_earlier,
        whole_watts,
        coarse_watts,
        uneven_readings,
        meters_name_themselves,
        idle_at_both_ends,
    ),
    "published": (
        counted_from_the_other,
        steps_rounded_down,
        steps_rounded_up,
        last_epoch_cut,
        tracked_stats_of_other_meaning,
        tracked_stats_of_an_epoch,
        samples_in_the_metadata,
        batch_size_of_a_rank,
        no_accelerators,
        ranks_of_processors,
        ranks_of_accelerators,
        staged_before_run_start,
        caches_cleared,
    ),
}


def find_false_alarms(change: Variant, number: int, stock: Stock) -> tuple[str, list[Finding]]:
    """Return of what a variant is made, and the findings that it should not have."""
    submission, report, findings = vary(change, number, stock)
    if change.__name__ in TOLERATED:
        return submission.name, findings if report.verdict == "FAIL" else []
    justified = JUSTIFIED.get(change.__name__, set())
    return submission.name, [finding for finding in findings if finding.rule not in justified]


def describe(change: Variant, number: int, name: str, findings: list[Finding]) -> str:
    """Return a text with the first finding of each rule."""
    firsts = {finding.rule: finding for finding in reversed(findings)}
    texts = [f"  {f.severity} {f.rule} line {f.line}: {f.message}" for f in firsts.values()]
    return "\n".join((f"{change.__name__} {number} of {name}", *texts))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.valid_variants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="groups or variants (default: all)")
    parser.add_argument("--corpus", type=Path, help="the folder with the extracted published logs (v0.7, v1.0, …)")
    arguments = parser.parse_args()
    stock, made, accused = Stock(arguments.corpus), 0, 0
    for group, variants in GROUPS.items():
        for change in variants:
            if arguments.names and not {group, change.__name__} & {*arguments.names}:
                continue
            for number in range(EACH):
                name, findings = find_false_alarms(change, number, stock)
                made, accused = made + 1, accused + bool(findings)
                if findings:
                    print(f"{group}: {describe(change, number, name, findings)}", flush=True)
    print(f"{made} variants, {accused} false alarms")


if __name__ == "__main__":
    main()
