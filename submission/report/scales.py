"""Scales of charts: from values to places on the page, with round numbers on the axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LARGEST: Final = 1e12
"""Values beyond it are drawn there: no honest epoch, quality or time is so large."""


def bounded(value: float) -> float:
    """Return the value, not beyond what a scale can show."""
    return max(-LARGEST, min(LARGEST, float(value)))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to places from `start` to `stop`, linearly or by their logarithm.

    Values outside are drawn at the edge.
    """

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        value = max(self.low, min(self.high, value))
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Return (place, text) of about so many round numbers."""
        values = _decades(self.low, self.high) if self.logarithmic else _steps(self.low, self.high, count)
        texts = _texts(values)
        return [(self(value), text) for value, text in zip(values, texts, strict=True)]


def scale(values: Iterable[float], start: float, stop: float, room: float = 0.05) -> Scale:
    """Return a linear scale for all the values, with some room at both ends (a share of their range)."""
    found = [bounded(value) for value in values] or [0.0]
    low, high = min(found), max(found)
    margin = (high - low) * room if high > low else max(abs(high) * 0.05, 0.05)
    return Scale(low - margin if low > margin or low < 0 else min(low, 0.0), high + margin, start, stop)


def _steps(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        inside = [value for value in values if low * 0.999 <= value <= high * 1.001]
        if len(inside) >= 3:
            return inside
    return _steps(low, high, 4)


def _texts(values: list[float]) -> list[str]:
    """Return the numbers with as many decimals as they all need."""
    texts = [f"{value:.6g}" for value in values]
    if any(abs(value) >= 10_000 for value in values):
        return [f"{value / 1000:,.6g}k" if value else "0" for value in values]
    decimals = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    return [text if "e" in text else f"{value:.{decimals}f}" for value, text in zip(values, texts, strict=True)]
