"""Which records a training leaves: files and TensorBoard always, trackers by `track.to`, and the user's callbacks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from common.config import PLACE, ConfigError, key
from common.training.callbacks import Callback
from common.training.tracking.files import History, Metrics
from common.training.tracking.mlflow_run import MlflowRun
from common.training.tracking.tensor_board import TensorBoard
from common.training.tracking.wandb_run import WandbRun

Tracker = Literal["wandb", "mlflow"]
TRACKERS: Final[dict[Tracker, type[WandbRun | MlflowRun]]] = {"wandb": WandbRun, "mlflow": MlflowRun}


@dataclass(frozen=True, slots=True)
class TrackConfig:
    """Where the metrics of a run go besides its folder."""

    to: tuple[Tracker, ...] = key(
        (), "trackers that get the run: wandb, mlflow; where they send it is set by their own environment", PLACE
    )
    project: str | None = key(
        None, "project of Weights & Biases, experiment of MLflow; null: the name of the benchmark", PLACE
    )
    name: str | None = key(None, "name of the run there; null: that of its folder", PLACE)
    every_steps: int = key(
        1, "steps from one record of a step to the next, everywhere; 0: none, only epochs", PLACE, unit="steps"
    )

    def __post_init__(self) -> None:
        if self.every_steps < 0:
            raise ValueError(f"every_steps is {self.every_steps}; expected 0 (no steps) or more")
        if len(set(self.to)) < len(self.to):
            raise ValueError(f"to is {list(self.to)}; expected each tracker once")


def check_installed(config: TrackConfig) -> None:
    """Raise ConfigError for a tracker whose package is missing."""
    for tracker in config.to:
        if importlib.util.find_spec(tracker) is None:
            raise ConfigError(f"track.to names {tracker}, which is not installed: pip install '.[{tracker}]'")


def callbacks_of(config: TrackConfig, guard: Callable[[], None], others: Iterator[Callback]) -> Iterator[Callback]:
    """Yield all that are to be told of a training.

    guard: raises if another training owns the folder now. others: the user's.
    """
    yield History(guard)
    yield Metrics(guard)
    if importlib.util.find_spec("tensorboard"):
        yield TensorBoard()
    for tracker in config.to:
        yield TRACKERS[tracker](config.project, config.name)
    yield from others
