"""How alike two runs are: whether they share their intervals, shifted, scaled or jittered, or their results.

Evidence is counted in bits: how improbable it is that two different runs agree as well. How often intervals agree by
chance is taken from the runs themselves, from intervals at other places of the same runs; logs with whole seconds or
constant intervals therefore prove nothing. Measured on 18,052 pairs of published runs of one result: within 1.1 ms or
10 ms no pair reaches 12 bits, within 60 ms with most intervals none reaches 10. A shifted or scaled copy of a
published run has at least 46.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import log2
from operator import eq, sub
from typing import Final

from compliance.logs.fingerprint import LENGTHS_KEPT, Fingerprint

EXACT_MS: Final = 1.1  # the ends of a scaled interval are rounded to whole milliseconds
LEVELS: Final = ((EXACT_MS, 0.25, 16.0), (10.0, 0.5, 25.0), (25.0, 0.6, 28.0), (60.0, 0.8, 30.0))
"""Tolerance in ms, the smallest share of the intervals that agree within it, and the evidence that it takes."""
SAME_VALUES: Final = (0.5, 64.0)
"""The smallest share of equal results, and the evidence that it takes."""
SAME_SCALE: Final = 2e-5
BITS_OF_A_VALUE: Final = 40.0  # more are not needed
DISPLACEMENTS: Final = range(1, 7)
KEPT: Final = 8
"""Keys of each kind by which a run is found again: the smallest ones, so that copies keep the same."""
SPAN_MS: Final = 100
HALF_STEPS: Final = 100_000
QUARTER_STEPS: Final = 20_000
NEXT: Final = LENGTHS_KEPT + 1
FAR: Final = NEXT << 20
NEXT_SHAPES: Final = tuple(a * FAR + b * NEXT for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)


Keys = tuple[Sequence[int], Sequence[int]]
"""Keys of which a copy shares some, and further keys by which it may be found."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How the intervals of two runs agree: `equal` of `count` within tolerance_ms, times `scale`."""

    equal: int
    count: int
    tolerance_ms: float
    scale: float
    bits: float


def same_times(one: Fingerprint, other: Fingerprint) -> bool:
    """Tell whether all structural records of two runs have the same times.

    Where times are whole seconds, runs that started together may have them; their results differ.
    """
    if (one.times, one.events) != (other.times, other.events):
        return False
    return one.values == other.values or any(length % 1000 for length in one.lengths)


# -- the intervals -----------------------------------------------------------------------------------------


def alike(one: Fingerprint, other: Fingerprint, moved: bool = True) -> Likeness | None:
    """Return how the intervals of two runs agree, None if no better than those of different runs.

    moved: whether to look at intervals of other places, too.
    """
    alignments = _alignments(one.lengths, other.lengths) if moved else _unmoved(one.lengths, other.lengths)
    found = (_compared(one, other, shift, scale) for shift, scale in alignments)
    return max((like for like in found if like), key=lambda like: like.bits, default=None)


def _unmoved(first: array[float], second: array[float]) -> Iterator[tuple[int, float]]:
    yield 0, 1.0
    if len(first) == len(second) and len(first):
        yield 0, sum(first) / sum(second)


def _alignments(first: array[float], second: array[float]) -> Iterator[tuple[int, float]]:
    """Yield by how many places, and by which factor, the intervals of the other run may be moved."""
    yield from _unmoved(first, second)
    places = {pair: at for at, pair in enumerate(pairwise(first))}
    pairs = enumerate(pairwise(second))
    shifts = Counter(places[pair] - at for at, pair in pairs if pair in places)
    yield from ((shift, 1.0) for shift, _ in shifts.most_common(2))


def _compared(one: Fingerprint, other: Fingerprint, shift: int, scale: float) -> Likeness | None:
    """Compare the length n + shift of one run with `scale` times the length n of the other."""
    if abs(scale - 1) < SAME_SCALE:
        scale = 1.0
    ours: Sequence[float] = one.lengths[shift:] if shift > 0 else one.lengths
    theirs: Sequence[float] = other.lengths[-shift:] if shift < 0 else other.lengths
    if scale != 1:
        theirs = [length * scale for length in theirs]
    apart = sorted(map(abs, map(sub, ours, theirs)))
    count, found = len(apart), []
    for tolerance, share, needed in LEVELS if count >= 4 else ():
        if apart[int(share * count)] <= tolerance:
            equal = bisect_right(apart, tolerance)
            bits = count * _surprise(equal / count, _chance(ours[:count], theirs[:count], tolerance))
            if bits >= needed:
                found.append(Likeness(equal, count, tolerance, scale, bits))
    return max(found, key=lambda like: like.bits, default=None)


def _median(numbers: Sequence[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def _chance(ours: Sequence[float], theirs: Sequence[float], tolerance: float) -> float:
    """Return how often intervals at different places of the two runs agree."""
    count, most = len(ours), 1 / (2 * len(ours) + 2)
    for places in DISPLACEMENTS:
        if places <= count // 2:
            pairs = [*zip(ours[places:], theirs, strict=False), *zip(ours, theirs[places:], strict=False)]
            most = max(most, sum(abs(a - b) <= tolerance for a, b in pairs) / len(pairs))
    return most


def _surprise(share: float, chance: float) -> float:
    """Return bits per interval: the relative entropy of the share that agrees, given that of chance."""
    if share <= chance:
        return 0.0
    rest = (1 - share) * log2((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * log2(share / chance) + rest


# -- the keys by which a run is found again ----------------------------------------------------------------


def interval_keys(run: Fingerprint) -> Keys:
    """Return the keys of a run by its times, exact lengths, their sum and shape."""
    lengths = run.lengths
    if not run.events:
        return (), ()
    keys = [run.times, *sorted(set(map(hash, pairwise(lengths))))[:KEPT]]
    if not lengths:
        return keys, ()
    whole = sum(lengths)
    span, shape = int(whole / SPAN_MS) * NEXT + len(lengths), _shape(lengths, whole)
    return [*keys, span, shape], (span - NEXT, span + NEXT, *(shape + step for step in NEXT_SHAPES))


def _shape(lengths: array[float], whole: float) -> int:
    """Return the shares of the first half and quarter in the sum of the lengths: scale cancels out."""
    count = len(lengths)
    half, quarter = sum(lengths[: count // 2]) / whole, sum(lengths[: count // 4]) / whole
    return -int(quarter * QUARTER_STEPS) * FAR - int(half * HALF_STEPS) * NEXT - count


# -- the results of evaluations ----------------------------------------------------------------------------


def value_keys(run: Fingerprint) -> Keys:
    """Return the keys of a run by its results."""
    return sorted(set(map(hash, pairwise(run.values))))[:KEPT], ()


def equal_values(one: Fingerprint, other: Fingerprint) -> int:
    """Return how many results of the two runs are equal to the last bit, 0 if that may be chance."""
    first, second = one.values, other.values
    count = sum(map(eq, first, second))
    if not count or count < SAME_VALUES[0] * max(1, min(len(first), len(second))):
        return 0
    usual = _median([abs(a - b) for a, b in pairwise(first)] or [0.0])
    bits = accumulate(_bits(a, usual) for a, b in zip(first, second, strict=False) if a == b)
    return count if any(found >= SAME_VALUES[1] for found in bits) else 0


def _bits(value: float, step: float) -> float:
    """Return how much one equal result proves, where results usually differ by `step`: 0 if it is rounded to that."""
    digits = repr(value)
    decimals = len(digits) - digits.find(".") - 1 if "e" not in digits else 20
    return min(BITS_OF_A_VALUE, max(0.0, log2(step * 10.0**decimals))) if step > 0 else 0.0
