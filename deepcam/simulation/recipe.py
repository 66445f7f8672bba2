"""The recipes of synthetic weather: presets, names of snapshots, and the simulation of each from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import numpy as np

from common.errors import UsageError
from deepcam.reference import HEIGHT, WIDTH
from deepcam.simulation import snapshot_generator
from deepcam.simulation.planet import Planet
from deepcam.simulation.snapshot_generator import DAYS

SPLITS: Final = ("train", "validation", "test")
FIRST_YEAR: Final = 1980
STEPS: Final = 8  # a day
STRIDE_DAYS: Final = 79  # shares no factor with DAYS: a year visits each day once, and 5 snapshots all seasons

build_planet: Final = lru_cache(maxsize=1)(Planet)


@dataclass(frozen=True)
class Recipe:
    """The weather of a dataset: cells of the grid, the Earth's radius over the planet's, and snapshots per split."""

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

    def simulate_snapshot(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return channels, float32 (height, width, 16), and labels, uint8 (height, width), of snapshot i of a split."""
        rng = np.random.default_rng([seed, split, i])
        return snapshot_generator.simulate(build_planet(self.height, self.width, self.size), day_of(i), rng)


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini2": Recipe(96, 144, size=3.0, train=512, validation=64, test=64),
    "full-size": Recipe(HEIGHT, WIDTH, size=1.0, train=8, validation=1, test=1),
}


def day_of(i: int) -> int:
    """Return the day of the year, from 1, of snapshot i of a split."""
    return i * STRIDE_DAYS % DAYS + 1


def name_of(split: int, i: int) -> str:
    """Return the file of snapshot i of a split. Each split has its own simulation number, so that names are unique."""
    day = date(1981, 1, 1) + timedelta(days=day_of(i) - 1)  # not a leap year
    return f"{SPLITS[split]}/data-{FIRST_YEAR + i // DAYS:04d}-{day:%m-%d}-{i % STEPS:02d}-{split + 1}.h5"
