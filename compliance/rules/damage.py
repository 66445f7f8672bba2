"""The damage of a whole log file: several runs in it, or parts of one, other units or rounded times.

What follows from damage says nothing about the run: no other rule is applied to such a file.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise
from math import gcd, inf
from typing import Final, NamedTuple

import msgspec

from common.command import clean, list_some
from common.record import decode
from common.values import is_number
from compliance.logs.log import (
    EARLIEST_MS,
    KEYS,
    LATEST_MS,
    LONGEST_HEAD,
    LONGEST_KEY,
    MOST_BACK_MS,
    UTF_16,
    Log,
)
from compliance.logs.record import Record
from compliance.logs.timeline import clock, epoch_number
from compliance.model.judging import Case, Finding
from compliance.rules.rule import LogRule

FORMAT: Final = "mlperf-logging: mllog, one record `:::MLLOG {json}` per line"
HEADER: Final = ("init_start", "submission_benchmark")
"""Records at the start of a log: after a run_start they start another run."""
BY_RANK: Final = {
    True: ("Keep the lines of rank 0, as with srun --label", "grep '^ *0: '"),
    False: (
        "Keep the first line of each record, whatever its time",
        """awk '{record = $0; sub(/"time_ms": *[0-9.]+/, "", record)} !seen[record]++'""",
    ),
}
"""How to keep the lines of one of several ranks, and a command, by whether something precedes the records."""
MOST_OF: Final = 0.9
"""Share of the events that several ranks repeat: the last ones may be missing."""
COARSEST_MS: Final = 10_000
"""Of no published log are all times multiples of even 2 ms; a program may write whole seconds."""
COPY_AGAIN: Final = (
    "Copy the whole file again from where the run wrote it. If lines are missing there as well, they are lost: repeat"
    " the run; one run of a time-to-train result may fail."
)
LOST_LINES: Final = (
    rb"(?i)\b(?:suppressed|missed|dropp(?:ed|ing)|lost|omitted|skipped|truncated|discarded)\W{1,3}\d{1,12} "
    rb"(?:\w{1,20} )?(?:lines|messages|records|events|entries|bytes)\b"
    rb"|\b(?:lines?|messages?|records|events|entries|bytes|output)\W{1,3}(?:were |was |have been |has been )?"
    rb"(?:suppressed|missed|dropped|lost|omitted|skipped|truncated|discarded|not shown)\b"
    rb"|\b(?:log|logs|logfile|step)\b.{0,40}\b(?:truncated|rotated|turned over|exceeded limit)\b"
    rb"|messages due to rate|(?:message|data) rate exceeded"
)
"""What journald, rsyslog, CI systems, notebooks, Kubernetes and viewers write in place of lines, or beside them."""
UNITS: Final = (("seconds", 1000, "* 1000"), ("microseconds", 1e-3, "/ 1000"), ("nanoseconds", 1e-6, "/ 1e6"))


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
    return not log.list_problems("unreadable", "too large", "compressed")


def find_damage(log: Log) -> Damage | None:
    """Return the damage to a log that has records and was read to its end; None if there is none."""
    if not log.record_count or not is_whole(log):
        return None
    return (
        _find_repeats(log)
        or _find_restart(log)
        or _find_disorder(log)
        or _find_cut(log)
        or _find_other_unit(log)
        or _find_late_times(log)
        or _find_rounded_times(log)
    )


def find_loss(log: Log) -> Damage | None:
    """Return the damage of a log that has errors, where a part of it was lost; None if nothing tells of it."""
    return (_find_nul_bytes(log) or _find_lost_lines(log) or _find_lost_head(log)) if log.record_count else None


def _find_repeats(log: Log) -> Damage | None:
    """Return the damage of a log with the lines of several ranks: its events are there as often as run_start."""
    starts_ms = [record.time_ms for record in log["run_start"]]
    count = len(starts_ms)
    first_stop_ms = min((record.time_ms for record in log["run_stop"]), default=inf)
    # Ranks start one run within a minute.
    if count < 2 or not (max(starts_ms) <= min(starts_ms) + 60_000 and max(starts_ms) < first_stop_ms):
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
        fix, command = BY_RANK[bool(log.heads)]
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
    names = list_some([f"run {at + 1}" for at, _ in complete]) or "none of them"
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


def _find_disorder(log: Log) -> Damage | None:
    """Return the damage of a log with its lines in reverse order, or with its second part before the first."""
    start, newest = log.first("run_start"), next(iter(log.events), None)
    if not (start and newest and newest.time_ms > start.time_ms):
        return None  # the usual case
    changes = [later.time_ms - event.time_ms for event, later in pairwise(log.ordered)]
    if sum(change < 0 for change in changes) > MOST_OF * sum(change != 0 for change in changes):
        return Damage(
            newest.line,
            "the file is in reverse order: its first record is the newest, as a log store or a viewer exports it",
            "the oldest line first",
            f"Export it with the oldest line first, or reverse it:\n{_repair(log, 'tac')}",
            _minutes_between(*clock(log)),
        )
    if sum(change < -MOST_BACK_MS for change in changes) != 1:
        return None
    every = chain.from_iterable(log.records.values())
    line = min(record.line for record in every if record.order > newest.order and record.time_ms < newest.time_ms)
    command = f"awk 'NR < {line} {{ later = later $0 RS; next }} 1; END {{ printf \"%s\", later }}'"
    return Damage(
        line,
        f"the begin of the run stands behind its end, from line {line} on: parts were joined in wrong order",
        "the older part first",
        f"Join them in the order of time:\n{_repair(log, command)}",
        _minutes_between(*clock(log)),
    )


def _find_cut(log: Log) -> Damage | None:
    """Return the damage of a log that ends within a record, or within a line before run_stop."""
    cut_record = any(problem.line == log.cut_line for problem in log.list_problems("json"))
    if not log.cut_line or (log["run_stop"] and not cut_record):
        return None
    where = f"the file ends in the middle of line {log.cut_line}"
    cut = _find_nul_bytes(log) or Damage(
        log.cut_line,
        f"{where}: its copy was cut, the disk was full or the job killed",
        "a file that ends after the line of run_stop",
        "Copy it again from the machine that wrote it and compare the sizes. If it ends there as well, its run failed:"
        " one run of a time-to-train result may.",
        _minutes_between(*clock(log)),
    )
    end = log.end
    return cut._replace(line=end.line, message=f"{end.text}; {where}", fix=end.cause.fix) if end else cut


def _find_nul_bytes(log: Log) -> Damage | None:
    """Return the damage of a log with NUL bytes."""
    nul = log.oddities.get("NUL")
    if not nul:
        return None
    command = _repair(log, r"LC_ALL=C tr -d '\000\376\377'")
    return Damage(
        nul.line,
        f"{nul.lines:,} NUL bytes, the first in line {nul.line}: {nul.detail}",
        "text without NUL bytes",
        f"Take them out:\n{command}Let one program write the file." if nul.detail == UTF_16 else COPY_AGAIN,
        _minutes_between(*clock(log)),
    )


def _find_lost_lines(log: Log) -> Damage | None:
    """Return the damage of a log in which a service or a viewer says that it left out lines."""
    texts = ((line, text[:LONGEST_HEAD]) for line, text in (*log.text, *log.tail))
    losses = [(line, text.decode("utf-8", "replace").strip()) for line, text in texts if re.search(LOST_LINES, text)]
    if not losses:
        return None
    return Damage(
        losses[0][0],
        f'lines of the run are missing here: "{losses[0][1]}"',
        "every line that the run wrote",
        f"Write the log to a file, not through a service that limits or rotates it. {COPY_AGAIN}",
        _minutes_between(*clock(log)),
    )


def _find_lost_head(log: Log) -> Damage | None:
    """Return the damage of a log that begins in the middle of its run: with what comes later, but not the header."""
    if any(log[key] for key in HEADER) or not log.events or (log["run_start"] and not log["init_stop"]):
        return None
    return Damage(
        1,
        f"the file begins in the middle of the run: its first event is {log.events[0].key} in line"
        f" {log.events[0].line}, and all before that is missing, with {' and '.join(HEADER)}",
        "a file that begins with the header of the run",
        f"{COPY_AGAIN} If its begin is in an older file, since logs are rotated: cat OLDER FILE > repaired.txt",
    )


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


def _find_late_times(log: Log) -> Damage | None:
    """Return the damage of a log whose records got their times when they were written, all at once."""
    start, stop = clock(log)
    if start is None or stop is None or not 0 <= stop - start < log.record_count:
        return None  # the usual case
    times = [record.time_ms for record in chain.from_iterable(log.records.values()) if is_number(record.time_ms)]
    span = max(times) - min(times)
    if span >= log.record_count:
        return None
    return Damage(
        log["run_start"][0].line,
        f"the times of all {log.record_count} records lie within {span:g} ms: they were taken when the records were"
        " written, not when their events happened",
        "the time of each event",
        "Log each event when it happens, with mllog, not all from a list or another log at the end. The times of this"
        " run are lost unless another log has them: repeat it.",
    )


def _find_rounded_times(log: Log) -> Damage | None:
    """Return the damage of a log whose times were rounded to ten seconds or more."""
    start, stop = clock(log)
    if start is None or stop is None or start % COARSEST_MS or stop % COARSEST_MS:
        return None  # the usual case
    times = [record.time_ms for record in chain.from_iterable(log.records.values()) if is_number(record.time_ms)]
    step = gcd(*map(int, times))
    if step < COARSEST_MS or any(time_ms % 1 for time_ms in times):
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
    name = shlex.quote(log.path) if log.path.isprintable() and log.path != "-" else "FILE"
    whole = f"gunzip -c < {name} | {command}" if log.inflated_bytes else f"{command} < {name}"
    return f"$ {whole} > repaired.txt\nCheck repaired.txt, then put it in the place of the file. "


def describe_repair(log: Log, cause: str, line: int = 0, key: str = "") -> tuple[str, str]:
    """Return what is wrong with lines that are no records, and how to repair them, "" if that is unknown.

    line: the first of them. key: what `find_cause` returns with it; of a torn record, all that its line has of it.
    """
    from compliance.logs.bad_lines import BAD_LINES, TORN  # only damaged logs pay for it

    row = BAD_LINES.get(cause)
    known = (cause, row.fix, row.command.replace("KEY", key)) if row else (cause, "", "")
    text, fix, command = (_find_rest(log, line, key) if cause == TORN else None) or known
    return text, f"{fix}:\n{_repair(log, command)}" if command else fix


def _find_rest(log: Log, line: int, torn: str) -> tuple[str, str, str] | None:
    """Return what tears a record, how to make it whole, and a command; None if the next lines make it whole."""
    begin, texts = torn.encode("latin-1"), dict((*log.tail, *log.text))
    # A record is torn into 20 lines at most.
    rest = {at: re.sub(rb"^(?:> ?)+", b"", texts[at]) for at in range(line + 1, line + 20) if at in texts}
    if any(_parse(log, whole) for whole in accumulate(rest.values(), initial=begin)):
        return None
    forms = [
        (length, at, record)
        for at, text in rest.items()
        for length in range(len(begin), 0, -1)
        if (record := _parse(log, begin[:length] + text))
    ]
    if not forms:
        name = re.search(r'"key"\s*:\s*"[\w.-]{1,80}"', torn)
        return (
            f"the record{f' of {name[0]}' if name else ''} breaks off, and its rest is not in the next lines",
            "Copy the log again from where the run wrote it. If the rest is not there, it is lost.",
            "",
        )
    length, at, record = forms[0]
    epoch = record.meta("epoch_num")
    command = f"s/(.*:::MLLOG .{{{length}}}).*\\n/$1/ if $. == {line}; print if $. <= {line} || $. >= {at}"
    return (
        f'text of another program, "{clean(torn[length:][:LONGEST_KEY])}", tears the record of {record.key}'
        f"{'' if epoch is None else f' of epoch {epoch}'}, whose end is in line {at}"
        f"{'; its result may be the one that reaches the target' if record.key in log.metrics else ''}",
        "Write standard error to a file of its own (2> FILE). Here, take out that text, to make the record whole",
        f"perl -ne '{command}'" if len(forms) == 1 else "",
    )


def _parse(log: Log, text: bytes) -> Record | None:
    """Return the record of this text, None if it is none, or of a key that no other record here and no rule has."""
    try:
        record = decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.key in KEYS or record.key in log.records or record.key in log.others else None


def _minutes_between(start_ms: float | None, stop_ms: float | None) -> float | None:
    return None if start_ms is None or stop_ms is None else (stop_ms - start_ms) / 60_000


class FormRule(LogRule):
    """Base of the rules about the form of a log file."""

    cite = FORMAT


class WholeLog(FormRule, strict_only=True):
    """The file is the whole log of one run, once, with times in milliseconds."""

    id = "FRM10"
    differs = "the official tool warns of repeated records at most, and scores from whatever times it finds"
    why = "A damaged file does not show what its run did. If the file can be repaired, the run need not be repeated."
    fix = "Copy the file again; let only rank 0 log, each run into a new file, with mllog's times."
    good = (lambda log: log().bytes()[:-1],)
    bad = (lambda log: log().bytes()[:-9],)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if damage := log.derive(find_damage):
            yield self.finding(log.path, *damage[:3], fix=damage.fix)
