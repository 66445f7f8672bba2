"""The energy in the power files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.measure.power.keys import EFFICIENCY, NODE, NODE_FILE, PARTS, PARTS_FILE, READING, START
from common.measure.power.recorder import GAP_S, read_readings
from common.measure.power.sources import is_watts
from common.values import is_number

COVERED: Final = 0.99
"""The part of the time that readings must cover."""
UNKNOWN: Final = "no energy: expected a whole power file of every node, with readings of all the time"


def energy_j(folder: Path, nodes: int, begin_ms: float, end_ms: float) -> tuple[float, str] | None:
    """Return the energy of all nodes in joules and its scope, NODE or PARTS; None if their files do not give it.

    As for the checker, each reading counts for the time since the previous one, times the efficiency of the power
    supplies. A gap has no energy: files that do not cover the time give none. Files of other times are left out. Those
    of whole nodes, node_<i>.txt, take precedence over estimates of parts.

    folder: with a file of each node. begin_ms, end_ms: the time that counts, in ms since 1970.
    """
    parts_of: dict[str, list[tuple[float, float]]] = {NODE: [], PARTS: []}
    try:
        for path in sorted(folder.glob("*.txt")):
            if NODE_FILE.fullmatch(path.name) or PARTS_FILE.fullmatch(path.name):
                scope, joules, covered_ms = _read_energy(path, begin_ms, end_ms)
                if covered_ms:
                    parts_of[scope].append((joules, covered_ms))
    except (OSError, ValueError):  # a damaged file
        return None
    scope = NODE if parts_of[NODE] else PARTS
    parts = parts_of[scope]
    is_covered = all(covered_ms >= COVERED * (end_ms - begin_ms) for _, covered_ms in parts)
    return (sum(joules for joules, _ in parts), scope) if is_covered and len(parts) == nodes else None


def _read_energy(path: Path, begin_ms: float, end_ms: float) -> tuple[str, float, float]:
    """Return the scope of a file, its joules in that time and the milliseconds of it that readings cover."""
    scope = NODE if NODE_FILE.fullmatch(path.name) else PARTS
    joules, covered_ms, efficiency = 0.0, 0.0, 1.0
    until_ms: float | None = None
    for record in read_readings(path.read_bytes()):
        key, value, time_ms = record.key, record.value, record.time_ms
        if key == START:
            scope = PARTS if record.meta("scope") == PARTS else scope
            until_ms = time_ms
        elif key == EFFICIENCY:
            if not is_number(value) or not 0 < value <= 1:
                raise ValueError(f"expected a share, not {value!r}")
            efficiency = value
        elif key == READING and until_ms is not None:
            if not is_watts(value):
                raise ValueError(f"expected watts, not {value!r}")
            if time_ms - until_ms <= GAP_S * 1000:
                part_ms = max(min(time_ms, end_ms) - max(until_ms, begin_ms), 0)
                joules += value * part_ms / 1000
                covered_ms += part_ms
            until_ms = time_ms
    return scope, joules * efficiency, covered_ms
