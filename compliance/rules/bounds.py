"""What published logs leave between two statements of one amount, and how far another log may go beyond it.

bench/amounts.py writes the table. Bounds are one-sided: what makes a result better than its own evidence is an error
or a warning, what makes it worse is at most a note.
"""

from __future__ import annotations

import json
import os
from functools import cache
from math import gcd, inf
from typing import Any, Final, NamedTuple

from compliance.logs.log import Log
from compliance.model.judging import ERROR, NOTE, WARNING, Case

FOLDER: Final = os.path.dirname(os.path.dirname(__file__))
ERROR_SHARE: Final = 0.01
LEAST_S: Final = 0.01
"""Of a time: what lies further beyond the published range than a share of it and LEAST_S is an error or a warning."""


class Limit(NamedTuple):
    """The values outside which a finding has this severity."""

    severity: str
    least: float
    most: float


@cache
def read_table(name: str) -> Any:
    """Return a table of the published results, which a script in bench/ writes."""
    with open(f"{FOLDER}/{name}", encoding="ascii") as file:
        return json.load(file)


@cache
def find_range(kind: str, benchmark: str | None) -> tuple[float, float]:
    """Return the least and the most of a kind of pair: in logs of the benchmark, or in all if those have none."""
    ranges = read_table("amounts.json")[kind]
    known = [ranges[benchmark]] if benchmark in ranges else ranges.values()
    return min(least for least, _ in known), max(most for _, most in known)


def limit_duration(kind: str, case: Case, recorded: float, noise: float) -> tuple[Limit, ...]:
    """Return the limits of a stated time in s, of which the records show so much.

    noise: by which the two may differ as clocks and numbers are rounded.
    """
    least, most = find_range(kind, case.benchmark)
    shortest, longest = least * recorded - noise, max(most * recorded, 0) + noise
    return (
        Limit(ERROR, -inf, longest + max(ERROR_SHARE * recorded, LEAST_S)),
        Limit(WARNING, -inf, longest + max(0.001 * recorded, LEAST_S)),
        Limit(NOTE, shortest - max(ERROR_SHARE * recorded, 1.0), inf),
    )


def measure_grain(log: Log) -> float:
    """Return the steps in s in which the times of a log grow, 0 if these are as fine as usual."""
    times = [record.time_ms for record in log.events[:20]]  # that these share a grain by chance is unlikely
    return 0.0 if any(time_ms % 10 for time_ms in times) else min(1000, gcd(*map(int, times))) / 1000
