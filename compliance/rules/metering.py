"""Rules about the contents of a power file: how often, how long and how plausibly a node was measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from common.record import CONVERSION_EFFICIENCY, NODE_SCOPE, POWER_READING, POWER_START, POWER_STOP
from common.values import group_pairs, is_number
from compliance.logs.power import TIME_BACK_MS, PowerLog
from compliance.model.judging import ERROR, NOTE, WARNING, Finding, JudgedRun, first_text
from compliance.model.result_set import ResultSet
from compliance.rules.damage import FORMAT
from compliance.rules.form import MESSAGES
from compliance.rules.power import RULES_OF_POWER, UNREAD
from compliance.rules.rule import SetRule

SLOWEST_HZ, SLOW_HZ = 0.95, 0.99
"""Lower rates are an error or a warning; a loop that sleeps one second takes slightly longer."""
LEAST_READINGS = 60
EFFICIENCY_FIX = (
    f"Log {CONVERSION_EFFICIENCY} once: the efficiency of the power supplies at their load (80 PLUS states it) where"
    " alternating current was measured, else 1."
)


class FileRule(SetRule, strict_only=True):
    """Base of the rules about single power files; shows the first faulty file of each run."""

    differs = UNREAD

    def check(self, results: ResultSet) -> Iterator[Finding]:
        for run in results.runs:
            logs = (*run.power.nodes, *run.power.switches) if run.power else ()
            findings = [finding for log in logs for finding in self.look(log, run)]
            by_kind = group_pairs(((each.severity, each.key, each.expected), each) for each in findings)
            for first, *others in by_kind.values():
                more = f" (also in {len(others)} other power files of the run)" if others else ""
                # The energy of a run that fails does not count.
                severity = WARNING if first.severity == ERROR and run.verdict == "FAIL" else first.severity
                yield first._replace(message=first.message + more, severity=severity)

    def look(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        """Yield what is wrong with one power file of a run."""
        raise NotImplementedError


class PowerReadable(FileRule):
    """A power file can be read to its end, and its records of mlperf-logging all parse."""

    id = "POW05"
    cite = FORMAT
    why = "A lost reading changes the energy by an unknown amount."
    fix = "Write each power file with mllog, from one process; do not edit or cut it."
    bad = (lambda package: package("deepcam").power().file("power/result_1/node_1.txt", ""),)
    MESSAGES = MESSAGES | {
        "time": "time_ms is {}: not the time of a measurement",
        "time text": "time_ms is {}, not a JSON number",
        "long line": "the line is longer than 16 MiB",
        "long record": "the record is very long",
    }

    def look(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        yield from (
            self.finding(log.path, problem.line, self.MESSAGES[problem.kind].format(problem.detail), "records of mllog")
            for problem in log.problems
        )
        if log.kind and not log.problems:
            message = f"no record of mlperf-logging: this is {log.kind.name}"
            yield self.finding(log.path, 0, message, "lines with `:::MLLOG {…}`", fix=log.kind.fix)


class MeasurementCovers(FileRule):
    """A node's power file logs one start and one stop of a measurement that covers the run, and little more."""

    id = "POW06"
    cite = (
        f"{RULES_OF_POWER}#measure-maxa-run-60-power-samples; power_measurement.py and result_summarizer of"
        " mlcommons/logging"
    )
    why = (
        "Energy counts the timed part only, but the official summary averages over everything between start and stop,"
        " and crashes without a start."
    )
    fix = "Start the meter just before run_start and stop it just after run_stop; synchronise its clock with the nodes."
    good = (lambda package: package("deepcam").power(margin_ms=0),)
    bad = (
        lambda package: package("deepcam").power(node=lambda file: file.keep(lambda at, _: at < 80).drop(POWER_STOP)),
    )

    def look(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        if log.of_node:
            yield from self._check_ends(log)
        begin, end = log.starts.value, log.end_ms
        if begin is None or end is None:
            return
        if run.start_ms is None or run.stop_ms is None:
            yield self.skipped(run.path, "the log does not say when the run starts and stops")
            return
        late, early = begin - run.start_ms, run.stop_ms - end
        outside = max(-late, 0) + max(-early, 0)
        expected = "from run_start to run_stop"
        if begin >= run.stop_ms or end <= run.start_ms:
            direction = "later" if late > 0 else "earlier"
            message = f"measured at a different time than the run: {_span_text(late)} {direction}"
            yield self.finding(log.path, log.starts.line, message, f"{expected}; check the clock and the time zone")
            return
        yield from (
            self.finding(log.path, line, fact, expected, key)
            for missing, line, key, fact in (
                (late, log.starts.line, POWER_START, f"begins {_span_text(late)} after run_start"),
                (early, log.stops.line, POWER_STOP, f"ends {_span_text(early)} before run_stop"),
            )
            if missing > 2000  # one reading, plus rounding to whole seconds
        )
        # Short runs may go on after run_stop until there are 60 readings.
        if outside > 0.1 * (end - begin) and log.readings > LEAST_READINGS + log.timed_readings / 2:
            message = f"{_span_text(outside)} of {_span_text(end - begin)} measured lie outside the run"
            yield self.finding(log.path, 0, message, "little more than the run", severity=WARNING)

    def _check_ends(self, log: PowerLog) -> Iterator[Finding]:
        """Yield what is wrong with the records of start and stop."""
        fix = f"Log {POWER_START} before the first reading and {POWER_STOP} after the last one."
        for key, seen in ((POWER_START, log.starts), (POWER_STOP, log.stops)):
            message = f"{key} is logged {seen.count} times, first in line {seen.line}"
            # Without a stop the last reading ends the measurement, also for the official summary.
            severity = WARNING if key == POWER_STOP and not seen.count else ERROR
            if seen.count != 1:
                yield self.finding(
                    log.path,
                    seen.line,
                    message if seen.count else f"{key} is not logged",
                    "exactly one record",
                    key,
                    severity,
                    fix,
                )
        if log.starts.count and log.stops.count and log.stops.line < log.starts.line:
            message = f"{POWER_STOP} precedes {POWER_START}"
            yield self.finding(log.path, log.stops.line, message, "after it", POWER_STOP, fix=fix)


class MeasuredEverySecond(FileRule):
    """A node is read at least once per second of the run and 60 times in all, in the order of time."""

    id = "POW08"
    cite = f"{RULES_OF_POWER}#report-1-measurement-per-second, #measure-maxa-run-60-power-samples, #scoring"
    why = (
        "The power of a training step changes within a second: fewer readings miss its peaks. A meter's allowed error"
        " averages out only over many readings, each of which counts for the time since the previous one."
    )
    fix = "Read the meter at 1 Hz or faster, in a separate process that the training cannot delay."
    bad = (lambda package: package("deepcam").power(node=lambda file: file.keep(lambda at, _: at % 2 == 0)),)

    def look(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        yield from self._check_rate(log, run)
        readings = log.readings + log.invalid.count  # which POW11 reports
        if log.of_node and log.starts.count and readings < LEAST_READINGS:
            message, expected = f"{readings} readings of power", f"at least {LEAST_READINGS}"
            fix = "If a run ends sooner, let it train on with the same code until there are 60 readings."
            yield self.finding(log.path, 0, message, expected, POWER_READING, fix=fix)
        back = log.backward
        if back.count:
            times = f", {back.count} times in all" if back.count > 1 else ""
            message = f"the time goes backwards by {_span_text(back.value)}{times}"
            severity = ERROR if back.value > TIME_BACK_MS else WARNING
            expected = "later than the previous record"
            fix = "Write readings as they come, one meter per file; do not set the clock during a measurement."
            yield self.finding(log.path, back.line, message, expected, POWER_READING, severity, fix)

    def _check_rate(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        """Yield how often a node was read in the run, if too seldom or unevenly."""
        if log.starts.value is None or log.end_ms is None or run.start_ms is None or run.stop_ms is None:
            return
        seconds = (min(log.end_ms, run.stop_ms) - max(log.starts.value, run.start_ms)) / 1000
        if not log.of_node or seconds <= 0:
            return
        # One more reading: n seconds lie between n + 1 readings.
        rate, gap_ms = (log.timed_readings + 1) / seconds, log.gaps.value or 0
        if rate < SLOW_HZ or gap_ms:
            severity = ERROR if rate < SLOWEST_HZ or gap_ms > 10_000 else WARNING
            gap = f", the longest gap is {_span_text(gap_ms)}" if gap_ms else ""
            message = f"{log.timed_readings} readings in {seconds:.4g} s of the run{gap}"
            yield self.finding(log.path, log.gaps.line, message, "at least one per second", POWER_READING, severity)


class PowerValues(FileRule):
    """Readings are in watts, of a whole node or switch; one conversion efficiency is logged, 1 of direct current."""

    id = "POW11"
    cite = f"{RULES_OF_POWER}#measure-at-the-psus"
    why = (
        "Text, NaN and negative numbers are not power; kilowatts or milliwatts make the energy wrong. Counters of"
        " processors or GPUs leave out memory, fans, disks, network and the losses of the power supplies. The"
        " conversion efficiency multiplies the energy: a small value makes any system look efficient."
    )
    fix = "Log watts as JSON numbers; leave out what the meter could not read, and fix the meter."
    good = (lambda package: package("deepcam").power(node=lambda file: file.set(POWER_START, None, scope="node")),)
    bad = (lambda package: package("deepcam").power(node=lambda file: file.set("power_reading", -1.0, 30)),)

    def look(self, log: PowerLog, run: JudgedRun) -> Iterator[Finding]:
        others = f" (and {log.invalid.count - 1} more such readings)" if log.invalid.count > 1 else ""
        low, high = 10, 100_000
        accelerators = run.accelerators_per_node if is_number(run.accelerators_per_node) else 0
        least = min(max(low, 25 * accelerators), high)  # what they draw at rest, with their share of the node
        watts = log.watt_ms / log.timed_ms if log.timed_ms else least
        yield from (
            self.finding(log.path, line, message, expected, POWER_READING, severity)
            for applies, line, message, expected, severity in (
                (
                    log.invalid.count,
                    log.invalid.line,
                    f"{POWER_READING} is {log.invalid.value}{others}",
                    "watts, 0 or more",
                    ERROR,
                ),
                (
                    not least <= watts <= high,
                    0,
                    f"the mean power of a node with {accelerators} accelerators is {watts:.4g} W",
                    "watts of the whole node, not kW or mW",
                    WARNING,
                ),
                (
                    log.readings >= LEAST_READINGS and log.lowest == log.highest,
                    0,
                    f"all {log.readings} readings are {log.lowest:.4g} W",
                    "power that varies with the work",
                    WARNING,
                ),
            )
            if applies
        )
        if log.of_parts:
            message = f"{log.of_parts}: the reading covers only parts of the {'node' if log.of_node else 'switch'}"
            expected = f"readings of scope {NODE_SCOPE!r}"
            fix = (
                "Measure the whole node, such as by its board controller (docs/guide/power.md has the commands);"
                " otherwise submit without power/."
            )
            yield self.finding(log.path, log.starts.line, message, expected, POWER_START, fix=fix)
        yield from islice(self._check_efficiency(log), 1)

    def _check_efficiency(self, log: PowerLog) -> Iterator[Finding]:
        efficiency, values = log.efficiency, list(log.efficiencies)
        line, second = (*log.efficiencies.values(), 0, 0)[:2]
        message = f"{CONVERSION_EFFICIENCY} is {' and '.join(map(str, values))}"
        # That is less than the weakest supply with an 80 PLUS rating has.
        is_low = efficiency is not None and efficiency < 0.8
        yield from (
            self.finding(log.path, place, text, expected, CONVERSION_EFFICIENCY, severity, EFFICIENCY_FIX)
            for applies, place, text, expected, severity in (
                (not values and log.of_node, 0, f"{CONVERSION_EFFICIENCY} is not logged: taken as 1", "", NOTE),
                (len(values) > 1, second, message, "one value", ERROR),
                (efficiency is None, line, message, "0 < v <= 1", ERROR),
                (
                    log.direct_current and efficiency != 1,
                    line,
                    f"{message} of direct current",
                    "1: nothing is converted",
                    ERROR,
                ),
                (is_low, line, message, "0.8 or more, as any rated supply has", WARNING),
            )
            if applies
        )


def _span_text(time_ms: float) -> str:
    """Return a length of time in a unit that suits it."""
    seconds = abs(time_ms) / 1000
    return first_text(
        (
            (seconds < 120, f"{seconds:.3g} s"),
            (seconds < 5400, f"{seconds / 60:.3g} min"),
            (True, f"{seconds / 3600:.3g} h"),
        )
    )
