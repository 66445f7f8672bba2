"""Watch logs that are being written, show the progress of the runs, and report early what will fail."""

from __future__ import annotations

import os
import time
from functools import partial

from msgspec import Struct

from common.command import clean
from common.tree import NAMED
from compliance.benchmarks import refuse_plugins_in, require_references
from compliance.engine.checker import find_broken_plugins
from compliance.engine.inputs import initial_case
from compliance.engine.log_checker import LogTask, Options, complete_case, judge_by_both, judge_log
from compliance.logs.course import Course
from compliance.logs.ending import DECIDED
from compliance.logs.log import Log, parse_log, read_log
from compliance.model.judging import ERROR, NOT_A_RESULT, Finding, JudgedRun

POLL_SECONDS = 0.5
LATE_RULES = ("QUA01", "QUA04", "QUA06", "ORD03", "ORD05", "ORD07", "ORD12")
"""Rules that only a complete log can pass or fail."""
_print_now = partial(print, flush=True)


class _Watched(Struct):
    task: LogTask
    size: int = 0
    reported: set[tuple[str, int, str]] = set()
    progress: str = ""
    run: JudgedRun | None = None


def follow(paths: list[str], options: Options, timeout_seconds: float = 0) -> int:
    """Watch until every log has its run_stop, or for the timeout none grows; return the exit status of the last state.

    Print each finding once, as soon as it is certain. Wait for a file that does not exist yet. After Ctrl-C, report the
    last state, too, and raise KeyboardInterrupt.
    """
    watched = []
    refuse_plugins_in(paths)
    if options.benchmark:
        require_references(options.benchmark)
    for path in paths:
        if path == "-" or os.path.isdir(path):
            raise ValueError(f"--follow watches files, not {path!r}; name the log that is being written")
        watched.append(_Watched(LogTask(path, initial_case(path, options, [path]), options)))
    news = time.monotonic()
    try:
        while any(watch.run is None for watch in watched):
            looked = [_read_news(watch) for watch in watched if watch.run is None]
            if any(looked):
                news = time.monotonic()
            elif timeout_seconds and time.monotonic() - news > timeout_seconds:
                break
            else:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        _report_verdicts(watched, "interrupted")
        raise
    return _report_verdicts(watched, f"nothing was logged for {timeout_seconds:g} s (--follow-timeout)")


def _read_news(watch: _Watched) -> bool:
    """Read and report what is new in one log; return whether there was anything."""
    try:
        size = os.stat(watch.task.path).st_size
        if size == watch.size:
            return False
        with NAMED.open(watch.task.path) as file:
            data = file.read()
    except OSError as error:
        _show_progress(watch, f"waiting ({error.strerror})")
        return False
    if size < watch.size:
        _print_now(f"{watch.task.path}: starts again")
        watch.reported.clear()
    watch.size = size
    whole, case = data[: data.rfind(b"\n") + 1], watch.task.case
    log = parse_log(whole, watch.task.path, watch.task.options.benchmark, case.committee_keys)
    run = judge_log(log, watch.task)
    finished = bool(log["run_stop"])
    _report_news(watch, log, run.findings, finished)
    if finished:
        watch.run = judge_by_both(log, watch.task)
    return True


def _report_news(watch: _Watched, log: Log, findings: list[Finding], finished: bool) -> None:
    for finding in findings:
        # What is in brackets may count: it grows with the log.
        mark = (finding.rule, finding.line, finding.message.partition(" (")[0])
        if mark not in watch.reported and (finished or _is_certain(finding, log)):
            watch.reported.add(mark)
            soon = "" if finished or finding.severity != ERROR else "will fail: "
            location = f"{watch.task.path}:{finding.line}" if finding.line else watch.task.path
            _print_now(f"{location}: {soon}{finding.severity} {finding.rule} {clean(finding.message)}")
    _show_progress(watch, _describe_progress(log, watch.task))


def _show_progress(watch: _Watched, progress: str) -> None:
    if progress != watch.progress:
        _print_now(f"{watch.task.path}: {progress}")
        watch.progress = progress


def _is_certain(finding: Finding, log: Log) -> bool:
    """Tell whether no later record can revoke the finding."""
    # What late rules say about an existing record is final; a missing one may still follow.
    is_final = finding.rule in ("ORD03", "ORD07") and finding.line > 0 and "has no" not in finding.message
    if finding.rule == "ORD05" and log.end:
        return log.end.cause.rank == DECIDED
    # What is missing before run_start will not follow.
    is_header = bool(log["run_start"]) and finding.rule.startswith(("SET", "ORD01", "ORD02", "ORD04"))
    return is_final if finding.rule in LATE_RULES else finding.line > 0 or is_header


def _describe_progress(log: Log, task: LogTask) -> str:
    reference = complete_case(log, task).reference
    start = log.first("run_start")
    if start is None or reference is None:
        return f"initialising, {log.record_count} records"
    evaluations = log.derive(Course, reference.target.key).counted
    last = max((records[-1] for records in log.records.values()), key=lambda record: record.order)
    text = f"{len(log['epoch_start'])} epochs, {(last.time_ms - start.time_ms) / 60_000:.1f} min"
    if evaluations:
        value = clean(evaluations[-1].value)
        text += f", {reference.target.key} {value} (target {reference.target.range_text})"
    stop = log.first("run_stop")
    return text + (f", stopped: {clean(stop.meta('status'))}" if stop else "")


def _report_verdicts(watched: list[_Watched], reason: str) -> int:
    """Print the last state of each log, with the reason if it has no run_stop; return the exit status."""
    code = 0
    for watch in watched:
        run, ended = watch.run, ""
        if run is None:
            log = read_log(watch.task.path, benchmark=watch.task.options.benchmark)
            log.cut_line = 0  # the rest of its last line may still be written
            watch.run = run = judge_by_both(log, watch.task)
            _report_news(watch, log, [finding for finding in run.findings if finding.severity == ERROR], finished=True)
            ended = "" if log["run_stop"] else f"; no run_stop yet: {reason}"
        minutes = f", {run.minutes:.2f} min" if run.minutes is not None else ""
        report = watch.task.options.start_report(runs=[run])
        official = f"; {clean(run.plugin)}" if run.plugin else ""
        if run.by_official and not (ended or run.mini or run.plugin):
            official = f"; the committee's checker: {run.by_official.verdict}"
        _print_now(f"{watch.task.path}: {report.verdict}{minutes}{ended}; {NOT_A_RESULT}{official}")
        code = max(code, report.exit_code)
    for finding in find_broken_plugins(watch.run for watch in watched if watch.run):
        _print_now(f"{finding.severity} {finding.rule} {clean(finding.message)}")
    return code
