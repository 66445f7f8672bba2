"""What the numbers of samples must be and usually are: a survey lists what breaks that contract, and what is unlikely.

A benchmark states its contract in `<benchmark>/data/values.py`, which yields the contents of a sample: arrays with
their bounds, flaws that bounds cannot say, and what identifies the sample. Training surveys its first samples
(`common.training.faults`), `prepare verify --values` all of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Limits = tuple[np.ndarray | float, np.ndarray | float]
"""The least and the largest number; arrays: along the last axis."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the numbers of an array are.

    valid: numbers outside, and NaN, break the contract. likely: others outside are unlikely.
    reached: a component with all its numbers outside breaks the contract.
    varies: equal numbers in all of a sample are unlikely.
    is_truth: what is to be learned, which is not the same in all samples.
    components: names along the last axis. advice: what the numbers mean, and how to fix them.
    """

    valid: Limits
    likely: Limits
    advice: str
    reached: Limits = (-np.inf, np.inf)
    varies: bool = False
    is_truth: bool = False
    components: tuple[str, ...] = ()


class Values(NamedTuple):
    """An array of a sample, with its name for people. The last axis is that of its components."""

    name: str
    array: np.ndarray
    bounds: Bounds


class Flaw(NamedTuple):
    """What is wrong with a sample, or unlikely, besides numbers out of bounds."""

    text: str
    is_error: bool = True


class Identity(NamedTuple):
    """What only equal samples share, such as a checksum."""

    key: Hashable


Content = Values | Flaw | Identity


class Survey:
    """What is wrong with samples; several threads may add them.

    errors, warnings: a line each, with file, sample, place, number, what was expected, and how to fix it.
    samples: how many were identified.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.samples = 0
        self._owners: dict[Hashable, tuple[str, str]] = {}
        self._repeats: dict[tuple[tuple[str, str], tuple[str, str]], list[str]] = {}
        self._counts: Counter[str] = Counter()
        self._truths: dict[tuple[str, str], list[np.ndarray]] = {}
        self._lock = threading.Lock()

    def add_sample(self, file: str, split: str, name: str, contents: Iterable[Content]) -> None:
        """Look at a sample, once. name: in its file; "" if it is alone there."""
        sample = f"{file}, {name}" if name else file
        for content in contents:
            if isinstance(content, Flaw):
                self._add_line(f"{sample}: {content.text}", content.is_error)
            elif isinstance(content, Identity):
                self._note_identity(content.key, split, file, name)
            elif content.array.size:
                self._check_values(sample, split, content)

    def add_summary(self, fewest: int = 2, whole: bool = False) -> None:
        """Add what only shows in all samples: repeated ones, and truths that are the same in all, at least `fewest`.

        whole: all samples of the splits were looked at.
        """
        copied: Counter[frozenset[str]] = Counter()
        for owners, names in self._repeats.items():
            copied[frozenset(split for split, _ in owners)] += len(names)
        for owners, names in self._repeats.items():
            # Of two splits the smaller one, above all validation, is more likely to be whole without the copies.
            (other, kept), (split, copy) = sorted(
                owners, key=lambda owner: (self._counts[owner[0]], owner[0] == "train", owner)
            )
            samples = f"{copy} has the content of {kept}"
            if names[0]:
                samples = f"{copy}: {len(names):,} samples are in {kept}, too, such as {names[0]}"
            owner, fix = "the same split", "remove one of the two"
            if is_error := split != other:
                owner, fix = "another split, whose quality then is no test", f"{fix}, probably that in {split}/"
            if whole and is_error and self._counts[split] == self._counts[other] == copied[frozenset((split, other))]:
                fix = f"all of {split}/ and {other}/ are equal: put other samples into validation/ or test/"
            self._add_line(f"{samples}, of {owner}: {fix}", is_error)
        for (split, name), (low, high, count) in self._truths.items():
            if count >= fewest and (low == high).any():
                index = int(np.argmax(low == high))
                component = f"[{index}]" if low.size > 1 else ""
                text = f"{split}: {name}{component} is {low[index]:g} in all {int(count):,} samples looked at"
                self._add_line(f"{text}: nothing can be learned from that; were labels lost?", False)

    def _add_line(self, line: str, is_error: bool) -> None:
        (self.errors if is_error else self.warnings).append(line)

    def _note_identity(self, key: Hashable, split: str, file: str, name: str) -> None:
        with self._lock:
            self.samples += 1
            self._counts[split] += 1
            if key in self._owners:
                self._repeats.setdefault((self._owners[key], (split, file)), []).append(name)
            else:
                self._owners[key] = (split, file)

    @np.errstate(invalid="ignore", over="ignore")
    def _check_values(self, sample: str, split: str, values: Values) -> None:
        array, bounds = values.array, values.bounds
        low = high = array
        while low.ndim > 1:  # axis by axis, the first one first, is the order of memory
            low, high = low.min(axis=0), high.max(axis=0)
        apart = (low > bounds.reached[1]) | (high < bounds.reached[0])
        if apart.any():
            self._add_line(f"{sample}: {_describe_component(values, low, high, apart)}", True)
        elif _are_outside(low, high, bounds.valid):
            self._add_line(f"{sample}: {_describe_outside(values, bounds.valid)}", True)
        elif _are_outside(low, high, bounds.likely):
            self._add_line(f"{sample}: {_describe_outside(values, bounds.likely)}", False)
        elif bounds.varies and (low == high).any():
            self._add_line(f"{sample}: {_describe_component(values, low, high, low == high)}", False)
        if bounds.is_truth:
            with self._lock:
                lowest, highest, count = self._truths.get((split, values.name), (low, high, np.zeros(())))
                self._truths[split, values.name] = [np.minimum(low, lowest), np.maximum(high, highest), count + 1]


def _are_outside(low: np.ndarray, high: np.ndarray, limits: Limits) -> bool:
    return not ((low >= limits[0]) & (high <= limits[1])).all()  # NaN compares false


def _describe_outside(values: Values, limits: Limits) -> str:
    """Return the first number outside of the limits, its place, and how many there are."""
    name, array, bounds = values
    least, most = (np.broadcast_to(limit, array.shape[-1:]) for limit in limits)
    outside = ~((array >= least) & (array <= most))
    index = [int(number) for number in np.unravel_index(int(np.argmax(outside)), array.shape)]
    count = int(np.count_nonzero(outside))
    more = f" ({count:,} such numbers)" if count > 1 else ""
    component = f" ({bounds.components[index[-1]]})" if bounds.components else ""
    number, expected = array[tuple(index)], f"{least[index[-1]]:g} to {most[index[-1]]:g}"
    return f"{name}{index}{component} is {number:g}{more}; expected {expected}: {bounds.advice}"


def _describe_component(values: Values, low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> str:
    """Return what the numbers of the first chosen component are, and what was expected."""
    name, _, bounds = values
    index = int(np.argmax(chosen))
    component = f" ({bounds.components[index]})" if bounds.components else ""
    numbers, expected = f"{low[index]:g} to {high[index]:g}", "numbers that differ"
    if low[index] == high[index]:
        numbers = f"{low[index]:g} everywhere"
    least, most = (np.broadcast_to(limit, low.shape)[index] for limit in bounds.reached)
    if not least <= low[index] <= most:
        expected = f"some numbers between {least:g} and {most:g}"
    return f"{name}[..., {index}]{component} is {numbers}; expected {expected}: {bounds.advice}"
