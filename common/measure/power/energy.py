"""The energy in the power files of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from common.measure.power.keys import EFFICIENCY, NODE, PARTS, READING, START
from common.measure.power.recorder import GAP_S, records
from common.values import is_number

COVERED: Final = 0.99
"""The part of the time that readings must cover."""


def energy_j(folder: Path, nodes: int, begin_ms: float, end_ms: float) -> tuple[float, str] | None:
    """Return the energy of all nodes in joules and its scope, NODE or PARTS; None if their files do not give it.

    As for the checker, each reading counts for the time since the previous one, times the efficiency of the power
    supplies. A gap has no energy: files that do not cover the time give none. Files of whole nodes, node_<i>.txt, take
    precedence over estimates of parts.

    folder: with a file of each node. begin_ms, end_ms: the time that counts, in ms since 1970.
    """
    found: dict[str, list[float | None]] = {NODE: [], PARTS: []}
    for path in sorted(folder.glob("*.txt")):
        if not path.name.startswith("sw_"):
            scope, joules = _file_energy(path, begin_ms, end_ms)
            found[scope].append(joules)
    scope = NODE if found[NODE] else PARTS
    known = [joules for joules in found[scope] if joules is not None]
    return (sum(known), scope) if len(known) == len(found[scope]) == nodes else None


def _file_energy(path: Path, begin_ms: float, end_ms: float) -> tuple[str, float | None]:
    """Return the scope of a file, and its energy in joules; None if it has gaps in that time, or is damaged."""
    scope = NODE if re.fullmatch(r"node_\d+\.txt", path.name) else PARTS
    joules, covered_ms, efficiency = 0.0, 0.0, 1.0
    until_ms: float | None = None
    try:
        for record in records(path.read_bytes()):
            key, value, time_ms = record["key"], record["value"], record["time_ms"]
            if key == START:
                scope = PARTS if record["metadata"].get("scope") == PARTS else scope
                until_ms = time_ms
            elif key == EFFICIENCY:
                efficiency = value
            elif key == READING and until_ms is not None:
                if not is_number(value):
                    raise ValueError(f"expected watts, not {value!r}")
                if time_ms - until_ms <= GAP_S * 1000:
                    part_ms = max(min(time_ms, end_ms) - max(until_ms, begin_ms), 0)
                    joules += value * part_ms / 1000
                    covered_ms += part_ms
                until_ms = time_ms
        whole = covered_ms > 0 and covered_ms >= COVERED * (end_ms - begin_ms)
        return scope, joules * efficiency if whole else None
    except (OSError, ValueError, TypeError, AttributeError):
        return scope, None
