"""Rules about what a run reports of itself while it trains: when it does, and that no measured number comes twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import gt, itemgetter, le, sub
from typing import Final

from common.values import is_number
from compliance.benchmarks import REFERENCES
from compliance.logs.course import Course
from compliance.logs.log import OTHERS_KEPT, Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.model.judging import NOTE, WARNING, Case, Finding
from compliance.rules.census import sample
from compliance.rules.epochs import course_of, more
from compliance.rules.order import RESOLUTION_MS, TimingRule
from compliance.rules.pace import FEW_SHARE, FEWEST, NOISE_MS, are_steady
from compliance.rules.quality import CONVERGENCE, LEAST_MADE, count_digits
from compliance.rules.rule import LogRule, show

OUTSIDE_MS: Final = 1000
"""Before the start or after the end of its epoch; in 674 published logs a report is at most 1 ms after the end."""
SAMPLED: Final = 40
"""Reports of a log whose times are compared with those of their epochs."""
STEP_FIELDS: Final = ("step_num", "step", "global_step", "iteration")
RUSHED_SHARE: Final = 0.4
"""Of the usual time of so many steps, less NOISE_MS; in 374 published logs they take at least 0.76 of it."""
MEASURED: Final = ("train_accuracy", "train_loss", "eval_loss")
"""Keys of measured numbers, which no published log repeats in another epoch or gives as a result."""
CHANCE: Final = 2**17
"""Pairs of 32-bit numbers among which two are equal by chance, or fewer."""


class ReportsInTime(TimingRule, strict_only=True):
    """A report from within an epoch comes in its epoch, after as much time as its steps take, and none is left out."""

    id = "ORD22"
    severity = WARNING
    differs = "the official tool reads no such records"
    why = (
        "Steps that take no time were not trained, or times between the reports were edited. Slow steps break no rule."
        " Where an epoch lacks the report that all others have, it was removed, or the epochs were renumbered: a note."
    )
    fix = "Submit the log as the run wrote it; log reports when they are made."
    good = (lambda log: log(benchmark="deepcam").steps().learning_rate(0.001),)
    bad = (lambda log: log(benchmark="deepcam").steps().learning_rate(0.001).shorten(3, 5_000),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        of_epochs = (kept for kept in log.others.values() if kept and is_number(kept[-1].meta("epoch_num")))
        reports = max(of_epochs, key=len, default=[])
        if len(reports) >= FEWEST:
            yield from self._find_outside(log, course_of(log, case), reports)
            yield from self._find_rushed(log, reports)
            yield from self._find_evaluating(log, reports)
        most = min(OTHERS_KEPT // max(1, len(log.others)), len(log["epoch_start"]) + FEWEST)  # all were kept
        for records in (*log.others.values(), log["eval_start"]):
            for field in ("epoch_num", "step") if FEWEST <= len(records) < most else ():
                yield from self._find_gap(log, records, field)

    def _find_gap(self, log: Log, records: list[Record], field: str) -> Iterator[Finding]:
        """Yield the first of few gaps in numbers that else increase by the same; there is none in published logs."""
        first, second, last = (records[at].meta(field) for at in (0, 1, -1))
        regular = is_number(first) and is_number(second) and last == first + (second - first) * (len(records) - 1)
        if regular or not is_number(last):
            return  # as nearly always
        records = [record for record in records if is_number(record.meta(field))]
        numbers = [record.meta(field) for record in records]
        increases = list(map(sub, numbers[1:], numbers))
        usual = sorted(increases)[len(increases) // 2] if len(numbers) >= FEWEST else 0
        gaps = [at for at, increase in enumerate(increases) if increase > usual]
        # Evaluations may become more frequent, or less.
        if usual > 0 and gaps and increases[0] == usual == increases[-1]:
            before, after = records[gaps[0]], records[gaps[0] + 1]
            stated = f"{field} {show(before.meta(field))} and {show(after.meta(field))}"
            message = f"no {after.key} between {stated}; the others are {show(usual)} apart{more(gaps, 'gaps')}"
            yield self.finding_at(log, after, message, "no gap", NOTE)

    def _find_evaluating(self, log: Log, reports: list[Record]) -> Iterator[Finding]:
        """Yield a report of training from within an evaluation: a note, as both may go on at once."""
        times = [record.time_ms for record in reports]
        of_training = not reports[0].key.startswith(("eval", "val", "test")) and all(map(le, times, times[1:]))
        for start, stop in zip(log["eval_start"], log["eval_stop"], strict=False) if of_training else ():
            at = bisect_right(times, start.time_ms + RESOLUTION_MS)
            if at < len(times) and times[at] < stop.time_ms - RESOLUTION_MS:
                message = f"{reports[at].key} is logged during the evaluation since line {start.line}"
                yield self.finding_at(log, reports[at], message, "reports before it, or after it", NOTE)
                return

    def _find_outside(self, log: Log, course: Course, reports: list[Record]) -> Iterator[Finding]:
        """Yield the first report before or after its epoch; if most of one for each epoch are, they belong there."""
        starts = course.started
        spans = {number: (starts[number], stop) for number, stop in course.epoch_stops if number in starts}
        outside = []
        for record in sample([report for report in reports if is_number(report.meta("epoch_num"))], SAMPLED):
            start, stop = spans.get(record.meta("epoch_num"), (record, record))
            if not start.time_ms - OUTSIDE_MS <= record.time_ms <= stop.time_ms + OUTSIDE_MS:
                outside.append((record, start, stop))
        if outside and (2 * len(outside) <= min(len(reports), SAMPLED) or len(reports) >= FEWEST * len(spans)):
            record, start, stop = outside[0]
            after = (record.time_ms - stop.time_ms) / 1000
            how = f"{after:,.1f} s after" if after > 0 else f"{(start.time_ms - record.time_ms) / 1000:,.1f} s before"
            message = (
                f"{record.key} of epoch {show(record.meta('epoch_num'))} is {how} its epoch{more(outside, 'records')}"
            )
            # What is not of a step may be read at any time, and one record be logged late.
            of_steps = any(is_number(record.meta(field)) for field in STEP_FIELDS)
            severity = WARNING if of_steps and (after <= 0 or len(outside) > 1) else NOTE
            yield self.finding_at(log, record, message, f"between lines {start.line} and {stop.line}", severity)

    def _find_rushed(self, log: Log, reports: list[Record]) -> Iterator[Finding]:
        """Yield the stretch of steps that takes the smallest share of the usual time; a note if many take little."""
        field = next((name for name in STEP_FIELDS if is_number(reports[-1].meta(name))), "")
        edges = log.in_order("epoch_start", "epoch_stop") if field else []
        for points in (sorted([*reports, *edges], key=FILE_ORDER), reports):
            steps = [record.meta(field) for record in points]
            # Some count the steps of each epoch from its start, or state none of it.
            if all(map(is_number, steps)) and (points is reports or not any(map(gt, steps, steps[1:]))):
                break
        else:
            return
        counts = map(sub, steps[1:], steps)
        stretches = [
            ((after.time_ms - before.time_ms) / count, count, before, after)
            for count, (before, after) in zip(counts, pairwise(points), strict=True)
            if count > 0
        ]
        paces = sorted(pace for pace, *_ in stretches)
        usual = paces[len(paces) // 4] if len(paces) >= FEWEST else 0
        rushed = [
            stretch
            for stretch in (stretches if usual and paces[0] < RUSHED_SHARE * usual else ())
            if stretch[1] >= FEWEST and stretch[1] * (RUSHED_SHARE * usual - stretch[0]) > NOISE_MS
        ]
        if rushed:
            pace, count, before, after = min(rushed, key=itemgetter(0))
            few = len(rushed) <= max(1, FEW_SHARE * len(paces)) and are_steady(usual, paces)
            message = (
                f"the {show(count)} steps since line {before.line} take {count * pace / 1000:,.1f} s; at the usual"
                f" pace they take {count * usual / 1000:,.1f} s{more(rushed, 'stretches')}"
            )
            yield self.finding_at(log, after, message, f"about {usual:,.0f} ms for each step", WARNING if few else NOTE)


class MeasuredOnce(LogRule, strict_only=True):
    """A measured number with all its digits is that of one epoch and of one quantity."""

    id = "QUA14"
    severity = WARNING
    cite = CONVERGENCE
    differs = "the official tool believes any number"
    why = "No two measurements agree to the last digit, in no published log: one of the two was copied from the other."
    fix = "Submit the log as the run wrote it."
    good = (lambda log: log().evaluation(2, 0.19).evaluation(4, 0.19),)
    bad = (lambda log: log().evaluation(2, 0.1734567890123457).evaluation(4, 0.1734567890123457),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if case.benchmark not in REFERENCES:
            return  # a share of a few samples repeats
        results = _keep_floats(course_of(log, case).counted)
        series = [floats for key in MEASURED if (floats := _keep_floats(log.others.get(key, [])))]
        for records in (results, *series):
            yield from self._find_repeated(log, records)
        for records in series:
            yield from self._find_borrowed(log, results, records)
        yield from self._find_equal_rates(log)

    def _find_equal_rates(self, log: Log) -> Iterator[Finding]:
        """Yield a rate that another epoch has, too: a note, as epochs may take equally many milliseconds."""
        count = Counter(rate.per_second for rate in log.rates.values() if count_digits(rate.per_second) >= LEAST_MADE)
        rate, times = count.most_common(1)[0] if count else (0, 0)
        if times > 1:
            first, second = [each.line for each in log.rates.values() if each.per_second == rate][:2]
            message = f"{times} epochs have the rate {show(rate)}, first in line {first}"
            yield self.finding(log.path, second, message, "a number of its own", severity=NOTE)

    def _find_borrowed(self, log: Log, results: list[Record], records: list[Record]) -> Iterator[Finding]:
        """Yield a result that another key has, too; not if most are shared: the key is another name of the results."""
        common = {record.value for record in results}.intersection([record.value for record in records])
        shared = [record for record in records if record.value in common and _has_all_digits(record)] if common else []
        if 2 * len(shared) <= min(len(records), len(results)) and len(shared) * CHANCE > len(records) * len(results):
            other = shared[0]
            record = next(record for record in results if record.value == other.value)
            message = f"{record.key} {show(record.value)} is also {other.key} of line {other.line}"
            yield self.finding_at(log, record, message + more(shared, "values"), "a number of its own")

    def _find_repeated(self, log: Log, records: list[Record]) -> Iterator[Finding]:
        """Yield a number that comes again in another epoch; a note if it never changes again: nothing is learned."""
        if len({record.value for record in records}) == len(records):
            return  # the usual case
        first = {record.value: record for record in reversed(records)}
        again = [
            (before, record)
            for before, record in pairwise(records)
            if first[record.value].meta("epoch_num") != record.meta("epoch_num") and _has_all_digits(record)
        ]
        if len(again) * CHANCE > len(records) ** 2:
            record = again[0][1]
            stuck = record.value == records[-1].value and all(before.value == after.value for before, after in again)
            message = f"{record.key} {show(record.value)} is also that of line {first[record.value].line}"
            severity = NOTE if stuck else WARNING
            yield self.finding_at(log, record, message + more(again, "values"), "a number of its own", severity)


def _keep_floats(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if type(record.value) is float]


def _has_all_digits(record: Record) -> bool:
    return count_digits(record.value) >= LEAST_MADE
