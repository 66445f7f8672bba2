"""The recipes of synthetic surfaces: presets, and the simulation of each trajectory from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.errors import UsageError
from common.reference import SPLITS
from oc20.data.extxyz import ExtxyzFrame, importing_ase

FIRST_SYSTEM: Final = 1_000_000
"""Systems are numbered from this times the index of their split, so that numbers are unique."""


@dataclass(frozen=True)
class Recipe:
    """The systems of a dataset: atoms along the slab's sides and layers, trajectories per split, frames of each."""

    size: tuple[int, int, int]
    train: int
    validation: int
    frames: int

    def __post_init__(self) -> None:
        if min(self.size) < 2:
            raise UsageError(f"--slab is {' x '.join(map(str, self.size))}; expected at least 2 x 2 atoms and 2 layers")

    @property
    def trajectories(self) -> dict[str, int]:
        """Trajectories by split."""
        return {split: getattr(self, split) for split in SPLITS}

    def simulate_trajectory(self, seed: int, split: int, trajectory: int) -> Iterator[ExtxyzFrame]:
        """Yield the frames of a trajectory; those with an even number relax."""
        with importing_ase():
            from oc20.simulation import surface

        rng = np.random.default_rng([seed, split, trajectory])
        run = surface.simulate(self.size, self.frames, trajectory % 2 == 0, rng)
        for atoms, step in zip(run.frames, run.steps, strict=True):
            yield ExtxyzFrame(atoms, split * FIRST_SYSTEM + trajectory, step, run.reference)


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini": Recipe((2, 2, 3), train=480, validation=64, frames=5),
    "full-size": Recipe((4, 5, 4), train=16, validation=4, frames=4),
}
