"""Rules about the epochs and evaluations of a run: present, in order, complete."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Sized
from itertools import pairwise
from operator import sub
from typing import Final

from common.reference import FULL
from common.values import is_integer, is_number
from compliance.benchmarks import find_reference
from compliance.logs.course import Course, by_number, until
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Numbered, Record
from compliance.model.judging import NOTE, WARNING, Case, Finding, first_text
from compliance.rules.damage import COPY_AGAIN
from compliance.rules.order import LOGGING, before, has_field
from compliance.rules.rule import LogRule, show

CUT_SHORT: Final = 2
"""Epochs that run_stop may cut short: the last, and one that starts early."""
RESTART_MS: Final = 1000
"""Ranks log one start of an epoch within this time; later, it started again."""
MISSING: Final = f"Lines may be missing before this one. {COPY_AGAIN}"
Events = dict[float, Sequence[Record]]
"""The records of one key by the numbers of their epochs, in file order."""


def numbers_lost(log: Log, key: str) -> bool:
    """Tell whether a record of the key lacks epoch_num, which ORD07 or QUA02 reports."""
    return len(log.numbered(key)) != len(log[key])


class NumberedRule(LogRule):
    """Base of the rules about records that state the number of an epoch."""

    cite = LOGGING

    def check_numbers(self, log: Log, key: str, case: Case, noun: str) -> Iterator[Finding]:
        """Yield the first record of the key without epoch_num, and in strict the first whose epoch_num is no number."""
        if not numbers_lost(log, key):
            return
        missing = [record for record in log[key] if not has_field(record, "epoch_num")]
        if missing:
            first = missing[0]
            stated = {"value": first.value, **(first.metadata if isinstance(first.metadata, dict) else {})}
            numbers = (name for name, number in stated.items() if is_integer(number))
            near = next((name for name in numbers if re.match(r"value$|\w*epoch", name)), "")
            message, fix = f"epoch_num missing in the metadata of {key}{more(missing, noun)}", ""
            if near:
                message += f" (is {near!r}, {show(stated[near])}, meant as it?)"
                fix = f'Log {near} as the metadata "epoch_num" of the record; ask the committee about finished logs.'
            yield self.finding_at(log, first, message, '"epoch_num": n', fix=fix)
        records = [record for record in log[key] if case.strict and has_field(record, "epoch_num")]
        wrong = [record for record in records if not is_number(record.meta("epoch_num"))]
        if wrong:
            message = f"epoch_num of {key} is {show(wrong[0].meta('epoch_num'))}, not a number{more(wrong, noun)}"
            yield self.finding_at(log, wrong[0], message, "a number", fix="Log epoch_num as a number, without quotes.")


class Blocks(NumberedRule):
    """A block starts after run_start and states its first epoch and its number of epochs."""

    id = "ORD06"
    why = "A block stands for several epochs; without these numbers it is unknown which."
    fix = "Log block_start with epoch_count and first_epoch_num, block_stop with first_epoch_num."
    differs = "strict also refuses blocks beside epochs: one could be trained there and counted here"
    good = (lambda log: log().blocks(),)
    bad = (lambda log: log().blocks().meta("block_start", "epoch_count", None),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for start in log["block_start"]:
            if not before(log, "run_start", start):
                yield self.finding_at(log, start, "block_start before run_start", "after run_start")
            if not self._is_positive(start):
                yield self.finding_at(log, start, "block_start without a positive epoch_count", '"epoch_count": n')
        if case.strict and log["block_start"] and (epoch := log.first("epoch_start")):
            message = f"blocks and epochs in one log: epoch_start is in line {epoch.line}"
            yield self.finding_at(log, log["block_start"][0], message, "one of the two")
        for key in ("block_start", "block_stop"):
            for record in log[key]:
                if not has_field(record, "first_epoch_num"):
                    yield self.finding_at(log, record, f"{key} without first_epoch_num", '"first_epoch_num": n')

    @staticmethod
    def _is_positive(start: Record) -> bool:
        try:
            return bool(start.metadata["epoch_count"] > 0)
        except (TypeError, KeyError, IndexError):
            return False


class Epochs(NumberedRule):
    """The log has epochs and evaluations (or blocks), each with its epoch_num."""

    id = "ORD07"
    why = "Convergence is counted in epochs; an event without epoch_num cannot be placed."
    fix = 'Log epoch_start, epoch_stop, eval_start and eval_stop of each epoch, with the metadata "epoch_num".'
    differs = "strict requires epoch_num to be a number"
    good = (lambda log: log().blocks(),)
    bad = (lambda log: log().drop("epoch_start"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop"):
            block = "block_start" if key.endswith("start") else "block_stop"
            if not log[key] and not log[block]:
                cause = "ORD05" if not log["run_stop"] and log.end else ""
                yield (finding := self.not_logged(log, key, f"at least one {key}, or {block}")._replace(cause=cause))
                if not case.strict:
                    yield finding._replace(key=block)
            yield from self.check_numbers(log, key, case, "records")


class EpochOrder(NumberedRule, strict_only=True):
    """Epochs are numbered in order from 0 or 1, openfold's by samples in equal steps; what is evaluated was trained."""

    id = "ORD11"
    once = True
    differs = "the official tool does not compare epoch numbers"
    why = (
        "A missing, repeated or swapped epoch means that records were lost, edited or mixed. Convergence is read from"
        " epoch_num: with larger numbers, a run that is too fast looks slow enough. A note: an epoch that starts again"
        " before it ends may have failed in between; a run numbered from 0 counts one epoch less than it trained. An"
        " epoch that was not trained has no network to evaluate: a number was changed, or a result made up."
    )
    fix = "Log all epochs once, in the order of training, numbered from 0 or 1, also those before a resumption."
    good = (lambda log: log().renumber(first=1),)
    bad = (lambda log: log().drop_epoch(3),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        course, by_samples, step = course_of(log, case), counts_samples(case), samples_per_epoch(log, case)
        wrong = _find_wrong_samples(course, step) if step else None
        if wrong:
            event, last, number = wrong
            yield self.finding_at(
                log,
                event,
                f"{event.key} has {show(number)} samples after {show(last)}",
                f"{show(last + step)}: val_every_iters * global_batch_size more",
                fix="Log the samples trained so far, at every evaluation; evaluate every val_every_iters iterations.",
            )
        elif not by_samples and course.numbers and {course.numbers[0], min(course.numbers)}.isdisjoint((0, 1)):
            first, key = min(course.numbers), "epoch_start" if course.epochs else "block_start"
            record = course.training(first)
            message = f"the epochs are numbered from {show(first)} to {show(max(course.numbers))}"
            yield self.finding(log.path, record.line if record else 0, message, "numbers from 0 or 1", key)
        else:
            odd = [] if by_samples else [*self._find_disorder(log, course)]
            if course.untrained and course.numbers and not numbers_lost(log, "epoch_start"):
                odd.append(self._describe_untrained(log, course))
            yield from odd
            comparable = course.results and not by_samples and case.reference and case.reference.variant == FULL
            if comparable and not odd:
                yield from self._compare_convergence(log, course)

    def _describe_untrained(self, log: Log, course: Course) -> Finding:
        """Return an error about the first evaluation that starts before the training of its epoch."""
        number, record = course.untrained[0]
        start = course.training(number)
        why = f"it starts in line {start.line}" if start else "no such epoch is trained"
        others = more(course.untrained, "evaluations")
        return self.finding_at(
            log,
            record,
            f"evaluation of epoch {show(number)} before its training: {why}{others}",
            f"epoch_start of epoch {show(number)} before it",
            fix="Log eval_start with the epoch_num of the epoch that was trained last.",
        )

    def _compare_convergence(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield a note if convergence is another number than that of the epochs trained."""
        number, record = course.results[-1]
        if course.trained not in (0, number):
            message = f"convergence is epoch_num {number:,.6g}; {course.trained:,.6g} epochs were trained"
            fix = "Nothing to fix; the report shows the epochs trained beside epoch_num."
            yield self.finding(log.path, record.line, message, f"{course.trained:,.6g}", "epoch_num", NOTE, fix)

    def _find_disorder(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield the first epoch that does not follow the one before it, or a note of those that start again."""
        again = {record.order for _, record in course.restarts}
        starts = [pair for pair in course.epochs if pair[1].order not in again] if again else course.epochs
        wrong = [
            *self._find_break(log, "epoch_start", starts),
            *self._find_break(log, "epoch_stop", course.epoch_stops),
            *self._find_break(log, "eval_start", course.evaluations),
        ]
        for previous, block in pairwise(course.blocks):
            if block.first != previous.last + 1:
                message = f"epoch order: a block starts with epoch {block.first} after epoch {previous.last}"
                wrong.append(self.finding_at(log, block.start, message, f"epoch {previous.last} + 1"))
        if wrong:
            # One lost or swapped epoch shows in several keys.
            yield min(wrong, key=lambda finding: finding.line)
        else:
            yield from self._find_restart(log, course)

    def _find_restart(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield a note of the epochs that start again: what was trained before is not counted."""
        begins = {number: course.started[number].time_ms for number, _ in course.restarts}
        late = [(number, record) for number, record in course.restarts if record.time_ms - begins[number] > RESTART_MS]
        if late:
            number, record = late[0]
            delay_ms = record.time_ms - begins[number]
            message = f"epoch {show(number)} starts again after {delay_ms / 1000:.1f} s{more(late, 'restarts')}"
            yield self.finding_at(log, record, message, "one epoch_start", NOTE)

    def _find_break(self, log: Log, key: str, numbered: Sequence[Numbered]) -> Iterator[Finding]:
        """Yield the first epoch that does not follow the one before it.

        Several ranks may log the same stop; an epoch may have no evaluation, or several.
        """
        numbers = [number for number, _ in numbered]
        for (last, _), (number, record) in pairwise(numbered if {*map(sub, numbers[1:], numbers)} != {1} else ()):
            evaluated = key == "eval_start"
            gap = number != last + 1 and (number != last or key == "epoch_start")
            if number < last if evaluated else gap:
                verb = first_text(((number < last, "goes back to"), (number == last, "repeats"), (True, "skips to")))
                message = f"epoch order: {key} {verb} epoch {number} after epoch {last}"
                expected = f"epoch {last} or later" if evaluated else f"epoch {last} + 1"
                yield self.finding_at(log, record, message, expected, fix=MISSING if number > last else "")
                return


class EpochPairs(NumberedRule, strict_only=True):
    """Every epoch and evaluation that starts also stops, or run_stop cuts it short; run_stop names the last epoch."""

    id = "ORD12"
    follows = ("ORD11",)
    differs = (
        "the official tool requires one epoch_stop and one eval_stop per file, and does not read the epoch of run_stop"
    )
    why = (
        "An interval without an end means lost records; the log then gives no times per epoch. If run_stop names"
        " another epoch than the records show, some were lost or added: a warning."
    )
    fix = "Log epoch_stop and eval_stop for every epoch; only what run_stop cuts short may stay open."
    good = (lambda log: log().drop("epoch_stop", -1),)
    bad = (lambda log: log().drop("epoch_stop", 2),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        end = course_of(log, case).end
        for name, field in (("epoch", "epoch_num"), ("eval", "epoch_num"), ("block", "first_epoch_num")):
            starts = until(end, log.numbered(f"{name}_start", field))
            stops = until(end, log.numbered(f"{name}_stop", field))
            if starts.numbers != stops.numbers:
                yield from self._find_unpaired(log, case, name, by_number(starts), by_number(stops))
        yield from self._compare_stop(log, case)

    def _find_unpaired(self, log: Log, case: Case, name: str, starts: Events, stops: Events) -> Iterator[Finding]:
        ended, results = max(stops, default=float("-inf")), {number for number, _ in course_of(log, case).results}
        cut_short = [n for n in starts if n > ended and n not in stops]
        in_flight = name == "eval" and results.isdisjoint(cut_short)  # a run may end while others are evaluated
        limit = ended if in_flight or len(cut_short) <= CUT_SHORT else float("inf")
        unended = [n for n, records in starts.items() if n < limit and _count_unended(records, stops.get(n, ()))]
        if unended:
            ends = len(stops.get(unended[0], ()))
            twice = f"is logged {len(starts[unended[0]])} times, {name}_stop {ends} times"
            has = twice if ends else f"has no {name}_stop"
            message = f"{name}_start of epoch {show(unended[0])} {has}{more(unended, 'records')}"
            line, expected = starts[unended[0]][-1].line, f"{name}_stop for each {name}_start"
            cause = "" if log[f"{name}_stop"] else "ORD07"
            yield self.finding(log.path, line, message, expected, f"{name}_stop", cause=cause)
        # Several ranks may log the same stop; as many of both are one mistake, in the numbers.
        lost = [n for n in stops if n not in starts]
        if lost and len(lost) != len(unended):
            message = f"{name}_stop of epoch {show(lost[0])} without {name}_start{more(lost, 'records')}"
            line, expected = stops[lost[0]][-1].line, f"{name}_start for each {name}_stop"
            yield self.finding(log.path, line, message, expected, f"{name}_start")

    def _compare_stop(self, log: Log, case: Case) -> Iterator[Finding]:
        """Yield a warning if run_stop names another epoch than the last that was trained or evaluated."""
        stop, course = log.first("run_stop"), course_of(log, case)
        if stop is None or len(log["run_stop"]) > 1 or counts_samples(case) or not course.epochs or not course.results:
            return
        evaluated, trained = course.results[-1][0], course.epochs[-1][0]
        for field in ("epoch_num", "epoch"):
            number = stop.meta(field)
            # The number may count epochs from 0 or from 1.
            if is_number(number) and not min(evaluated, trained) - 1 <= number <= max(evaluated, trained) + 1:
                yield self.finding_at(
                    log,
                    stop,
                    f"run_stop names epoch {show(number)}; the last that was trained is {show(trained)}",
                    show(trained),
                    WARNING,
                    "Log the number of the last epoch with run_stop, or none.",
                )
                return


def _count_unended(starts: Sequence[Record], stops: Sequence[Record]) -> int:
    """Return how many more starts than stops there are; starts without a stop between them are one."""
    if len(starts) <= len(stops):
        return 0
    keys = [record.key for record in sorted([*starts, *stops], key=FILE_ORDER)]
    repeats = sum(pair == (starts[0].key, starts[0].key) for pair in pairwise(keys))
    return max(0, len(starts) - repeats - len(stops))


def course_of(log: Log, case: Case) -> Course:
    """Return the course of the run with the results that its benchmark has."""
    return log.derive(Course, case.reference.target.key if case.reference else "")


def counts_samples(case: Case) -> bool:
    """Tell whether the benchmark counts samples in epoch_num."""
    facts = find_reference(case.benchmark)
    return facts is not None and facts.epoch_unit != "epochs"


def samples_per_epoch(log: Log, case: Case) -> int:
    """Return by how many samples epoch_num grows, 0 if the benchmark counts epochs or the log does not say it."""
    factors = [log.value(key) for key in ("val_every_iters", "global_batch_size")]
    complete = counts_samples(case) and all(is_integer(factor) and factor > 0 for factor in factors)
    return int(factors[0]) * int(factors[1]) if complete else 0


def _find_wrong_samples(course: Course, step: int) -> tuple[Record, float, float] | None:
    """Return the first record whose number of samples is not the next, the number before it and its own.

    Several ranks may log the same record. OpenFold may evaluate the network that it starts from.
    """
    for numbered in (course.epochs, () if course.untrained else course.evaluations):
        last: float = 0
        for number, record in numbered:
            if number not in (last, last + step) or (number == 0 and record.key == "epoch_start"):
                return record, last, number
            last = number
    return None


def more(items: Sized, noun: str) -> str:
    """Return how many there are, for the end of a message about the first; "" if it is the only one."""
    return f" ({len(items)} such {noun})" if len(items) > 1 else ""
