"""What a benchmark says of its predictions: their columns, their quality, a summary and a picture by matplotlib.

A report is filled batch by batch. It keeps sums, and a bounded number of rows for the picture: its memory does not grow
with the data. `common.training.predictions.numbers` serves benchmarks that predict a few numbers for each sample.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from common.command import UsageError, check_new
from common.picture import new_figure
from common.reference import FULL
from common.training.predictions.file import Column, Rows

ENDINGS: Final = (".png", ".svg", ".pdf")
SAMPLES: Final = 3
"""The samples that are drawn one by one, the first ones."""
POINTS: Final = 5_000
"""The most points in a plot: more would hide each other."""


def arrays(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return columns as arrays in main memory."""
    return {name: values.detach().cpu().numpy() for name, values in columns.items()}


class PredictionReport(ABC):
    """The report on the predictions of a benchmark.

    columns: of its files, besides index and names; the first has one row for each sample. ending: of the files that
    are suggested: .h5 where the full-size problem is too large for npz. variant: of the problem that they are about.
    """

    columns: ClassVar[tuple[Column, ...]]
    ending: ClassVar[str] = ".npz"

    def __init__(self) -> None:
        self.samples, self.variant = 0, FULL
        self._scores = torch.zeros(2, dtype=torch.float64)

    @abstractmethod
    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Return the sum of the qualities of a batch and their number: what `SampleProblem.judge` returns for it."""

    @abstractmethod
    def count(self, rows: Rows) -> None:
        """Add a batch to what the summary is made of."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines of the summary."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the numbers of the summary, by name; plain values."""

    @abstractmethod
    def draw(self, figure: Any) -> None:
        """Draw the picture in an empty figure of matplotlib."""

    def add(self, rows: Rows, shown: Rows | None = None) -> None:
        """Add a batch. shown: what the picture needs besides its columns, see `SampleProblem.shown`."""
        self.samples += len(rows[self.columns[0].name])
        self._scores += self.judge({column.name: torch.from_numpy(rows[column.name]) for column in self.columns})
        self.count(rows)
        self.keep({**rows, **(shown or {})})

    @abstractmethod
    def keep(self, rows: Rows) -> None:
        """Keep some rows of a batch for the picture."""

    @property
    def quality(self) -> float:
        """The quality of all samples so far: the metric of the benchmark."""
        total, number = self._scores.tolist()
        return total / number if number else math.nan


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
