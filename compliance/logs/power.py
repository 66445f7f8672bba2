"""Read the power files of a run: measured power of its nodes, estimated power of its switches, and the energy.

A power file is a log of mlperf-logging. That of a node contains power_measurement_start, conversion_eff, a
power_reading (watts) at least every second, and power_measurement_stop; that of a switch interconnect_power_est
(watts). Readings are accumulated as they are read: memory does not grow with the length of a measurement.

Energy of a run, from run_start to run_stop: for each node, the sum of readings times the duration since the previous
reading; for each switch, its estimate times the duration; both times the conversion efficiency
(power_measurement.adoc#scoring in mlcommons/training_policies). Where readings do not cover the whole
run, their mean stands for the rest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from operator import mul
from typing import Any, Final

from msgspec import Struct, field

from common.file_kind import FileKind
from common.record import CONVERSION_EFFICIENCY, NODE_SCOPE, PARTS_SOURCES, POWER_READING, POWER_START, POWER_STOP
from common.tree import ANYWHERE, Tree
from common.values import is_number
from compliance.logs.log import EARLIEST_MS, LATEST_MS, FormProblem, Log, LogReader, read_with
from compliance.logs.record import Record, show_json

ESTIMATE: Final = "interconnect_power_est"
KEYS: Final = (POWER_START, POWER_STOP, POWER_READING, ESTIMATE, CONVERSION_EFFICIENCY)
TIME_BACK_MS: Final = 1000
"""A larger step back in time is not jitter: the order of the readings is lost, and with it the energy."""
SUCCESSIVE: Final = 10
"""How many successive readings are compared at once: measurements that vary do not share them."""
SHARED: Final = 4
RANGE: Final = 1 << 61
COUNTERS: Final = {*PARTS_SOURCES, "dcgm", "nvidia-smi", "rocm-smi", "intel-rapl", "powercap"}
"""Sources that are of parts of a node."""
PART: Final = r"(?i)package-?\d|cpu|gpu|dram|dimm|core"
"""Names of sensors of a part of a node."""


class Spot(Struct):
    """How often something was seen, where it was first or worst, and its value there."""

    count: int = 0
    line: int = 0
    value: Any = None

    def note(self, line: int, value: Any, largest: bool = False) -> None:
        """Count it and keep the first one, or the largest."""
        self.count += 1
        if self.count == 1 or (largest and value > self.value):
            self.line, self.value = line, value


class PowerLog(Struct):
    """What one power file says about the time from run_start to run_stop.

    starts, stops: how many records, and the time of the first. estimates, efficiencies: the first different values
    and their lines; values that are not numbers as text. Readings count from start to stop.
    of_parts: by which of its words it is of some parts of the node, "" if of the whole. host: where it says that it was
    measured, "" if it does not say. end_ms: the stop, or the last reading where there is none.
    timed_readings: inside the run, invalid ones included. timed_ms, watt_ms: the part of the run that valid readings
    cover, and the sum of their watts times milliseconds. gaps, backward: of the clock, in ms. invalid: values that are
    not a power. sketch: some stretches of readings by their keys, and with none the key of all readings in any order.
    inflated_bytes: of a compressed file. kind: what the file is, if it is no log. joules: None if the file does not
    give it, as with any problem of form.
    """

    path: str
    of_node: bool = True
    inflated_bytes: int = 0
    problems: list[FormProblem] = []
    kind: FileKind | None = None
    starts: Spot = field(default_factory=Spot)
    stops: Spot = field(default_factory=Spot)
    estimates: dict[Any, int] = {}
    efficiencies: dict[Any, int] = {}
    direct_current: bool = False
    of_parts: str = ""
    host: str = ""
    end_ms: float | None = None
    readings: int = 0
    lowest: float = float("inf")
    highest: float = 0.0
    timed_readings: int = 0
    timed_ms: float = 0.0
    watt_ms: float = 0.0
    gaps: Spot = field(default_factory=Spot)
    backward: Spot = field(default_factory=Spot)
    invalid: Spot = field(default_factory=Spot)
    sketch: dict[int, tuple[float, ...]] = {}
    joules: float | None = None

    @property
    def efficiency(self) -> float | None:
        """The factor from readings to counted power, 1 if none is logged; None if it is invalid."""
        value = next(iter(self.efficiencies), 1.0)
        return value if len(self.efficiencies) <= 1 and is_number(value) and 0 < value <= 1 else None

    @property
    def estimate(self) -> float | None:
        """The estimated power of a switch in watts: the first one logged, as in the official summary."""
        value = next(iter(self.estimates), None)
        return float(value) if value is not None and is_number(value) and value >= 0 else None


def shared_readings(first: PowerLog, second: PowerLog) -> bool:
    """Tell whether one file has readings of the other, whatever their times and order, or readings that follow them."""
    pairs = _pair_stretches(first, second)
    return sum(_fit_line(ours, theirs) for ours, theirs in pairs) >= SHARED or ((), ()) in pairs


def equal_readings(first: PowerLog, second: PowerLog) -> bool:
    """Tell whether more readings of two files are equal than varying measurements share."""
    return sum(ours == theirs != () for ours, theirs in _pair_stretches(first, second)) >= SHARED


def _pair_stretches(first: PowerLog, second: PowerLog) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    return [(first.sketch[key], second.sketch[key]) for key in first.sketch.keys() & second.sketch.keys()]


def _fit_line(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Tell whether readings are a linear function of others, but for a small part of their variation."""
    x, y = ([watts - sum(readings) / SUCCESSIVE for watts in readings] for readings in (ours, theirs))
    together = sum(map(mul, x, y))
    # Readings of a copy differ by at most 1 % of their variation, once scaled and moved.
    return bool(x) and together * together >= (1 - 0.01**2) * sum(map(mul, x, x)) * sum(map(mul, y, y))


class RunPower(Struct):
    """The power files of one run."""

    nodes: tuple[PowerLog, ...]
    switches: tuple[PowerLog, ...]

    @property
    def inflated_bytes(self) -> int:
        """What was read of compressed files."""
        return sum(log.inflated_bytes for log in (*self.nodes, *self.switches))

    @property
    def joules(self) -> float | None:
        """Energy of all nodes and switches, from run_start to run_stop; None if a file lacks its part."""
        parts = [log.joules for log in (*self.nodes, *self.switches)]
        measured = [part for part in parts if part is not None]
        total = sum(measured)
        return total if self.nodes and len(measured) == len(parts) and is_number(total) else None


def read_power(
    nodes: Sequence[str], switches: Sequence[str], start_ms: float | None, stop_ms: float | None, tree: Tree = ANYWHERE
) -> RunPower:
    """Return the contents of a run's power files. Damaged files give problems, never an exception.

    start_ms, stop_ms: run_start and run_stop of the run, in ms since 1970; without them there is no energy.
    tree: the folder that the files belong to.
    """
    window = (start_ms, stop_ms) if start_ms is not None and stop_ms is not None else (0.0, 0.0)
    return RunPower(
        tuple(_read_file(path, window, tree, of_node=True) for path in nodes),
        tuple(_read_file(path, window, tree, of_node=False) for path in switches),
    )


def _read_file(path: str, window: tuple[float, float], tree: Tree, of_node: bool) -> PowerLog:
    reader = _PowerReader(PowerLog(path, of_node), window)
    read_with(reader, tree)
    power, efficiency = reader.power, reader.power.efficiency
    watts: float | None = power.estimate
    if of_node:
        broken = power.invalid.count or (power.backward.value or 0) > TIME_BACK_MS
        watts = power.watt_ms / power.timed_ms if power.timed_ms and not broken else None
    seconds = (window[1] - window[0]) / 1000
    if watts is not None and efficiency is not None and seconds > 0 and not power.problems:
        joules = efficiency * watts * seconds
        power.joules = joules if is_number(joules) else None
    return power


def _find_parts(start: Record) -> str:
    """Return the words by which a measurement is of parts of a node, "" if there are none."""
    scope, source, sensor = (start.meta(name) for name in ("scope", "source", "sensor"))
    words = (
        (scope not in (None, NODE_SCOPE), f"scope {show_json(scope)}"),
        (isinstance(source, str) and source.partition(":")[0].lower() in COUNTERS, f"source {show_json(source)}"),
        (isinstance(sensor, str) and re.search(PART, sensor), f"sensor {show_json(sensor)}"),
    )
    return next((text for applies, text in words if applies), "")


class _PowerReader(LogReader):
    """Accumulate the records of a power file into a `PowerLog`, piece by piece."""

    def __init__(self, power: PowerLog, window: tuple[float, float]) -> None:
        super().__init__(power.path, KEYS)
        self.power = power
        self._window = window
        self._latest_ms = float("-inf")  # of any record so far
        self._until_ms = 0.0  # the end of the time accounted for
        self._latest_watts: deque[float] = deque(maxlen=SUCCESSIVE)
        self._stretches: dict[int, tuple[float, ...]] = {}  # of readings; none where a key is repeated
        self._hashes = 0  # the sum of those of all readings: equal in any order

    def feed(self, data: bytes) -> None:
        super().feed(data)
        self._fold_reading()

    def close(self) -> Log:
        log = super().close()
        self._fold_reading()
        self.power.problems = list({problem.kind: problem for problem in reversed(log.problems)}.values())
        self.power.inflated_bytes, self.power.kind = log.inflated_bytes, log.no_log
        sketch = {key: stretch for key, stretch in self._stretches.items() if stretch}
        if len(sketch) >= SHARED:
            self.power.sketch = sketch | {hash((self.power.readings, self._hashes)): ()}
        return log

    def _fold_reading(self) -> None:
        for record in self.take():
            if record.key == CONVERSION_EFFICIENCY:
                self._note_problem(self.power.efficiencies, record)
                self.power.direct_current = record.meta("measurement_type") == "DC"
            elif record.key == ESTIMATE:
                self._note_problem(self.power.estimates, record)
            elif EARLIEST_MS < record.time_ms < LATEST_MS:  # others are already a problem of form
                self._fold_timed(record)

    def _note_problem(self, values: dict[Any, int], record: Record) -> None:
        value = record.value if is_number(record.value) else show_json(record.value)
        if len(values) < 3:
            values.setdefault(value, record.line)

    def _fold_timed(self, record: Record) -> None:
        power, time_ms = self.power, record.time_ms
        if time_ms < self._latest_ms:
            power.backward.note(record.line, self._latest_ms - time_ms, largest=True)
        self._latest_ms = max(self._latest_ms, time_ms)
        if record.key == POWER_START:
            power.starts.note(record.line, time_ms)
            power.of_parts = power.of_parts or _find_parts(record)
            host = record.meta("host")
            power.host = show_json(host) if host and isinstance(host, str) else ""
            self._until_ms = self._until_ms or time_ms
        elif record.key == POWER_STOP:
            power.stops.note(record.line, time_ms)
            if power.starts.count and power.stops.count == 1:
                self._count_energy(record, None)
        elif power.starts.count and not power.stops.count:
            self._read_power(record)

    def _read_power(self, record: Record) -> None:
        power, watts = self.power, record.value
        power.timed_readings += self._window[0] <= record.time_ms <= self._window[1]
        if not is_number(watts) or watts < 0:
            self._count_energy(record, None)
            power.invalid.note(record.line, watts if isinstance(watts, float) else show_json(watts))
            return
        watts = float(watts)  # products of large whole numbers would not fit into a float
        power.readings += 1
        power.lowest, power.highest = min(power.lowest, watts), max(power.highest, watts)
        self._note_course(watts)
        self._count_energy(record, watts)

    def _note_course(self, watts: float) -> None:
        """Note the stretch of readings that ends here, by their order, which scaled and moved ones keep."""
        self._hashes = (self._hashes + hash(watts)) % RANGE
        self._latest_watts.append(watts)
        stretch = tuple(self._latest_watts)
        different = len(set(stretch))
        # Two meters of whole watts agree in readings that hardly vary.
        if different >= 5 and len(stretch) == SUCCESSIVE:
            # Equal readings have no order.
            order = sorted(range(SUCCESSIVE), key=stretch.__getitem__) if different == SUCCESSIVE else stretch
            key = hash(tuple(order)) % RANGE
            self._stretches[key] = () if key in self._stretches else stretch
            if len(self._stretches) > 16:  # copies share some of the smallest keys, and memory is bounded
                del self._stretches[max(self._stretches)]

    def _count_energy(self, record: Record, watts: float | None) -> None:
        """Count the reading, if any, for the time since the previous one, within the run."""
        power = self.power
        begin, end = max(self._until_ms, self._window[0]), min(record.time_ms, self._window[1])
        timed_ms = max(end - begin, 0.0)
        if timed_ms > 2000:  # meters with whole seconds may validly show a step of two
            power.gaps.note(record.line, timed_ms, largest=True)
        if watts is not None:
            power.timed_ms += timed_ms
            power.watt_ms += watts * timed_ms
        self._until_ms = max(self._until_ms, record.time_ms)
        power.end_ms = self._until_ms
