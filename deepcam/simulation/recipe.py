"""Which weather a dataset has: presets, names of snapshots, and the simulation of each from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import numpy as np

from common.command import UsageError
from deepcam.data import snapshot
from deepcam.simulation import snapshot_generator
from deepcam.simulation.planet import Planet
from deepcam.simulation.snapshot_generator import DAYS

SPLITS: Final = ("train", "validation", "test")


FIRST_YEAR: Final = 1980


STEPS: Final = 8  # a day


STRIDE_DAYS: Final = 79  # shares no factor with DAYS: a year visits each day once, and 5 snapshots all seasons


@dataclass(frozen=True)
class Recipe:
    """Which weather there is: cells of the grid, the Earth's radius by the planet's, and snapshots per split."""

    height: int
    width: int
    size: float
    train: int
    validation: int
    test: int

    def __post_init__(self) -> None:
        try:
            Planet(self.height, self.width, self.size)
        except ValueError as error:
            raise UsageError(str(error)) from error

    @property
    def samples(self) -> dict[str, int]:
        """Snapshots by split."""
        return {split: getattr(self, split) for split in SPLITS}

    def simulate(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Snapshot i of a split: its channels, float32 (height, width, 16), and its labels, uint8 (height, width)."""
        rng = np.random.default_rng([seed, split, i])
        return snapshot_generator.simulate(_planet(self.height, self.width, self.size), day_of(i), rng)


@lru_cache(maxsize=1)
def _planet(height: int, width: int, size: float) -> Planet:
    return Planet(height, width, size)


# The mini problem is fixed: whoever changes it makes other data, and all reference runs are void.
PRESETS: Final = {
    "mini": Recipe(96, 144, size=3.0, train=512, validation=64, test=64),
    "full-size": Recipe(snapshot.HEIGHT, snapshot.WIDTH, size=1.0, train=8, validation=1, test=1),
}


def day_of(i: int) -> int:
    """The day of the year, from 1, of snapshot i of a split."""
    return i * STRIDE_DAYS % DAYS + 1


def name_of(split: int, i: int) -> str:
    """The file of snapshot i of a split. A split is a simulation of its own, so that no name comes twice."""
    day = date(1981, 1, 1) + timedelta(days=day_of(i) - 1)  # not a leap year
    return f"{SPLITS[split]}/data-{FIRST_YEAR + i // DAYS:04d}-{day:%m-%d}-{i % STEPS:02d}-{split + 1}.h5"
