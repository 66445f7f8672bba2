"""Which records a training leaves: files and TensorBoard always, trackers by `track.to`, and the user's callbacks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Final

from common.config import ConfigError
from common.settings.machine import TrackConfig, Tracker
from common.training.callbacks import Callback
from common.training.tracking.files import History, Metrics
from common.training.tracking.mlflow_run import MlflowRun
from common.training.tracking.tensor_board import TensorBoard
from common.training.tracking.wandb_run import WandbRun

TRACKERS: Final[dict[Tracker, type[WandbRun | MlflowRun]]] = {"wandb": WandbRun, "mlflow": MlflowRun}


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
