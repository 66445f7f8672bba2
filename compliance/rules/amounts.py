"""Rules about amounts: where a log states samples, steps, epochs, ranks, times or rates twice, both agree.

One account for all: a rule names the two statements of each amount, and `Amounts` compares them. How often published
logs state both, and where they differ, is in docs/reference/amounts.md (bench/amounts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf
from typing import Any, ClassVar, Final, NamedTuple

from common.reference import FULL
from common.settings.keys import take
from common.values import is_number
from compliance.logs.course import Course, steps
from compliance.logs.log import Log
from compliance.logs.run import PROVENANCE, configuration, find_completion, is_bagged, is_resumed
from compliance.model.judging import NOTE, WARNING, Case, Finding
from compliance.rules.closed import configured
from compliance.rules.epochs import counts_samples, course_of
from compliance.rules.order import LOGGING, TIMING
from compliance.rules.rule import LogRule, show

DATASET = "hpc_training_rules.adoc#benchmarks (datasets); training_rules.adoc#data-set"
MOST_RANKS: Final = 8
"""Of an accelerator that several share."""
TABLE = "docs/reference/amounts.md"
IGNORED = "the official tool does not compare the two"
FULL_EPOCH: Final = 0.97
"""Of the samples of the dataset; the shortest whole epoch of the published logs has 0.9795, as shares are rounded."""
NEAR: Final = 0.1
NOISE_S: Final = 1.0
"""Two statements of one time agree within this part, or within this time; in published logs they do within 0.02."""
UNTIMED: Final = 0.25
"""Of the time of an epoch, which may contain more than the speed counts: a stall, staging after a failure."""
BLOCK_SHARE: Final = 0.4
"""Of the usual time of an epoch: what an epoch of a block takes at least."""
LARGEST: Final = 1e15
"""Steps of an epoch, of which more make no sense."""
ACCUMULATION: Final = ("gradient_accumulation_frequency", "gradient_accumulation_steps")
"""Keys that say how many batches of a rank a step accumulates."""


class Pair(NamedTuple):
    """Two statements of one amount: what the record in this line states, and what others imply.

    subject: for the message. least, most: what the statement may be.
    """

    line: int
    subject: str
    stated: float
    implied: float
    least: float
    most: float

    @property
    def agrees(self) -> bool:
        """Whether the two are of one amount."""
        return self.least <= self.stated <= self.most


def _format_amount(value: float) -> str:
    """Return a number with one decimal, a small one with three digits, a whole one without."""
    if value % 1 == 0:
        return f"{value:,.6g}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


class Amounts(LogRule, strict_only=True):
    """Base of the rules that compare two statements of one amount.

    pair: the two, in words. message: about the first that differ, with {subject}, {stated} and {implied}. expected:
    the same, if it is not just the number.
    """

    differs = IGNORED
    pair: ClassVar[str]
    message: ClassVar[str]
    expected: ClassVar[str] = ""
    noun: ClassVar[str] = "epochs"
    key: ClassVar[str]

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        """Yield each amount that the log states twice."""
        raise NotImplementedError

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        contradictions = (pair for pair in self.compare(log, case) if not pair.agrees)
        if first := next(contradictions, None):
            texts = {name: _format_amount(value) for name, value in first._asdict().items() if name != "subject"}
            texts["subject"] = first.subject
            expected = self.expected or ("{least} to {most}" if first.least < first.most else "{most}")
            others = sum(1 for _ in contradictions)
            message = self.message.format(**texts) + (f" ({1 + others} such {self.noun})" if others else "")
            yield self.finding(log.path, first.line, message, expected.format(**texts), self.key)

    @staticmethod
    def read_whole_epochs(log: Log, case: Case) -> tuple[Course, float]:
        """Return the course and train_samples; 0 if these are no number, or not the samples of each epoch."""
        samples: Any = log.value("train_samples")
        partial = counts_samples(case) or is_resumed(log) or is_bagged(log) or not is_number(samples)
        return course_of(log, case), 0 if partial else samples


class StepsOfEpoch(Amounts):
    """The steps of an epoch, times the batch size, are the samples of the dataset."""

    id = "AMT01"
    cite = DATASET
    why = "An epoch trains on all samples. Fewer steps, or a smaller batch size than stated, change the convergence."
    fix = "Log the batch size and the steps of the run; train each epoch on the whole dataset, without train.steps."
    good = (lambda log: log(benchmark="deepcam").steps(),)
    bad = (lambda log: log(benchmark="deepcam").steps(59),)
    pair = "steps of an epoch, and train_samples / global_batch_size"
    message = "{subject} has {stated} steps; train_samples / global_batch_size is {implied} steps"
    expected = "{least} to {most} steps"
    key = "step_num"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        course, samples = self.read_whole_epochs(log, case)
        batch_size = log.value("global_batch_size")
        if not course.epochs or samples <= 0 or not is_number(batch_size) or batch_size <= 0:
            return
        implied = samples / batch_size
        if implied > LARGEST:
            return
        least, most = ceil(min(implied // 1, FULL_EPOCH * implied)), ceil(implied)
        factors = [log.value(key) for key in ACCUMULATION]
        factor = max((value for value in factors if is_number(value)), default=1)
        for number, count, line, evaluated in self._count_steps(log, course):
            if most < count <= factor * most:  # some count each of the batches that a step accumulates
                count /= factor
            subject, last = f"epoch {show(number)}", number == course.epochs[-1][0]
            if last and evaluated and (limits := _find_limits(log)):
                subject += f" ({limits})"
            # The target may end the last epoch at any step; a run without is no result, as QUA01 says.
            may_be_cut = last and (not evaluated or bool(find_completion(log)))
            yield Pair(line, subject, count, implied, 0 if may_be_cut else least, most)

    @staticmethod
    def _count_steps(log: Log, course: Course) -> Iterator[tuple[float, float, int, bool]]:
        """Yield number, steps and line of each epoch that states them, and whether it is known to be over."""
        some = (course.epochs[at][1] for at in (0, len(course.epochs) // 2, -1))  # most logs state none
        stated = any(is_number(record.meta("step_num")) for record in some)
        starts, stops = (steps(course.epochs), steps(course.epoch_stops)) if stated else ({}, {})
        for number, start in starts.items():
            end: float | None = stops.get(number, start)
            if end == start:  # some count the steps so far once for each epoch
                end = starts.get(number + 1)
            if end is not None:
                yield number, end - start, course.started[number].line, False
        if log[PROVENANCE]:  # the logs of this suite state the steps of each epoch at its end
            rates = ((number, rate) for number, rate in log.rates.items() if is_number(rate.step))
            yield from ((number, rate.step, rate.line, True) for number, rate in rates)


def _find_limits(log: Log) -> str:
    """Return which keys of the configuration, with their values, may end the run within an epoch; "" if none does."""
    config = configuration(log.value(PROVENANCE)) or {}
    values = ((name, configured(take(name), config)) for name in ("train.steps", "train.flop"))
    return ", ".join(f"{name}: {show(value)}" for name, value in values if value is not None)


class OneVocabulary(Amounts):
    """A log has epochs or blocks of epochs, not both."""

    id = "AMT02"
    cite = LOGGING
    differs = "the official tool accepts both"
    why = "With both, an epoch could be trained in one and counted in the other; no published log has both."
    fix = "Log epoch_start and epoch_stop of each epoch, or block_start and block_stop of each block."
    good = (lambda log: log().blocks(),)
    bad = (lambda log: log().add("block_start", None, before="run_stop", first_epoch_num=24, epoch_count=16),)
    pair = "blocks in a log with epochs"
    message = "blocks and epochs in one log: epoch_start is in line {subject}"
    expected = "one of the two"
    key = "block_start"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        start, block = log.first("epoch_start"), log.first("block_start")
        if start is not None:
            yield Pair(block.line if block else 0, f"{start.line}", len(log["block_start"]), 0, 0, 0)


class TimeOfBlock(Amounts):
    """A block takes as long as that many epochs do."""

    id = "AMT03"
    severity = WARNING
    cite = "hpc_training_rules.adoc#benchmarks; training_rules.adoc#run-time"
    differs = "the official tool does not compare times"
    why = "A block of many epochs that takes the time of a few did not train them."
    fix = "Log the number of epochs that each block trained as its epoch_count."
    good = (lambda log: log().blocks(),)
    bad = (lambda log: log().blocks().meta("block_start", "epoch_count", 8, 5),)
    pair = "the time of an epoch in a block, and that of the median block"
    message = "the block of {subject} takes {stated} s per epoch"
    expected = "about {implied} s, as in other blocks"
    noun, key = "blocks", "block_start"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        blocks, ends = course_of(log, case).blocks, dict(log.numbered("block_stop", "first_epoch_num"))
        lengths = []
        for first, last, start in blocks:
            end = ends.get(first) or log.first("run_stop")
            if end is not None:
                lengths.append((first, last, start, (end.time_ms - start.time_ms) / max(last - first + 1, 1) / 1000))
        usual = sorted(seconds for *_, seconds in lengths)[len(lengths) // 2] if lengths else 0
        for first, last, start, seconds in lengths:
            least = min(BLOCK_SHARE * usual, usual - NOISE_S)
            yield Pair(start.line, f"epochs {show(first)} to {show(last)}", seconds, usual, least, inf)


class StatedTimes(Amounts):
    """Where a record states how long the run, its staging or an epoch took, the times of the records agree."""

    id = "AMT04"
    severity = WARNING
    cite = TIMING
    why = "If they differ, times were edited, or the field has another unit or meaning."
    fix = "Submit the log as the run wrote it; log seconds or milliseconds."
    good = (
        lambda log: log().meta("run_stop", "time", 5_200_350.0),  # in ms
    )
    bad = (lambda log: log().meta("run_stop", "time", 60_000.0),)
    pair = "time, staging_duration or latencies in metadata, and the times of the records"
    message = "{subject} took {stated} s by its metadata, {implied} s by the times of the records"
    expected = "{least} to {most} s"
    noun, key = "records", "time_ms"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        stop, start = log.first("run_stop"), log.first("run_start")
        if stop and start and is_number(seconds := stop.meta("time")):
            yield self._compare_seconds(stop.line, "the run", seconds, stop.time_ms - start.time_ms)
        for begin, end in zip(log["staging_start"], log["staging_stop"], strict=False):
            if is_number(seconds := end.meta("staging_duration")):
                pair = self._compare_seconds(end.line, "the staging", seconds, end.time_ms - begin.time_ms)
                yield pair._replace(least=0)  # part of the staging may be counted: openfold stages while it trains
        first = log.first("epoch_stop")
        if first and is_number(first.meta("training_epoch_latency")):
            course = course_of(log, case)
            started = course.started | dict(course.restarts)
            for number, record in log.numbered("epoch_stop"):
                latencies = [record.meta(f"{part}_epoch_latency") for part in ("training", "eval")]
                if number in started and all(map(is_number, latencies)):
                    length_ms = record.time_ms - started[number].time_ms
                    yield self._compare_seconds(record.line, f"epoch {show(number)}", sum(latencies) / 1000, length_ms)

    @staticmethod
    def _compare_seconds(line: int, subject: str, seconds: float, length_ms: float) -> Pair:
        """Return the pair of a stated duration, in seconds or milliseconds, and the time between two records."""
        length = length_ms / 1000
        margin = max(NEAR * abs(length), NOISE_S)
        seconds /= 1000 if abs(seconds / 1000 - length) <= margin else 1  # some state milliseconds
        return Pair(line, subject, seconds, length, length - margin, length + margin)


class OwnThroughput(Amounts):
    """The throughput that a log records of an epoch agrees with the time of the epoch."""

    id = "ORD19"
    severity = WARNING
    cite = TABLE
    why = "If they differ, times were edited, or the speed has another unit."
    fix = "Submit the log as the run wrote it; log samples per second of the whole run."
    good = (lambda log: log(benchmark="oc20").throughput(740.0),)
    bad = (lambda log: log().throughput(900.0),)
    pair = "throughput of an epoch, and train_samples / its time"
    message = "{subject} took {implied} s, but at the throughput that the log records it takes {stated} s"
    expected = "{least} to {most} s"
    key = "throughput"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        if not log.rates or case.reference is None or _means_other_things(log, case):
            return
        course, samples = self.read_whole_epochs(log, case)
        restarted = {number for number, _ in course.restarts} if samples else set()
        for number, rate in log.rates.items() if samples else ():
            is_timed = number in course.training_ms and rate.alone and number not in restarted
            if is_timed and number != course.epochs[-1][0]:
                length, seconds = course.training_ms[number] / 1000, samples / rate.per_second
                most = length + max(NEAR * length, NOISE_S)
                yield Pair(rate.line, f"epoch {show(number)}", seconds, length, UNTIMED * length, most)


class RankOfAccelerator(Amounts):
    """Each accelerator has one rank, or a whole number of ranks or accelerators belong together."""

    id = "AMT05"
    severity = WARNING
    cite = TABLE
    why = "The ranks of a run use its accelerators: if the numbers do not fit, one of them is wrong."
    fix = "Log number_of_ranks, number_of_nodes and accelerators_per_node of the run."
    good = (lambda log: log().add("number_of_ranks", 64),)
    bad = (lambda log: log().add("number_of_ranks", 97),)
    pair = "number_of_ranks, and nodes * accelerators"
    message = "number_of_ranks is {stated}, but there are {subject} = {implied} accelerators"
    expected = "one rank for each accelerator"
    noun, key = "records", "number_of_ranks"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        nodes, each = log.value("number_of_nodes"), log.value("accelerators_per_node")
        if not (is_number(nodes) and is_number(each) and nodes * each > 0) or _means_other_things(log, case):
            return
        size = nodes * each
        for record in log["number_of_ranks"]:
            if is_number(record.value) and record.value > 0:
                ranks = record.value
                shared = ranks % size == 0 and ranks <= MOST_RANKS * size
                by_node = ranks % nodes == 0 and each % (ranks / nodes) == 0
                fits = ranks == size or ((shared or by_node) and not log[PROVENANCE])
                subject = f"{show(nodes)} x {show(each)}"
                yield Pair(record.line, subject, ranks, size, *((ranks, ranks) if fits else (size, size)))


def _means_other_things(log: Log, case: Case) -> bool:
    """Tell whether throughput and ranks of this log mean other things, as in the published logs of NVIDIA's oc20."""
    return case.benchmark == "oc20" and not log[PROVENANCE]


class EpochsTrained(Amounts):
    """The number of the last result agrees with the number of epochs trained."""

    id = "AMT06"
    severity = NOTE
    cite = LOGGING
    differs = "the official tool reads epoch_num only"
    once = True
    why = "Convergence and score count by epoch_num; a run numbered from 0 counts one epoch less than it trained."
    fix = "Nothing to fix; the report shows the epochs trained beside epoch_num."
    bad = (lambda log: log().renumber(first=0),)
    pair = "epoch_num of the last result, and epochs trained"
    message = "convergence is epoch_num {stated}; {implied} epochs were trained"
    key = "epoch_num"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        course = course_of(log, case)
        if course.results and course.trained and case.reference is not None and case.reference.variant == FULL:
            number, record = course.results[-1]
            if not counts_samples(case):
                yield Pair(record.line, "", number, course.trained, course.trained, course.trained)
