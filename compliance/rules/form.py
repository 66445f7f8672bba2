"""Rules about the form of a log file, and its damage: bytes, lines, records, times; several runs, or half of one.

What follows from damage says nothing about the run: no other rule is applied to such a file.
"""

from __future__ import annotations

import os
import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import gcd, inf
from typing import ClassVar, Final, NamedTuple

from msgspec import UNSET

from common.command import counted
from common.values import group_pairs, is_number
from compliance.logs.file_kind import MAX_FILE_BYTES, OUTPUT
from compliance.logs.log import (
    EARLIEST_MS,
    LATEST_MS,
    MAX_LINE_BYTES,
    MAX_LOG_BYTES,
    MOST_COMPARED,
    FormProblem,
    Log,
)
from compliance.logs.record import FILE_ORDER, LONG_RECORD_BYTES, MOST_LISTS, Record
from compliance.logs.timeline import clock, epoch_number
from compliance.model.judging import NOTE, WARNING, Case, Finding, listed
from compliance.rules.pace import FEWEST
from compliance.rules.rule import LogRule, show

FORMAT = "mlperf-logging: mllog, one record `:::MLLOG {json}` per line"
SHOWN = 10
RECORD = "`:::MLLOG {json object}`"


MESSAGES: Final = {
    "unreadable": "cannot be read: {}",
    "too large": "contains more than {}",
    "too many records": "too many records: only the first {} that rules need are judged",
    "encoding": "the encoding is {}",
    "json": "parse error: {}",
    "missing field": "parse error: the record lacks the field {!r}",
    "deep": "parse error: the record is nested too deeply",
    "time type": "parse error: time_ms is {}, not a number",
    "field type": "parse error: {}",
    "two records": "two or more records on one line",
    "repeated field": "duplicate JSON field {!r}",
    "long line": f"the line is longer than {MAX_LINE_BYTES >> 20} MiB: not decoded",
    "long record": "parse error: the record is very long: not decoded",
    "compressed": "the file {}",
    "near record": "looks like a record, but no tool reads it: {}",
    "writing": "not written as the first record: other blanks, order of members, or line end",
    "time order": "{}",
}
"""What is said of each kind of problem or oddity, with its detail."""


def problems(log: Log, *kinds: str) -> list[FormProblem]:
    """Return the problems of these kinds, by line."""
    return [problem for problem in log.problems if problem.kind in kinds]


class FormRule(LogRule):
    """Base of the rules that report some kinds of problems or oddities.

    EXPECTED: what would have been right, by kind.
    """

    EXPECTED: ClassVar[dict[str, str]]

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for kind, expected in self.EXPECTED.items() if log.problems or log.oddities else ():
            for problem in problems(log, kind)[:SHOWN]:
                yield self.finding(log.path, problem.line, MESSAGES[kind].format(problem.detail), expected)
            if odd := log.oddities.get(kind):
                more = f" (the first of {odd.lines} such lines)" if odd.lines > 1 else ""
                fix = _describe_repair(log, odd.detail) if kind == "near record" else ""
                yield self.finding(log.path, odd.line, MESSAGES[kind].format(odd.detail) + more, expected, fix=fix)


class Readable(FormRule):
    """The log file can be read to its end."""

    id = "FRM01"
    follows = ("PKG33", "PKG10")
    cite = "submission_rules.adoc#log-files"
    why = "A result that cannot be read cannot be checked."
    fix = "Check the path, the permissions and that the file was copied completely (gzip -t for .gz)."
    bad = (lambda log: log().gzip()[:-20],)
    EXPECTED = {
        "unreadable": "a readable text or gzip file",
        "too large": f"a log of at most {MAX_LOG_BYTES >> 30} GiB",
        "too many records": "those of 100,000 epochs at most",
    }


class Encoded(FormRule):
    """The log is text in ASCII, UTF-8 or Latin-1 encoding."""

    id = "FRM02"
    cite = FORMAT
    why = "In another encoding no tool finds the records: the official checker reports an empty log."
    fix = (
        "Convert it from the encoding that it has, such as UTF-16, UTF-16BE or UTF-32:"
        " iconv -f UTF-16 -t UTF-8 < FILE > repaired.txt"
    )
    good = (lambda log: log().set("submission_org", "Université"),)
    bad = (lambda log: log().text().encode("utf-16"),)
    EXPECTED = {"encoding": "ASCII, UTF-8 or Latin-1 text"}


class HoldsRecords(LogRule):
    """The log contains records of mlperf-logging."""

    id = "FRM03"
    cite = FORMAT
    why = "Everything that is checked comes from the records."
    fix = "Write the run's mllog output to this file; console output without `:::MLLOG ` is not read."
    differs = "strict refuses an archive even if it holds the lines of a log as they are"
    bad = (lambda log: b"",)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        kind, near = log.no_log, log.oddities.get("near record")
        if kind and near and not kind.binary:
            yield self.finding(
                log.path,
                near.line,
                f"no tool finds a record here, but {near.lines}{'+' * (near.lines >= MOST_COMPARED)} lines may be meant"
                f" as records: {near.detail}",
                RECORD,
                fix=_describe_repair(log, near.detail),
            )
        elif kind and (case.strict or not log.record_count):
            message, line, fix = f"this is {kind.name}, not a log", 0, kind.fix
            if kind is OUTPUT and log.end:
                message, line = f"{message}; {log.end.text}", log.end.line
                fix += f" If the run died before its first record: {log.end.cause.fix}"
            yield self.finding(log.path, line, message, "lines with `:::MLLOG {…}`", fix=fix)


class OneWriter(FormRule, strict_only=True):
    """Lines are as one program writes them: records in one way and in order of time, and none that no tool reads."""

    id = "FRM12"
    severity = NOTE
    follows = ("ORD09", "ORD18")
    cite = FORMAT
    differs = "the official parser reads any JSON, compares no times but those of the initialisation, skips other lines"
    why = (
        "A program writes its records with the same blanks, order, types and line ends, one after the other: others may"
        " be edited, or added. A person would count a line that looks like a record, but no tool does."
    )
    fix = (
        "Submit the log as the run wrote it, each record with mllog: `:::MLLOG `, one blank, and a JSON object; nothing"
        " to fix if two programs write to it, or ranks with other clocks."
    )
    good = (lambda log: log().text().replace('": ', '":').encode(),)
    bad = (lambda log: log().raw("seed", lambda line: line.replace(b'": ', b'":')),)
    EXPECTED = {
        "near record": "`:::MLLOG {json object}`",
        "writing": "one way of writing",
        "time order": "times that increase from record to record",
    }

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        odd = log.oddities.get("writing")
        deciding = log.in_order("run_stop", *log.metrics) if odd else []
        edited = next((record for record in deciding if odd and record.line == odd.line), None)
        files = [event.meta("file") for event in log.events if event is not edited] if edited else []
        for finding in super().check(log, case):
            by_one_file = edited and finding.line == edited.line and edited.meta("file") in files
            yield finding._replace(severity=WARNING) if by_one_file else finding
        yield from self._find_displaced(log)
        yield from self._find_unlike(log)

    def _find_displaced(self, log: Log) -> Iterator[Finding]:
        """Yield the last result if another record precedes it than all others; in all published logs the same does."""
        stop = log.first("run_stop")
        results = [record for key in log.metrics for record in log[key] if stop and record.order < stop.order]
        if len(results) < FEWEST:
            return
        first, last = (_find_before(log, result).key for result in (results[0], results[-1]))
        before = [_find_before(log, result).key for result in results] if first != last else []  # mostly they are equal
        if before and last not in before[:-1] and len(set(before)) == 2:
            message = f"the last result follows {last}, all others {first}"
            yield self.finding_at(log, results[-1], message, "the same order of records in each epoch")

    def _find_unlike(self, log: Log) -> Iterator[Finding]:
        """Yield the first of few records with another event_type than others of their key, or another type of time."""
        decoded = [event for event in log.events if event.event_type is not UNSET]
        first = {event.key: event for event in reversed(decoded)}
        groups = {
            f"the event_type of {event.key}": [(show(other.event_type), other) for other in log[event.key]]
            for event in decoded
            if event.event_type != first[event.key].event_type
        }
        if any(type(event.time_ms) is not type(decoded[0].time_ms) for event in decoded):
            groups["the type of time_ms"] = [(type(event.time_ms).__name__, event) for event in decoded]
        for what, pairs in groups.items():
            kinds = group_pairs(pairs)
            rare, *_, usual = sorted(kinds, key=lambda kind: len(kinds[kind]))
            message = f"{what} is {rare} in {counted(len(kinds[rare]), 'record')}, {usual} in {len(kinds[usual])}"
            yield self.finding_at(log, kinds[rare][0], message, "one in all records, as in all published logs")


def _find_before(log: Log, record: Record) -> Record:
    """Return the event before a record."""
    return log.events[bisect_left(log.events, record.order, key=FILE_ORDER) - 1]


class Parses(LogRule):
    """Every record is a JSON object with time_ms, key, value and metadata."""

    id = "FRM04"
    cite = FORMAT
    why = "A record that cannot be parsed may be the decisive one; the official checker fails or crashes on it."
    fix = "Look at the line. If the log was edited, submit the original; else find out what writes such lines."
    differs = "strict also requires key to be a string and metadata an object"
    bad = (lambda log: log().raw("run_stop", lambda line: line.replace(b"{", b"#{", 1)),)
    KINDS = ("json", "missing field", "deep", "time type", "field type")

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        kinds = [kind for kind in self.KINDS if case.strict or kind != "field type"]
        reported = problems(log, *kinds)
        after = max((of_key[-1].line for of_key in log.records.values()), default=0) if reported else 0
        for problem in reported[:SHOWN]:
            message, fix = MESSAGES[problem.kind].format(problem.detail), ""
            if known := log.oddities.get(problem.detail):
                message = f"parse error in {counted(known.lines, 'line')}: {problem.detail}"
                fix = _describe_repair(log, problem.detail, known.detail)
            finding = self.finding(log.path, problem.line, message, RECORD, fix=fix)
            yield finding._replace(cause="ORD05") if log.end and problem.line > after else finding
        if len(reported) > SHOWN:
            more = f"and {len(reported) - SHOWN} or more such lines"
            yield self.finding(log.path, reported[SHOWN].line, more, RECORD)


class OneRecordPerLine(FormRule, strict_only=True):
    """A line contains one record, and a record each field once."""

    id = "FRM05"
    cite = f"{FORMAT}; RFC 8259 section 4 (names within an object should be unique)"
    differs = "the official parser silently drops all but the last record of a line, and of repeated fields"
    why = "mllog writes a line for each record, and each field once: readers differ in which of several they take."
    fix = "Submit the log as the run wrote it: let only rank 0 log, or give each rank its own file."
    good = (lambda log: log().prefix(b"0: "),)
    bad = (lambda log: log().raw("epoch_start", lambda line: b"^" + line).bytes().replace(b"\n^", b""),)
    EXPECTED = {"two records": "one record per line", "repeated field": "each field once"}


class LineLength(FormRule):
    """No line is longer than 16 MiB, no record longer than 2 MiB."""

    id = "FRM07"
    cite = "docs/reference/profiles.md (a limit of this checker)"
    differs = "the official parser needs quadratic time on long lines: minutes for one megabyte"
    why = "No valid record comes near this length, and reading such a line takes unbounded memory."
    fix = "Find out what wrote the line; send progress bars to standard error."
    good = (lambda log: log().raw("seed", lambda line: b"x" * (1 << 20) + line),)
    bad = (lambda log: log().raw("seed", lambda line: b"x" * (17 << 20) + line),)
    EXPECTED = {
        "long line": f"at most {MAX_LINE_BYTES >> 20} MiB",
        "long record": f"at most {LONG_RECORD_BYTES >> 10} KiB and {MOST_LISTS:,} lists and objects",
    }


class Times(LogRule, strict_only=True):
    """Every time_ms is a finite number of milliseconds since 1970."""

    id = "FRM08"
    cite = FORMAT
    differs = "the official tool accepts any number, even NaN and numeric text"
    why = "The score is a difference of two times: NaN, negative times or seconds make it meaningless."
    fix = "Do not edit times; mllog writes int(time.time() * 1000)."
    bad = (lambda log: log().field("run_stop", "time_ms", float("nan")),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        texts = problems(log, "time text")
        lines = {problem.line for problem in texts}
        reported = [problem for problem in problems(log, "time") if problem.line not in lines]
        for name in dict.fromkeys(self._describe_problem(problem) for problem in reported):
            same = [problem for problem in reported if self._describe_problem(problem) == name]
            count = f" (in {len(same)}{'+' if len(same) == 100 else ''} records)" if len(same) > 1 else ""
            message = f"time_ms is {same[0].detail}: {name}{count}"
            yield self.finding(log.path, same[0].line, message, "milliseconds since 1970")
        for problem in texts[:1]:
            message = f"time_ms is {problem.detail}, not a JSON number"
            yield self.finding(log.path, problem.line, message, "a JSON number of milliseconds")

    @staticmethod
    def _describe_problem(problem: FormProblem) -> str:
        time_ms = float(problem.detail)
        if time_ms != time_ms or time_ms in (float("inf"), float("-inf")):
            return "not finite"
        if EARLIEST_MS < time_ms * 1000 < LATEST_MS:
            return "the time unit looks like seconds, not milliseconds"
        if EARLIEST_MS < time_ms / 1000 < LATEST_MS:
            return "the time unit looks like microseconds, not milliseconds"
        return "negative" if time_ms < 0 else "no plausible time between 2014 and 2099"


class Inflates(FormRule):
    """A compressed log inflates to a reasonable size."""

    id = "FRM09"
    cite = "docs/reference/profiles.md (a limit of this checker)"
    differs = "the official tool finds no records in compressed logs"
    why = "A small file can inflate to more text than anybody can read; the rest of it was not read."
    fix = "Submit logs as plain text (gunzip), as the official tools need them; cut what does not belong to the log."
    good = (lambda log: log().gzip(),)
    bad = (lambda log: log().raw("seed", lambda line: b"\n" * MAX_FILE_BYTES + line).gzip(),)
    EXPECTED = {"compressed": f"at most {MAX_FILE_BYTES >> 20} MiB of text, in few gzip members"}


HEADER: Final = ("init_start", "submission_benchmark")
"""Records at the start of a log: after a run_start they start another run."""
TOGETHER_MS: Final = 60_000
"""Ranks start one run within this time."""
MOST_OF: Final = 0.9
"""Share of the events that several ranks repeat: the last ones may be missing."""
COARSEST_MS: Final = 1000
"""Of no published log are all times multiples of even 2 ms."""
UNITS: Final = (("seconds", 1000, "* 1000"), ("microseconds", 0.001, "/ 1000"))


class Damage(NamedTuple):
    """What is wrong with a file, and how to repair it.

    line: where it begins. minutes: time to train of the run once the file is repaired; None if it is unknown.
    """

    line: int
    message: str
    expected: str
    fix: str
    minutes: float | None = None


def is_whole(log: Log) -> bool:
    """Tell whether the file was read to its end."""
    return not problems(log, "unreadable", "too large", "compressed")


def find_damage(log: Log) -> Damage | None:
    """Return the damage to a log that has records and was read to its end; None if there is none."""
    if not log.record_count or not is_whole(log):
        return None
    return (
        _find_repeats(log) or _find_restart(log) or _find_cut(log) or _find_other_unit(log) or _find_rounded_times(log)
    )


def _find_repeats(log: Log) -> Damage | None:
    """Return the damage of a log with the lines of several ranks: its events are there as often as run_start."""
    starts_ms = [record.time_ms for record in log["run_start"]]
    count = len(starts_ms)
    first_stop_ms = min((record.time_ms for record in log["run_stop"]), default=inf)
    if count < 2 or not (max(starts_ms) <= min(starts_ms) + TOGETHER_MS and max(starts_ms) < first_stop_ms):
        return None
    # Hashes: there may be a million events.
    alike = Counter(hash((record.key, epoch_number(record))) for record in log.events)
    if sum(number % count == 0 for number in alike.values()) < MOST_OF * len(alike):
        return None
    distinct = {hash((r.key, r.time_ms, repr(r.value), repr(r.metadata))) for r in log.events}
    if len(distinct) * count <= len(log.events) + count:
        how = "in equal lines"
        fix, command = "Keep each line once", "awk -F:::MLLOG '!seen[$NF]++'"
    else:
        how = f"started within {(max(starts_ms) - min(starts_ms)) / 1000:.3g} s"
        fix, command = "Keep the lines of rank 0, as with srun --label", "grep '^ *0: '"
    return Damage(
        log["run_start"][1].line,
        f"every event of the run is there {count} times, {how}: {count} ranks (or tee) wrote the file",
        "each record once",
        f"{fix}:\n{_repair(log, command)}Let only rank 0 log.",
        _minutes_between(min(starts_ms), first_stop_ms) if log["run_stop"] else None,
    )


def _find_restart(log: Log) -> Damage | None:
    """Return the damage of a log with several runs, one after the other."""
    if len(log["run_start"]) < 2:
        return None
    runs, started = [list[Record]()], 0
    for record in log.in_order(*HEADER, "run_start", "run_stop"):
        if started == len(runs) and record.key in HEADER:
            runs.append([])
        if record.key == "run_start":
            started = len(runs)
        runs[-1].append(record)
    if started < 2:
        return None
    firsts = [1, *(run[0].line for run in runs[1:])]
    lasts = [*(str(line - 1) for line in firsts[1:]), "$"]
    complete = []  # the position of each run that ended with success, and its minutes
    for at, run in enumerate(runs):
        timed = [record for record in run if record.key not in HEADER]
        if timed and timed[0].key == "run_start" and timed[-1].meta("status") == "success":
            complete.append((at, _minutes_between(timed[0].time_ms, timed[-1].time_ms)))
    names = listed([f"run {at + 1}" for at, _ in complete]) or "none of them"
    kept, minutes = complete[-1] if complete else (len(runs) - 1, None)
    command = _repair(log, f"sed -n '{firsts[kept]},{lasts[kept]}p'")
    which = f"run {kept + 1}" if len(complete) == 1 else f"the one that belongs to this result, such as run {kept + 1}"
    return Damage(
        firsts[1],
        f"the file contains {len(runs)} runs: the second begins at line {firsts[1]}, as when a restarted job"
        f" appends to its log ({names} ended with success)",
        "one run per file",
        f"Keep {which}:\n{command}Write each run to a new file.",
        minutes if len(complete) == 1 else None,
    )


def _find_cut(log: Log) -> Damage | None:
    """Return the damage of a log that ends within a record, or within a line before run_stop."""
    cut_record = any(problem.line == log.cut_line for problem in problems(log, "json"))
    if not log.cut_line or (log["run_stop"] and not cut_record):
        return None
    where = f"the file ends in the middle of line {log.cut_line}"
    cut = Damage(
        log.cut_line,
        f"{where}: its copy was cut, the disk was full or the job killed",
        "a file that ends after the line of run_stop",
        "Copy it again from the machine that wrote it and compare the sizes. If it ends there as well, its run failed:"
        " one run of a time-to-train result may.",
        _minutes_between(*clock(log)),
    )
    end = log.end
    return cut._replace(line=end.line, message=f"{end.text}; {where}", fix=end.cause.fix) if end else cut


def _find_other_unit(log: Log) -> Damage | None:
    """Return the damage of a log with all times in seconds or microseconds."""
    for unit, factor, change in UNITS:
        every = (record for records in log.records.values() for record in records)
        if log.records and all(EARLIEST_MS < record.time_ms * factor < LATEST_MS for record in every):
            first = min((records[0] for records in log.records.values()), key=lambda record: record.order)
            start, stop = clock(log)
            command = _repair(log, f"perl -pe 's|(\"time_ms\": *)([0-9.]+)|$1 . int($2 {change})|e'")
            return Damage(
                first.line,
                f"time_ms is in {unit} in the whole file, such as {first.time_ms!r}",
                "milliseconds since 1970",
                f"Convert them:\n{command}mllog writes int(time.time() * 1000).",
                _minutes_between(start and start * factor, stop and stop * factor),
            )
    return None


def _find_rounded_times(log: Log) -> Damage | None:
    """Return the damage of a log whose times were rounded to more than a second."""
    start, stop = clock(log)
    if start is None or stop is None or start % COARSEST_MS or stop % COARSEST_MS:
        return None  # the usual case
    times = [record.time_ms for record in chain.from_iterable(log.records.values()) if is_number(record.time_ms)]
    step = gcd(*map(int, times))
    if step <= COARSEST_MS or any(time_ms % 1 for time_ms in times):
        return None
    same = min(times) == max(times)
    return Damage(
        log["run_start"][0].line,
        f"time_ms was rounded: {f'every one is {step}' if same else f'all are multiples of {step:,} ms'}",
        "each time to the millisecond, as mllog writes it",
        "Take the file that the run wrote. A spreadsheet rounds long numbers unless their column is text, awk unless"
        ' they are printed by printf "%.0f".',
    )


def _repair(log: Log, command: str) -> str:
    """Return the lines of a fix with the command, which reads the file and leaves it: what comes of it needs a look.

    As an argument, a name such as `-e…`, `|…` or `lr=1.log` would be an option, a program to run or an assignment.
    """
    name = os.path.basename(log.path)
    name = shlex.quote(name) if name.isprintable() and name != "-" else "FILE"
    whole = f"gunzip -c < {name} | {command}" if log.inflated_bytes else f"{command} < {name}"
    return f"$ {whole} > repaired.txt\nCheck repaired.txt, then put it in the place of the file. "


def _describe_repair(log: Log, cause: str, key: str = "") -> str:
    """Return how to repair a log with such lines, "" if that is unknown; key: see `find_cause`."""
    from compliance.logs.bad_lines import BAD_LINES  # only damaged logs pay for it

    bad = BAD_LINES.get(cause)
    return f"{bad.fix}:\n{_repair(log, bad.command.replace('KEY', key))}" if bad else ""


def _minutes_between(start_ms: float | None, stop_ms: float | None) -> float | None:
    return None if start_ms is None or stop_ms is None else (stop_ms - start_ms) / 60_000


class WholeLog(LogRule, strict_only=True):
    """The file is the whole log of one run, once, with times in milliseconds."""

    id = "FRM10"
    cite = FORMAT
    differs = "the official tool warns of repeated records at most, and scores from whatever times it finds"
    why = "A damaged file does not show what its run did. If the file can be repaired, the run need not be repeated."
    fix = "Copy the file again; let only rank 0 log, each run into a new file, with mllog's times."
    good = (lambda log: log().bytes()[:-1],)
    bad = (lambda log: log().bytes()[:-9],)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if damage := log.derive(find_damage):
            yield self.finding(log.path, damage.line, damage.message, damage.expected, fix=damage.fix)
