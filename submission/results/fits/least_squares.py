"""Least squares with intervals: straight lines, power laws, and the critical batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compliance.rcp.points import t_quantile

CONFIDENCE: Final = 0.95
Interval = tuple[float, float]


class NoFitError(ValueError):
    """The points do not determine the model; the message says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """y = intercept + slope x, by ordinary least squares.

    r_squared: None if y does not vary. The intervals are two-sided, by Student's t with count - 2 degrees of freedom;
    they and residual_std, the standard error of a residual, are None for two points. x_mean, x_squares: mean of x and
    sum of its squared distances from it.
    """

    intercept: float
    slope: float
    r_squared: float | None
    count: int
    intercept_interval: Interval | None
    slope_interval: Interval | None
    residual_std: float | None
    x_mean: float
    x_squares: float

    def at(self, x: float) -> float:
        """Return y on the line."""
        return self.intercept + self.slope * x

    def half_width(self, x: float) -> float | None:
        """Return half the interval of the line at x; None for two points."""
        if self.residual_std is None:
            return None
        variance = 1 / self.count + (x - self.x_mean) ** 2 / self.x_squares
        return _find_quantile(self.count) * self.residual_std * math.sqrt(variance)


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the line through the points; NoFitError if they have fewer than two different x."""
    count = len(points)
    if len({x for x, _ in points}) < 2:
        raise NoFitError("no fit: it needs two different values of x or more")
    x_mean, y_mean = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    x_squares = sum((x - x_mean) ** 2 for x, _ in points)
    y_squares = sum((y - y_mean) ** 2 for _, y in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / x_squares
    intercept = y_mean - slope * x_mean
    rest = sum((y - intercept - slope * x) ** 2 for x, y in points)
    r_squared = 1 - rest / y_squares if y_squares > 0 else None
    if count == 2:
        return Line(intercept, slope, r_squared, count, None, None, None, x_mean, x_squares)
    residual_std = math.sqrt(rest / (count - 2))
    by_slope = _find_quantile(count) * residual_std / math.sqrt(x_squares)
    by_intercept = _find_quantile(count) * residual_std * math.sqrt(1 / count + x_mean**2 / x_squares)
    intervals = (
        (intercept - by_intercept, intercept + by_intercept),
        (slope - by_slope, slope + by_slope),
    )
    return Line(intercept, slope, r_squared, count, *intervals, residual_std, x_mean, x_squares)


def _find_quantile(count: int) -> float:
    return t_quantile((1 + CONFIDENCE) / 2, count - 2)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y = a x^b: a line through the logarithms, of which r_squared and log_line (natural logarithms) tell."""

    a: float
    b: float
    r_squared: float | None
    count: int
    a_interval: Interval | None
    b_interval: Interval | None
    log_line: Line

    @property
    def holds_zero(self) -> bool:
        """Whether the interval of the exponent holds 0: no dependence is shown."""
        return self.b_interval is not None and self.b_interval[0] <= 0 <= self.b_interval[1]

    def at(self, x: float) -> float:
        """Return y on the curve."""
        return math.exp(self.log_line.at(math.log(x)))

    def interval(self, x: float) -> Interval | None:
        """Return the interval of the curve at x; None for two points."""
        half = self.log_line.half_width(math.log(x))
        return None if half is None else (self.at(x) * math.exp(-half), self.at(x) * math.exp(half))


def power_law(points: Sequence[tuple[float, float]]) -> PowerLaw:
    """Return the power law through the points; NoFitError if they do not determine it."""
    if any(x <= 0 or y <= 0 for x, y in points):
        raise NoFitError("a power law needs values above 0")
    log = fit_line([(math.log(x), math.log(y)) for x, y in points])
    ends = log.intercept_interval
    a_interval = None if ends is None else (math.exp(ends[0]), math.exp(ends[1]))
    return PowerLaw(
        math.exp(log.intercept),
        log.slope,
        log.r_squared,
        log.count,
        a_interval,
        log.slope_interval,
        log,
    )


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """E = e0 (1 + B / bc): epochs needed at a small batch, and the batch size that needs twice as many.

    e0, bc: None with a `problem`, if the line does not rise or starts below 0. line: E over B, unweighted.
    """

    e0: float | None
    bc: float | None
    problem: str
    line: Line


def critical_batch(points: Sequence[tuple[float, float]], name: str = "epochs") -> CriticalBatch:
    """Return the critical batch size of (batch size, epochs); NoFitError if the points do not determine a line.

    The line is unweighted, as tests pin E0 and Bc of the published rounds, in the analysis after the MLPerf HPC paper
    (arXiv 2110.11466). A study fits the same law to the logarithm of the epochs: see `laws`. name: what is counted, for
    messages.
    """
    line = fit_line(points)
    if line.slope <= 0:
        return CriticalBatch(
            None,
            None,
            f"{name} do not grow with the batch size: there is no critical one",
            line,
        )
    if line.intercept <= 0:
        return CriticalBatch(
            None,
            None,
            f"the line starts below 0 {name}: it gives no critical batch size",
            line,
        )
    return CriticalBatch(line.intercept, line.intercept / line.slope, "", line)
