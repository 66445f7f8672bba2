"""Valid variants of logs: as other tools, launchers, machines and centres write them; they make no log worse."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.conformance.variants.logtext import (
    EPOCH_KEYS,
    EVALUATION_KEYS,
    POINT,
    TOKEN,
    Line,
    LogText,
    map_times,
    require,
    take_arguments,
)
from tests.conformance.variants.table import Random

BytesEdit = Callable[[bytes, Random], bytes]
Spell = Callable[[dict[str, Any]], str]
PREFIXES = (
    b"0: ",
    b"[1,0]<stdout>: ",
    b"node-017 | ",
    b"2023-09-06 10:14:03.114 INFO  train: ",
    b"\x1b[32m\x1b[1m",
    b"    ",
    b"\t",
    b"(RayWorker pid=4711) ",
    b"[rank0]: ",
    b'{"log": "x"} ',
)
OUTPUT = (
    b"",
    b"# a comment",
    b"epoch 3: loss 0.31, 211.4 samples/s",
    b'{"epoch": 3, "loss": 0.31}',
    b"NCCL INFO Channel 00/02 :    0   1   2   3",
    b"\xff\xfe\x00 binary \x80\x81",
    "Universit\u00e4t Z\u00fcrich \u2028 \u0085".encode(),
    b":::MLPv0.5.0 old 1 (x.py:3)",
    b"x" * 20_000,
)
OTHER_KEYS = (
    ("tracked_stats", {"step_time_ms": 81}),
    ("samples_per_second", 812.25),
    ("jax_version", "0.4.30"),
    ("xla_flags", None),
    ("gradient_norm", float("nan")),
    ("eval_loss", 0.125),
    ("eval_mean_absolute_error", 0.25),
    ("learning_rate_schedule", "multistep"),
    ("power_management", ["a", {"b": 1}]),
    ("checkpoint_saved", True),
)
LINE_ENDS = ("line ends CRLF", "line ends LF LF", "no line end at the end", "a blank before every line end")
MODULES = b"Currently Loaded Modules:\n  1) gcc/11.2   2) openmpi/4.1\n+ srun --mpi=pmix python train.py\n"
TIMING = b"\nreal\t12m3.1s\nuser\t0m1.0s\nENDING TIMING RUN AT 2023-09-06 10:31:03 AM\n"
WARNED = b"[rank3]: UserWarning: lr_scheduler.step() before optimizer.step()\n[rank3]:   warnings.warn(\n"
BAR = b"\rEpoch:  45%|####5     | 57/128 [00:31<00:38,  1.86it/s]\r"


# -- bytes: what stands before, between and behind records, and how they are spelled ------------------------------


@take_arguments
def write_lines(data: bytes, rng: Random, write: Callable[[int, bytes, Random], bytes]) -> bytes:
    """Write each line anew, by its number and with its end."""
    return b"".join(write(at, line, rng) for at, line in enumerate(data.splitlines()))


def prefix_lines(data: bytes, rng: Random) -> bytes:
    """Write a launcher's prefix before all lines."""
    prefix = rng.choice(PREFIXES)
    return b"".join(prefix + line + b"\n" for line in data.splitlines())


def number_ranks(data: bytes, rng: Random) -> bytes:
    """Write the number of the rank before each line, as srun -l does."""
    width = rng.randint(1, 5)
    return b"".join(b"%*d: %s\n" % (width, 0, line) for line in data.splitlines())


def write_between(data: bytes, rng: Random) -> bytes:
    """Write other output between the lines."""
    lines = data.splitlines()
    for _ in range(rng.randint(1, 20)):
        lines.insert(rng.randint(0, len(lines)), rng.choice(OUTPUT))
    return b"\n".join(lines) + b"\n"


def compress(data: bytes, rng: Random) -> bytes:
    """Compress, as one or two members."""
    cut = rng.choice((0, len(data) // 2))
    return (gzip.compress(data[:cut]) if cut else b"") + gzip.compress(data[cut:])


@take_arguments
def rewrite(data: bytes, rng: Random, draw: Callable[[Random], Spell]) -> bytes:
    """Spell each record anew."""
    spell, lines = draw(rng), []
    for line in data.splitlines():
        head, token, body = line.rpartition(TOKEN)
        lines.append(head + token + spell(json.loads(body)).encode("utf-8", "surrogatepass") if token else line)
    return b"".join(line + b"\n" for line in lines)


def draw_form(rng: Random) -> Spell:
    """Return a form of JSON with other spaces, other escapes, and members in another order."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" , ", " : ")))
    sort, ascii_only = rng.choice((True, False)), rng.choice((True, False))
    return lambda record: json.dumps(record, separators=separators, sort_keys=sort, ensure_ascii=ascii_only)


def draw_order(rng: Random) -> Spell:
    """Return JSON with the members of all objects in another order in each record."""
    return lambda record: json.dumps(shuffle(record, rng))


def shuffle(value: Any, rng: Random) -> Any:
    """Return a value with the members of all objects in another order."""
    if isinstance(value, dict):
        return {name: shuffle(value[name], rng) for name in rng.sample(list(value), len(value))}
    return value


@take_arguments
def draw_floats(rng: Random, *forms: str) -> Spell:
    """Return JSON with floats in another form, in one of several."""
    form = rng.choice(forms) if len(forms) > 1 else forms[0]
    return lambda record: spell(record, form)


def spell(value: Any, form: str) -> str:
    """Return JSON with floats in a form."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {spell(member, form)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spell(member, form) for member in value) + "]"
    return form.format(value) if type(value) is float and value - value == 0 else json.dumps(value)


def escape_letters(record: dict[str, Any]) -> str:
    """Write letters of texts as escapes."""
    text = json.dumps(record)
    return re.sub(r'(?<=")[a-z](?=[a-z_]*")', lambda match: f"\\u{ord(match[0]):04x}", text).replace("/", "\\/")


# -- records ------------------------------------------------------------------------------------------------------


@take_arguments
def change_lines(log: LogText, rng: Random, change: Callable[[Line], Any], *keys: str) -> None:
    """Change all records, or those of some keys."""
    for line in log.all(*keys) if keys else log.timed:
        change(line)


@take_arguments
def change_times(log: LogText, rng: Random, change: Callable[[float], float]) -> None:
    """Change all times."""
    map_times(log.timed, change)


def add_other_keys(log: LogText, rng: Random) -> None:
    """Log what no rule asks for."""
    for _ in range(rng.randint(1, 12)):
        key, value = rng.choice(OTHER_KEYS)
        line = rng.choice(log.timed)
        log.add(line, line, 0, key=key, event_type=POINT, value=value)


def leave_out_members(log: LogText, rng: Random) -> None:
    """Leave out what the reader does not need."""
    for line in log.timed:
        for name in rng.choice((("namespace",), ("event_type",), ("namespace", "event_type"))):
            line.record.pop(name, None)


@take_arguments
def respell_settings(log: LogText, rng: Random, change: Callable[[float], float]) -> None:
    """Write the numbers of the settings in another way."""
    for line in log.lines[: log.at(log.last("run_start")) + 1]:
        if line.record and line.key != "seed":
            line.record["value"] = respell(line.record["value"], change)


def respell(value: Any, change: Callable[[float], float]) -> Any:
    """Return a number, or those in a list, in another way."""
    if isinstance(value, list):
        return [respell(part, change) for part in value]
    return change(value) if type(value) in (int, float) else value


def write_epochs_with_a_point(log: LogText, rng: Random) -> None:
    """Write the numbers of epochs with a point."""
    for line in log.timed:
        if type(line.number) is int:
            line.number = float(line.number)


write_with_a_point = respell_settings(lambda value: float(value) if abs(value) < 2**53 else value)
write_without_a_point = respell_settings(lambda value: int(value) if value == int(value) else value)
write_times_with_a_fraction = change_times(lambda time_ms: float(time_ms) + 0.25)
write_whole_seconds = change_times(lambda time_ms: time_ms // 1000 * 1000)
write_seed_as_text = change_lines(lambda line: line.record.update(value=str(line.record["value"])), "seed")
say_more_in_metadata = change_lines(
    lambda line: line.record["metadata"].update(rank=0, host="n17", tensor_parallel=[1, 2])
)


def count_from_the_other(log: LogText, rng: Random) -> None:
    """Count epochs from 0 instead of 1, or from 1 instead of 0."""
    first = log.numbers[0]
    require(first in (0, 1), "not counted from 0 or 1")
    for line in log.timed:
        if type(line.number) is int:
            line.number += 1 - 2 * first


def add_members(log: LogText, rng: Random) -> None:
    """Add members to records and metadata."""
    for at, line in enumerate(log.timed):
        line.record |= {"job": "4711", "sequence": at}
        line.record["metadata"] |= {"host": "n17", "rank": 0, "gpu": {"name": "x", "index": [0, 1]}}


def leave_out_places(log: LogText, rng: Random) -> None:
    """Leave out where in the code a record was written, but for the seed, by whose file the official tool sorts."""
    for line in [line for line in log.timed if line.key != "seed"]:
        line.record["metadata"].pop("file", None)
        line.record["metadata"].pop("lineno", None)


def log_much(log: LogText, rng: Random) -> None:
    """Log much that no rule asks for."""
    for line in log.course:
        for key in ("train_loss", "learning_rate", "gpu_memory_mb"):
            log.add(line, line, 0, key=key, event_type=POINT, value=rng.random())


def shuffle_header(log: LogText, rng: Random) -> None:
    """Log settings in another order."""
    start, end = log.at(log.first("init_start")), log.at(log.last("init_stop"))
    fixed = ("cache_clear", "staging_start", "staging_stop", "run_start", "init_start", "init_stop", "")
    lines = [line for line in log.lines[start + 1 : end] if line.key not in fixed]
    places = [(log.at(line), line.time) for line in lines]
    for (at, time_ms), line in zip(places, rng.sample(lines, len(lines)), strict=True):
        log.lines[at] = line
        line.time = time_ms


@take_arguments
def round_results(log: LogText, rng: Random, digits: int) -> None:
    """Log results with few digits."""
    for line in log.results:
        log.change_result(line, round(line.record["value"], digits))


def log_steps(log: LogText, rng: Random) -> None:
    """Log step_num beside epoch_num."""
    samples, batch_size = (log.first(key).record["value"] for key in ("train_samples", "global_batch_size"))
    for at, number in enumerate(log.numbers):
        for line in log.of_epoch(number):
            line.record["metadata"].setdefault("step_num", (at + 1) * math.ceil(samples / batch_size))


def log_blocks(log: LogText, rng: Random) -> None:
    """Log blocks of one epoch instead of epochs."""
    for line in log.all("epoch_start", "epoch_stop"):
        line.to_block(line.number, 1)


# -- the course: epochs, evaluations, results ---------------------------------------------------------------------


@take_arguments
def move_results(log: LogText, rng: Random, behind: str) -> None:
    """Log each result behind the end of its evaluation, and of its epoch if that is named."""
    for result in log.results:
        require(len(log.of_epoch(result.number, behind, log.target.key)) == 2, f"several {behind} or results, or none")
        after = max(log.of_epoch(result.number, behind, "eval_stop"), key=log.at)
        require(log.at(after) < log.at(log.last("run_stop")), "behind run_stop")
        log.put(result, after)


def move_results_into_evaluations(log: LogText, rng: Random) -> None:
    """Log each result right before the end of its evaluation."""
    for result in log.results:
        require(len(log.of_epoch(result.number, log.target.key)) <= 1, "several evaluations in an epoch")
        log.put_before(result, log.last("eval_stop", result.number))


def evaluate_within_epochs(log: LogText, rng: Random) -> None:
    """Stop each epoch only when it is evaluated."""
    for number in log.numbers:
        stops, end = log.of_epoch(number, "epoch_stop"), log.end_of(number)
        if len(stops) == 1 and stops[0] is not end:
            log.put(stops[0], end)


def start_next_epochs_early(log: LogText, rng: Random) -> None:
    """Start an epoch while the one before is evaluated."""
    for number, later in pairwise(log.numbers):
        begin, ends = log.of_epoch(number, "eval_start"), log.of_epoch(number, "epoch_stop")
        if len(begin) == 1 and ends and log.at(ends[-1]) < log.at(begin[0]):
            log.put(log.first("epoch_start", later), begin[0])


def drop_last_epoch_stop(log: LogText, rng: Random) -> None:
    """Let run_stop cut the last epoch short."""
    log.remove([log.last("epoch_stop", log.numbers[-1])])


def require_epochs(log: LogText, least: int = 0) -> list[Any]:
    """Return the numbers of the epochs, so many at least; openfold evaluates every so many steps."""
    require(log.benchmark != "openfold", "val_every_iters says how often")
    return log.require_epochs(least)


def evaluate_some_epochs(log: LogText, rng: Random) -> None:
    """Evaluate only some epochs, and always the last."""
    some_numbers = [number for number in require_epochs(log)[:-1] if rng.random() < 0.4]
    log.remove(line for number in some_numbers for line in log.of_epoch(number, *EVALUATION_KEYS, log.target.key))


def last_step(lines: list[Line]) -> int:
    """Return the highest step_num of the lines, 0 if they state none."""
    steps = [line.record["metadata"].get("step_num") for line in lines]
    return max((step for step in steps if isinstance(step, int)), default=0)


def go_on_after_the_target(log: LogText, rng: Random) -> None:
    """Train and evaluate one epoch more than needed."""
    numbers = log.require_epochs(2)
    require(all(isinstance(number, (int, float)) for number in numbers), "no numbers")
    last, step = numbers[-1], numbers[-1] - numbers[-2]
    lines, stop = log.of_epoch(last), log.last("run_stop")
    before = [line for line in log.timed if log.at(line) < log.at(stop)][-1]
    took = before.time - lines[0].time + 3
    ends = [last_step(log.of_epoch(number)) for number in numbers[-3:]]
    trained = ends[-1] - ends[-2]
    require(len(numbers) <= 2 or trained >= ends[1] - ends[0], "the target ended the last epoch early")
    for line in lines:
        before = log.add(line, before, 0, number=last + step)
        before.time = line.time + took
        if isinstance(before.record["metadata"].get("step_num"), int):
            before.record["metadata"]["step_num"] += trained
        if before.key == log.target.key:
            before.record["value"] = log.hit(rng)
    log.delay(log.before(stop), took)


def fly_evaluations(log: LogText, rng: Random) -> None:
    """Evaluate beside the training: five evaluations begin while that which reaches the target goes on."""
    log.keep_own_times()
    numbers = require_epochs(log)
    require(
        len(log.of_epoch(numbers[-1])) == 5 and log.last("run_stop").number is None, "several evaluations in an epoch"
    )
    own, begin = log.of_epoch(numbers[-1], "epoch_start", "epoch_stop"), log.last("eval_start")
    ends = [line for line in log.of_epoch(numbers[-1]) if log.at(line) > log.at(begin)]
    require(own[1] not in ends, "evaluated within the epoch")
    length, before = own[1].time - own[0].time, log.before(ends[0])
    log.delay(before, 5 * length + 100)
    for number in range(numbers[-1] + 1, numbers[-1] + 6):
        for line, later_ms in ((own[0], 1), (own[1], length), (begin, 1)):
            before = log.add(line, before, later_ms, number=number)
            before.record["metadata"].pop("step_num", None)


@take_arguments
def evaluate_late(log: LogText, rng: Random, later: Callable[[Random], int], in_flight: bool = True) -> None:
    """End evaluations behind an epoch that comes so much later, and train so many more."""
    late = later(rng)
    numbers = require_epochs(log, late + 2)
    for number in numbers:
        course = [log.of_epoch(number, key) for key in (*EPOCH_KEYS, *EVALUATION_KEYS, log.target.key)]
        require([len(lines) for lines in course] == [1] * 5, "another course")
        require_evaluated_behind(log, number)
    _train_more(log, late, ["epoch_start", "epoch_stop", *["eval_start"] * in_flight])
    for number, other in zip(numbers, log.numbers[late:], strict=True):
        anchor = max(log.of_epoch(other, "epoch_stop", "eval_start"), key=log.at)
        for key in (log.target.key, "eval_stop"):
            log.put(log.first(key, number), anchor)
    _close_gaps(log)


def require_evaluated_behind(log: LogText, number: Any) -> Line:
    """Return the only start of an evaluation of an epoch, which comes behind the stop of the epoch."""
    starts = log.of_epoch(number, "eval_start")
    stopped = len(starts) == 1 and log.at(log.last("epoch_stop", number)) < log.at(starts[0])
    require(stopped, "evaluated within the epoch")
    return starts[0]


def _train_more(log: LogText, epochs: int, keys: list[str]) -> None:
    """Add epochs at the end that have no result yet when the run stops."""
    last, before = log.numbers[-1], log.numbers[-2]
    lines, previous = log.of_epoch(last, "epoch_start", "epoch_stop"), log.end_of(last)
    took = lines[-1].time - lines[0].time
    steps = last_step(log.of_epoch(last)) - last_step(log.of_epoch(before))
    stop = log.last("run_stop")
    for more in range(1, epochs + 1):
        begin_ms = previous.time + 1
        for key in keys:
            previous = log.add(log.first(key, last), previous, 0, number=last + more * (last - before))
            previous.time = begin_ms if key == "epoch_start" else begin_ms + took
            step = previous.record["metadata"].get("step_num")
            if isinstance(step, int):
                previous.record["metadata"]["step_num"] = step + more * steps
    log.delay(log.before(stop), previous.time + 2 - stop.time)
    if stop.number is not None:
        stop.number = last


def _close_gaps(log: LogText) -> None:
    """Start each epoch when the one before stops, as nothing waits for evaluations."""
    for number, later in pairwise(log.numbers):
        start = log.first("epoch_start", later)
        gap = start.time - log.first("epoch_stop", number).time
        if gap > 2:
            log.delay(log.before(start), 2 - gap)
    log.change_times(lambda time_ms: time_ms)


def meet_target_in_the_next_epoch(log: LogText, rng: Random) -> None:
    """Stop within an epoch, as soon as the evaluation of the one before has its result."""
    before, last = require_epochs(log, 2)[-2:]
    log.add(log.first("epoch_start", last), require_evaluated_behind(log, last), 1, number=last + (last - before))


def evaluate_long(log: LogText, rng: Random) -> None:
    """Evaluate for as long as an epoch takes."""
    log.keep_rates()
    for start in log.all("eval_start")[:-1]:
        log.delay(start, rng.randint(60_000, 90_000))
