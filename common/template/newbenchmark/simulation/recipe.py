"""Which plates a dataset has: presets, and the simulation of each plate from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from common.errors import UsageError

from newbenchmark.simulation import diffusion


@dataclass(frozen=True)
class Recipe:
    """Which plates there are. side: cells. train, validation: plates of each split."""

    side: int
    train: int
    validation: int

    def __post_init__(self) -> None:
        if self.side < 8:
            raise UsageError(f"--side {self.side}: expected at least 8 cells")

    def simulate_sample(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return plate i of a split: its picture and its label."""
        return diffusion.plate(np.random.default_rng([seed, split, i]), self.side)


# The mini problem is fixed: changing it makes other data, and voids all reference runs.
PRESETS: Final = {
    "mini": Recipe(32, train=1_024, validation=128),
    "full-size": Recipe(64, train=65_536, validation=8_192),
}
