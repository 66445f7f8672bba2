"""Rules about evaluations: of which epoch they are, and which results they gave."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from common.command import counted
from common.reference import Target
from common.values import is_number
from compliance.logs.course import Course, by_number, steps
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Numbered, Record
from compliance.model.judging import NOTE, WARNING, Case, Finding
from compliance.rules.epochs import counts_samples, course_of, more, numbers_lost
from compliance.rules.pace import SHORTEST_SHARE
from compliance.rules.quality import ResultRule
from compliance.rules.rule import show


class EvaluationsReport(ResultRule, strict_only=True):
    """Every evaluation that starts reports its result."""

    id = "QUA06"
    severity = WARNING
    follows = ("QUA08",)  # the result of an evaluation may have the number of another
    differs = "the official tool requires one result per file"
    why = "An evaluation without a result means that a record was lost or removed."
    fix = "Restore the record from the original log; if it is missing there, too, log the metric of every evaluation."
    good = (lambda log: log().move("epoch_stop", before="eval_stop"),)
    bad = (lambda log: log().drop("eval_error", 4),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        key, course = target.key, course_of(log, case)
        if not log[key] or numbers_lost(log, key) or course.untrained:
            return  # QUA01, QUA02 or ORD11 says so
        results, stops = ([number for number, _ in pairs] for pairs in (log.numbered(key), course.evaluation_stops))
        silent = [] if results == stops else self._find_silent(log, key, course)
        if silent:
            number, stopped = silent[0]
            message = f"eval without result: no {key} for epoch {show(number)}{more(silent, 'evaluations')}"
            yield self.finding(log.path, stopped.line, message, f"{key} with epoch_num {show(number)}", key)
        elif len(course.evaluated) < len(course.started):
            yield from self._find_gap(log, course)

    def _find_gap(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield a note if one evaluation comes after many more epochs than the others do."""
        places = [-1, *(at for at, number in enumerate(course.started) if number in course.evaluated)]
        gaps = sorted((place - before, place) for before, place in pairwise(places))
        # In published logs it is at most twice.
        if gaps and gaps[-1][0] > 3 * gaps[len(gaps) // 2][0]:
            (widest, place), usual = gaps[-1], gaps[len(gaps) // 2][0]
            record = course.evaluated[list(course.started)[place]]
            message = f"{widest} epochs are trained before this evaluation; before most others, {usual}"
            yield self.finding_at(log, record, message, f"an evaluation after every {usual} epochs", NOTE)

    @staticmethod
    def _find_silent(log: Log, key: str, course: Course) -> list[Numbered]:
        """Return number and eval_stop of the evaluations whose result is nowhere."""
        results = Counter(number for number, _ in log.numbered(key))
        silent = []
        for number, ends in by_number(course.evaluation_stops).items():
            starts = course.evaluations_of.get(number, [])
            # Several ranks may log the same start and stop: one eval_stop of each evaluation counts.
            places = [_evaluation_index(starts, stop) for stop in ends]
            stopped = [stop for last, at, stop in zip([-1, *places], places, ends, strict=False) if at != last]
            if missing := max(0, len(stopped) - results[number]):
                silent += [(number, stop) for stop in stopped[:missing]]
        return silent


class ResultPlace(ResultRule, strict_only=True):
    """A result lies in an evaluation of the run, by epoch and step, and is the only one of the network evaluated."""

    id = "QUA08"
    differs = "the official tool believes any result in the file: the last one, and any that meets the target"
    why = (
        "Convergence is read from the epoch_num of a result: without an evaluation it is made up or misnumbered. With"
        " several results for the same network, the best one could be picked. step_num tells how much a network was"
        " trained: it must agree with the epochs. What is evaluated before the first epoch or after run_stop is not"
        " part of the timed run: a note."
    )
    fix = "Log the metric with the epoch_num of its eval_start, after it; never edit numbers."
    good = (lambda log: log().move("epoch_stop", before="eval_stop"),)
    bad = (lambda log: log().meta("eval_error", "epoch_num", 99, -1),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        course = course_of(log, case)
        if course.misplaced and (course.evaluations or course.blocks) and not numbers_lost(log, "eval_start"):
            yield from self._find_lost(log, course)
        yield from self._find_wrong_step(log, course)
        timed = not counts_samples(case)
        choices = [choice for number in course.repeated for choice in _competing_results(course, number, target, timed)]
        if choices:
            record, before, is_inside = choices[0]
            epoch = show(record.meta("epoch_num"))
            problem = "a second result in one evaluation" if is_inside else "evaluated again without training between"
            values = f"{show(before.value)} in line {before.line}, now {show(record.value)}"
            message = f"epoch {epoch}: {problem}: {values}{more(choices, 'results')}"
            expected = "one result per evaluation, and step_num if there are several in an epoch"
            fix = "Evaluate a network once; to evaluate often in an epoch, log the training steps so far as step_num."
            yield self.finding_at(log, record, message, expected, fix=fix)
        results, inside = log[target.key], {record.order for record in course.counted}
        if len(inside) < len(results):
            outside = [record for record in results if record.order not in inside]
            message = (
                f"not counted: {counted(len(outside), 'evaluation')} before the first epoch_start or after run_stop"
            )
            fix = "Nothing to fix if the run reached its target without them."
            yield self.finding_at(log, outside[0], message, "evaluations inside the run", NOTE, fix)

    def _find_lost(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield the first result that belongs to no evaluation."""
        # Results of an evaluation with a wrong number are ORD11's.
        wrong = {record.order for _, record in course.untrained}
        placed = [(pair, course.evaluation_before(pair[1])) for pair in course.misplaced]
        lost = [(pair, before) for pair, before in placed if before is None or before[1].order not in wrong]
        if lost:
            (number, record), before = lost[0]
            last = f"; the last before it is of epoch {show(before[0])}, line {before[1].line}" if before else ""
            message = f"{record.key} of epoch {show(number)} belongs to no evaluation{last}{more(lost, 'results')}"
            yield self.finding_at(log, record, message, f"eval_start of epoch {show(number)} before it")

    def _find_wrong_step(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield the first result whose step_num does not lie within its epoch."""
        first = log.first("epoch_start")
        if first is None or not is_number(first.meta("step_num")) or course.untrained or course.misplaced:
            return  # ORD11 says so, or the number of the epoch is wrong
        starts, stops = steps(course.epochs), steps(course.epoch_stops)
        trained = any(stops.get(number, start) > start for number, start in starts.items())  # else it is not logged
        for number, record in course.results:
            step, begin, end = record.meta("step_num"), starts.get(number), stops.get(number)
            if not is_number(step) or begin is None:
                continue
            if (begin < step or (begin == step and not trained)) and (end is None or step <= end):
                continue
            message = f"{record.key} of epoch {show(number)} has step_num {show(step)}, which is not of this epoch"
            least = f"more than {show(begin)}" if trained else f"{show(begin)} or more"
            expected = f"{least}, up to {show(end)}" if end is not None and end > begin else least
            yield self.finding_at(
                log, record, message, expected, fix="Log with each result the training steps so far as step_num."
            )
            return


def _competing_results(
    course: Course, number: float, target: Target, timed: bool
) -> Iterator[tuple[Record, Record, bool]]:
    """Yield the results of an epoch that compete with another: of one evaluation, or of one amount of training.

    With each comes that other one, and whether both are of one evaluation.
    Several ranks may log the same result, but for rounding that does not decide whether it meets the target.
    timed: without step_num, time between results is training.
    """
    starts = course.evaluations_of.get(number, [])
    seen: set[tuple[Any, Any]] = set()
    amounts: dict[Any, Record] = {}
    last: Record | None = None
    trained_ms = SHORTEST_SHARE * course.usual_ms  # in so much time between results there may be training
    for record in course.repeated[number]:
        step, value = _exact_text(record.meta("step_num")), _exact_text(record.value)
        before = amounts.get(step)
        if (step, value) in seen or (before and _differ_by_rounding(before.value, record.value, target)):
            continue
        seen.add((step, value))
        evaluations = _evaluation_index(starts, record)
        evaluation = starts[evaluations - 1] if evaluations else record
        if 0 < evaluations < len(seen):
            yield record, before or course.repeated[number][0], True
        elif before and not (timed and step is None and evaluation.time_ms - before.time_ms >= trained_ms):
            yield record, before, False
        # Two results of an epoch at different steps are further apart.
        elif last and evaluations and evaluation.time_ms - last.time_ms < 0.02 * course.usual_ms:
            yield record, last, False
        last = amounts[step] = record


def _differ_by_rounding(first: Any, second: Any, target: Target) -> bool:
    """Tell whether two results are as good as one, and both meet the target or neither does.

    Several ranks compute one in other orders, and in 32-bit numbers.
    """
    close = is_number(first) and is_number(second) and abs(first - second) <= 1e-6 * abs(first)
    return close and target.met(first) == target.met(second)


def _evaluation_index(starts: Sequence[Record], record: Record) -> int:
    """Return in which evaluation of its epoch a record lies, from 1; 0 before the first of them."""
    return bisect_left(starts, record.order, key=FILE_ORDER)


def _exact_text(value: Any) -> Any:
    """Return what only equal values share, to the last bit: results that differ there are two results."""
    return value if is_number(value) or value is None else repr(value)
