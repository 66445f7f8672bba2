"""What valid logs of other tools, launchers and centres look like: edits that make no log and no result worse."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from itertools import pairwise

from tests.conformance.edits import FILE_EDITS
from tests.conformance.forgeries.logtext import TOKEN, Line, LogText, Unsuitable

Variation = Callable[[LogText, random.Random], None]
BytesVariation = Callable[[bytes, random.Random], bytes]

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


# -- bytes ----------------------------------------------------------------------------------------------------


def one_prefix(data: bytes, rng: random.Random) -> bytes:
    """Write a launcher's prefix before all lines."""
    prefix = rng.choice(PREFIXES)
    return b"".join(prefix + line + b"\n" for line in data.splitlines())


def output_between(data: bytes, rng: random.Random) -> bytes:
    """Write other output between the lines."""
    lines = data.splitlines()
    for _ in range(rng.randint(1, 20)):
        lines.insert(rng.randint(0, len(lines)), rng.choice(OUTPUT))
    return b"\n".join(lines) + b"\n"


def other_line_ends(data: bytes, rng: random.Random) -> bytes:
    """End lines as Windows does, leave out the last end, or end each twice."""
    names = ("line ends CRLF", "line ends LF LF", "no line end at the end", "a blank before every line end")
    return FILE_EDITS[rng.choice(names)](data.rstrip(b"\n") + b"\n")


def text_around(data: bytes, rng: random.Random) -> bytes:
    """Write output of the job's script before and behind."""
    return b"+ srun python train.py\n" + data + b"slurmstepd: done\nreal 12m3.1s\n"


def compressed(data: bytes, rng: random.Random) -> bytes:
    """Compress, as one or two members."""
    cut = rng.choice((0, len(data) // 2))
    return (gzip.compress(data[:cut]) if cut else b"") + gzip.compress(data[cut:])


def other_json(data: bytes, rng: random.Random) -> bytes:
    """Write the JSON with other spaces, other escapes, and members in another order."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" , ", " : ")))
    sort, ascii_only = rng.choice((True, False)), rng.choice((True, False))
    lines = []
    for line in data.splitlines():
        head, token, body = line.rpartition(TOKEN)
        if token:
            text = json.dumps(json.loads(body), separators=separators, sort_keys=sort, ensure_ascii=ascii_only)
            line = head + token + text.encode("utf-8", "surrogatepass")
        lines.append(line)
    return b"\n".join(lines) + b"\n"


BYTES = (one_prefix, output_between, other_line_ends, text_around, compressed, other_json)


# -- records --------------------------------------------------------------------------------------------------


def other_keys(log: LogText, rng: random.Random) -> None:
    """Log what no rule asks for."""
    for _ in range(rng.randint(1, 12)):
        key, value = rng.choice(OTHER_KEYS)
        line = rng.choice(log.timed)
        log.add(line, line, 0, key=key, event_type="POINT_IN_TIME", value=value)


def other_metadata(log: LogText, rng: random.Random) -> None:
    """Say more in the metadata."""
    for line in log.timed:
        line.record["metadata"] |= {"rank": 0, "host": "n17", "tensor_parallel": [1, 2]}


def without_optional_members(log: LogText, rng: random.Random) -> None:
    """Leave out what the reader does not need."""
    for line in log.timed:
        for name in rng.choice((("namespace",), ("event_type",), ("namespace", "event_type"))):
            line.record.pop(name, None)


def namespace_of_a_worker(log: LogText, rng: random.Random) -> None:
    """Name the worker in the namespace."""
    for line in log.timed:
        line.record["namespace"] = "worker1"


def numbers_with_a_point(log: LogText, rng: random.Random) -> None:
    """Write whole numbers of the settings with a point."""
    _respell(log, lambda value: float(value) if abs(value) < 2**53 else value)


def numbers_without_a_point(log: LogText, rng: random.Random) -> None:
    """Write numbers of the settings that are whole without a point."""
    _respell(log, lambda value: int(value) if value == int(value) else value)


def epochs_with_a_point(log: LogText, rng: random.Random) -> None:
    """Write the numbers of epochs with a point."""
    for line in log.timed:
        if type(line.number) is int:
            line.number = float(line.number)


def times_with_a_fraction(log: LogText, rng: random.Random) -> None:
    """Write times with parts of milliseconds."""
    for line in log.timed:
        line.time = float(line.time) + 0.25


def times_in_seconds(log: LogText, rng: random.Random) -> None:
    """Know the time in whole seconds only."""
    for line in log.timed:
        line.time = line.time // 1000 * 1000


def counted_from_the_other(log: LogText, rng: random.Random) -> None:
    """Count epochs from 0 instead of 1, or from 1 instead of 0."""
    first = log.numbers[0]
    if first not in (0, 1):
        raise Unsuitable("not counted from 0 or 1")
    for line in log.timed:
        if type(line.number) is int:
            line.number += 1 - 2 * first


def result_behind_eval_stop(log: LogText, rng: random.Random) -> None:
    """Log each result right behind the end of its evaluation."""
    _move_results(log, "eval_stop")


def result_behind_epoch_stop(log: LogText, rng: random.Random) -> None:
    """Log each result behind the end of its epoch and of its evaluation."""
    _move_results(log, "epoch_stop")


def result_within_its_evaluation(log: LogText, rng: random.Random) -> None:
    """Log each result right before the end of its evaluation."""
    for result in log.results:
        if len(log.of_epoch(result.number, log.target.key)) > 1:
            raise Unsuitable("several evaluations in an epoch")
        stop = log.last("eval_stop", result.number)
        log.put_before(result, stop)


def evaluation_within_the_epoch(log: LogText, rng: random.Random) -> None:
    """Stop each epoch only when it is evaluated."""
    for number in log.numbers:
        stops, end = log.of_epoch(number, "epoch_stop"), log.end_of(number)
        if len(stops) == 1 and stops[0] is not end:
            log.put(stops[0], end)


def next_epoch_starts_early(log: LogText, rng: random.Random) -> None:
    """Start an epoch while the one before is evaluated."""
    for number, later in pairwise(log.numbers):
        begin = log.of_epoch(number, "eval_start")
        ends = log.of_epoch(number, "epoch_stop")
        if len(begin) == 1 and ends and log.at(ends[-1]) < log.at(begin[0]):
            log.put(log.first("epoch_start", later), begin[0])


def epoch_stop_of_the_last_missing(log: LogText, rng: random.Random) -> None:
    """Let run_stop cut the last epoch short."""
    log.remove([log.last("epoch_stop", log.numbers[-1])])


def few_evaluations(log: LogText, rng: random.Random) -> None:
    """Evaluate only some epochs, and always the last."""
    if log.benchmark == "openfold":
        raise Unsuitable("val_every_iters says how often")
    some = [number for number in log.numbers[:-1] if rng.random() < 0.4]
    log.remove(line for number in some for line in log.of_epoch(number, "eval_start", "eval_stop", log.target.key))


def clock_steps_back(log: LogText, rng: random.Random) -> None:
    """Set the clock back by a few milliseconds in the middle."""
    log.delay(rng.choice(log.timed[5:-5]), -rng.randint(1, 5))


def last_step(lines: list[Line]) -> int:
    """Return the highest step_num of the lines, 0 if they state none."""
    steps = [line.record["metadata"].get("step_num") for line in lines]
    return max((step for step in steps if isinstance(step, int)), default=0)


def goes_on_after_the_target(log: LogText, rng: random.Random) -> None:
    """Train and evaluate one epoch more than needed."""
    numbers = log.numbers
    if len(numbers) < 2 or not all(isinstance(number, (int, float)) for number in numbers):
        raise Unsuitable("too short")
    last, step = numbers[-1], numbers[-1] - numbers[-2]
    lines, stop = log.of_epoch(last), log.last("run_stop")
    before = [line for line in log.timed if log.at(line) < log.at(stop)][-1]
    took = before.time - lines[0].time + 3
    trained = last_step(lines) - last_step(log.of_epoch(numbers[-2]))
    if len(numbers) > 2 and trained < last_step(log.of_epoch(numbers[-2])) - last_step(log.of_epoch(numbers[-3])):
        raise Unsuitable("the target ended the last epoch early")
    for line in lines:
        later = log.add(line, before, 0, number=last + step)
        later.time = line.time + took
        if isinstance(later.record["metadata"].get("step_num"), int):
            later.record["metadata"]["step_num"] += trained
        before = later
        if later.key == log.target.key:
            later.record["value"] = log.hit(rng)
    for line in log.timed[log.timed.index(stop) :]:
        line.time += took


def steps_in_the_metadata(log: LogText, rng: random.Random) -> None:
    """Log step_num beside epoch_num."""
    samples, batch_size = (log.first(key).record["value"] for key in ("train_samples", "global_batch_size"))
    for at, number in enumerate(log.numbers):
        for line in log.of_epoch(number):
            line.record["metadata"].setdefault("step_num", (at + 1) * math.ceil(samples / batch_size))


def header_in_another_order(log: LogText, rng: random.Random) -> None:
    """Log settings in another order."""
    start = log.at(log.first("init_start"))
    end = log.at(log.last("init_stop"))
    fixed = ("cache_clear", "staging_start", "staging_stop", "run_start", "init_start", "init_stop", "")
    lines = [line for line in log.lines[start + 1 : end] if line.key not in fixed]
    shuffled = rng.sample(lines, len(lines))
    times = [line.time for line in lines]
    places = [log.at(line) for line in lines]
    for at, line, time_ms in zip(places, shuffled, times, strict=True):
        log.lines[at] = line
        line.time = time_ms


def cache_clear_first(log: LogText, rng: random.Random) -> None:
    """Clear the caches before anything else."""
    log.put_before(log.first("cache_clear"), log.timed[0])


def seed_as_text(log: LogText, rng: random.Random) -> None:
    """Log the seed as text."""
    for line in log.all("seed"):
        line.record["value"] = str(line.record["value"])


def values_of_few_digits(log: LogText, rng: random.Random) -> None:
    """Log results with five digits."""
    for line in log.results:
        met, value = log.met(line), round(line.record["value"], 5)
        if log.target.met(value) == met:
            line.record["value"] = value


def several_epoch_stops(log: LogText, rng: random.Random) -> None:
    """Let several ranks log the end of each epoch."""
    for line in log.all("epoch_stop"):
        for _ in range(rng.randint(1, 3)):
            log.add(line, line, 0)


def several_starts(log: LogText, rng: random.Random) -> None:
    """Let three ranks log the start of each epoch and evaluation."""
    for line in log.all("epoch_start", "eval_start"):
        for _ in range(2):
            log.add(line, line, rng.randint(0, 3))


def results_of_two_ranks(log: LogText, rng: random.Random) -> None:
    """Let two ranks log each result, which differ by rounding."""
    for line in log.results:
        value = line.record["value"] * (1 + 1e-9)
        if log.target.met(value) == log.met(line):
            log.add(line, line).record["value"] = value


def slow_epochs(log: LogText, rng: random.Random) -> None:
    """Let a few epochs take 4 to 61 times as long: cold caches, compilation, a stalled file system."""
    _without_own_times(log)
    for number in rng.sample(log.numbers, max(1, len(log.numbers) // 4)):
        start = log.first("epoch_start", number)
        length_ms = log.lines[log.at(log.end_of(number))].time - start.time
        log.delay(start, int(length_ms * rng.choice((3, 5, 60))))


def busy_machine(log: LogText, rng: random.Random) -> None:
    """Let the speed of the machine change all the time, by up to three."""
    _without_own_times(log)
    for line in log.timed[log.timed.index(log.last("run_start")) : -1]:
        following = next((other for other in log.timed[log.timed.index(line) + 1 :]), line)
        log.delay(line, int((following.time - line.time) * rng.uniform(0, 2)))


def epoch_started_again(log: LogText, rng: random.Random) -> None:
    """Let an epoch fail within and start again, as elastic training does."""
    _without_own_times(log)
    start = log.first("epoch_start", log.numbers[log.inner(rng)])
    lost_ms = rng.randint(2_000, 90_000)
    log.delay(log.add(start, start, lost_ms), lost_ms)


def staged_again(log: LogText, rng: random.Random) -> None:
    """Let a run that another suite's code resumes stage its data again between two epochs."""
    _without_own_times(log)
    end = log.end_of(log.numbers[log.inner(rng) - 1])
    begin = log.lines[log.at(end) + 1]
    if begin.key != "epoch_start":
        raise Unsuitable("not between epochs")
    start = log.add(log.last("run_start"), end, 1, key="staging_start", event_type="INTERVAL_START")
    stop = log.add(start, start, 40_000, key="staging_stop", event_type="INTERVAL_END")
    log.delay(stop, 40_001)


def evaluations_in_flight(log: LogText, rng: random.Random) -> None:
    """Evaluate beside the training: five evaluations begin while that which reaches the target goes on."""
    _without_own_times(log)
    numbers = log.numbers
    if log.benchmark == "openfold" or len(log.of_epoch(numbers[-1])) != 5 or log.last("run_stop").number is not None:
        raise Unsuitable("val_every_iters says how often, or several evaluations in an epoch")
    own, begin = log.of_epoch(numbers[-1], "epoch_start", "epoch_stop"), log.last("eval_start")
    ends = [line for line in log.of_epoch(numbers[-1]) if log.at(line) > log.at(begin)]
    if own[1] in ends:
        raise Unsuitable("evaluated within the epoch")
    length, before = own[1].time - own[0].time, log.lines[log.at(ends[0]) - 1]
    log.delay(before, 5 * length + 100)
    for number in range(numbers[-1] + 1, numbers[-1] + 6):
        for line, later_ms in ((own[0], 1), (own[1], length), (begin, 1)):
            before = log.add(line, before, later_ms, number=number)
            if "step_num" in line.record["metadata"]:
                del before.record["metadata"]["step_num"]


def settings_by_each_rank(log: LogText, rng: random.Random) -> None:
    """Let four ranks log the settings, each with the same value."""
    for line in log.all("global_batch_size", "opt_name", "train_samples", "eval_samples"):
        for _ in range(3):
            log.add(line, line)


def blocks(log: LogText, rng: random.Random) -> None:
    """Log blocks of one epoch instead of epochs."""
    for line in log.all("epoch_start", "epoch_stop"):
        metadata = line.record["metadata"]
        line.record["key"] = line.key.replace("epoch", "block")
        metadata["first_epoch_num"], metadata["epoch_count"] = metadata.pop("epoch_num"), 1


RECORDS: tuple[Variation, ...] = (
    other_keys,
    other_metadata,
    without_optional_members,
    namespace_of_a_worker,
    numbers_with_a_point,
    numbers_without_a_point,
    epochs_with_a_point,
    times_with_a_fraction,
    times_in_seconds,
    counted_from_the_other,
    result_behind_eval_stop,
    result_behind_epoch_stop,
    result_within_its_evaluation,
    evaluation_within_the_epoch,
    next_epoch_starts_early,
    epoch_stop_of_the_last_missing,
    few_evaluations,
    clock_steps_back,
    goes_on_after_the_target,
    steps_in_the_metadata,
    header_in_another_order,
    cache_clear_first,
    seed_as_text,
    values_of_few_digits,
    several_epoch_stops,
    several_starts,
    results_of_two_ranks,
    slow_epochs,
    busy_machine,
    epoch_started_again,
    staged_again,
    evaluations_in_flight,
    settings_by_each_rank,
    blocks,
)


# -- results: all runs together -------------------------------------------------------------------------------


def started_together(logs: list[LogText], rng: random.Random) -> None:
    """Start all runs in the same second, as an ensemble does."""
    first = logs[0].timed[0].time
    for log in logs[1:]:
        by_ms = first - log.timed[0].time + rng.randint(-300, 300)
        for line in log.timed:
            line.time += by_ms


def right_after_each_other(logs: list[LogText], rng: random.Random) -> None:
    """Start each run when the one before stops."""
    for before, log in pairwise(logs):
        by_ms = before.timed[-1].time + rng.randint(0, 2000) - log.timed[0].time
        for line in log.timed:
            line.time += by_ms


def each_by_its_own(logs: list[LogText], rng: random.Random) -> None:
    """Vary each log in its own way."""
    for log in logs:
        rng.choice((other_keys, other_metadata, numbers_with_a_point, numbers_without_a_point, seed_as_text))(log, rng)


def all_with_the_same(logs: list[LogText], rng: random.Random) -> None:
    """Vary all logs in one way."""
    change = rng.choice((values_of_few_digits, times_in_seconds, times_with_a_fraction, result_behind_eval_stop))
    for log in logs:
        change(log, rng)


def very_regular(logs: list[LogText], rng: random.Random) -> None:
    """Let the epochs of all runs take nearly the same time, as on a machine without other users."""
    for log in logs:
        _without_own_times(log)
    longest = max(logs, key=lambda log: len(log.course))
    model = [(line.key, line.time - longest.course[0].time) for line in longest.course]
    for log in logs:
        course = log.course
        if log is longest or any(line.key != key for line, (key, _) in zip(course, model, strict=False)):
            continue
        start = course[0].time
        for line, (_, offset) in zip(course, model, strict=False):
            line.time = start + offset * rng.uniform(0.9995, 1.0005)
        late = float("-inf")
        for line in log.timed:
            late = line.time = max(late, line.time)


def first_results_equal(logs: list[LogText], rng: random.Random) -> None:
    """Let all runs start from one checkpoint, or learn nothing at first: the first result is the same."""
    for log in logs[1:]:
        for mine, theirs in zip(log.results[:-3], logs[0].results[:1], strict=False):
            if not log.met(theirs):
                mine.record["value"] = theirs.record["value"]


def same_last_result(logs: list[LogText], rng: random.Random) -> None:
    """Let all runs reach the same rounded result at the end."""
    value = logs[0].results[-1].record["value"]
    for log in logs[1:]:
        if log.met(log.results[-1]) and log.target.met(value):
            log.results[-1].record["value"] = value


RESULTS = (
    started_together,
    right_after_each_other,
    each_by_its_own,
    all_with_the_same,
    very_regular,
    first_results_equal,
    same_last_result,
)


def _without_own_times(log: LogText) -> None:
    """Refuse a log that says of itself how long or how fast it trained: other times would contradict it."""
    names = {name for line in log.timed for name in (line.key, *line.record["metadata"])}
    if "time" in names or any(
        word in name for name in names for word in ("throughput", "latency", "duration", "stats")
    ):
        raise Unsuitable("records its own times")


def _respell(log: LogText, change: Callable[[float], float]) -> None:
    start = log.at(log.last("run_start"))
    for line in log.timed:
        value = line.record["value"]
        if log.at(line) > start or line.key == "seed":
            continue
        if isinstance(value, list):
            line.record["value"] = [change(part) if type(part) in (int, float) else part for part in value]
        elif type(value) in (int, float):
            line.record["value"] = change(value)


def _move_results(log: LogText, behind: str) -> None:
    for result in log.results:
        ends: list[Line] = log.of_epoch(result.number, behind, "eval_stop")
        if len(log.of_epoch(result.number, behind, log.target.key)) != 2:
            raise Unsuitable(f"several {behind} or results, or none")
        after = max(ends, key=log.at)
        if log.at(after) > log.at(log.last("run_stop")):
            raise Unsuitable("behind run_stop")
        log.put(result, after)
