"""Rules about the form of a log file: bytes, lines, records, times."""

from __future__ import annotations

import os
import posixpath
from bisect import bisect_left
from collections.abc import Iterator
from math import isfinite
from typing import ClassVar, Final

from msgspec import UNSET

from common.command import counted
from common.values import group_pairs
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
from compliance.model.judging import NOTE, WARNING, Case, Finding, first_text
from compliance.rules.damage import FORMAT, UNITS, FormRule, describe_repair
from compliance.rules.pace import FEWEST
from compliance.rules.rule import show

SHOWN = 10
LONGEST_UPTIME_MS = 1e11
RECORD = "`:::MLLOG {json object}`"

MESSAGES: Final = {
    "unreadable": "cannot be read: {}",
    "too large": "contains more than {}",
    "too many records": "too many records: only the first {} that rules need are judged",
    "encoding": "the encoding is {}",
    "json": "parse error: {}",
    "no object": "parse error: {}",
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
FIXES: Final = dict.fromkeys(
    ("missing field", "field type"),
    "Write records with mllog: each has time_ms, key, value (null where there is none) and metadata (an object).",
)


class KindRule(FormRule):
    """Base of the rules that report some kinds of problems or oddities.

    EXPECTED: what would have been right, by kind.
    """

    EXPECTED: ClassVar[dict[str, str]]

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for kind, expected in self.EXPECTED.items() if log.problems or log.oddities else ():
            for problem in log.list_problems(kind)[:SHOWN]:
                yield self.finding(log.path, problem.line, MESSAGES[kind].format(problem.detail), expected)
            if odd := log.oddities.get(kind):
                more = f" (the first of {odd.lines} such lines)" if odd.lines > 1 else ""
                fix = describe_repair(log, odd.detail)[1] if kind == "near record" else ""
                yield self.finding(log.path, odd.line, MESSAGES[kind].format(odd.detail) + more, expected, fix=fix)


class Readable(KindRule):
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


class Encoded(KindRule):
    """The log is text in ASCII, UTF-8 or Latin-1 encoding."""

    id = "FRM02"
    why = "In another encoding no tool finds the records: the official checker reports an empty log."
    fix = (
        "Convert it from the encoding that it has, such as UTF-16, UTF-16BE or UTF-32:"
        " iconv -f UTF-16 -t UTF-8 < FILE > repaired.txt"
    )
    good = (lambda log: log().set("submission_org", "Université"),)
    bad = (lambda log: log().text().encode("utf-16"),)
    EXPECTED = {"encoding": "ASCII, UTF-8 or Latin-1 text"}


class HoldsRecords(FormRule):
    """The log contains records of mlperf-logging."""

    id = "FRM03"
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
                fix=describe_repair(log, near.detail)[1],
            )
        elif kind and (case.strict or not log.record_count):
            message, line, fix = f"this is {kind.name}, not a log", 0, kind.fix
            if beside := _find_log_beside(log.path) if kind is OUTPUT else "":
                fix = f"Give the log beside it, {beside}, instead."
            if kind is OUTPUT and log.end:
                message, line = f"{message}; {log.end.text}", log.end.line
                fix += f" If the run died before its first record: {log.end.cause.fix}"
            yield self.finding(log.path, line, message, "lines with `:::MLLOG {…}`", fix=fix)


def _find_log_beside(path: str) -> str:
    """Return a log in the folder of a file that has no name of a log, "" if there is none."""
    folder, name = posixpath.split(path)
    names = () if name.startswith("result_") else ("result_0.txt", "result_1.txt")
    return next(filter(os.path.isfile, (posixpath.join(folder, log) for log in names)), "")


class OneWriter(KindRule, strict_only=True):
    """Lines are as one program writes them: records in one way and in order of time, and none that no tool reads."""

    id = "FRM12"
    severity = NOTE
    follows = ("ORD09", "ORD18")
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
        "near record": RECORD,
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


class Parses(FormRule):
    """Every record is a JSON object with time_ms, key, value and metadata."""

    id = "FRM04"
    why = "A record that cannot be parsed may be the decisive one; the official checker fails or crashes on it."
    fix = "Look at the line. If the log was edited, submit the original; else find out what writes such lines."
    differs = "strict also requires key to be a string and metadata an object"
    bad = (lambda log: log().raw("run_stop", lambda line: line.replace(b"{", b"#{", 1)),)
    KINDS = ("json", "no object", "missing field", "deep", "time type", "field type")

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        kinds = [kind for kind in self.KINDS if case.strict or kind != "field type"]
        reported = log.list_problems(*kinds)
        after = max((of_key[-1].line for of_key in log.records.values()), default=0) if reported else 0
        for problem in reported[:SHOWN]:
            message, fix = MESSAGES[problem.kind].format(problem.detail), FIXES.get(problem.kind, "")
            if known := log.oddities.get(problem.detail):
                text, fix = describe_repair(log, problem.detail, known.line, known.detail)
                message = f"parse error in {counted(known.lines, 'line')}: {text}"
            finding = self.finding(log.path, problem.line, message, RECORD, fix=fix)
            yield finding._replace(cause="ORD05") if log.end and problem.line > after else finding
        if len(reported) > SHOWN:
            more = f"and {len(reported) - SHOWN} or more such lines"
            yield self.finding(log.path, reported[SHOWN].line, more, RECORD, fix=fix)


class OneRecordPerLine(KindRule, strict_only=True):
    """A line contains one record, and a record each field once."""

    id = "FRM05"
    cite = f"{FORMAT}; RFC 8259 section 4 (names within an object should be unique)"
    differs = "the official parser silently drops all but the last record of a line, and of repeated fields"
    why = "mllog writes a line for each record, and each field once: readers differ in which of several they take."
    fix = "Submit the log as the run wrote it: let only rank 0 log, or give each rank its own file."
    good = (lambda log: log().prefix(b"0: "),)
    bad = (lambda log: log().raw("epoch_start", lambda line: b"^" + line).bytes().replace(b"\n^", b""),)
    EXPECTED = {"two records": "one record per line", "repeated field": "each field once"}


class LineLength(KindRule):
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


class Times(FormRule, strict_only=True):
    """Every time_ms is a finite number of milliseconds since 1970."""

    id = "FRM08"
    differs = "the official tool accepts any number, even NaN and numeric text"
    why = "The score is a difference of two times: NaN, negative times or seconds make it meaningless."
    fix = "Log int(time.time() * 1000), as mllog does; do not edit times."
    bad = (lambda log: log().field("run_stop", "time_ms", float("nan")),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        texts = log.list_problems("time text")
        lines = {problem.line for problem in texts}
        reported = [problem for problem in log.list_problems("time") if problem.line not in lines]
        for name in dict.fromkeys(self._describe_problem(problem) for problem in reported):
            same = [problem for problem in reported if self._describe_problem(problem) == name]
            count = f" (in {len(same)}{'+' if len(same) == 100 else ''} records)" if len(same) > 1 else ""
            yield self.finding(
                log.path, same[0].line, f"time_ms is {same[0].detail}: {name}{count}", "milliseconds since 1970"
            )
        for problem in texts[:1]:
            message = f"time_ms is {problem.detail}, not a JSON number"
            yield self.finding(log.path, problem.line, message, "a JSON number of milliseconds")

    @staticmethod
    def _describe_problem(problem: FormProblem) -> str:
        time_ms = float(problem.detail)
        near = next((unit for unit, factor, _ in UNITS if EARLIEST_MS < time_ms * factor < LATEST_MS), "")
        return first_text(
            (
                (not isfinite(time_ms), "not finite"),
                (near, f"the time unit looks like {near}, not milliseconds"),
                (time_ms < 0, "negative"),
                (time_ms < LONGEST_UPTIME_MS, "no time since 1970, but one of time.monotonic() or time.perf_counter()"),
                (True, "no plausible time between 2014 and 2099"),
            )
        )


class Inflates(KindRule):
    """A compressed log inflates to a reasonable size."""

    id = "FRM09"
    cite = "docs/reference/profiles.md (a limit of this checker)"
    differs = "the official tool finds no records in compressed logs"
    why = "A small file can inflate to more text than anybody can read; the rest of it was not read."
    fix = "Submit logs as plain text (gunzip), as the official tools need them; cut what does not belong to the log."
    good = (lambda log: log().gzip(),)
    bad = (lambda log: log().raw("seed", lambda line: b"\n" * MAX_FILE_BYTES + line).gzip(),)
    EXPECTED = {"compressed": f"at most {MAX_FILE_BYTES >> 20} MiB of text, in few gzip members"}
