"""The distribution of a few runs as a smooth curve."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

STEPS: Final = 32


def density(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return (value, density) of a Gaussian kernel density whose peak is 1, empty if the values do not vary.

    The bandwidth is half of the standard deviation, as in the MLPerf HPC paper.
    """
    if len(values) < 3 or (bandwidth := statistics.stdev(values) / 2) <= 0:
        return []
    low, high = min(values) - 2 * bandwidth, max(values) + 2 * bandwidth
    places = [low + (high - low) * step / STEPS for step in range(STEPS + 1)]
    curve = [sum(math.exp(-(((place - value) / bandwidth) ** 2) / 2) for value in values) for place in places]
    peak = max(curve)
    return [(place, height / peak) for place, height in zip(places, curve, strict=True) if place > 0]
