"""How fast a run trains, in samples per second, by the times of its epochs."""

from __future__ import annotations

from typing import Final

from common.reference import Reference
from common.values import is_number
from compliance.logs.log import Log
from compliance.logs.timeline import clock

SHORTEST_S: Final = 0.001
"""The resolution of the times of a log; less is taken for this."""


def samples_per_second(log: Log, reference: Reference) -> float | None:
    """Return samples trained per second from the first epoch's start to the last one's end; None if not logged."""
    kind = "epoch" if log["epoch_start"] else "block"
    starts, stops = log[f"{kind}_start"], log[f"{kind}_stop"]
    samples = _samples(log, reference, kind)
    end_ms = stops[-1].time_ms if len(stops) >= len(starts) > 0 else clock(log)[1]
    if not starts or not samples or end_ms is None:
        return None
    seconds = (end_ms - starts[0].time_ms) / 1000
    return samples / max(seconds, SHORTEST_S) if is_number(seconds) and seconds >= 0 else None


def _samples(log: Log, reference: Reference, kind: str) -> float | None:
    """Return how many samples the run trains on, epoch after epoch."""
    if reference.epoch_unit == "samples":
        counted = [number for number, _ in log.numbered(reference.target.key)]
        return max(counted, default=None)
    each = log.value("train_samples")
    if not is_number(each) or each <= 0:
        return None
    if kind == "epoch":
        return float(each) * len({number for number, _ in log.numbered("epoch_start")})
    return float(each) * sum(count for count, _ in log.numbered("block_start", "epoch_count") if count > 0)
