"""Write a power file, a record for each reading, nothing where there was none; and read the energy in power files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from common.errors import UsageError
from common.files import follow_no_link
from common.measure.power_sources import MOST_WATTS, READ_TIMEOUT_S, Clock, Meter, ReadingError, is_watts, suggest_unit
from common.processes import call_in_thread
from common.record import (
    CONVERSION_EFFICIENCY,
    NODE_FILE_NAME,
    NODE_SCOPE,
    PARTS_FILE_NAME,
    PARTS_SCOPE,
    POWER_READING,
    POWER_START,
    POWER_STOP,
    Record,
    format_record,
    parse_line,
)
from common.values import group_pairs, is_number

GAP_S: Final = 2.0
"""A longer time without a reading is a gap, as for the checker."""
JUMP_S: Final = 0.25
"""The clock was set if it moved so much more or less than the time that passed."""
COVERED: Final = 0.99
"""The part of the time that readings must cover."""
UNKNOWN: Final = "no energy: expected a whole power file of every node, with readings of all the time"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A source and how it is read. efficiency: of the power supplies; current: AC or DC, where the meter is."""

    name: str
    source: Meter
    interval_s: float = 0.5
    efficiency: float = 1.0
    current: str = "AC"


@dataclass(slots=True)
class Summary:
    """The result of a recording. covered_s, joules: the time and the energy between readings without a gap."""

    readings: int = 0
    missed: int = 0
    seconds: float = 0.0
    covered_s: float = 0.0
    gaps: int = 0
    joules: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.readings:,} readings, {self.missed:,} missed; {self.covered_s:.1f} of {self.seconds:.1f} s "
            f"covered, {self.gaps:,} gaps, {self.joules:,.0f} J"
        )


class TimedReader:
    """Reads a source in a thread, which is left to itself if the source does not answer."""

    def __init__(self, source: Meter, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._source, self._timeout_s = source, timeout_s
        self._answer: Future[float] | None = None

    def read_watts(self) -> float:
        """Return the watts; raise ReadingError without an answer in time, or while the last one is still due."""
        if self._answer is not None and not self._answer.done():
            raise ReadingError("the source still does not answer")
        self._answer = call_in_thread(self._source.read_watts)
        try:
            return self._answer.result(self._timeout_s)
        except TimeoutError:
            raise ReadingError(f"the source did not answer within {self._timeout_s:g} s") from None


class Recorder:
    """Writes the records of one measurement, and counts what they cover."""

    def __init__(
        self, file: BinaryIO, measurement: Measurement, clock: Clock, say: Callable[[str], None], latest_ms: int = 0
    ) -> None:
        """latest_ms: the time of the last record in the file, 0 if it has none."""
        self.summary = Summary()
        self._file, self._measurement, self._clock, self._say = file, measurement, clock, say
        self._reader = TimedReader(measurement.source)
        self._silent = False  # the last reading was missed, and that was said
        self._jumped = False
        self._latest_ms = latest_ms
        self._begin_s = self._until_s = clock.monotonic()
        self._offset_s = clock.wall() - self._begin_s

    def write_start(self) -> None:
        """Write the records that come before all readings."""
        measurement = self._measurement
        self._write_record(POWER_START, None, source=measurement.name, scope=measurement.source.scope)
        self._write_record(CONVERSION_EFFICIENCY, measurement.efficiency, measurement_type=measurement.current)
        self._file.flush()  # both at once: a kill leaves a whole beginning, or an empty file

    def take_reading(self) -> None:
        """Write a reading if there is one."""
        try:
            watts = self._reader.read_watts()
            if not is_watts(watts):
                reading = f"{self._measurement.source.name}: the reading is {watts:,.10g}"
                raise ReadingError(f"{reading}; expected watts, 0 to {MOST_WATTS:,.0f}{suggest_unit(watts)}")
            self._check_clock()
        except ReadingError as error:
            self.summary.missed += 1
            if not self._silent:
                self._say(f"no reading: {error}")
            self._silent = True
            return
        self._silent = False
        source = self._measurement.source
        if not self.summary.readings and source.scope == NODE_SCOPE and (unit := suggest_unit(watts)):
            self._say(f"warning: {source.name}: the first reading is {watts:,.10g}, which is unlikely in watts{unit}")
        self._write_record(POWER_READING, watts)
        self._file.flush()
        self.summary.readings += 1
        self._add_energy(watts)

    def write_stop(self) -> None:
        """Write the record after all readings."""
        self._write_record(POWER_STOP, None)
        if self._jumped or self._clock.monotonic() - self._until_s > GAP_S:
            self.summary.gaps += 1
        self.summary.seconds = self._clock.monotonic() - self._begin_s

    def _check_clock(self) -> None:
        """Raise ReadingError if the clock was set since the last reading, until the file shows a gap there."""
        offset_s = self._clock.wall() - self._clock.monotonic()
        jump_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(jump_s) > JUMP_S:
            self._jumped = True
            raise ReadingError(f"the clock was set by {jump_s:+.1f} s")
        since_ms = round(self._clock.wall() * 1000) - self._latest_ms
        if since_ms < 0 or (self._jumped and since_ms <= GAP_S * 1000):
            self._jumped = True
            raise ReadingError("the clock was set: waiting until it is past the last reading by more than a gap")

    def _add_energy(self, watts: float) -> None:
        now_s = self._clock.monotonic()
        elapsed_s, self._until_s = now_s - self._until_s, now_s
        if self._jumped or elapsed_s > GAP_S:
            self.summary.gaps += 1
        else:
            self.summary.covered_s += elapsed_s
            self.summary.joules += watts * elapsed_s
        self._jumped = False

    def _write_record(self, key: str, value: Any, **metadata: Any) -> None:
        """Append a record; its time is never before that of the last one."""
        self._latest_ms = max(self._latest_ms, round(self._clock.wall() * 1000))
        ends = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
        record = {
            "namespace": "",
            "time_ms": self._latest_ms,
            "event_type": ends.get(key.rpartition("_")[2], "POINT_IN_TIME"),
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        self._file.write(format_record(record))


def read_readings(data: bytes) -> Iterator[Record]:
    """Yield the records of a power file, without an incomplete last line; raise ValueError for a damaged one."""
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        record = parse_line(line)
        if record is None or not is_number(record.time_ms):
            raise ValueError(f"expected a record with a time and metadata, not {line[:80]!r}")
        yield record


def record_power(
    output: Path,
    measurement: Measurement,
    is_finished: Callable[[float], bool],
    clock: Clock,
    say: Callable[[str], None],
) -> Summary:
    """Write readings to a file until `is_finished(seconds)`, and return what was measured.

    In an existing file its measurement goes on; raises UsageError if it cannot.
    say: shows a message, such as why there is no reading.
    """
    with open(output, "r+b" if output.exists() else "x+b", opener=follow_no_link) as file:
        latest_ms = _resume_file(file, measurement)
        recorder = Recorder(file, measurement, clock, say, latest_ms)
        begin_s = due_s = clock.monotonic()
        if not latest_ms:
            recorder.write_start()
        try:
            while not is_finished(clock.monotonic() - begin_s):
                # After a delay the next reading is due one interval later: missed readings are not caught up.
                due_s = max(due_s, clock.monotonic() - measurement.interval_s) + measurement.interval_s
                clock.sleep(max(due_s - clock.monotonic(), 0.0))
                recorder.take_reading()
        finally:
            recorder.write_stop()
    return recorder.summary


def _resume_file(file: BinaryIO, measurement: Measurement) -> int:
    """Prepare a file for more readings; return the time of its last record in ms, 0 if it is empty.

    Its stop, and a last line that is incomplete, are removed. Raises UsageError unless it is a file of this recorder
    and of the same measurement.
    """
    data = file.read()
    if not data:
        return 0
    data = data[: data.rfind(b"\n") + 1]
    try:
        records = list(read_readings(data))
        start, efficiency = records[:2]
        latest_ms = max(int(record.time_ms) for record in records)
        earlier = (start.metadata["scope"], efficiency.value, efficiency.metadata["measurement_type"])
    except (ValueError, LookupError) as error:
        raise UsageError(f"{file.name}: not a whole power file of this recorder; move it elsewhere") from error
    current = (measurement.source.scope, measurement.efficiency, measurement.current)
    if earlier != current:
        old, new = (f"{scope}, efficiency {part}, {meter}" for scope, part, meter in (earlier, current))
        raise UsageError(f"{file.name} has readings of: {old}; now: {new}; keep these, or move the file elsewhere")
    if records[-1].key == POWER_STOP:
        data = data[: data.rindex(b"\n", 0, -1) + 1]
    file.truncate(len(data))
    file.seek(len(data))
    return latest_ms


# -- energy --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of all nodes in some time; None where their power files do not give it. Fields of the figure of merit.

    energy_source: as in --source. energy_rate_hz: readings per second, of the file with the fewest.
    """

    energy_j: float | None = None
    energy_scope: str | None = None
    energy_source: str | None = None
    energy_rate_hz: float | None = None
    energy_window_s: float | None = None


@dataclass(slots=True)
class _FileEnergy:
    """What a power file says of some time: covered_ms and joules are of that time alone.

    readings: those whose time overlaps it; spanned_ms: all of their time.
    """

    scope: str
    source: str = ""
    joules: float = 0.0
    covered_ms: float = 0.0
    readings: int = 0
    spanned_ms: float = 0.0


def read_energy(folder: Path, nodes: int, begin_ms: float, end_ms: float) -> Energy:
    """Return the energy of all nodes.

    As for the checker, each reading counts for the time since the previous one, times the efficiency of the power
    supplies. A gap has no energy: files that do not cover the time give none. Files of other times are left out. Those
    of whole nodes, node_<i>.txt, take precedence over estimates of parts.

    folder: with a file of each node. begin_ms, end_ms: the time that counts, in ms since 1970.
    """
    try:
        files = [
            _read_file(path, begin_ms, end_ms)
            for path in sorted(folder.glob("*.txt"))
            if re.fullmatch(NODE_FILE_NAME, path.name) or re.fullmatch(PARTS_FILE_NAME, path.name)
        ]
    except (OSError, ValueError):  # a damaged file
        return Energy()
    parts_of = group_pairs((part.scope, part) for part in files if part.covered_ms)
    scope = NODE_SCOPE if NODE_SCOPE in parts_of else PARTS_SCOPE
    parts = parts_of.get(scope, [])
    if len(parts) != nodes or any(part.covered_ms < COVERED * (end_ms - begin_ms) for part in parts):
        return Energy()
    return Energy(
        energy_j=sum(part.joules for part in parts),
        energy_scope=scope,
        energy_source=", ".join(sorted({part.source for part in parts} - {""})) or None,
        energy_rate_hz=min(1000 * part.readings / part.spanned_ms for part in parts),
        energy_window_s=(end_ms - begin_ms) / 1000,
    )


def _read_file(path: Path, begin_ms: float, end_ms: float) -> _FileEnergy:
    energy, efficiency = _FileEnergy(NODE_SCOPE if re.fullmatch(NODE_FILE_NAME, path.name) else PARTS_SCOPE), 1.0
    until_ms: float | None = None
    for record in read_readings(path.read_bytes()):
        key, value, time_ms = record.key, record.value, record.time_ms
        if key == POWER_START:
            source = record.meta("source")
            energy.source = source if isinstance(source, str) and source.isprintable() else energy.source
            energy.scope = PARTS_SCOPE if record.meta("scope") == PARTS_SCOPE else energy.scope
            until_ms = time_ms
        elif key == CONVERSION_EFFICIENCY:
            if not is_number(value) or not 0 < value <= 1:
                raise ValueError(f"expected a share, not {value!r}")
            efficiency = value
        elif key == POWER_READING and until_ms is not None:
            if not is_watts(value):
                raise ValueError(f"expected watts, not {value!r}")
            part_ms = max(min(time_ms, end_ms) - max(until_ms, begin_ms), 0)
            if part_ms and time_ms - until_ms <= GAP_S * 1000:
                energy.joules += value * part_ms / 1000
                energy.covered_ms += part_ms
                energy.readings += 1
                energy.spanned_ms += time_ms - until_ms
            until_ms = time_ms
    energy.joules *= efficiency
    return energy
