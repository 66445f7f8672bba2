"""Forgeries of the numbers that convergence is read from: the run seems to need more, or fewer, epochs than it did."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.conformance.forgeries.logtext import EPOCH_KEYS, EVALUATION_KEYS, Line, LogText, Unsuitable
from tests.conformance.variations import blocks


def all_from_a_later_number(log: LogText, rng: random.Random) -> None:
    """Count from a number above one."""
    shift = _shift(log, rng, 2)
    _change(log.timed, lambda number: number + shift)


def all_from_two(log: LogText, rng: random.Random) -> None:
    """Count from the second number."""
    shift = 2 * _step(log) - log.numbers[0]
    _change(log.timed, lambda number: number + shift)


def all_from_a_negative_number(log: LogText, rng: random.Random) -> None:
    """Count from a number below zero."""
    shift = log.numbers[0] + _step(log) * rng.randint(1, 8)
    _change(log.timed, lambda number: number - shift)


def all_multiplied(log: LogText, rng: random.Random) -> None:
    """Count in steps of two or more."""
    factor = rng.randint(2, 5)
    _change(log.timed, lambda number: number * factor)


def all_in_fractions(log: LogText, rng: random.Random) -> None:
    """Count in steps that are not whole numbers."""
    factor = rng.choice((0.5, 0.75, 1.25, 1.5))
    _change(log.timed, lambda number: number * factor)


def late_ones_later(log: LogText, rng: random.Random) -> None:
    """Leave a gap in the numbers of everything from some epoch on."""
    late, shift = log.numbers[log.inner(rng, 1, 0) :], _shift(log, rng)
    _change(log.timed, lambda number: number + shift if number in late else number)


def late_evaluations_later(log: LogText, rng: random.Random) -> None:
    """Leave a gap in the numbers of evaluations and results from some epoch on, not in those of epochs."""
    late, shift = log.numbers[log.inner(rng, 1, 0) :], _shift(log, rng)
    _change(log.all(*EVALUATION_KEYS, log.target.key), lambda number: number + shift if number in late else number)


def late_results_later(log: LogText, rng: random.Random) -> None:
    """Leave a gap in the numbers of results from some epoch on."""
    late, shift = log.numbers[log.inner(rng, 1, 0) :], _shift(log, rng)
    _change(log.results, lambda number: number + shift if number in late else number)


def last_epoch_later(log: LogText, rng: random.Random) -> None:
    """Give the last epoch, its evaluation and its result a higher number."""
    _change(log.of_epoch(log.numbers[-1]), _plus(_shift(log, rng)))


def last_evaluation_later(log: LogText, rng: random.Random) -> None:
    """Give the last evaluation and its result a higher number."""
    _change(log.of_epoch(log.numbers[-1], *EVALUATION_KEYS, log.target.key), _plus(_shift(log, rng)))


def last_result_later(log: LogText, rng: random.Random) -> None:
    """Give the result that reaches the target a higher number."""
    _change(log.results[-1:], _plus(_shift(log, rng)))


def last_result_one_later(log: LogText, rng: random.Random) -> None:
    """Give the result that reaches the target the number of the next epoch, which was not trained."""
    _change(log.results[-1:], _plus(_step(log)))


def last_result_earlier(log: LogText, rng: random.Random) -> None:
    """Give the result that reaches the target the number of an earlier epoch."""
    back = _step(log) * rng.randint(1, min(10, len(log.numbers) - 1))
    _change(log.results[-1:], _plus(-back))


def last_result_in_a_fraction(log: LogText, rng: random.Random) -> None:
    """Give the result that reaches the target a number between two epochs."""
    _change(log.results[-1:], _plus(_step(log) * rng.choice((-0.5, -0.25, 0.5))))


def results_later(log: LogText, rng: random.Random) -> None:
    """Give all results, but not epochs and evaluations, higher numbers."""
    _change(log.results, _plus(_shift(log, rng)))


def results_multiplied(log: LogText, rng: random.Random) -> None:
    """Multiply the numbers of all results."""
    factor = rng.randint(2, 5)
    _change(log.results, lambda number: number * factor)


def evaluations_later(log: LogText, rng: random.Random) -> None:
    """Give all evaluations and results, but not epochs, higher numbers."""
    _change(log.all(*EVALUATION_KEYS, log.target.key), _plus(_shift(log, rng)))


def evaluation_intervals_later(log: LogText, rng: random.Random) -> None:
    """Give eval_start and eval_stop higher numbers than their results."""
    _numbered(log.all("eval_start"))
    _change(log.all(*EVALUATION_KEYS), _plus(_shift(log, rng)))


def epochs_later(log: LogText, rng: random.Random) -> None:
    """Give epoch_start and epoch_stop, but no evaluation, higher numbers."""
    _change(log.all(*EPOCH_KEYS), _plus(_shift(log, rng)))


def epoch_starts_later(log: LogText, rng: random.Random) -> None:
    """Give only the starts of epochs higher numbers."""
    _change(log.all("epoch_start"), _plus(_shift(log, rng)))


def epoch_stops_later(log: LogText, rng: random.Random) -> None:
    """Give only the stops of epochs higher numbers."""
    _numbered(log.all("epoch_stop"))
    _change(log.all("epoch_stop"), _plus(_shift(log, rng)))


def numbers_repeated(log: LogText, rng: random.Random) -> None:
    """Give an epoch the number of the one before it, and all later ones one less: the run seems to be shorter."""
    late, step = log.numbers[log.inner(rng, 1, 0) :], _step(log)
    _change(log.timed, lambda number: number - step if number in late else number)


def numbers_as_text(log: LogText, rng: random.Random) -> None:
    """Write higher numbers as text in the results."""
    shift = _shift(log, rng)
    _change(log.results, lambda number: str(number + shift))


def number_of_the_last_result_twice(log: LogText, rng: random.Random) -> None:
    """Let the result that reaches the target name two numbers: readers take the second."""
    line = log.results[-1]
    if not _is_number(line.number):
        raise Unsuitable("no number")
    once = b'"epoch_num": ' + json.dumps(line.number).encode()
    twice = once + b', "epoch_num": ' + json.dumps(line.number + _shift(log, rng)).encode()
    log.lines[log.at(line)] = Line(line.bytes().replace(once, twice, 1), {})


def epochs_of_no_time_put_in(log: LogText, rng: random.Random) -> None:
    """Put in epochs that take no time, without evaluation, and count them."""
    at, count = log.inner(rng, 1, 0), rng.randint(3, 12)
    before, number, step = log.end_of(log.numbers[at - 1]), log.numbers[at - 1], _step(log)
    pair = [log.first(key, number) for key in EPOCH_KEYS]
    late = log.numbers[at:]
    _change(log.timed, lambda number: number + count * step if number in late else number)
    for extra in range(1, count + 1):
        for line in pair:
            before = log.add(line, before, number=number + extra * step)


def openfold_samples_multiplied(log: LogText, rng: random.Random) -> None:
    """Count more samples than val_every_iters times the batch size."""
    _only_openfold(log)
    factor = rng.choice((1.5, 2, 3))
    _change(log.timed, lambda number: int(number * factor))


def openfold_samples_from_later(log: LogText, rng: random.Random) -> None:
    """Count some samples more from the start on."""
    _only_openfold(log)
    shift = rng.choice((rng.randrange(1, int(_step(log))), _step(log) * rng.randint(1, 5)))
    _change(log.timed, _plus(shift))


def openfold_samples_go_back(log: LogText, rng: random.Random) -> None:
    """Count from a lower number again in the middle."""
    _only_openfold(log)
    late, back = log.numbers[log.inner(rng, 3, 0) :], _step(log) * rng.randint(1, 2)
    _change(log.timed, lambda number: number - back if number in late else number)


def openfold_samples_grow_unevenly(log: LogText, rng: random.Random) -> None:
    """Count more and more samples per evaluation."""
    _only_openfold(log)
    numbers = {number: int(number * (1 + 0.05 * at)) for at, number in enumerate(log.numbers)}
    _change(log.timed, lambda number: numbers.get(number, number))


def blocks_of_several_epochs(log: LogText, rng: random.Random) -> None:
    """Log blocks that claim more epochs than the numbers of their first epochs leave room for."""
    _to_blocks(log)
    for line in log.all("block_start"):
        line.record["metadata"]["epoch_count"] = rng.randint(2, 5)


def blocks_with_a_gap(log: LogText, rng: random.Random) -> None:
    """Leave a gap in the numbers of blocks, evaluations and results from some block on."""
    late, shift = log.numbers[log.inner(rng, 1, 0) :], _shift(log, rng)
    _to_blocks(log)
    _change(log.timed, lambda number: number + shift if number in late else number)


def blocks_with_later_results(log: LogText, rng: random.Random) -> None:
    """Give evaluations and results higher numbers than the blocks."""
    shift = _shift(log, rng)
    _to_blocks(log)
    _change(log.all(*EVALUATION_KEYS, log.target.key), _plus(shift))


def epochs_counted_twice(log: LogText, rng: random.Random) -> None:
    """Count every epoch as two that start and stop at the same time, or one a little later than the other."""
    later_ms = rng.choice((0, 0.15)) * _shortest_ms(log)
    _divided(log, 2, log.numbers)
    for line in log.all(*EPOCH_KEYS):
        first = log.put_before(line.copy(), line)
        first.number -= 1
        moved, by_ms = (line, later_ms) if line.key == "epoch_start" else (first, -later_ms)
        moved.time += by_ms


def _shortest_ms(log: LogText) -> float:
    return min(log.last("epoch_stop", n).time - log.first("epoch_start", n).time for n in log.numbers)


def last_epoch_divided(log: LogText, rng: random.Random) -> None:
    """Count the last epoch as several, each with its part of the time."""
    if len(log.numbers) < 6:
        raise Unsuitable("too short")
    parts, first = rng.randint(4, 9), log.numbers[-1]
    start, stop = log.first("epoch_start", first), log.last("epoch_stop", first)
    part_ms = (stop.time - start.time) / parts
    _divided(log, parts, [first])
    start.number = first
    for part in range(1, parts):
        end = log.add(stop, start, part * part_ms if part == 1 else part_ms, number=first + part - 1)
        start = log.add(start, end, number=first + part)


def epochs_that_never_stop(log: LogText, rng: random.Random) -> None:
    """Start many epochs before the last evaluation, which is that of the last of them."""
    number, parts = log.numbers[-1], rng.randint(4, 20)
    evaluation = log.last("eval_start", number)
    _divided(log, parts, [number])
    for line in log.of_epoch(number + parts - 1, *EPOCH_KEYS):
        line.number = number
    for part in range(1, parts):
        log.put_before(log.first("epoch_start").copy(), evaluation).number = number + part


def block_of_more_epochs(log: LogText, rng: random.Random) -> None:
    """Log blocks, of which one claims many epochs in the time of one."""
    number, more = log.numbers[log.inner(rng, 2, 2)], rng.randint(3, 20)
    _to_blocks(log)
    start = next(line for line in log.all("block_start") if line.record["metadata"]["first_epoch_num"] == number)
    start.record["metadata"]["epoch_count"] = 1 + more
    own = [
        line for line in log.all("block_start", "block_stop") if line.record["metadata"]["first_epoch_num"] == number
    ]
    _change([line for line in log.lines if line not in own and _of_later(line, number)], _plus(more))


def _of_later(line: Line, number: float) -> bool:
    metadata = (line.record or {}).get("metadata") or {}
    found = metadata.get("epoch_num", metadata.get("first_epoch_num"))
    return _is_number(found) and (found > number or (found == number and line.key not in EPOCH_KEYS))


def _divided(log: LogText, parts: int, numbers: list[Any]) -> None:
    """Give the records of these epochs the number of the last of their parts; later ones move up."""
    if log.benchmark == "openfold":
        raise Unsuitable("counts samples")
    last = {number: number + (parts - 1) * (at + 1) for at, number in enumerate(numbers)}
    _change(log.course, lambda number: last.get(number, number))


def _only_openfold(log: LogText) -> None:
    if log.benchmark != "openfold":
        raise Unsuitable("not openfold")


def _to_blocks(log: LogText) -> None:
    """Log blocks of one epoch instead of epochs."""
    if log.benchmark == "openfold":
        raise Unsuitable("counts samples")
    blocks(log, random.Random())


def _step(log: LogText) -> int:
    """Return by how much the numbers grow: 1; of openfold by the samples between two evaluations."""
    numbers = log.numbers
    if len(numbers) < 2 or not all(map(_is_number, numbers)):
        raise Unsuitable("too few numbers")
    return numbers[1] - numbers[0]


def _shift(log: LogText, rng: random.Random, least: int = 1) -> int:
    return _step(log) * rng.randint(least, 20)


def _plus(shift: int) -> Callable[[Any], Any]:
    return lambda number: number + shift


def _is_number(number: Any) -> bool:
    return isinstance(number, (int, float))


def _numbered(lines: Iterable[Line]) -> None:
    if not any(_is_number(line.number) for line in lines):
        raise Unsuitable("no numbers")


def _change(lines: Iterable[Line], change: Callable[[Any], Any]) -> None:
    """Change the numbers of the lines that have one; also that of the first epoch of a block."""
    for line in lines:
        metadata = line.record.get("metadata") or {}
        for name in ("epoch_num", "first_epoch_num"):
            if _is_number(metadata.get(name)):
                metadata[name] = change(metadata[name])


FORGERIES = (
    all_from_a_later_number,
    all_from_two,
    all_from_a_negative_number,
    all_multiplied,
    all_in_fractions,
    late_ones_later,
    late_evaluations_later,
    late_results_later,
    last_epoch_later,
    last_evaluation_later,
    last_result_later,
    last_result_one_later,
    last_result_earlier,
    last_result_in_a_fraction,
    results_later,
    results_multiplied,
    evaluations_later,
    evaluation_intervals_later,
    epochs_later,
    epoch_starts_later,
    epoch_stops_later,
    numbers_repeated,
    numbers_as_text,
    number_of_the_last_result_twice,
    epochs_of_no_time_put_in,
    openfold_samples_multiplied,
    openfold_samples_from_later,
    openfold_samples_go_back,
    openfold_samples_grow_unevenly,
    blocks_of_several_epochs,
    blocks_with_a_gap,
    blocks_with_later_results,
    epochs_counted_twice,
    last_epoch_divided,
    epochs_that_never_stop,
    block_of_more_epochs,
)
