"""The course of a run: the epochs it trained, its evaluations, and the results that they gave.

One model for all rules about epochs and evaluations, made once from the records of a log. Events belong together by
their numbers, not by their places: an epoch may start before the one before it stops, and a result may follow
eval_stop and epoch_stop. What comes after run_stop is not part of the run. Several ranks may log the same event.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from math import ceil, prod
from operator import attrgetter
from typing import Final, NamedTuple

from common.reference import Reference
from common.values import is_integer, is_number
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Numbered, NumberedRecords, Record

LEVEL_SPREAD: Final = 1.25
NO_TIME_SHARE: Final = 0.02
"""Of the time of an epoch: nothing was trained."""
MOST_EPOCHS: Final = 10_000
"""A larger epoch_num does not count epochs; the longest runs of MLPerf Training had some thousands."""


class Block(NamedTuple):
    """Several epochs that are logged as one: the numbers of the first and the last, and block_start."""

    first: float
    last: float
    start: Record


FIRST_EPOCH: Final = attrgetter("first")


class Course:
    """What a run trained and evaluated up to run_stop, in file order.

    end: place of run_stop among the records. epochs, epoch_stops, evaluations, evaluation_stops: number and record of
    each epoch_start, epoch_stop, eval_start and eval_stop. counted: the results that count, after the first epoch or
    block starts; results: those of them that have a number.
    """

    def __init__(self, log: Log, metric: str) -> None:
        stop = log.first("run_stop")
        self.end: Final = stop.order if stop else log.record_count
        self.epochs: Final = until(self.end, log.numbered("epoch_start"))
        self.epoch_stops: Final = until(self.end, log.numbered("epoch_stop"))
        self.evaluations: Final = until(self.end, log.numbered("eval_start"))
        blocks = until(self.end, log.numbered("block_start", "first_epoch_num"))
        counts = [start.meta("epoch_count") for _, start in blocks]
        lengths = [count if is_number(count) and count > 0 else 1 for count in counts]
        self.blocks: Final = [
            Block(first, first + length - 1, start) for (first, start), length in zip(blocks, lengths, strict=True)
        ]
        self.evaluation_stops: Final = until(self.end, log.numbered("eval_stop"))
        starts = [record.order for key in ("epoch_start", "block_start") for record in log[key][:1]]
        begin = self.training_starts = min(starts, default=-1)
        records, results = log[metric], log.numbered(metric)
        first, last = bisect_right(records, begin, key=FILE_ORDER), bisect_left(records, self.end, key=FILE_ORDER)
        self.counted: Final = records[first:last]
        self.results: Final = until(self.end, results[bisect_right(results, begin, key=_file_order) :])

    @cached_property
    def started(self) -> dict[float, Record]:
        """The first epoch_start of each number."""
        return dict(reversed(self.epochs))

    @cached_property
    def restarts(self) -> list[Numbered]:
        """The epoch_start records of epochs that have started and not ended: of other ranks, or after a failure."""
        if len(self.started) == len(self.epochs):
            return []
        restarts, running = [], set()
        for number, record in sorted([*self.epochs, *self.epoch_stops, *self.evaluations], key=_file_order):
            if record.key != "epoch_start":
                running.discard(number)
            elif number in running:
                restarts.append((number, record))
            else:
                running.add(number)
        return restarts

    @cached_property
    def evaluated(self) -> dict[float, Record]:
        """The first eval_start of each number."""
        return dict(reversed(self.evaluations))

    @property
    def trained(self) -> float:
        """How many epochs were trained, in blocks or not, whatever their numbers."""
        return len(self.started) + sum(block.last - block.first + 1 for block in self.blocks)

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers of all epochs, of blocks those of their first."""
        return [*self.started, *(block.first for block in self.blocks)]

    def training(self, number: float) -> Record | None:
        """Return the epoch_start or block_start with which the epoch began; None if it never did."""
        begin = self.started.get(number)
        if begin is None and self.blocks:
            position = bisect_right(self._ascending, number, key=FIRST_EPOCH)
            block = self._ascending[position - 1] if position else None
            begin = block.start if block and number <= block.last else None
        return begin

    @cached_property
    def _ascending(self) -> list[Block]:
        return sorted(self.blocks, key=FIRST_EPOCH)

    @cached_property
    def untrained(self) -> list[Numbered]:
        """The evaluations of epochs that had not started: number and eval_start.

        An evaluation before the first epoch, of a smaller number (-1 where epochs count from 0), is one of the network
        as it was initialised. An epoch that stops without a start has lost its record: it counts as trained here.
        """
        return [pair for pair in _not_after(self.started, self.evaluations) if not self._has_a_network(*pair)]

    def _has_a_network(self, number: float, evaluation: Record) -> bool:
        start = self.training(number)
        if start is None:
            initial = evaluation.order < self.training_starts and -1 <= number < min(self.numbers, default=number)
            return initial or number in self._stopped
        return start.order < evaluation.order

    @cached_property
    def _stopped(self) -> set[float]:
        return {*self.epoch_stops.numbers}

    @cached_property
    def misplaced(self) -> list[Numbered]:
        """The results without an evaluation of their epoch before them.

        In a log of blocks without evaluations, those without a block that covers their epoch. An evaluation that stops
        without a start has lost its record: it counts as an evaluation here.
        """
        suspects = _not_after(self.evaluated, self.results)
        if self.blocks and not self.evaluations:
            starts = [(self.training(number), number, record) for number, record in suspects]
            return [(number, record) for start, number, record in starts if start is None or start.order > record.order]
        lost = {*self.evaluation_stops.numbers}.difference(self.evaluated)
        return [pair for pair in suspects if pair[0] not in lost]

    def evaluation_before(self, record: Record) -> Numbered | None:
        """Return the last evaluation that starts before this record, of whatever epoch."""
        position = bisect_left(self.evaluations, record.order, key=_file_order)
        return self.evaluations[position - 1] if position else None

    @cached_property
    def evaluations_of(self) -> dict[float, Sequence[Record]]:
        """The eval_start records of each number."""
        return by_number(self.evaluations)

    @cached_property
    def repeated(self) -> dict[float, Sequence[Record]]:
        """The results of each epoch that has several."""
        results = self.results if len({*self.results.numbers}) < len(self.results) else ()
        return {number: records for number, records in by_number(results).items() if len(records) > 1}

    @cached_property
    def training_ms(self) -> dict[float, float]:
        """How long each epoch was trained: from epoch_start to eval_start or epoch_stop, whichever comes first."""
        ends = {number: stop.time_ms for number, stop in reversed(self.epoch_stops)}
        for number, evaluation in reversed(self.evaluations):
            ends[number] = min(ends.get(number, evaluation.time_ms), evaluation.time_ms)
        return {number: ends[number] - start.time_ms for number, start in self.started.items() if number in ends}

    @cached_property
    def advance_ms(self) -> dict[float, float]:
        """How much later than the epoch before it each epoch starts or stops, whichever is more.

        Epochs may overlap, but two of them cannot both start and stop at the same time.
        """
        started, lengths = self.started, self.training_ms
        advances = {}
        for last, number in pairwise(sorted(started)):
            before, begin = started[last].time_ms, started[number].time_ms
            advances[number] = begin - before
            if last in lengths and number in lengths:
                advances[number] = max(begin - before, begin + lengths[number] - before - lengths[last])
        return advances

    @cached_property
    def evaluation_ms(self) -> dict[float, float]:
        """How long the first evaluation of each number takes; those without a stop are left out."""
        stops = {number: stop.time_ms for number, stop in reversed(self.evaluation_stops)}
        return {number: stops[number] - start.time_ms for number, start in self.evaluated.items() if number in stops}

    @cached_property
    def usual_ms(self) -> float:
        """How long the median epoch of this run is trained; 0 if that is not known.

        Slow epochs do not change it, nor do epochs put in by a forger, even if they are most: those of no time do not
        count, and the parts of a divided epoch are much shorter than the level that the others share.
        """
        lengths = sorted(self.training_ms.values())
        if not lengths:
            return 0
        slow = lengths[int(0.9 * (len(lengths) - 1))]
        lengths = lengths[bisect_left(lengths, min(NO_TIME_SHARE * slow, 1000)) :] or lengths
        # So many epochs that take the same time, within LEVEL_SPREAD, show how long an epoch takes.
        median, width = lengths[(len(lengths) - 1) // 2], ceil(0.4 * len(lengths))
        for begin in range(len(lengths) - width, -1, -1):
            lowest = lengths[begin]
            if lowest <= 2 * median:  # a level above it shows that most epochs may be parts of others
                break
            if lengths[begin + width - 1] <= LEVEL_SPREAD * lowest:
                return lowest
        return median


def find_unit(log: Log, reference: Reference | None) -> str:
    """Return in what a run states how far it is: "epochs", "samples" or "tokens".

    Where the benchmark does not tell: a samples_count is of samples, and so is an epoch_num beyond all epochs, or of
    tokens if it grows by whole batches of sequences.
    """
    if reference is None or reference.epoch_unit:
        return reference.epoch_unit if reference else "epochs"
    if log.counts_samples:
        return "samples"
    results = log.derive(Course, reference.target.key).results
    if any(record.meta("epoch_num") is None for record in results.records):
        return "samples"
    if max(results.numbers, default=0) <= MOST_EPOCHS:
        return "epochs"
    sizes = [log.value(key) for key in ("global_batch_size", "max_sequence_length")]
    sequences = prod(sizes) if all(is_integer(size) and size > 0 for size in sizes) else 0
    return "tokens" if sequences and not any(number % sequences for number in results.numbers) else "samples"


def until(end: int, numbered: NumberedRecords) -> NumberedRecords:
    """Return those before this place in the file."""
    if not numbered or numbered[-1][1].order < end:
        return numbered
    return numbered[: bisect_left(numbered, end, key=_file_order)]


def steps(numbered: Iterable[Numbered]) -> dict[float, float]:
    """Return step_num of each epoch that states it."""
    return {number: step for number, record in numbered if is_number(step := record.meta("step_num"))}


def by_number(numbered: Iterable[Numbered]) -> dict[float, Sequence[Record]]:
    """Return the records of each number."""
    records: dict[float, Sequence[Record]] = {}
    for number, record in numbered:
        group = records.get(number)
        if isinstance(group, list):
            group.append(record)
        else:  # most numbers have one record: a list for each would take twice the memory
            records[number] = [*group, record] if group else (record,)
    return records


def _not_after(starts: dict[float, Record], numbered: NumberedRecords) -> list[Numbered]:
    """Return those that do not come after the start of their number."""
    return [pair for pair in numbered if pair[0] not in starts or starts[pair[0]].order > pair[1].order]


def _file_order(numbered: Numbered) -> int:
    return numbered[1].order
