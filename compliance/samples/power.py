"""Make power files, good and bad, for the runs of `compliance.samples.log`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

from common.measure.power.keys import EFFICIENCY, READING, START, STOP
from compliance.logs.power import ESTIMATE
from compliance.samples.log import varied


class SamplePower:
    """The records of one power file; every method that changes it returns self."""

    def __init__(self, start_ms: int, stop_ms: int, host: str) -> None:
        """Make the file of a measurement from start_ms to stop_ms, in ms since 1970."""
        self.start_ms, self.stop_ms, self.host = start_ms, stop_ms, host
        self.records: list[dict[str, Any]] = []

    @classmethod
    def node(cls, start_ms: int, stop_ms: int, number: int) -> Self:
        """Return the file of a node that is read every second; each node draws a different power."""
        log = cls(start_ms, stop_ms, f"node_{number}")
        log.add(START, None, start_ms).add(EFFICIENCY, 0.94, start_ms, measurement_type="AC")
        times = [*range(start_ms + 1000, stop_ms, 1000), stop_ms]
        for at, time_ms in enumerate(times):
            log.add(READING, 400.5 + 20 * number + round(13 * varied(start_ms, number, at), 3), time_ms)
        return log.add(STOP, None, stop_ms)

    @classmethod
    def switch(cls, start_ms: int, stop_ms: int, number: int) -> Self:
        """Return the file of a switch whose power is estimated."""
        log = cls(start_ms, stop_ms, f"sw_{number}")
        return log.add(EFFICIENCY, 1.0, start_ms).add(ESTIMATE, 150.0, start_ms)

    def add(self, key: str, value: Any, time_ms: float, **metadata: Any) -> Self:
        """Append a record."""
        kind = {START: "INTERVAL_START", STOP: "INTERVAL_END"}.get(key, "POINT_IN_TIME")
        members = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value}
        self.records.append({**members, "metadata": {"file": "meter.py", "lineno": 40, "host": self.host, **metadata}})
        return self

    def keep(self, wanted: Callable[[int, dict[str, Any]], bool]) -> Self:
        """Keep the readings for which `wanted(number, record)` is true; the number counts from 0."""
        kept, number = [], 0
        for record in self.records:
            if record["key"] != READING or wanted(number, record):
                kept.append(record)
            number += record["key"] == READING
        self.records = kept
        return self

    def drop(self, key: str) -> Self:
        """Remove all records of a key."""
        self.records = [record for record in self.records if record["key"] != key]
        return self

    def set(self, key: str, value: Any, which: int = 0, **metadata: Any) -> Self:
        """Change the value of a record of the key."""
        record = [record for record in self.records if record["key"] == key][which]
        record["value"] = value
        record["metadata"].update(metadata)
        return self

    def scale(self, factor: float) -> Self:
        """Multiply all readings."""
        for record in self.records:
            record["value"] = record["value"] * factor if record["key"] == READING else record["value"]
        return self

    def imitate(self, number: int) -> Self:
        """Take over the readings of another node."""
        self.records = self.node(self.start_ms, self.stop_ms, number).records
        return self

    def shift(self, by_ms: float, first: int = 0, last: int | None = None) -> Self:
        """Move the times of the records from `first` up to but excluding `last`."""
        for record in self.records[first:last]:
            record["time_ms"] += by_ms
        return self

    def bytes(self) -> bytes:
        """Return the file's contents."""
        return b"".join(b":::MLLOG " + json.dumps(record).encode() + b"\n" for record in self.records)
