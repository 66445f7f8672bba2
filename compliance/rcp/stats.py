"""The statistics of reference convergence points, with only the standard library.

Source: mlperf-logging 4.1.68, rcp_checker (behaviour: scipy's two-sample t-test and a bisection over it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

SIGNIFICANCE: Final = 0.05
"""One-sided probability of rejecting a valid result."""
OFFICIAL_STEP: Final = 1e-4
"""Width (epochs or samples) at which the official bisection stops; its result is within half of it."""


def olympic_mean(values: Iterable[float], rejected: int = 0) -> float | None:
    """Return the mean without the lowest and the highest value; None if nothing is left.

    rejected: 1 if a rejected run, whose value is not included, already counts as the highest; else 0.
    """
    kept = without_extremes(sorted(values), rejected)
    return sum(kept) / len(kept) if kept else None


def without_extremes(ascending: Sequence[T], rejected: int = 0) -> Sequence[T]:
    """Return the values without the lowest, and without the highest unless one is already rejected."""
    return ascending[1 : len(ascending) - (1 - rejected)]


def _central_probability(angle: float, df: int) -> float:
    """Return P(|T| < sqrt(df) tan(angle)) for Student's T with `df` degrees of freedom.

    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = total = cosine if odd and df > 1 else float(not odd)
    for k in range(3 - (not odd), df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=256)
def t_quantile(p: float, df: int) -> float:
    """Return the t below which Student's distribution with `df` degrees of freedom has the probability `p`.

    Accurate to 1e-9 relative for 0.0001 < p < 0.9999. ValueError unless 0 < p < 1 and df is a whole number >= 1.
    """
    if not 0 < p < 1 or df != int(df) or df < 1:
        raise ValueError(f"t_quantile needs 0 < p < 1 and whole degrees of freedom >= 1; found p={p}, df={df}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        if _central_probability(angle, df) < 2 * p - 1:
            low = angle
        else:
            high = angle
    return math.sqrt(df) * math.tan(low)


def upper_tail(t: float, df: int) -> float:
    """Return P(T > t) for Student's T with `df` degrees of freedom, a whole number >= 1."""
    central = _central_probability(math.atan(abs(t) / math.sqrt(df)), df)
    return (1 - math.copysign(central, t)) / 2


def min_acceptable_mean(mean: float, std: float, n_reference_kept: int, required_runs: int) -> float:
    """Return the smallest mean (unit of `mean`, never below 0) that chance explains at SIGNIFICANCE.

    Student's one-sided t-test between `n_reference_kept` reference runs and the `required_runs` - 2 runs that
    count of a result, both with the spread `std`. The official tool bisects to the same value +- 5e-5.
    ValueError if there are too few runs for a test.
    """
    if std == 0:
        return mean
    n_result_kept = required_runs - 2
    df = n_reference_kept + n_result_kept - 2
    if min(n_reference_kept, n_result_kept, df) < 1:
        raise ValueError(
            f"{n_reference_kept} reference and {n_result_kept} result runs count (lowest and highest left "
            "out); a t-test needs at least 1 of each and 3 in all: record more runs"
        )
    margin = t_quantile(1 - SIGNIFICANCE, df) * std * math.sqrt(1 / n_reference_kept + 1 / n_result_kept)
    return max(0.0, mean - margin)


def bisected(mean: float, minimum: float) -> float:
    """Return where the official bisection between 0 and `mean` ends when the true threshold is `minimum`."""
    low, high = 0.0, mean
    while high - low > OFFICIAL_STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if middle > minimum else (middle, high)
    return (low + high) / 2
