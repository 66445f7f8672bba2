"""Rules about the course of a run: its events, their order and their times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

from common.reference import FIRST_RUNS_MS, since
from common.rounds import HPC
from common.version import version_numbers
from compliance.logs.log import LATEST_MS, Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.logs.run import PROVENANCE, read_suite_version
from compliance.logs.timeline import StepBack, find_late_line, find_steps_back
from compliance.model.judging import ERROR, NOTE, SEVERITIES, WARNING, Case, Finding
from compliance.rules.bounds import find_range
from compliance.rules.rule import LogRule, show

TIMING = "training_rules.adoc#run-time; hpc_training_rules.adoc#timing"
LOGGING = "training_rules.adoc#logging (mllog keys and intervals)"
INIT_LIMIT_MINUTES = {"0.7": 20, "1.0": 30, "2.0": 30, "3.0": 30}
LONGEST_INIT_MINUTES = 240
"""In a round of MLPerf Training, whose rule files have the limit of each division."""
GAIN_MS = 500
"""What a result may gain by the order of its times before it is more than a note."""
CLOCK_TOLERANCE_MS = 1000
"""Within training, by which a clock may be set."""
RESOLUTION_MS = 10
NULL_SINCE = version_numbers("0.3.0")
"""Of this suite, which before said false where the job's prologue, or nobody, cleared the caches."""
NOT_CLEARED = (False, "false", "False", "no")
CLEARED_HOURS = 6
"""From cache_clear to init_start; published logs take up to 7 minutes."""
PAUSE_MS = 4_000
"""Between init_stop and run_start; 3.9 s in one of 3,753 published logs, at most 22 ms in the others."""
UNUSUAL_PAUSE_MS = 1_000
"""Beyond the longest in published logs of the benchmark."""
LONGEST_PAUSE_MS = 60_000
NEVER_MS = 9e99
YEAR_MS = 365 * 86_400_000


def before(log: Log, key: str, record: Record) -> bool:
    """Tell whether a record of the key precedes this one in the file."""
    first = log.first(key)
    return first is not None and first.order < record.order


def judge_gain(first: Record, then: Record) -> str:
    """Return how bad it is that a record comes after one that it must precede: by the time that the result gains."""
    return ERROR if first.time_ms - then.time_ms > GAIN_MS else NOTE


def has_field(record: Record, name: str) -> bool:
    """Tell whether the metadata has the field; for metadata of other types, whatever Python's `in` gives."""
    try:
        return name in record.metadata
    except TypeError:
        return False


MUCH_BACK_S = 60
"""Synchronised clocks are set by less."""


class TimingRule(LogRule):
    """Base of the rules about when a run begins and ends."""

    cite = TIMING


class Init(TimingRule):
    """Initialisation starts before it stops, once, right before the run, and takes less than the limit."""

    id = "ORD01"
    why = (
        "Work before run_start is not timed, so the rules limit it; what is done between init_stop and run_start is"
        " neither limited nor timed."
    )
    fix = "Log init_start first and init_stop right before run_start; move slow preparation into the run."
    differs = (
        "a repeated init_stop is an error in strict, a warning of the official tool; strict also compares the times of"
        " init_stop and run_start"
    )
    good = (lambda log: log().shift("init_start", -29 * 60_000),)
    bad = (lambda log: log().drop("init_start"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not log["init_start"]:
            yield self.not_logged(log, "init_start", "at least one record")
        ends = [end for key in ("init_stop", "run_start") if (end := log.first(key))]
        for start in log["init_start"]:  # of each rank
            for end in ends:
                if end.order < start.order:
                    yield self.finding_at(log, start, f"init_start after {end.key}", f"before {end.key}")
        yield from self.exactly_once(log, "init_stop", ERROR if case.strict else WARNING)
        for stop in log["init_stop"]:
            yield from self._check_stop(log, stop, INIT_LIMIT_MINUTES.get(case.round, LONGEST_INIT_MINUTES))
        if case.strict and case.usage == HPC:
            yield from self._find_pause(log, case)

    def _check_stop(self, log: Log, stop: Record, limit: int) -> Iterator[Finding]:
        begins = [float(record.time_ms) for record in log["init_start"] if record.order < stop.order]
        if not begins:
            yield self.finding_at(log, stop, "init_stop without init_start", "after init_start")
        # min() that starts with a number skips NaN, as the official tool does.
        elif not (length_ms := stop.time_ms - min(NEVER_MS, *begins)) < limit * 60_000:
            message = f"initialisation takes {length_ms / 60_000:.1f} min: not shorter than {limit} min"
            yield self.finding_at(log, stop, message, f"less than {limit} min")
        if before(log, "run_start", stop):
            yield self.finding_at(log, stop, "init_stop after run_start", "before run_start")

    def _find_pause(self, log: Log, case: Case) -> Iterator[Finding]:
        """Yield the time between init_stop and run_start, which nothing counts."""
        stop, start = log.last("init_stop"), log.first("run_start")
        if stop is None or start is None:
            return
        pause_ms = start.time_ms - stop.time_ms
        if pause_ms > RESOLUTION_MS and case.round == "3.0":  # staging is outside the clock, and reported
            staging = log.in_order("staging_start", "staging_stop")
            for begin, end in pairwise(record for record in staging if stop.order < record.order < start.order):
                pause_ms -= end.time_ms - begin.time_ms if begin.key == "staging_start" else 0
        if pause_ms > min(PAUSE_MS, UNUSUAL_PAUSE_MS + 1000 * find_range("pause", case.benchmark)[1]):
            message = (
                f"{pause_ms / 1000:,.1f} s pass between init_stop (line {stop.line}) and run_start: nothing counts them"
            )
            severity = ERROR if pause_ms > LONGEST_PAUSE_MS else WARNING if pause_ms > PAUSE_MS else NOTE
            pause = self.finding_at(log, start, message, f"at most {PAUSE_MS // 1000} s", severity)
            yield pause._replace(cause="ORD04")  # epochs may have gone by


class CacheClear(LogRule):
    """The caches are cleared before the run starts."""

    id = "ORD02"
    cite = "training_rules.adoc#data-set (no data in caches when the run starts)"
    once = True
    why = "Data left in caches by an earlier run would be read at no cost."
    fix = "Drop the page cache, then log cache_clear, before run_start."
    differs = "strict also requires it before run_start, and warns if it is false or hours before init_start"
    good = (lambda log: log().move("cache_clear", after="init_stop"),)
    bad = (lambda log: log().drop("cache_clear"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not log["cache_clear"]:
            yield self.not_logged(log, "cache_clear", "at least one record")
        elif case.strict and before(log, "run_start", log["cache_clear"][0]):
            message = "cache_clear comes after run_start: the caches were not cleared before the run"
            severity = judge_gain(log["cache_clear"][0], log["run_start"][0])
            yield self.finding_at(log, log["cache_clear"][0], message, "before run_start", severity)
        elif case.strict:
            start = log.first("init_start")
            cleared = [record for record in log["cache_clear"] if not before(log, "run_start", record)]
            yield from self._check_clearing(log, case, cleared[-1], start)

    def _check_clearing(self, log: Log, case: Case, cleared: Record, start: Record | None) -> Iterator[Finding]:
        """Yield a warning if the last clearing before run_start failed, or was long ago."""
        if case.division == "closed" and cleared.value in NOT_CLEARED:
            if () < version_numbers(read_suite_version(log.value(PROVENANCE))) < NULL_SINCE:
                return
            message = f"cache_clear is {show(cleared.value)}: the log says that the caches were not cleared"
            yield self.finding_at(log, cleared, message, "null or true", WARNING)
        elif start and start.time_ms - cleared.time_ms > CLEARED_HOURS * 3_600_000:
            hours = (start.time_ms - cleared.time_ms) / 3_600_000
            message = f"the caches were cleared {hours:.0f} hours before init_start: they may have filled again"
            yield self.finding_at(log, cleared, message, f"at most {CLEARED_HOURS} hours before", WARNING)


class Staging(LogRule):
    """Data staging is logged in pairs of start and stop; up to round 2.0 it lies inside the run."""

    id = "ORD03"
    cite = "hpc_training_rules.adoc#timing (data staging; outside the clock since v3.0)"
    why = "Up to round 2.0 the time to copy data to the nodes is part of the score; later it is reported separately."
    fix = "Log staging_start and staging_stop around the copy; up to round 2.0 after run_start."
    differs = (
        "strict also requires a stop for each start, none after run_stop, and no earlier time than that of run_start;"
        " it warns of staging during training"
    )
    good = (lambda log: log().stage(after="run_start"),)
    bad = (lambda log: log().stage(after="run_start").drop("staging_stop"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        begin = log.first("run_start")
        for start in log["staging_start"] if case.round != "3.0" else ():
            if begin is None or start.order < begin.order:
                message = f"staging starts before run_start: round {case.round} counts staging as part of the run"
                yield self.finding_at(log, start, message, "after run_start")
            elif case.strict and begin.time_ms - start.time_ms > RESOLUTION_MS:
                message = f"run_start states a time {(begin.time_ms - start.time_ms) / 1000:,.1f} s after staging_start"
                yield self.finding_at(log, begin, message, "before staging_start", judge_gain(begin, start))
        for stop in log["staging_stop"]:
            if not before(log, "staging_start", stop):
                yield self.finding_at(log, stop, "staging_stop without staging_start before it", "after staging_start")
        if case.strict:
            yield from self._check_pairs(log)

    def _check_pairs(self, log: Log) -> Iterator[Finding]:
        open_since: Record | None = None
        for record in log.in_order("staging_start", "staging_stop"):
            open_since = (open_since or record) if record.key == "staging_start" else None
            if (stop := log.first("run_stop")) and stop.order < record.order:
                severity = judge_gain(record, stop)
                yield self.finding_at(log, record, f"{record.key} after run_stop", "before run_stop", severity)
        if open_since is not None:
            message = "staging pair is open: staging_start has no staging_stop"
            yield self.finding(log.path, open_since.line, message, "a staging_stop", "staging_stop")
        training = log.first("epoch_start")
        again = {record.order - 1 for record in log["run_resumed"]}  # a run that goes on stages its data again
        stops = log["staging_stop"]
        late = [stop for stop in stops if training and stop.order > training.order and stop.order not in again]
        if training and late:
            message = f"staging goes on while training does (since line {training.line}): its time is training time"
            beside = [stop for stop in late if not self._is_between_epochs(log, stop)]
            stop, severity = (beside or late)[0], WARNING if beside or not before(log, "run_start", training) else NOTE
            yield self.finding_at(log, stop, message, "staging before the first epoch", severity)

    @staticmethod
    def _is_between_epochs(log: Log, stop: Record) -> bool:
        """Tell whether nothing but staging happens before the next epoch, as where other suites resume a run."""
        events = log.events
        at = bisect_left(events, stop.order, key=FILE_ORDER)
        return [event.key for event in events[at - 1 : at + 2 : 2]] == ["staging_start", "epoch_start"]


class RunStart(TimingRule):
    """run_start is logged once, after init_stop and before all training and evaluation."""

    id = "ORD04"
    why = (
        "The clock starts here: nobody times epochs before it. The official summary takes the last of several run_start"
        " records."
    )
    fix = (
        "Start each run in a fresh log file; log run_start once, not for each epoch, right before the first data is"
        " touched; never move it."
    )
    differs = (
        "a repeated run_start is an error in strict, a warning of the official tool; strict also refuses epochs and"
        " evaluations before it, the official tool only blocks"
    )
    bad = (lambda log: log().drop("run_start"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        yield from self.exactly_once(log, "run_start", ERROR if case.strict else WARNING)
        for start in log["run_start"]:
            if not before(log, "init_stop", start):
                yield self.finding_at(log, start, "run_start without init_stop before it", "after init_stop")
        for start in log["run_start"][:1] if case.strict else ():
            untimed = [record for key in ("epoch_start", "eval_start") for record in log[key][:1]]
            first = min(untimed, key=FILE_ORDER, default=start)
            if first.order < start.order:
                epochs = bisect_left(log["epoch_start"], start.order, key=FILE_ORDER)
                subject = f"{epochs} epochs start" if epochs > 1 else f"{first.key} comes"
                message = f"{subject} before run_start of line {start.line}: they are not timed"
                yield self.finding_at(log, first, message, "after run_start", judge_gain(start, first))


class RunStop(TimingRule):
    """run_stop is logged once, after run_start, with a status."""

    id = "ORD05"
    why = "The clock stops here, and the status says whether the run counts."
    fix = (
        "A run that was killed has none: resume it, or repeat it. Any other logs it once, as by mllogger.end("
        '"run_stop", metadata={"status": "success"}) if the target is met, else with "aborted".'
    )
    differs = "a repeated run_stop is an error in strict, a warning of the official tool"
    bad = (lambda log: log().drop("run_stop"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not log["run_stop"] and log.end:
            yield self.finding(
                log.path, log.end.line, f"{log.end.text}; run_stop is not logged", key="run_stop", fix=log.end.cause.fix
            )
        else:
            yield from self.exactly_once(log, "run_stop", ERROR if case.strict else WARNING)
        for stop in log["run_stop"]:
            if not before(log, "run_start", stop):
                cause = "" if log["run_start"] else "ORD04"
                yield self.finding_at(log, stop, "run_stop without run_start", "after run_start")._replace(cause=cause)
            if not has_field(stop, "status"):
                message = f"run_stop status is missing in the metadata; its value is {show(stop.value)}"
                yield self.finding_at(log, stop, message, '"status": "success"')


class Forward(TimingRule, strict_only=True):
    """Time does not run backwards from event to event."""

    id = "ORD09"
    differs = "the official tool compares no times except the length of the initialisation"
    why = "The score is a difference of times: setting the clock back improves it."
    fix = (
        "Repeat the run: log from one rank, with the times of time.time(), which knows no time zones, and let nothing "
        "set the clock of the node meanwhile. Never edit times."
    )
    good = (lambda log: log().shift("epoch_stop", -800),)
    bad = (lambda log: log().shift("run_stop", -7_200_000),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        steps = [(severity, step) for step in find_steps_back(log) if (severity := self._judge(step))]
        if steps:
            severity = min((severity for severity, _ in steps), key=SEVERITIES.index)
            step = next(step for each, step in steps if each == severity)
            back = step.by_ms / 1000
            others = f" ({len(steps)} such records)" if len(steps) > 1 else ""
            relation = f"{step.record.key} is earlier than {step.before.key} of line {step.before.line}{others}"
            message = f"time goes backwards by {back:.{1 if back >= 1 else 3}f} s: {relation}"
            if others and back > MUCH_BACK_S:
                message += "; the clock seems to have been set back: time zone, summer time or synchronisation"
            yield self.finding_at(log, step.record, message, "times that increase from record to record", severity)
        elif late := find_late_line(log):
            message = f"{late.record.key} was written {late.by_ms / 1000:.1f} s late, after {late.before.key}"
            yield self.finding_at(log, late.record, message, f"before line {late.before.line}", NOTE)

    @staticmethod
    def _judge(step: StepBack) -> str:
        """Return how bad a step back is: where the score begins and ends it is what the result gains."""
        is_edge = step.record.key == "run_stop" or step.before.key == "run_start"
        most_ms = GAIN_MS if is_edge else CLOCK_TOLERANCE_MS
        return ERROR if step.by_ms > most_ms else NOTE if step.by_ms > RESOLUTION_MS else ""


class RoundOfTime(LogRule, strict_only=True):
    """A run is judged by the round of its time, or by a later one."""

    id = "ORD20"
    severity = NOTE
    cite = "the dates of the published logs"
    rounds = since("0.7", "2.0")
    differs = "the official tool takes the round as an argument"
    once = True
    why = "A folder's name or --round may choose the rules of an older round than the run was made for."
    fix = "Check with --round and the round of the run, or move it to a folder of that round."
    good = (lambda log: log(round_="2.0"),)
    bad = (lambda log: log(round_="2.0").times(lambda time_ms: time_ms + YEAR_MS),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        start = log.first("run_start")
        time_ms = start.time_ms if start and start.time_ms < LATEST_MS else 0
        begun = [round_ for round_ in since(case.round)[1:] if time_ms > FIRST_RUNS_MS[round_]]
        if start and begun:
            month = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m}"
            why = f" ({case.round_why})" if case.round_why else ""
            message = f"the run of {month} is judged by round {case.round}{why}; runs of round {begun[-1]} had begun"
            yield self.finding_at(log, start, message, f"--round {begun[-1]}")
