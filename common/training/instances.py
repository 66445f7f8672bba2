"""Several networks trained at the same time: how many, on how many ranks each, and on which samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from common.config import PLACE, PROBLEM, key
from common.data.bagging import NONE, Bagging, draw


@dataclass(frozen=True, slots=True)
class InstancesConfig:
    """The instances of a job: networks that are trained side by side, each from its own seed.

    The problem of a run is that of one instance, the `first`; a job with several instances makes a problem of each.
    """

    count: int = key(
        1, "number of instances: networks trained side by side, each with its own seed, log and folder", PLACE
    )
    ranks: int | None = key(None, "ranks of an instance; null: all ranks, divided by count", PLACE, unit="ranks")
    first: int | None = key(
        None,
        "number of the first instance, which is trained with the seed train.seed + first; with count=1 it is trained "
        "alone, in its folder instance_FIRST; null: 0, and with count=1 a run that is not an instance",
        PROBLEM,
    )
    bagging: Bagging = key(
        NONE,
        "training samples of an instance. none: all; bootstrap: as many as there are, drawn with replacement; poisson: "
        "each as often as a Poisson number of mean 1 says. With bagging a run is not an MLPerf result",
        PROBLEM,
    )

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}; expected at least 1")
        if self.ranks is not None and self.ranks < 1:
            raise ValueError(f"ranks is {self.ranks}; expected at least 1, or null for all ranks divided by count")
        if self.number < 0:
            raise ValueError(f"first is {self.first}; expected 0 or more, the number of an instance")

    @property
    def number(self) -> int:
        """The number of the first instance."""
        return self.first or 0

    @property
    def bags(self) -> bool:
        """Whether each instance draws its own training samples."""
        return self.bagging != NONE

    def draw(self, seed: int, samples: int) -> np.ndarray:
        """Return the numbers of the training samples of the first instance, see `bagging.draw`.

        seed: of this instance, that is of instance 0 plus the number of this one.
        """
        return draw(self.bagging, seed - self.number, self.number, samples)

    def logged(self) -> dict[str, Any]:
        """Return what a log states of the instances: how their samples were drawn, if they were."""
        return {"bagging": self.bagging} if self.bags else {}
