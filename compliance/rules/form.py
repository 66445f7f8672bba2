"""Rules about the form of a log file: bytes, lines, records, times."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import ClassVar, Final

from compliance.logs.file_kind import ANY_RATIO_BYTES, MAX_FILE_BYTES, MAX_MEMBERS, MAX_RATIO
from compliance.logs.log import COLORS, EARLIEST_MS, LATEST_MS, MAX_LINE_BYTES, MAX_LOG_BYTES, FormProblem, Log
from compliance.logs.record import LONG_RECORD_BYTES
from compliance.model.judging import NOTE, Case, Finding
from compliance.rules.rule import LogRule

FORMAT = "mlperf-logging: mllog, one record `:::MLLOG {json}` per line"
SHOWN = 10
UNCOLOR = r"Switch colors off where the log is written (NO_COLOR=1), or strip them: sed 's/\x1b\[[0-9;]*m//g' FILE."
EMPTY_MEMBER = zlib.compressobj(wbits=31).flush()


MESSAGES: Final = {
    "unreadable": "cannot be read: {}",
    "too large": "contains more than {}",
    "too many records": "too many records: only the first {} that rules need are judged",
    "encoding": "the encoding is {}",
    "json": "parse error: {}",
    "no object": "parse error: the record is a JSON {}, not an object",
    "missing field": "parse error: the record lacks the field {!r}",
    "deep": "parse error: the record is nested too deeply",
    "time type": "parse error: time_ms is {}, not a number",
    "field type": "parse error: {}",
    "two records": "two or more records on one line",
    "repeated field": "duplicate JSON field {!r}",
    "long line": f"the line is longer than {MAX_LINE_BYTES >> 20} MiB: not decoded",
    "long record": "parse error: the record is very long and not of the usual form: not decoded",
    "compressed": "the file {}",
}
"""What is said of each kind of problem, with its detail."""


def problems(log: Log, *kinds: str) -> list[FormProblem]:
    """Return the problems of these kinds, by line."""
    return [problem for problem in log.problems if problem.kind in kinds]


class FormRule(LogRule):
    """Base of the rules that report some kinds of problems. EXPECTED: what would have been right, by kind."""

    EXPECTED: ClassVar[dict[str, str]]

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for kind, expected in self.EXPECTED.items():
            for problem in problems(log, kind)[:SHOWN]:
                yield self.finding(log.path, problem.line, MESSAGES[kind].format(problem.detail), expected)


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
        "too large": f"at most {MAX_LOG_BYTES >> 30} GiB",
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
    bad = (lambda log: log().text().encode("utf-16"), lambda log: log().text().encode("utf-16-le"))
    EXPECTED = {"encoding": "ASCII, UTF-8 or Latin-1 text"}


class HoldsRecords(LogRule):
    """The log contains records of mlperf-logging."""

    id = "FRM03"
    cite = FORMAT
    why = "Everything that is checked comes from the records."
    fix = "Write the run's mllog output to this file; console output without `:::MLLOG ` is not read."
    differs = "strict refuses an archive even if it holds the lines of a log as they are"
    bad = (
        lambda log: b"",
        lambda log: b"epoch 1 loss 0.3\n",
        lambda log: b"PK\3\4" + log().bytes(),
        lambda log: b"<html><body>\n" + log().text().replace('"', "&quot;").encode(),
        lambda log: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        lambda log: b'{"division": "closed", "system_name": "example_n64"}',
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        kind = log.no_log
        if kind and (case.strict or not log.record_count):
            message = f"this is {kind.name}, not a log"
            yield self.finding(log.path, 0, message, "lines with `:::MLLOG {…}`", fix=kind.fix)


class NearRecords(LogRule, strict_only=True):
    """No line looks like a record that no tool reads."""

    id = "FRM11"
    severity = NOTE
    cite = FORMAT
    differs = "the official parser skips such lines"
    why = "A person would count this line, but no tool does."
    fix = "Write each record with mllog: `:::MLLOG `, one blank, and a JSON object; remove lines that are no records."
    good = (lambda log: log().raw("seed", lambda line: b"std:::move(x) {\n:::MLPv0.5.0 cosmoflow run\n" + line),)
    bad = (
        lambda log: log().raw("seed", lambda line: line.replace(b" ", b"", 1) + b"\n" + line),
        lambda log: log().raw("seed", lambda line: line.replace(b" ", b"\t", 1) + b"\n" + line),
        lambda log: log().raw("seed", lambda line: line.replace(b":::MLLOG", b":::mllog") + b"\n" + line),
        lambda log: log().raw("seed", lambda line: line.replace(b":", b"", 1) + b"\n" + line),
        lambda log: log().raw("seed", lambda line: line.replace(b"M", "\uff2d".encode(), 1) + b"\n" + line),
        lambda log: log().raw("seed", lambda line: line.replace(b"M", "M\u200b".encode(), 1) + b"\n" + line),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        count, line = log.near_records
        if count:
            more = f", the first of {count} such lines" if count > 1 else ""
            message = f"looks like a record, but no tool reads it{more}"
            yield self.finding(log.path, line, message, "`:::MLLOG {json object}`")


class Parses(LogRule):
    """Every record is a JSON object with time_ms, key, value and metadata."""

    id = "FRM04"
    cite = FORMAT
    why = "A record that cannot be parsed may be the decisive one; the official checker fails or crashes on it."
    fix = "Do not edit or cut logs; write each record with one write call, so that lines of several ranks do not mix."
    differs = "strict also requires key to be a string and metadata an object"
    bad = (
        lambda log: log().raw("run_stop", lambda line: line.replace(b"{", b"#{", 1)),
        lambda log: log().raw("run_stop", lambda line: line[:60] + b"\n" + line[60:]),
        lambda log: log().without_field("eval_error", "time_ms"),
        lambda log: log().raw("seed", lambda line: b":::MLLOG [1, 2]"),
        lambda log: log().raw("seed", lambda line: b":::MLLOG " + b"[" * 3000 + b"]" * 3000),
        lambda log: log().field("seed", "time_ms", None),
        lambda log: log().field("seed", "metadata", None),
        lambda log: log().raw("run_stop", lambda line: b"\x1b[32m" + line + b"\x1b[0m"),
    )
    KINDS = ("json", "no object", "missing field", "deep", "time type", "field type")

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        kinds = [kind for kind in self.KINDS if case.strict or kind != "field type"]
        reported = problems(log, *kinds)
        for problem in reported[:SHOWN]:
            message = MESSAGES[problem.kind].format(problem.detail)
            fix = UNCOLOR if problem.detail == COLORS else ""
            yield self.finding(log.path, problem.line, message, "`:::MLLOG {json object}`", fix=fix)
        if len(reported) > SHOWN:
            more = f"and {len(reported) - SHOWN} or more such lines"
            yield self.finding(log.path, reported[SHOWN].line, more, "`:::MLLOG {json object}`")


class OneRecordPerLine(FormRule, strict_only=True):
    """A line contains one record."""

    id = "FRM05"
    cite = FORMAT
    differs = "the official parser silently drops all but the last record of a line"
    why = "The official parser reads only the last record of a line: the others are lost."
    fix = "Let only rank 0 log, or give each rank its own file."
    good = (lambda log: log().prefix(b"0: "),)
    bad = (lambda log: log().glue("epoch_start"),)
    EXPECTED = {"two records": "one record per line"}


class NoRepeatedMember(FormRule, strict_only=True):
    """No record repeats a field."""

    id = "FRM06"
    cite = "RFC 8259 section 4 (names within an object should be unique)"
    differs = "the official parser silently takes the last of repeated fields"
    why = "mllog never repeats a field; readers differ in which one they take."
    fix = "Submit the log as the run wrote it."
    good = (lambda log: log().set("submission_platform", "a:b"),)
    bad = (
        lambda log: log().raw("eval_error", lambda line: line.replace(b'"value": ', b'"value": 1, "value": ')),
        lambda log: log().raw("run_stop", lambda line: line.replace(b'"value": ', b'"key": "notice", "value": ')),
        lambda log: log().raw("seed", lambda line: line + b"\n" + line.replace(b'"seed"', b'"a", "key": "b"')),
    )
    EXPECTED = {"repeated field": "each field once"}


class LineLength(FormRule):
    """No line is longer than 16 MiB, and long records are of the usual form."""

    id = "FRM07"
    cite = "docs/reference/profiles.md (a limit of this checker)"
    differs = "the official parser needs quadratic time on long lines: minutes for one megabyte"
    why = "No valid record comes near this length, and reading such a line takes unbounded memory."
    fix = "Find out what wrote the line; send progress bars to standard error."
    good = (
        lambda log: log().raw("seed", lambda line: b"x" * (1 << 20) + line),
        lambda log: log().meta("seed", "comment", "x" * (1 << 20)),
    )
    bad = (
        lambda log: log().raw("seed", lambda line: b"x" * (17 << 20) + line),
        lambda log: log().field("seed", "time_ms", "1" * (1 << 20)),
    )
    EXPECTED = {
        "long line": f"at most {MAX_LINE_BYTES >> 20} MiB",
        "long record": f"at most {LONG_RECORD_BYTES >> 10} KiB, or the usual fields",
    }


class Times(LogRule, strict_only=True):
    """Every time_ms is a finite number of milliseconds since 1970."""

    id = "FRM08"
    cite = FORMAT
    differs = "the official tool accepts any number, even NaN and numeric text"
    why = "The score is a difference of two times: NaN, negative times or seconds make it meaningless."
    fix = "Do not edit times; mllog writes int(time.time() * 1000)."
    bad = (
        lambda log: log().field("run_stop", "time_ms", float("nan")),
        lambda log: log().field("run_stop", "time_ms", -1),
        lambda log: log().field("run_stop", "time_ms", "1690000000000"),
        lambda log: log().field("run_stop", "time_ms", False),
        lambda log: log().shift("run_stop", -1_692_300_000_000),
    )

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
    good = (lambda log: log().gzip(), lambda log: log().raw("seed", lambda line: b"epoch\n" * 100_000 + line).gzip())
    bad = (
        lambda log: log().raw("seed", lambda line: b"\n" * ANY_RATIO_BYTES + line).gzip(),
        lambda log: log().gzip() + EMPTY_MEMBER * MAX_MEMBERS,
    )
    EXPECTED = {
        "compressed": f"at most {MAX_FILE_BYTES >> 20} MiB of text, {MAX_RATIO} times its size from "
        f"{ANY_RATIO_BYTES >> 20} MiB on, {MAX_MEMBERS:,} members"
    }
