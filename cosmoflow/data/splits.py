"""Which universes are for training and which for validation: whole universes, as samples of one are alike."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from common.command import UsageError
from cosmoflow.data.sample_files import SPLITS


class SplitError(UsageError):
    """The universes cannot be split as asked; the message says what there is and how to fix it."""


@dataclass(frozen=True)
class HashSplit:
    """A split by a seeded hash of the universes' names; the same on every machine and for every task.

    A universe is for validation when its hash is below `fraction`, so that its side never depends on the others. With
    counts, the lowest hashes are for validation and the highest for training; those in between are left out.
    """

    seed: int = 0
    fraction: float = 1 / 9
    train: int | None = None
    validation: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise SplitError(f"the fraction of validation must lie between 0 and 1, not {self.fraction}")

    def __call__(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The names of each split, sorted. SplitError when there are too few, or none by chance."""
        order = sorted(names, key=lambda name: (self._hash(name), name))
        low = sum(self._hash(name) < self.fraction for name in names)
        validation = self.validation if self.validation is not None else low
        train = self.train if self.train is not None else len(order) - validation
        if train < 0 or train + validation > len(order):
            raise SplitError(
                f"{max(train, 0):,} training and {validation:,} validation universes were asked for, and there are "
                f"{len(order):,}"
            )
        if self.validation is None and not validation:
            raise SplitError(
                f"of {len(order):,} universes none is for validation by chance; ask for a number: --validation 1"
            )
        return {"train": sorted(order[len(order) - train :]), "validation": sorted(order[:validation])}

    def _hash(self, name: str) -> float:
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True)
class SplitFile:
    """A split by lists of names: a YAML or JSON file {train: [name, ...], validation: [name, ...]}."""

    path: Path

    def __call__(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The names of each split, sorted. SplitError for names that are in both, or that no universe has."""
        try:
            content: Any = yaml.safe_load(self.path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise SplitError(f"{self.path} cannot be read: {error}") from error
        lists = content if isinstance(content, dict) else {}
        if set(lists) != set(SPLITS) or not all(isinstance(listed, list) for listed in lists.values()):
            raise SplitError(f"{self.path}: expected {{train: [names], validation: [names]}}")
        split = {side: sorted(map(str, lists[side])) for side in SPLITS}
        listed = split["train"] + split["validation"]
        if twice := sorted(name for name, times in Counter(listed).items() if times > 1):
            raise SplitError(f"{self.path}: {twice[0]} is listed more than once")
        if unknown := sorted(set(listed) - set(names)):
            example = f"; names look like {min(names)}" if names else ""
            raise SplitError(f"{self.path}: {len(unknown):,} names have no universe, {unknown[0]} the first{example}")
        return split
