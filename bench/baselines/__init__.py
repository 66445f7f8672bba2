"""The classical baselines of the mini problems, which `bench/baselines.py` fits: a file for each benchmark."""

from __future__ import annotations

from typing import Any, NamedTuple


class Baseline(NamedTuple):
    """What a method reaches.

    quality: on all validation samples, as the benchmark's evaluation computes it. note: what the method sees and how it
    is fitted. details: what was chosen on the training split, and other numbers; plain values.
    """

    name: str
    quality: float
    note: str
    details: dict[str, Any]
