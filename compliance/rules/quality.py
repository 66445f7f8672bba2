"""Rules about the quality that a run reached."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from math import isfinite
from operator import eq
from typing import Any

from common.command import list_some
from common.ending import COMPLETED, EXIT_STATUS, TARGET_MET
from common.reference import Target
from common.rounds import TRAINING
from common.values import is_number
from compliance.logs.course import Course, find_unit
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.logs.run import find_completion
from compliance.model.judging import ERROR, NOTE, WARNING, Case, Finding
from compliance.rules.epochs import NumberedRule, more, numbers_lost
from compliance.rules.order import has_field
from compliance.rules.rule import LogRule, show

QUALITY = "hpc_training_rules.adoc#benchmarks (quality targets)"
CONVERGENCE = "training_rules.adoc#run-results; hpc_training_rules.adoc#benchmarks"
MOST_TYPED, LEAST_MADE = 6, 12
"""Digits of a number that a person types, and that a program writes; no published log has results of both kinds."""
FAILURES = {*EXIT_STATUS, "aborted"} - {TARGET_MET}
SUCCESS = (
    r"(?i)(?!.*\b(?:not|never|no longer|without|before|fail|abort|error|kill|cancel|timeout|time limit|out of memory))"
    r"(?:.*(?:\bconverged|\bsuccess|\bcomplete|\bfinished|\b(?:met|reached|attained|achieved|exceeded)\b)|\W*$"
    r"|(?:ok|done|none|null|true|target_met|0|0\.0)$)"
)
"""A word or a text that tells of no failure."""
FAILED_WORD = r"(?i).*(?:fail|abort|error|exception|kill|cancel|timeout|time limit|out of memory|diverged|\bnot\b)"
USUAL = frozenset(("status", "file", "lineno", "epoch", "epoch_num", "instance", "instance_id", "time"))
"""Names of metadata of run_stop in published logs: the status, which is judged first, and what says nothing of it."""


class ResultRule(LogRule):
    """Base of the rules about the results of evaluations: what they have to be is known of the benchmark."""

    cite = CONVERGENCE

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        # The official tool finds the metric through the division; the rule set of round 0.7 lacks the one of open.
        has_metric = case.strict or case.division == "closed" or (case.division == "open" and case.round != "0.7")
        if case.reference is not None and has_metric:
            yield from self.judge(log, case, case.reference.target)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        """Yield what is wrong with the results."""
        raise NotImplementedError


class PlausibleQuality(ResultRule, strict_only=True):
    """The last evaluation is not far better than the quality target."""

    id = "QUA11"
    severity = NOTE
    cite = QUALITY
    differs = "the official tool takes any value that meets the target"
    why = "A run ends soon after the target is met, and no network is nearly free of errors."
    fix = "Check how the evaluation computes it, and on which samples. If it is true, there is nothing to fix."
    good = (lambda log: log().last_evaluation(0.1),)
    bad = (lambda log: log().last_evaluation(1e-9),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        last = log.last(target.key)
        if last and target.met(last.value) and (last.value == 1 or last.value * 10 < target.value):
            how = "the best possible" if last.value == 1 else "more than ten times better than the target"
            yield self.finding_at(log, last, f"{target.key} is {show(last.value)}, {how}", f"about {target.value}")


class TargetReached(ResultRule):
    """An evaluation of the run reaches the quality target."""

    id = "QUA01"
    follows = ("SET02",)
    cite = QUALITY
    why = "Time to train is the time to reach this quality; without it there is no result."
    fix = (
        "Train until the target is met. One run of a time-to-train result may miss it: if more do, repeat the series."
        " An instance of a throughput result that misses it belongs in pruned_results."
    )
    differs = (
        "strict counts only evaluations after the first epoch_start and before run_stop; "
        "the official tool counts any in the file, and knows no run without a target, which is then a warning"
    )
    good = (lambda log: log().last_evaluation(0.124),)
    bad = (lambda log: log().last_evaluation(0.125),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        evaluations = log[target.key]
        killed = "QUA03" if log["run_stop"] else "ORD05"  # the rule that says so, if it was
        if record := log.derive(find_completion):
            message, severity = "no MLPerf result: no target (train.target: none)", "" if case.strict else WARNING
            fix = "Train with train.target=null; a run without a target is for studies."
            yield self.finding_at(log, record, message, target.range_text, severity, fix)
            if case.strict:
                return
        if not evaluations:
            number, word = max(len(log["eval_start"]), len(log["eval_stop"])), target.key.rpartition("_")[2]
            expected = f"{target.range_text}, after one of {number} evaluations" if number else target.range_text
            fix = (
                f"Log {target.key} after each evaluation. If the run did, the file was filtered, as by"
                f" `grep -v {word}`: take the run's unfiltered output."
            )
            yield self.not_logged(log, target.key, expected, fix, number)._replace(cause=killed if log.end else "")
        elif not case.strict:
            if not any(_official_met(target, record.value) for record in reversed(evaluations)):
                yield self.finding_at(
                    log, evaluations[-1], f"no {target.key} reaches the quality target", target.range_text
                )
        else:
            counted = log.derive(Course, target.key).counted
            if not any(target.met(record.value) for record in reversed(counted)):  # mostly the last one does
                finding = self._missed_target(log, target, evaluations, counted)
                yield finding._replace(cause=killed) if log.end or not log["run_stop"] else finding

    def _missed_target(self, log: Log, target: Target, evaluations: list[Record], counted: list[Record]) -> Finding:
        stop = log.first("run_stop")
        reached = [record for record in evaluations if target.met(record.value)]
        if reached and stop and all(record.order > stop.order for record in reached):
            message = "target reached only after run_stop: quality target not reached in the run"
            expected = f"{target.range_text} before run_stop"
            fix = (
                "Log run_stop after the evaluation that reaches the target. One run of a time-to-train result may fail."
            )
            return self.finding_at(log, reached[0], message, expected, fix=fix)
        if reached:
            message = "target reached only before the first epoch_start: quality target not reached in the run"
            return self.finding_at(log, reached[0], message, f"{target.range_text} in the run")
        infinite = [
            record
            for record in chain(counted, *log.others.values())
            if record.key.endswith((target.key, "loss")) and type(record.value) is float and not isfinite(record.value)
        ]
        if infinite:
            first = min(infinite, key=FILE_ORDER)
            return self.finding_at(
                log,
                first,
                f"the training diverged at line {first.line}: {first.key} is {show(first.value)}",
                "finite numbers",
                fix="Find out why, such as too high a learning rate, and repeat the run. One run of a result may fail.",
            )
        values = [record.value for record in counted if is_number(record.value)]
        low, choose = target.lower_is_better, min if target.lower_is_better else max
        best = choose(values, default=0)
        is_share = target.value < 1  # others are no shares, such as a loss
        if best and is_share and min(values) > 1 and (target.met(best / 100) if low else best <= 100):
            return self.finding_at(
                log,
                counted[-1],
                f"{target.key} looks like percent in all {len(values)} evaluations: {best:.6g} for {best / 100:.6g}",
                target.range_text,
                fix="Log a fraction, not percent, and make sure that the run compares that with the target.",
            )
        possible = [value for value in values if (value > 0 if low else value <= 1)]
        message = (
            f"target not reached: the best {target.key} of {len(counted)} evaluations is"
            f" {show(choose(possible, default=None))}"
        )
        if len(possible) < len(values):
            message += f"; {show(best)} is not possible"
        last = counted[-1].line if counted else evaluations[-1].line
        return self.finding(log.path, last, message, target.range_text, target.key, cause="" if values else "QUA02")


class EvaluationValues(ResultRule, NumberedRule):
    """Every evaluation result is a number and states its epoch_num."""

    id = "QUA02"
    cite = QUALITY
    why = "Convergence is counted by the epoch_num of evaluations; the official tool crashes on other value types."
    fix = 'Log the metric as a JSON number, such as float(error) or tensor.item(), with the metadata "epoch_num".'
    differs = "strict refuses any value that is not a finite number; the official tool crashes on text and null"
    bad = (lambda log: log().last_evaluation(None),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        key, cause = target.key, "ORD07" if numbers_lost(log, "eval_start") else ""
        yield from (finding._replace(cause=cause) for finding in self.check_numbers(log, key, case, "results"))
        values = [record for record in log[key] if not is_number(record.value)]
        values = [record for record in values if case.strict or not isinstance(record.value, int | float)]
        if values:
            message = f"{key} is {show(values[0].value)}: value type is not a finite number{more(values, 'results')}"
            cause = "QUA01" * isinstance(values[0].value, float)  # it diverged
            yield self.finding(log.path, values[0].line, message, "a number", key, cause=cause)


class StatusSuccess(LogRule, strict_only=True):
    """The run stops with status success, and nothing else in run_stop, or in the text before it, contradicts that."""

    id = "QUA03"
    cite = CONVERGENCE
    differs = "the official tool accepts any status, and reads no text"
    why = (
        "A run that was aborted did not train to the target. No published log of a successful run has a text that tells"
        " of a failure before run_stop; a resumed run may have it, so that is a note."
    )
    fix = (
        'If the run reached the target, log "success", to the letter. Of those that did not, one run of a time-to-train'
        " result may fail; repeat any other."
    )
    good = (lambda log: log().meta("run_stop", "ended", TARGET_MET).meta("run_stop", "cause", "target reached"),)
    bad = (lambda log: log().meta("run_stop", "status", "aborted"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for stop in log["run_stop"]:
            if has_field(stop, "status") and stop.meta("status") != "success":
                message = f"run_stop status is {show(stop.meta('status'))}"
                if log.end:
                    yield self.finding(log.path, log.end.line, f"{log.end.text}; {message}", fix=log.end.cause.fix)
                elif stop.meta("ended") != COMPLETED:  # QUA01 says so
                    yield self.finding_at(log, stop, message, '"success"')
                continue
            results = [records[-1].value for key in log.metrics if (records := log[key])]
            repeated = case.usage == TRAINING and stop.value in results  # llama2_70b_lora logs the last result again
            says_nothing = stop.value is None or is_success(stop.value) or repeated
            failures = [] if says_nothing else [f"value {show(stop.value)}"]
            fields = stop.metadata if isinstance(stop.metadata, dict) else {}
            failures += [
                f"{name} {show(value)}"
                for name, value in fields.items()
                if name not in USUAL and tells_failure(name, value)
            ]
            if failures:
                message = f"run_stop status is success, but it also says {list_some(failures)}"
                ended = has_field(stop, "status") and str(stop.meta("ended")).casefold() in FAILURES
                yield self.finding_at(log, stop, message, f'ended "{TARGET_MET}"', ERROR if ended else WARNING)
        last, failure = log.last("run_stop"), log.oddities.get("failure")
        if last and failure and last.meta("status") == "success" and failure.line < last.line:
            message = f"the run ended with success, but the log says {show(failure.detail)}"
            yield self.finding(
                log.path, failure.line, message, severity=NOTE, fix="Nothing to fix if the run went on after it."
            )


class SamePrecision(ResultRule, strict_only=True):
    """A result has the precision of the others."""

    id = "QUA13"
    severity = NOTE
    differs = "the official tool believes any number"
    why = "A program writes all results with one precision; a number of few digits, or of more, may be typed by hand."
    fix = "Submit the log as the run wrote it."
    bad = (lambda log: log().last_evaluation(0.11),)

    def judge(self, log: Log, case: Case, target: Target) -> Iterator[Finding]:
        results = [record for record in log.derive(Course, target.key).counted if type(record.value) is float]
        values = [record.value for record in results]
        single = list(map(eq, values, array("f", values)))
        usually = 2 * sum(single) >= len(results)
        odd = [
            record
            for record, is_single in zip(results, single, strict=True)
            if usually > is_single
            or (
                round(record.value, 8) == record.value
                and count_digits(record.value) <= MOST_TYPED
                and is_number(record.value)
            )
        ]
        # A run that ends without the target gains nothing.
        odd = [record for record in odd if record is not results[-1] or target.met(record.value)]
        usual = sorted(count_digits(record.value) for record in results)[len(results) // 2] if odd else 0
        if usual >= LEAST_MADE:
            record = next((r for r in odd if r in results[-2:] and target.met(r.value)), odd[0])
            message = f"{record.key} {show(record.value)} has another precision than most results of the log"
            yield self.finding_at(log, record, message, f"{usual} digits, or the same kind of number")


def count_digits(value: float) -> int:
    """Return how many digits are written of a value, without zeros before them."""
    return len(f"{value!r}".partition("e")[0].strip("-0.").replace(".", ""))


def is_success(value: Any) -> bool:
    """Tell whether a value of run_stop says that the run succeeded."""
    return value is True or (isinstance(value, str) and bool(re.match(SUCCESS, value)))


FAILURE_FIELDS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    (  # that it succeeded
        "converged|success|successful|succeeded|reached|met|completed|finished|passed|ok",
        lambda value: value in (False, 0) or str(value).casefold() in ("false", "no"),
    ),
    ("code|returncode|rc|exitcode|exit", lambda value: is_number(value) and value != 0),
    (  # a text that may say so
        "message|msg|note|comment|info|result",
        lambda value: isinstance(value, str) and bool(re.match(FAILED_WORD, value)),
    ),
    (  # what does not happen to a run that succeeds
        "errors?|exception|signal|failures?|failed|crashed|aborted|killed|cancelled|interrupted",
        lambda value: value is True or (bool(value) and not is_success(value)),
    ),
    (  # how it ended
        "reason|cause|state|status|ended|ending|outcome",
        lambda value: bool(value) and not is_success(value),
    ),
)
"""Names of metadata of run_stop, perhaps after a word, and whether such a value says that the run did not succeed."""


def tells_failure(name: str, value: Any) -> bool:
    """Tell whether a field of the metadata of run_stop says that the run did not succeed."""
    tests = [test for names, test in FAILURE_FIELDS if re.fullmatch(rf"(?i)(?:.*_)?(?:{names})", name)]
    return tests[0](value) if tests else False


class StopsAtTarget(LogRule, strict_only=True):
    """The run stops at the first evaluation that meets the target, and the last one meets it."""

    id = "QUA04"
    cite = CONVERGENCE
    differs = "the official tool accepts any evaluation that meets the target"
    why = (
        "The run counts up to its last evaluation: a model that lost the quality again is not trained. If the last one"
        " meets the target as well, the run is longer than necessary, which is a note."
    )
    fix = "Stop at the first evaluation that meets the target, unless the run was meant to go on."
    bad = (lambda log: log().evaluation(3, 0.12).last_evaluation(0.13),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if case.reference is None or log.derive(find_completion):
            return
        target = case.reference.target
        counted = log.derive(Course, target.key).counted
        met = list(map(target.met, [record.value for record in counted]))
        if True not in met[:-1]:
            return
        first, last = counted[met.index(True)], counted[-1]
        if target.met(last.value):
            message = (
                f"target reached at epoch {show(log.position(first))} but run_stop at {show(log.position(last))}"
                f" ({find_unit(log, case.reference)}): the run is longer than necessary"
            )
            yield self.finding_at(log, first, message, "run_stop after this evaluation", NOTE)
        else:
            message = (
                f"last evaluation misses the quality target: {target.key} {show(last.value)} (it was met in line"
                f" {first.line})"
            )
            yield self.finding_at(log, last, message, target.range_text)


def _official_met(target: Target, value: Any) -> bool:
    """Compare as Python does (True is 1); a value that cannot be compared does not meet the target."""
    try:
        return bool(0 < value <= target.value if target.lower_is_better else target.value <= value <= 1)
    except TypeError:
        return False
