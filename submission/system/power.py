"""The power of a node while it is described: one reading of a meter of the whole node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.errors import UsageError
from common.measure.power.keys import OF_PARTS
from common.measure.power.recorder import TimedReader
from common.measure.power.sources import Clock, ReadingError, is_watts, open_source
from common.settings.machine import check_power_source

HOST: Final = "{host}"
"""Stands in a source for the host name of the node, without its domain."""
PATIENCE_S: Final = 3.0
"""For how long to try again: a file of watts counts once it has changed."""
PAUSE_S: Final = 0.5
LONGEST_PROBLEM: Final = 200
"""Characters of a problem; what a program says can be long."""
SUBJECT: Final = "power of a node when described"


@dataclass(frozen=True, slots=True)
class Reading:
    """The power of a node. watts: None if the source gave none, and `problem` says why; "" if none was asked for."""

    watts: float | None = None
    problem: str = ""


NO_READING: Final = Reading()


def check_source(text: str) -> None:
    """Raise UsageError unless a text names a source of the power of whole nodes."""
    check_power_source("--power", text)
    name = source_name(text)
    if name in OF_PARTS:
        raise UsageError(f"--power: {name} reads parts of a node; expected a meter of the whole node, such as ipmi")


def source_name(text: str) -> str:
    """Return the name of the source in a text such as `command:echo 250`."""
    return text.partition(":")[0]


def read_node(text: str, host: str, clock: Clock | None = None) -> Reading:
    """Return the power of this node by a source; host: the name of the node."""
    clock = clock or Clock()
    try:
        source = TimedReader(open_source(text.replace(HOST, host.partition(".")[0]), clock)[1])
    except UsageError as error:
        return Reading(problem=str(error).removeprefix("--source: ")[:LONGEST_PROBLEM])
    end_s = clock.monotonic() + PATIENCE_S
    while True:
        try:
            watts = source.read_watts()
        except ReadingError as error:
            if clock.monotonic() >= end_s:
                return Reading(problem=str(error)[:LONGEST_PROBLEM])
            clock.sleep(PAUSE_S)
        else:
            return Reading(watts) if is_watts(watts) else Reading(problem=f"{watts} is not a power in watts")


def power_note(readings: Sequence[Reading], source: str) -> str:
    """Return the text for the notes about the readings of all nodes, "" without any."""
    watts_known = sorted(round(reading.watts, 1) for reading in readings if reading.watts is not None)
    if not watts_known:
        return ""
    low, high = (f"{watts:g}" for watts in (watts_known[0], watts_known[-1]))
    nodes = "" if len(watts_known) == len(readings) else f", {len(watts_known)} of {len(readings)} nodes"
    return f"{SUBJECT}: {low if low == high else f'{low} to {high}'} W ({source_name(source)}{nodes})"
