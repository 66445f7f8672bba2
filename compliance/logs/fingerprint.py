"""Fingerprints of runs: what stays the same when the times in a log are edited, its intervals and results.

A fingerprint is made once from the parsed log and is small; `compliance.model.likeness` compares two of them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import sub
from typing import Final

from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER

SHORTEST_MS: Final = 20
"""Shorter intervals hardly differ between runs."""
SHORT: Final = 50
"""Neither do intervals of which this many make a long one."""
LONGEST_MS: Final = 1e11  # three years
LENGTHS_KEPT: Final = 4096
RESULTS: Final = ("eval_error", "eval_accuracy")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What two logs of one run have in common.

    times: hash of the times of all structural records; events: how many there are. lengths: of the intervals
    from one structural record to the next, in ms, without the shortest ones. periods: from one start of an epoch
    to the next, which stay when other records go. values: the results of evaluations with decimals, bit by bit.
    """

    times: int
    events: int
    lengths: array[float]
    periods: array[float]
    values: array[float]


NO_FINGERPRINT: Final = Fingerprint(0, 0, array("d"), array("d"), array("d"))


def fingerprint(log: Log) -> Fingerprint:
    """Return the fingerprint of the run that the log is about; never raises on damaged logs."""
    # Python hashes each NaN differently.
    times = [time_ms if (time_ms := record.time_ms) == time_ms else 0 for record in log.events]
    lengths = _lengths(times)
    periods = array("d", _lengths([record.time_ms for record in log["epoch_start"]])[:LENGTHS_KEPT])
    found = [key for key in RESULTS if log[key]]
    records = log[found[0]] if len(found) == 1 else sorted((r for key in found for r in log[key]), key=FILE_ORDER)
    values = array("d", [record.value for record in records if type(record.value) is float])
    return Fingerprint(hash(tuple(times)), len(times), _without_short(lengths[:LENGTHS_KEPT]), periods, values)


def _lengths(times: list[float]) -> list[float]:
    """Return the intervals between times."""
    return [length for length in map(sub, times[1:], times) if SHORTEST_MS <= length < LONGEST_MS]


def _without_short(lengths: list[float]) -> array[float]:
    """Return the lengths without those that are short beside the others, so that a scaled copy has as many."""
    least = sorted(lengths)[3 * len(lengths) // 4] / SHORT if lengths else 0
    return array("d", [length for length in lengths if length >= least])
