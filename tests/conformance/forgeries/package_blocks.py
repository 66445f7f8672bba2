"""Forgeries of a run by blocks of epochs, beside epochs or instead of them."""

from __future__ import annotations

import random

from tests.conformance.forgeries.package_forgery import in_each_log, on_each
from tests.conformance.variants.logtext import EVALUATION_KEYS, Line, LogText, Unsuitable


def block_of(log: LogText, after: Line, first: int, count: int, took_ms: float) -> Line:
    """Insert a block of epochs behind a line; return its stop. What follows comes later by its time."""
    log.delay(after, took_ms)
    start = log.add(log.first("run_start"), after, 0, key="block_start", event_type="INTERVAL_START")
    stop = log.add(start, start, took_ms, key="block_stop", event_type="INTERVAL_END")
    for line in (start, stop):
        line.record["metadata"] |= {"first_epoch_num": first, "epoch_count": count}
    return stop


def cut_epochs(log: LogText, first: int, last: int) -> Line:
    """Remove the epochs from one position to another with their time; of the very last one its evaluation stays.

    Return the line behind which they were.
    """
    numbers = log.numbers
    before = log.end_of(numbers[first - 1]) if first else log.last("run_start")
    if last == len(numbers) - 1:
        kept = log.of_epoch(numbers[last], *EVALUATION_KEYS, log.target.key)[0]
        until = log.at(kept)
    else:
        kept = log.first("epoch_start", numbers[last + 1])
        until = log.at(log.end_of(numbers[last])) + 1
    at = log.at(before) + 1
    gone_ms = kept.time - before.time
    log.remove(log.lines[at:until])
    log.remove(line for line in log.all("epoch_stop") if line.number in numbers[first : last + 1])
    log.delay(before, -gone_ms)
    return before


def block_at_the_end(log: LogText, rng: random.Random) -> str:
    """Replace the last epochs by one block of no time."""
    numbers = log.numbers
    keep = rng.randint(max(1, len(numbers) // 3), len(numbers) - 2)
    end, took_ms = cut_epochs(log, keep, len(numbers) - 1), rng.choice((2, 5, 20))
    block_of(log, end, numbers[keep], len(numbers) - keep, took_ms)
    return f"{keep} epochs, then a block of {len(numbers) - keep} in {took_ms} ms"


def block_in_the_middle(log: LogText, rng: random.Random) -> str:
    """Replace epochs of the middle by one block that takes the time of one epoch."""
    numbers = log.numbers
    first = rng.randint(1, len(numbers) // 2)
    count = rng.randint(3, max(3, len(numbers) - first - 2))
    if first + count >= len(numbers):
        raise Unsuitable("too short")
    one_ms = log.end_of(numbers[1]).time - log.first("epoch_start", numbers[1]).time
    block_of(log, cut_epochs(log, first, first + count - 1), numbers[first], count, one_ms)
    return f"a block of {count} in {one_ms} ms after {first} epochs"


def block_before_the_end(log: LogText, rng: random.Random) -> str:
    """Leave all epochs but count more: a block of no time before the last epoch."""
    numbers, more = log.numbers, rng.randint(2, 12)
    _count_on(log, len(numbers) - 1, more)
    block_of(log, log.end_of(numbers[-2]), numbers[-2] + 1, more, 5)
    return f"{more} more epochs"


def block_at_the_start(log: LogText, rng: random.Random) -> str:
    """Count epochs before the first one, in a block of no time."""
    numbers, more = log.numbers, rng.randint(2, 12)
    _count_on(log, 0, more)
    start = log.first("epoch_start")
    before = log.lines[log.at(start) - 1]
    block_of(log, before, numbers[0], more, rng.choice((1, 5, 50)))
    return f"{more} more epochs"


def two_blocks(log: LogText, rng: random.Random) -> str:
    """Write the first epochs as one block of their time, and all others as a second one of no time."""
    numbers = log.numbers
    keep = rng.randint(1, len(numbers) // 2)
    end = cut_epochs(log, keep, len(numbers) - 1)
    for line in log.all("epoch_start", "epoch_stop"):
        wanted = ("epoch_start", numbers[0]) if line.key == "epoch_start" else ("epoch_stop", numbers[keep - 1])
        if (line.key, line.number) != wanted:
            if line is end:
                end = log.lines[log.at(line) - 1]
            log.remove([line])
            continue
        line.record["key"] = line.key.replace("epoch", "block")
        line.record["metadata"].pop("epoch_num")
        line.record["metadata"] |= {"first_epoch_num": numbers[0], "epoch_count": keep}
    block_of(log, end, numbers[keep], len(numbers) - keep, 5)
    return f"blocks of {keep} and {len(numbers) - keep}"


def block_around_epochs(log: LogText, rng: random.Random) -> str:
    """Write a block of several epochs around a single one, and count on from it."""
    numbers, more = log.numbers, rng.randint(2, 6)
    at = rng.randint(1, len(numbers) - 2)
    _count_on(log, at + 1, more)
    start, stop = log.first("epoch_start", numbers[at]), log.end_of(numbers[at])
    last = log.add(start, stop, 0, key="block_stop", event_type="INTERVAL_END")
    first = log.put_before(start.copy(), start)
    first.record["key"] = "block_start"
    for line in (first, last):
        line.record["metadata"].pop("epoch_num")
        line.record["metadata"] |= {"first_epoch_num": numbers[at], "epoch_count": more + 1}
    return f"block of {more + 1} around epoch {numbers[at]}"


def block_that_never_stops(log: LogText, rng: random.Random) -> str:
    """Replace the last epochs by the start of a block."""
    detail = block_at_the_end(log, rng)
    log.remove(log.all("block_stop"))
    return detail


def _count_on(log: LogText, at: int, more: int) -> None:
    later = log.numbers[at:]
    for line in log.timed:
        if line.number in later:
            line.number += more
    stop = log.last("run_stop")
    if isinstance(stop.number, int) and stop.number not in log.numbers:
        stop.number += more


BLOCK = ("block",)
FORGERIES = [
    *on_each(
        "F05",
        "Dell deepcam, Clemson deepcam, NVIDIA cosmoflow, CSCS oc20, suite cosmoflow, built deepcam",
        "the last epochs are one block of no time",
        BLOCK,
        in_each_log(block_at_the_end),
    ),
    *on_each(
        "F05",
        "NVIDIA cosmoflow, CSCS oc20, HelmholtzAI cosmoflow, built oc20",
        "epochs of the middle are one block that takes the time of one",
        BLOCK,
        in_each_log(block_in_the_middle),
    ),
    *on_each(
        "F05",
        "Dell deepcam, NVIDIA oc20, suite deepcam",
        "a block of no time before the last epoch",
        BLOCK,
        in_each_log(block_before_the_end),
    ),
    *on_each(
        "F05",
        "Clemson deepcam, CSCS oc20, built cosmoflow",
        "a block of no time before the first epoch",
        BLOCK,
        in_each_log(block_at_the_start),
    ),
    *on_each(
        "F05",
        "Dell deepcam, NVIDIA cosmoflow, built oc20, suite cosmoflow",
        "two blocks and no epochs",
        BLOCK,
        in_each_log(two_blocks),
    ),
    *on_each(
        "F05",
        "Dell deepcam, HelmholtzAI cosmoflow",
        "a block of several epochs around one",
        BLOCK,
        in_each_log(block_around_epochs),
    ),
    *on_each(
        "F05",
        "NVIDIA cosmoflow, built deepcam",
        "the last epochs are a block that never stops",
        BLOCK,
        in_each_log(block_that_never_stops),
    ),
]
