"""Watch logs that are being written, show the progress of the runs, and report early what will fail."""

from __future__ import annotations

import os
import sys
import time

from msgspec import Struct

from common.tree import NAMED
from compliance.engine.inputs import initial_case
from compliance.engine.log_checker import LogTask, complete_case, judge_log
from compliance.engine.options import Options
from compliance.logs.log import BLOCK_BYTES, Log, LogReader
from compliance.model.finding import ERROR, Finding
from compliance.model.judged_run import JudgedRun

POLL_SECONDS = 0.5
LATE_RULES = ("QUA01", "QUA04", "QUA06", "ORD03", "ORD05", "ORD07", "ORD12")
"""Rules that only a complete log can pass or fail."""
HEADER_RULES = ("SET", "ORD01", "ORD02", "ORD04")
"""Rules about records before run_start: what is missing then will not follow."""


class _Watched(Struct):
    path: str
    task: LogTask
    reader: LogReader
    offset: int = 0
    inode: int = 0
    told: set[tuple[str, int, str]] = set()
    shown: str = ""
    run: JudgedRun | None = None


def follow(paths: list[str], options: Options, timeout_seconds: float = 0) -> int:
    """Watch until every log has its run_stop; return the exit status of the last state.

    Print each finding once, as soon as it is certain. Wait for a file that does not exist yet.
    """
    watched = []
    for path in paths:
        if path == "-" or os.path.isdir(path):
            raise ValueError(f"--follow watches files, not {path!r}; name the log that is being written")
        task = LogTask(path, initial_case(path, options), options)
        watched.append(_Watched(path, task, LogReader(path)))
    news = time.monotonic()
    while any(one.run is None for one in watched):
        looked = [_look(one) for one in watched if one.run is None]
        if any(looked):
            news = time.monotonic()
        elif timeout_seconds and time.monotonic() - news > timeout_seconds:
            break
        else:
            time.sleep(POLL_SECONDS)
    return _conclude(watched)


def _look(one: _Watched) -> bool:
    """Read and report what is new in one log; return whether there was anything."""
    try:
        status = os.stat(one.path)
        if one.offset and (status.st_size < one.offset or status.st_ino != one.inode):
            _say(f"{one.path}: starts again")
            one.reader, one.offset = LogReader(one.path), 0
            one.told.clear()
        one.inode = status.st_ino
        if status.st_size == one.offset:
            return False
        with NAMED.open(one.path) as file:
            file.seek(one.offset)
            while block := file.read(BLOCK_BYTES):
                one.offset += len(block)
                one.reader.feed(block)
    except OSError as error:
        note = f"{one.path}: waiting ({error.strerror})"
        if note != one.shown:
            _say(note)
            one.shown = note
        return False
    log = one.reader.snapshot()
    run = judge_log(log, one.task)
    finished = bool(log["run_stop"])
    _tell(one, log, run.findings, finished)
    if finished:
        one.run = run
    return True


def _tell(one: _Watched, log: Log, findings: list[Finding], finished: bool) -> None:
    for finding in findings:
        # What is in brackets may count: it grows with the log.
        mark = (finding.rule, finding.line, finding.message.partition(" (")[0])
        if mark not in one.told and (finished or _certain(finding, log)):
            one.told.add(mark)
            soon = "" if finished or finding.severity != ERROR else "will fail: "
            place = f"{one.path}:{finding.line}" if finding.line else one.path
            _say(f"{place}: {soon}{finding.severity} {finding.rule} {_plain(finding.message)}")
    progress = _progress(log, one.task)
    if progress != one.shown:
        _say(f"{one.path}: {progress}")
        one.shown = progress


def _certain(finding: Finding, log: Log) -> bool:
    """Tell whether no later record can revoke the finding."""
    if finding.rule in LATE_RULES:
        # What these rules say about an existing record is final; a missing one may still follow.
        return finding.rule in ("ORD03", "ORD07") and finding.line > 0 and "has no" not in finding.message
    if finding.line == 0:
        return bool(log["run_start"]) and finding.rule.startswith(HEADER_RULES)
    return True


def _progress(log: Log, task: LogTask) -> str:
    reference = complete_case(log, task).reference
    start = log.first("run_start")
    if start is None or reference is None:
        return f"initialising, {log.record_count} records"
    evaluations = log.course(reference.target.key).counted
    last = max((records[-1] for records in log.records.values()), key=lambda record: record.order)
    minutes = (last.time_ms - start.time_ms) / 60_000
    text = f"{len(log['epoch_start'])} epochs, {minutes:.1f} min"
    if evaluations:
        text += f", {reference.target.key} {_plain(str(evaluations[-1].value))} (target {reference.target.range_text})"
    stop = log.first("run_stop")
    return text + (f", stopped: {_plain(str(stop.meta('status')))}" if stop else "")


def _conclude(watched: list[_Watched]) -> int:
    code = 0
    for one in watched:
        run = one.run or judge_log(one.reader.close(), one.task)
        minutes = f", {run.minutes:.2f} min" if run.minutes is not None else ""
        _say(f"{one.path}: {run.verdict}{minutes}")
        code = max(code, 1 if run.verdict == "FAIL" else 0)
    return code


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
