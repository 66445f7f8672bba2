"""Means that leave out the fastest and the slowest run; scores use them as well as reference points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def olympic_mean(values: Iterable[float], rejected: int = 0) -> float | None:
    """Return the mean without the lowest and the highest value; None if nothing is left.

    rejected: 1 if a rejected run, whose value is not included, already counts as the highest; else 0.
    """
    kept = without_extremes(sorted(values), rejected)
    return sum(kept) / len(kept) if kept else None


def without_extremes(ascending: Sequence[T], rejected: int = 0) -> Sequence[T]:
    """Return the values without the lowest, and without the highest unless one is already rejected."""
    return ascending[1 : len(ascending) - (1 - rejected)]
