"""Pictures of predictions, by matplotlib, which is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from common.command import UsageError, check_new
from common.files import whole_file
from common.training.predictions.columns import PredictionsError

ENDINGS: Final = (".png", ".svg", ".pdf")
SAMPLES: Final = 3
"""The samples that are drawn one by one, the first ones."""
POINTS: Final = 5_000
"""The most points in a plot: more would hide each other."""


class Thinned:
    """At most POINTS rows of many, evenly spaced."""

    def __init__(self) -> None:
        self._every, self._seen = 1, 0
        self._kept: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add rows of a table."""
        self._kept.append(rows[-self._seen % self._every :: self._every].copy())
        self._seen += len(rows)
        while sum(map(len, self._kept)) > POINTS:
            self._kept = [np.concatenate(self._kept)[::2]]
            self._every *= 2

    @property
    def rows(self) -> np.ndarray:
        """The rows that were kept."""
        rows: np.ndarray = np.concatenate(self._kept)
        return rows


def check_picture(path: Path) -> None:
    """Raise UsageError unless a picture can be made and has a known format, before anything is computed."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"--plot {path}: expected a file that ends in {', '.join(ENDINGS)}")
    check_new("--plot", path)
    new_figure()


def new_figure() -> Any:
    """Return an empty figure of matplotlib; UsageError without it."""
    try:
        from matplotlib.figure import Figure  # an optional package
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install matplotlib") from error
    return Figure(layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file, whole or not at all; PredictionsError if it cannot be written."""
    try:
        with whole_file(path) as part:
            figure.savefig(part, dpi=120, format=path.suffix[1:])
    except (OSError, ValueError) as error:
        raise PredictionsError(f"{path}: the picture cannot be written: {error}") from error
