"""Rules about amounts: where a log states samples, steps, epochs, ranks, times or rates twice, both agree.

One account for all: a rule names the two statements of each amount, and how much they may differ on the side that makes
the result better, and on the other; `Amounts` compares them. How often published logs state both, and where they
differ, is in docs/reference/amounts.md (bench/amounts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, gcd, inf
from math import log as logarithm
from typing import Any, ClassVar, Final, NamedTuple

from common.reference import FULL
from common.settings.keys import take
from common.values import is_integer, is_number
from compliance.logs.course import Course, steps
from compliance.logs.log import EARLIEST_MS, LATEST_MS, Log
from compliance.logs.record import Record
from compliance.logs.run import PROVENANCE, configuration, find_completion, is_bagged, is_resumed
from compliance.model.judging import ERROR, NOTE, SEVERITIES, WARNING, Case, Finding
from compliance.rules.bounds import Limit, find_range, limit_duration, measure_grain
from compliance.rules.closed import configured
from compliance.rules.epochs import counts_samples, course_of, samples_per_epoch
from compliance.rules.order import TIMING
from compliance.rules.rule import LogRule, show

MOST_RANKS: Final = 8
"""Of an accelerator that several share."""
CLOCK_SET_S: Final = 0.5
"""So much in all is no gain: a clock may be set while a run goes on."""
UNITS_S: Final = (1.0, 1e-3, 1e-6, 60.0, 3600.0)
EQUAL, SLOWER = 1.01, 0.5
"""Of the time by such a rate: an epoch takes as long, or longer, as its data are waited for."""


class Pair(NamedTuple):
    """Two statements of one amount: what the record in this line states, and what others imply.

    subject: for the message. limits: what the statement may be, the severest first. kind: in the table of bounds.
    """

    line: int
    subject: str
    stated: float
    implied: float
    limits: tuple[Limit, ...]
    kind: str = ""

    @property
    def severity(self) -> str:
        """How bad it is that the two differ; "" if they are of one amount."""
        return next((limit.severity for limit in self.limits if not limit.least <= self.stated <= limit.most), "")


class Amounts(LogRule, strict_only=True):
    """Base of the rules that compare two statements of one amount.

    pair: the two, in words. message: about the first that differ most, with {subject}, {stated} and {implied}.
    expected: the same. forgiven: what all of them together may differ before it is more than a note.
    """

    cite = "docs/reference/amounts.md"
    differs = "the official tool does not compare the two"
    pair: ClassVar[str]
    message: ClassVar[str]
    expected: ClassVar[str] = "{implied:,.6g}"
    noun: ClassVar[str] = "epochs"
    key: ClassVar[str]
    forgiven: ClassVar[float] = -inf

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        """Yield each amount that the log states twice."""
        raise NotImplementedError

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        odd = [(severity, pair) for pair in self.compare(log, case) if (severity := pair.severity)]
        if odd:
            severity = min((severity for severity, _ in odd), key=SEVERITIES.index)
            pairs = [pair for each, pair in odd if each == severity]
            if sum(pair.stated - pair.implied for pair in pairs) <= self.forgiven:
                severity = NOTE
            first, more = pairs[0], f" ({len(pairs)} such {self.noun})" if pairs[1:] else ""
            message, expected = (text.format(**first._asdict()) for text in (self.message, self.expected))
            yield self.finding(log.path, first.line, message + more, expected, self.key, severity)

    @staticmethod
    def read_whole_epochs(log: Log, case: Case) -> tuple[Course, float]:
        """Return the course and train_samples; 0 if these are no number, or not the samples of each epoch."""
        samples: Any = log.value("train_samples")
        partial = counts_samples(case) or is_resumed(log) or is_bagged(log) or not is_number(samples)
        return course_of(log, case), 0 if partial else samples


class StepsOfEpoch(Amounts):
    """The steps of an epoch, times the batch size, are the samples of the dataset."""

    id = "AMT01"
    cite = "hpc_training_rules.adoc#benchmarks (datasets); training_rules.adoc#data-set"
    why = "An epoch trains on all samples. Fewer steps, or a smaller batch size than stated, change the convergence."
    fix = (
        "Log as global_batch_size the samples that all ranks together train on in a step, and the steps of the run; "
        "train each epoch on the whole dataset, without train.steps."
    )
    good = (lambda log: log(benchmark="deepcam").steps(),)
    bad = (lambda log: log(benchmark="deepcam").steps(55),)
    pair = "steps of an epoch, and train_samples / global_batch_size"
    message = "{subject} has {stated:,.6g} steps; train_samples / global_batch_size is {implied:,.6g} steps"
    expected = "{implied:,.6g} steps, or one fewer"
    key = "step_num"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        course, samples = self.read_whole_epochs(log, case)
        implied = read_steps(log, samples)
        most, usual = ceil(implied), implied // 1 + find_range("steps", case.benchmark)[0] if course.epochs else 0
        for number, count, line, evaluated in count_steps(log, course, implied) if course.epochs else ():
            subject, last = f"epoch {show(number)}", number == course.epochs[-1][0]
            shares = count * (count_accelerators(log) or log.value("number_of_ranks") or 0)
            if shares > count and abs(shares / implied - 1) < 0.02:  # the last batch may be left out
                subject = (
                    f"global_batch_size seems to be the batch of one of {shares / count:g} accelerators: {subject}"
                )
                line = log["global_batch_size"][0].line
            if last and evaluated and (ends := _find_limits(log)):
                subject += f" ({ends})"
            # With fewer of its steps, an epoch did not train on the dataset.
            limits = (Limit(ERROR, min(usual, 0.97 * implied), most), Limit(WARNING, usual, most))
            # The target may end the last epoch at any step; a run without is no result, as QUA01 says.
            may_be_cut = last and (not evaluated or bool(find_completion(log)))
            cut = Pair(line, subject, count, implied, (Limit(ERROR, 0, most),))
            yield cut if may_be_cut else cut._replace(limits=limits, kind="steps")


def read_steps(log: Log, samples: float) -> float:
    """Return the steps of an epoch by samples and batch size, with a fraction; 0 if they are unknown."""
    batch_size = log.value("global_batch_size")
    steps_of_epoch = samples / batch_size if is_number(batch_size) and batch_size > 0 else 0
    return steps_of_epoch if 0 < steps_of_epoch <= 1e15 else 0  # more make no sense


def count_steps(log: Log, course: Course, implied: float) -> Iterator[tuple[float, float, int, bool]]:
    """Yield number, steps and line of each epoch that states them, and whether it is known to be over.

    implied: the steps of an epoch. Some count samples, or each of the batches that a step accumulates.
    """
    if not implied:
        return
    # How many batches of a rank a step accumulates.
    factors = [log.value(key) for key in ("gradient_accumulation_frequency", "gradient_accumulation_steps")]
    factor, most = max((value for value in factors if is_number(value)), default=1), ceil(implied)
    batch_size = log.value("global_batch_size")
    for number, count, line, evaluated in _read_counts(log, course):
        unit = factor if most < count <= factor * most else 1
        if count > most >= count / batch_size >= implied // 1 - 1:
            unit = batch_size
        yield number, count / unit, line, evaluated


def _read_counts(log: Log, course: Course) -> Iterator[tuple[float, float, int, bool]]:
    some = (course.epochs[at][1] for at in (0, len(course.epochs) // 2, -1))  # most logs state none
    stated = any(is_number(record.meta("step_num")) for record in some)
    starts, stops = (steps(course.epochs), steps(course.epoch_stops)) if stated else ({}, {})
    for number, start in starts.items():
        ends = [of_epoch[at] for of_epoch, at in ((stops, number), (starts, number + 1)) if at in of_epoch]
        if ends:  # some count the steps so far once for each epoch; what no epoch trained counts, too
            yield number, max(ends) - start, course.started[number].line, False
    if log[PROVENANCE]:  # the logs of this suite state the steps of each epoch at its end
        rates = ((number, rate) for number, rate in log.rates.items() if is_number(rate.step))
        yield from ((number, rate.step, rate.line, True) for number, rate in rates)


def count_accelerators(log: Log) -> float:
    """Return the accelerators of a run; 0 if it has none, or does not say."""
    nodes, each = log.value("number_of_nodes"), log.value("accelerators_per_node")
    return nodes * each if is_number(nodes) and is_number(each) else 0


def _find_limits(log: Log) -> str:
    """Return which keys of the configuration, with their values, may end the run within an epoch; "" if none does."""
    config = configuration(log.value(PROVENANCE)) or {}
    values = ((name, configured(take(name), config)) for name in ("train.steps", "train.flop"))
    return ", ".join(f"{name}: {show(value)}" for name, value in values if value is not None)


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
    message = "the block of {subject} takes {stated:,.6g} s per epoch"
    expected = "about {implied:,.6g} s, as in other blocks"
    noun, key = "blocks", "block_start"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        blocks, ends = course_of(log, case).blocks, dict(log.numbered("block_stop", "first_epoch_num"))
        lengths = []
        for first, last, start in blocks:
            end = ends.get(first) or log.first("run_stop")
            if end is not None:
                lengths.append((first, last, start, (end.time_ms - start.time_ms) / max(last - first + 1, 1) / 1000))
        ascending = sorted(seconds for *_, seconds in lengths)
        usual, longer = (ascending[(len(lengths) - odd) // 2] if lengths else 0 for odd in (1, 0))
        for first, last, start, seconds in lengths:
            # The longer of two blocks may have had cold caches.
            least = min(max(0.4 * usual, 0.1 * longer), longer - 1.0)
            subject = f"epochs {show(first)} to {show(last)}"
            yield Pair(start.line, subject, seconds, longer, (Limit(WARNING, least, inf),))


class StatedTimes(Amounts):
    """Where a record states how long the run, its staging or an epoch took, the times of the records agree."""

    id = "AMT04"
    cite = TIMING
    why = (
        "If the records show less time than the log states, times were edited, or the field means something else. If "
        "they show more, the field leaves something out: a note."
    )
    fix = "Submit the log as the run wrote it; log seconds or milliseconds."
    good = (
        lambda log: log().meta("run_stop", "time", 5_200_350.0),  # in ms
    )
    bad = (lambda log: log().meta("run_stop", "time", 60_000.0),)
    pair = "time, staging_duration or latencies in metadata, and the times of the records"
    message = "{subject} took {stated:,.6g} s by its metadata, {implied:,.6g} s by the times of the records"
    expected = "{implied:,.6g} s"
    noun, key = "records", "time_ms"
    forgiven = CLOCK_SET_S

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        stop, start, grain = log.first("run_stop"), log.first("run_start"), measure_grain(log)
        stated: Any = stop.meta("time") if stop else None
        # A time in s or ms since 1970 is no duration.
        is_duration = is_number(stated) and not any(EARLIEST_MS < ms < LATEST_MS for ms in (stated, 1000 * stated))
        if stop and start and is_duration:
            pair = self._compare(grain, case, "time", stop, start, stated, "the run")
            whole = self._compare(grain, case, "time", stop, log.first("init_start") or start, stated, "the job")
            yield whole if pair.severity and not whole.severity else pair
        for begin, end in zip(log["staging_start"], log["staging_stop"], strict=False):
            if is_number(stated := end.meta("staging_duration")):
                pair = self._compare(grain, case, "staging", end, begin, stated, "the staging", UNITS_S[:3])
                # Part of the staging may be counted: openfold stages while it trains.
                yield pair._replace(limits=pair.limits[:2])
        first = log.first("epoch_stop")
        if first and is_number(first.meta("training_epoch_latency")):
            course = course_of(log, case)
            started = course.started | dict(course.restarts)
            for number, record in log.numbered("epoch_stop"):
                latencies = [record.meta(f"{part}_epoch_latency") for part in ("training", "eval")]
                if number in started and all(map(is_number, latencies)):
                    subject = f"epoch {show(number)}"
                    yield self._compare(grain, case, "latency", record, started[number], sum(latencies), subject)

    @staticmethod
    def _compare(  # noqa: PLR0913  (two statements)
        grain: float,
        case: Case,
        kind: str,
        stop: Record,
        start: Record,
        stated: float,
        subject: str,
        units: Sequence[float] = UNITS_S,
    ) -> Pair:
        """Return the pair of a stated duration, in whatever unit, and the time between two records."""
        length = (stop.time_ms - start.time_ms) / 1000
        ratio = stated / length if length > 0 else 0
        unit = min(units, key=lambda unit: abs(logarithm(unit * ratio))) if ratio > 0 else 1
        # What is longer than the records in minutes or hours is another time, in seconds.
        if unit > 1 and unit * ratio > 1.5:
            unit = 1
        digit = next((10**-digits for digits in range(6) if round(stated, digits) == stated), 0)
        limits = limit_duration(kind, case, length, unit * digit + grain)
        return Pair(stop.line, subject, unit * stated, length, limits, kind)


class OwnThroughput(Amounts):
    """The throughput that a log records of an epoch agrees with the time of the epoch."""

    id = "ORD19"
    follows = ("AMT01",)
    why = (
        "If an epoch took less time than its throughput says, times were edited, or the speed has another unit. If it "
        "took more, something else was going on in it: a note."
    )
    fix = "Submit the log as the run wrote it; log samples per second of the whole run."
    good = (lambda log: log(benchmark="oc20").throughput(740.0),)
    bad = (lambda log: log().throughput(900.0),)
    pair = "throughput of an epoch, and train_samples / its time"
    message = "{subject} took {implied:,.6g} s, but at the throughput that the log records it takes {stated:,.6g} s"
    expected = "{stated:,.6g} s"
    key = "throughput"
    forgiven = CLOCK_SET_S

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        if not log.rates or case.reference is None or _means_other_things(log, case):
            return
        course, samples = self.read_whole_epochs(log, case)
        implied = read_steps(log, samples)
        counts = {number: count for number, count, *_ in count_steps(log, course, implied)} if course.epochs else {}
        restarted, last = {number for number, _ in course.restarts}, course.epochs[-1:]
        timed = []
        for number, rate in log.rates.items() if samples > 0 and last else ():
            # The target may end the last epoch at any step, which only steps tell.
            known = number in counts or number != last[0][0]
            if course.training_ms.get(number, 0) > 0 and rate.alone and number not in restarted and known:
                count = (
                    counts.get(number, 0) if counts.get(number, 0) > 0 else implied // 1
                )  # or the last batch is left out
                share = min(1, count / implied) if count > 0 else 1
                timed.append((number, rate, share * samples / rate.per_second, course.training_ms[number] / 1000))
        ratios = sorted(seconds / length for _, _, seconds, length in timed)
        usual = ratios[len(ratios) // 2] if ratios else 0
        unit = self._find_unit(log, usual)
        grain = measure_grain(log) if timed else 0
        for number, rate, seconds, length in timed:
            # Of a throughput that is so low, nobody knows the unit: no error.
            limits = limit_duration("throughput", case, length, grain)[usual > 5 * unit :]
            yield Pair(rate.line, f"epoch {show(number)}", seconds / unit, length, limits, "throughput")

    @staticmethod
    def _find_unit(log: Log, ratio: float) -> float:
        """Return by which number the log divides its throughput, 1 if by none; ratio: how much too slow it seems."""
        nodes = log.value("number_of_nodes")
        units = [count_accelerators(log), log.value("number_of_ranks"), log.value("global_batch_size"), nodes]
        for unit in (unit for unit in units if is_number(unit) and unit > 1):
            # From so many on, a rate of one accelerator, or of steps, is no rate of samples of the whole run.
            least = SLOWER if unit >= 16 and unit != nodes else 2 - EQUAL
            if least <= ratio / unit <= EQUAL:
                return float(unit)
        return 1.0


class EvaluationTakesTime(Amounts):
    """An evaluation takes time: as much as its samples need."""

    id = "AMT07"
    follows = ("SET05",)
    why = "An evaluation of no time was not made; one that is much faster than training did not see all its samples."
    fix = "Log eval_start when the evaluation begins, and eval_stop when it has its result."
    bad = (lambda log: log().shift("eval_stop", -8_000),)
    pair = "the time of an evaluation, and that of its samples at the speed of training"
    message = (
        "the evaluation of {subject} takes {stated:,.6g} s; its samples take {implied:,.6g} s at the speed of training"
    )
    expected = "about as long as other evaluations"
    key = "eval_stop"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        course = course_of(log, case)
        lengths = course.evaluation_ms
        if not lengths or case.reference is None or case.reference.variant != FULL:
            return
        samples = samples_per_epoch(log, case) or log.value("train_samples")
        share = log.value("eval_samples")
        known = is_number(share) and is_number(samples) and samples > 0 < share
        implied = share * min(course.training_ms.values(), default=0) / samples / 1000 if known else 0
        usual = sorted(lengths.values())[len(lengths) // 2] / 1000
        # Unusual are three times the fastest evaluation of the benchmark, and a fifth of the usual time of this log.
        least = max(find_range("evaluation", case.benchmark)[0] / 3 * implied, 0.2 * usual)
        # In 3,753 published logs, an evaluation is at most 9.1 times as fast as training.
        bounds = ((ERROR, 0.001), (WARNING, implied / 30), (NOTE, least))
        limits = tuple(Limit(severity, bound, inf) for severity, bound in bounds)
        number = min(lengths, key=lengths.__getitem__)
        stop = next(record for epoch, record in course.evaluation_stops if epoch == number)
        seconds = lengths[number] / 1000 + measure_grain(log)
        yield Pair(stop.line, f"epoch {show(number)}", seconds, implied, limits, "evaluation")


class RankOfAccelerator(Amounts):
    """Each accelerator has one rank, or a whole number of ranks or accelerators belong together."""

    id = "AMT05"
    severity = WARNING
    follows = ("RUN10",)  # the logs of instances state the whole system
    why = "The ranks of a run use its accelerators: if the numbers do not fit, one of them is wrong."
    fix = "Log number_of_ranks, number_of_nodes and accelerators_per_node of the run."
    good = (lambda log: log().add("number_of_ranks", 64),)
    bad = (lambda log: log().add("number_of_ranks", 97),)
    pair = "number_of_ranks, and nodes * accelerators"
    message = "number_of_ranks is {stated:,.6g}, but there are {subject} = {implied:,.6g} accelerators"
    expected = "one rank for each accelerator; accelerators without ranks, and ranks without, are to be named"
    noun, key = "records", "number_of_ranks"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        nodes, each = log.value("number_of_nodes"), log.value("accelerators_per_node")
        if not (is_number(nodes) and is_number(each) and nodes * each > 0) or _means_other_things(log, case):
            return
        size = nodes * each
        for record in log["number_of_ranks"]:
            if is_number(record.value) and record.value > 0:
                severity = self._judge(record.value, nodes, each, bool(log[PROVENANCE]))
                limits = (Limit(severity, size, size),) if severity else ()
                yield Pair(record.line, f"{show(nodes)} x {show(each)}", record.value, size, limits)

    @staticmethod
    def _judge(ranks: float, nodes: float, each: float, by_suite: bool) -> str:
        """Return how bad so many ranks are: fewer than accelerators only waste some of these."""
        of_node = ranks / nodes
        if ranks == nodes * each or (not by_suite and of_node < each and of_node % 1 == 0 and each % of_node == 0):
            return ""
        shared = ranks % (nodes * each) == 0 and of_node <= MOST_RANKS * each
        partial = each / 2 <= of_node < each or of_node == each + 1  # some accelerators, or ranks, do not train
        return NOTE if not by_suite and (shared or partial) else WARNING


def _means_other_things(log: Log, case: Case) -> bool:
    """Tell whether throughput and ranks of this log mean other things, as in the published logs of NVIDIA's oc20."""
    return case.benchmark == "oc20" and not log[PROVENANCE]


class BatchOfRanks(Amounts):
    """The ranks share each batch alike."""

    id = "AMT08"
    severity = WARNING
    why = "Each rank trains on as many samples of a batch as the others: of numbers that do not fit, one is wrong."
    fix = "Log the number of ranks, and the samples that all of them together, not one, train on in a step."
    good = (lambda log: log().add("number_of_ranks", 64).set("global_batch_size", 128),)
    bad = (lambda log: log().add("number_of_ranks", 64).set("global_batch_size", 1001),)
    pair = "global_batch_size, and number_of_ranks (or a group of ranks, and their number)"
    message = "{subject} is {stated:,.6g}, but there are {implied:,.6g} ranks or accelerators"
    expected = "a whole number of samples for each rank"
    noun, key = "records", "global_batch_size"

    def compare(self, log: Log, case: Case) -> Iterator[Pair]:
        ranks, accelerators = log.value("number_of_ranks"), count_accelerators(log)
        shared = ("global_batch_size", "accelerators_per_node", "batchnorm_group_size")
        batch, each, group = (log.value(key) for key in shared)
        odd = (Limit(WARNING, inf, inf),)
        # The accelerators of a node may share a sample.
        is_small = is_integer(batch) and is_number(each) and 0 < batch * each < accelerators
        if is_small and ranks is None and not _means_other_things(log, case):
            yield Pair(log["global_batch_size"][0].line, "global_batch_size", batch, accelerators, odd)
        if not is_integer(ranks) or not 1 <= ranks <= 10**6:  # no machine has more
            return
        if is_integer(batch) and batch > 0 and not log["spatial_extents"]:
            # Ranks that share a sample are few, or those of a node; those of some nodes may only evaluate: NVIDIA's
            # openfold has 32 such ranks of 2,080, with a batch of 256.
            parts, node = ranks // gcd(int(batch), int(ranks)), max(1, int(each)) if is_number(each) else 1
            trainers = range(int(ranks), int(ranks - ranks // 16) - 1, -node)
            if parts > max(node, MOST_RANKS) and all(batch % count and count % batch for count in trainers):
                yield Pair(log["global_batch_size"][0].line, "global_batch_size", batch, ranks, odd)
        if is_integer(group) and group > 0 and ranks % group:
            yield Pair(log["batchnorm_group_size"][0].line, "batchnorm_group_size", group, ranks, odd)
