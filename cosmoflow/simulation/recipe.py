"""The recipes of synthetic universes: presets, priors, and the simulation of each universe from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.errors import UsageError
from cosmoflow.simulation import universe
from cosmoflow.simulation.universe import DRIFT, ORIGINAL, WIDE, Box

PRIORS: Final = {"original": ORIGINAL, "wide": WIDE, "drift": DRIFT}


@dataclass(frozen=True)
class Recipe:
    """The universes of a dataset. grid: voxels per side of a sample; a universe is cut into subvolumes³ samples."""

    prior: str
    grid: int
    subvolumes: int
    particles: int
    length_mpc_h: float | None
    train: int
    validation: int

    def __post_init__(self) -> None:
        try:
            _ = self.box
        except ValueError as error:
            raise UsageError(str(error)) from error

    @property
    def box(self) -> Box:
        """The box of a universe."""
        return Box(self.grid * self.subvolumes, self.particles, self.length_mpc_h)

    def simulate_universe(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts, int16 (N, N, N, 4), and labels, float32 (4,), of universe i of a split."""
        rng = np.random.default_rng([seed, split, i])
        labels = universe.draw_labels(rng, 1)[0]
        simulate = universe.simulate_drift if self.prior == "drift" else universe.simulate
        return simulate(labels, PRIORS[self.prior], self.box, rng), labels


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini2": Recipe("drift", 32, 1, particles=48, length_mpc_h=256.0, train=2_048, validation=256),
    "full-size": Recipe("original", 128, 1, particles=128, length_mpc_h=None, train=8, validation=4),
}
