"""Valid variants of logs: as other tools, launchers, machines and centres write them; they make no log worse."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.conformance.variants.logtext import TOKEN, Line, LogText, Unsuitable
from tests.conformance.variants.table import LogEdit, Random

BytesEdit = Callable[[bytes, Random], bytes]
POINT = "POINT_IN_TIME"
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
    ("train_loss", float("nan")),
    ("eval_loss", 0.125),
    ("eval_mean_absolute_error", 0.25),
    ("learning_rate", 1e-3),
    ("power_management", ["a", {"b": 1}]),
    ("checkpoint_saved", True),
)
LINE_ENDS = ("line ends CRLF", "line ends LF LF", "no line end at the end", "a blank before every line end")
MODULES = b"Currently Loaded Modules:\n  1) gcc/11.2   2) openmpi/4.1\n+ srun --mpi=pmix python train.py\n"
TIMING = b"\nreal\t12m3.1s\nuser\t0m1.0s\nENDING TIMING RUN AT 2023-09-06 10:31:03 AM\n"
WARNED = b"[rank3]: UserWarning: lr_scheduler.step() before optimizer.step()\n[rank3]:   warnings.warn(\n"
BAR = b"\rEpoch:  45%|####5     | 57/128 [00:31<00:38,  1.86it/s]\r"


# -- bytes: what stands before, between and behind records, and how they are spelled ------------------------------


def write_lines(write: Callable[[int, bytes, Random], bytes]) -> BytesEdit:
    """Return the edit that writes each line anew, by its number and with its end."""
    return lambda data, rng: b"".join(write(at, line, rng) for at, line in enumerate(data.splitlines()))


def stamp(form: bytes) -> BytesEdit:
    """Return the edit that writes a time before each line: minutes and seconds, the line behind them."""
    return write_lines(lambda at, line, rng: form % (at // 60 % 60, at % 60, line))


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


def rewrite(draw: Callable[[Random], Callable[[dict[str, Any]], str]]) -> BytesEdit:
    """Return the edit that spells each record anew."""

    def edit(data: bytes, rng: Random) -> bytes:
        spell, lines = draw(rng), []
        for line in data.splitlines():
            head, token, body = line.rpartition(TOKEN)
            lines.append(head + token + spell(json.loads(body)).encode("utf-8", "surrogatepass") if token else line)
        return b"".join(line + b"\n" for line in lines)

    return edit


def draw_form(rng: Random) -> Callable[[dict[str, Any]], str]:
    """Return a form of JSON with other spaces, other escapes, and members in another order."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" , ", " : ")))
    sort, ascii_only = rng.choice((True, False)), rng.choice((True, False))
    return lambda record: json.dumps(record, separators=separators, sort_keys=sort, ensure_ascii=ascii_only)


def draw_order(rng: Random) -> Callable[[dict[str, Any]], str]:
    """Return JSON with the members of all objects in another order in each record."""

    def shuffle(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shuffle(value[name]) for name in rng.sample(list(value), len(value))}
        return value

    return lambda record: json.dumps(shuffle(record))


def spell_floats(*forms: str) -> BytesEdit:
    """Return the edit that writes floats in another form."""

    def spell(value: Any, form: str) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(name)}: {spell(member, form)}" for name, member in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(spell(member, form) for member in value) + "]"
        return form.format(value) if type(value) is float and value - value == 0 else json.dumps(value)

    def draw(rng: Random) -> Callable[[dict[str, Any]], str]:
        form = rng.choice(forms) if len(forms) > 1 else forms[0]
        return lambda record: spell(record, form)

    return rewrite(draw)


def escape_letters(record: dict[str, Any]) -> str:
    """Write letters of texts as escapes."""
    text = json.dumps(record)
    return re.sub(r'(?<=")[a-z](?=[a-z_]*")', lambda match: f"\\u{ord(match[0]):04x}", text).replace("/", "\\/")


# -- records ------------------------------------------------------------------------------------------------------


def change_lines(change: Callable[[Line], Any], *keys: str) -> LogEdit:
    """Return the edit that changes all records, or those of some keys."""

    def edit(log: LogText, rng: Random) -> None:
        for line in log.all(*keys) if keys else log.timed:
            change(line)

    return edit


def map_times(change: Callable[[float], float]) -> LogEdit:
    """Return the edit that changes all times."""

    def edit(log: LogText, rng: Random) -> None:
        for line in log.timed:
            line.time = change(line.time)

    return edit


def say_more(**members: Any) -> LogEdit:
    """Return the edit that says more in the metadata."""
    return change_lines(lambda line: line.record["metadata"].update(members))


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


def respell_settings(change: Callable[[float], float]) -> LogEdit:
    """Return the edit that writes the numbers of the settings in another way."""

    def respell(value: Any) -> Any:
        if isinstance(value, list):
            return [respell(part) if type(part) in (int, float) else part for part in value]
        return change(value) if type(value) in (int, float) else value

    def edit(log: LogText, rng: Random) -> None:
        start = log.at(log.last("run_start"))
        for line in log.timed:
            if log.at(line) <= start and line.key != "seed":
                line.record["value"] = respell(line.record["value"])

    return edit


def write_epochs_with_a_point(log: LogText, rng: Random) -> None:
    """Write the numbers of epochs with a point."""
    for line in log.timed:
        if type(line.number) is int:
            line.number = float(line.number)


write_with_a_point = respell_settings(lambda value: float(value) if abs(value) < 2**53 else value)
write_without_a_point = respell_settings(lambda value: int(value) if value == int(value) else value)
write_times_with_a_fraction = map_times(lambda time_ms: float(time_ms) + 0.25)
write_whole_seconds = map_times(lambda time_ms: time_ms // 1000 * 1000)
write_seed_as_text = change_lines(lambda line: line.record.update(value=str(line.record["value"])), "seed")
say_more_in_metadata = say_more(rank=0, host="n17", tensor_parallel=[1, 2])


def count_from_the_other(log: LogText, rng: Random) -> None:
    """Count epochs from 0 instead of 1, or from 1 instead of 0."""
    first = log.numbers[0]
    if first not in (0, 1):
        raise Unsuitable("not counted from 0 or 1")
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
    start = log.at(log.first("init_start"))
    end = log.at(log.last("init_stop"))
    fixed = ("cache_clear", "staging_start", "staging_stop", "run_start", "init_start", "init_stop", "")
    lines = [line for line in log.lines[start + 1 : end] if line.key not in fixed]
    shuffled = rng.sample(lines, len(lines))
    places = [(log.at(line), line.time) for line in lines]
    for (at, time_ms), line in zip(places, shuffled, strict=True):
        log.lines[at] = line
        line.time = time_ms


def round_results(digits: int) -> LogEdit:
    """Return the edit that logs results with few digits."""

    def edit(log: LogText, rng: Random) -> None:
        for line in log.results:
            log.change_result(line, round(line.record["value"], digits))

    return edit


def log_steps(log: LogText, rng: Random) -> None:
    """Log step_num beside epoch_num."""
    samples, batch_size = (log.first(key).record["value"] for key in ("train_samples", "global_batch_size"))
    for at, number in enumerate(log.numbers):
        for line in log.of_epoch(number):
            line.record["metadata"].setdefault("step_num", (at + 1) * math.ceil(samples / batch_size))


def log_blocks(log: LogText, rng: Random) -> None:
    """Log blocks of one epoch instead of epochs."""
    for line in log.all("epoch_start", "epoch_stop"):
        metadata = line.record["metadata"]
        line.record["key"] = line.key.replace("epoch", "block")
        metadata["first_epoch_num"], metadata["epoch_count"] = metadata.pop("epoch_num"), 1


# -- the course: epochs, evaluations, results ---------------------------------------------------------------------


def move_results(behind: str) -> LogEdit:
    """Return the edit that logs each result behind the end of its evaluation, and of its epoch if that is named."""

    def edit(log: LogText, rng: Random) -> None:
        for result in log.results:
            if len(log.of_epoch(result.number, behind, log.target.key)) != 2:
                raise Unsuitable(f"several {behind} or results, or none")
            after = max(log.of_epoch(result.number, behind, "eval_stop"), key=log.at)
            if log.at(after) > log.at(log.last("run_stop")):
                raise Unsuitable("behind run_stop")
            log.put(result, after)

    return edit


def move_results_into_evaluations(log: LogText, rng: Random) -> None:
    """Log each result right before the end of its evaluation."""
    for result in log.results:
        if len(log.of_epoch(result.number, log.target.key)) > 1:
            raise Unsuitable("several evaluations in an epoch")
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
    if log.benchmark == "openfold":
        raise Unsuitable("val_every_iters says how often")
    return log.require_epochs(least)


def evaluate_some_epochs(log: LogText, rng: Random) -> None:
    """Evaluate only some epochs, and always the last."""
    some_numbers = [number for number in require_epochs(log)[:-1] if rng.random() < 0.4]
    log.remove(
        line for number in some_numbers for line in log.of_epoch(number, "eval_start", "eval_stop", log.target.key)
    )


def last_step(lines: list[Line]) -> int:
    """Return the highest step_num of the lines, 0 if they state none."""
    steps = [line.record["metadata"].get("step_num") for line in lines]
    return max((step for step in steps if isinstance(step, int)), default=0)


def go_on_after_the_target(log: LogText, rng: Random) -> None:
    """Train and evaluate one epoch more than needed."""
    numbers = log.require_epochs(2)
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise Unsuitable("no numbers")
    last, step = numbers[-1], numbers[-1] - numbers[-2]
    lines, stop = log.of_epoch(last), log.last("run_stop")
    before = [line for line in log.timed if log.at(line) < log.at(stop)][-1]
    took = before.time - lines[0].time + 3
    ends = [last_step(log.of_epoch(number)) for number in numbers[-3:]]
    trained = ends[-1] - ends[-2]
    if len(numbers) > 2 and trained < ends[1] - ends[0]:
        raise Unsuitable("the target ended the last epoch early")
    for line in lines:
        before = log.add(line, before, 0, number=last + step)
        before.time = line.time + took
        if isinstance(before.record["metadata"].get("step_num"), int):
            before.record["metadata"]["step_num"] += trained
        if before.key == log.target.key:
            before.record["value"] = log.hit(rng)
    for line in (stop, *log.behind(stop)):
        line.time += took


def fly_evaluations(log: LogText, rng: Random) -> None:
    """Evaluate beside the training: five evaluations begin while that which reaches the target goes on."""
    log.keep_own_times()
    numbers = require_epochs(log)
    if len(log.of_epoch(numbers[-1])) != 5 or log.last("run_stop").number is not None:
        raise Unsuitable("several evaluations in an epoch")
    own, begin = log.of_epoch(numbers[-1], "epoch_start", "epoch_stop"), log.last("eval_start")
    ends = [line for line in log.of_epoch(numbers[-1]) if log.at(line) > log.at(begin)]
    if own[1] in ends:
        raise Unsuitable("evaluated within the epoch")
    length, before = own[1].time - own[0].time, log.before(ends[0])
    log.delay(before, 5 * length + 100)
    for number in range(numbers[-1] + 1, numbers[-1] + 6):
        for line, later_ms in ((own[0], 1), (own[1], length), (begin, 1)):
            before = log.add(line, before, later_ms, number=number)
            before.record["metadata"].pop("step_num", None)


def evaluate_late(later: Callable[[Random], int], in_flight: bool = True) -> LogEdit:
    """Return the edit that ends evaluations behind an epoch that comes so much later, and trains so many more."""

    def edit(log: LogText, rng: Random) -> None:
        late = later(rng)
        numbers = require_epochs(log, late + 2)
        for number in numbers:
            keys = ("epoch_start", "epoch_stop", "eval_start", "eval_stop", log.target.key)
            if [len(log.of_epoch(number, key)) for key in keys] != [1] * 5:
                raise Unsuitable("another course")
            if log.at(log.first("epoch_stop", number)) > log.at(log.first("eval_start", number)):
                raise Unsuitable("evaluated within the epoch")
        _train_more(log, late, ["epoch_start", "epoch_stop", *["eval_start"] * in_flight])
        extended = log.numbers
        for at, number in enumerate(numbers):
            anchor = log.first("epoch_stop", extended[at + late])
            starts = log.of_epoch(extended[at + late], "eval_start")
            anchor = starts[0] if starts and log.at(starts[0]) > log.at(anchor) else anchor
            for key in (log.target.key, "eval_stop"):
                log.put(log.first(key, number), anchor)
        _close_gaps(log)

    return edit


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
    late = previous.time + 2 - stop.time
    for line in (stop, *log.behind(stop)):
        line.time += late
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
    starts = log.of_epoch(last, "eval_start")
    if len(starts) != 1 or log.at(log.last("epoch_stop", last)) > log.at(starts[0]):
        raise Unsuitable("evaluated within the epoch")
    log.add(log.first("epoch_start", last), starts[0], 1, number=last + (last - before))


def evaluate_long(log: LogText, rng: Random) -> None:
    """Evaluate for as long as an epoch takes."""
    log.keep_rates()
    for start in log.all("eval_start")[:-1]:
        log.delay(start, rng.randint(60_000, 90_000))
