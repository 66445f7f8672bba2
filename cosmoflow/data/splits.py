"""The split into training and validation by whole universes, since samples of one universe are alike."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.config import load
from common.errors import UsageError
from cosmoflow.data.sample_files import SPLITS


@dataclass(frozen=True)
class HashSplit:
    """A split by a seeded hash of the universes' names, the same on every machine and for every task.

    A universe is for validation if its hash is below `fraction`, independent of the other universes. With counts, the
    lowest hashes are for validation and the highest for training; those in between are left out.
    """

    seed: int = 0
    fraction: float = 1 / 9
    train: int | None = None
    validation: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise UsageError(f"--validation-fraction is {self.fraction}; expected a number between 0 and 1")

    def __call__(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the sorted names of each split; UsageError if there are too few, or by chance none."""
        order = sorted(names, key=lambda name: (self._hash_name(name), name))
        low = sum(self._hash_name(name) < self.fraction for name in names)
        validation = self.validation if self.validation is not None else low
        train = self.train if self.train is not None else len(order) - validation
        if train < 0 or train + validation > len(order):
            raise UsageError(
                f"{max(train, 0):,} training and {validation:,} validation universes were asked for, but only "
                f"{len(order):,} exist; lower --train or --validation"
            )
        if self.validation is None and not validation:
            raise UsageError(
                f"by chance none of the {len(order):,} universes is for validation; set a number, as in --validation 1"
            )
        return {"train": sorted(order[len(order) - train :]), "validation": sorted(order[:validation])}

    def _hash_name(self, name: str) -> float:
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True)
class _Lists:
    train: tuple[str, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True)
class SplitFile:
    """A split by lists of names: a YAML or JSON file {train: [name, ...], validation: [name, ...]}."""

    path: Path

    def __call__(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the sorted names of each split; UsageError for names that are in both, or that no universe has."""
        lists = load(_Lists, self.path)
        split = {side: sorted(getattr(lists, side)) for side in SPLITS}
        all_names = split["train"] + split["validation"]
        if twice := sorted(name for name, times in Counter(all_names).items() if times > 1):
            raise UsageError(f"{self.path}: {twice[0]} is listed more than once")
        if unknown := sorted(set(all_names) - set(names)):
            example = f"; names look like {min(names)}" if names else ""
            raise UsageError(f"{self.path}: no universe for {len(unknown):,} names, such as {unknown[0]}{example}")
        return split
