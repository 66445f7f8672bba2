"""What a benchmark says of its predictions: their columns, their quality, a summary and a picture by matplotlib.

A report is filled batch by batch. It keeps sums, and a bounded number of rows for the picture: its memory does not grow
with the data. `NumberReport` serves benchmarks that predict a few numbers for each sample, judged by their mean
absolute error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

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


# -- a few numbers for each sample ---------------------------------------------------------------------------


def absolute_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the absolute errors of numbers, and how many they are: float64 (2,)."""
    total = (predictions - targets).abs().sum(dtype=torch.float64)
    return torch.stack((total, torch.full_like(total, targets.numel())))


def number_columns(labels: tuple[str, ...], meaning: str) -> tuple[Column, ...]:
    """Return the columns for numbers with these names. meaning: what they are."""
    return (
        Column("predictions", "f4", f"{meaning}, as predicted: {', '.join(labels)}"),
        Column("targets", "f4", "the same, from the data"),
    )


class Scale(NamedTuple):
    """A predicted number of 0 stands for `middle`, and one of 1 for `half_range` more, in `unit`."""

    middle: float = 0.0
    half_range: float = 1.0
    unit: str = ""


class NumberReport(PredictionReport):
    """A table and a plot of errors. labels: the names of the numbers; columns: from `number_columns`."""

    labels: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self._points = Thinned()
        self._sums: np.ndarray = np.zeros((5, len(self.labels)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers in this variant of the problem."""
        return self.labels

    @property
    def scales(self) -> tuple[Scale, ...]:
        """How the picture reads each number; here as it is predicted."""
        return (Scale(),) * len(self.labels)

    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        return absolute_errors(columns["predictions"], columns["targets"])

    def count(self, rows: Rows) -> None:
        true: np.ndarray = rows["targets"].astype(np.float64)
        wrong = rows["predictions"] - true
        self._sums += np.stack([part.sum(axis=0) for part in (np.abs(wrong), wrong, wrong**2, true, true**2)])

    def keep(self, rows: Rows) -> None:
        self._points.add(np.stack((rows["targets"], rows["predictions"]), axis=1))

    def lines(self) -> Iterator[str]:
        """Yield for each number its errors, and the share of its variance that the predictions explain.

        "-" where the truth of the samples is all the same, as of one sample: it has no variance.
        """
        error, bias, square, t, t_t = self._sums / self.samples
        variance = np.maximum(t_t - t**2, 0.0)
        varies = variance > 1e-12 * t_t  # below, it is rounding
        width = max(8, *map(len, self.names))
        yield f"  {'':<{width}}{'mean |error|':>14}{'mean error':>12}{'rms error':>12}{'R²':>9}"
        for number, label in enumerate(self.names):
            share = f"{1 - square[number] / variance[number]:.4f}" if varies[number] else "-"
            errors = f"{error[number]:>14.5f}{bias[number]:>12.5f}{square[number] ** 0.5:>12.5f}"
            yield f"  {label:<{width}}{errors}{share:>9}"
        if not varies.all():
            yield "  R² is - where the samples do not differ in their truth, as with one sample"

    def draw(self, figure: Any) -> None:
        """Draw for each number the predictions over the truth in its unit, and the errors on one scale for all."""
        points: np.ndarray = self._points.rows.astype(np.float64)
        figure.set_size_inches(max(3.6 * len(self.labels) + 0.6, 8), 5.6)
        ratios = {"height_ratios": (2.2, 1)}
        axes = figure.subplots(2, len(self.labels), squeeze=False, sharex="col", gridspec_kw=ratios)
        dots: dict[str, Any] = {"marker": ".", "linestyle": "", "markersize": 3, "alpha": 0.5}
        largest = 1.05 * float(np.abs(points[:, 1] - points[:, 0]).max()) or 1.0
        for number, (label, scale) in enumerate(zip(self.names, self.scales, strict=True)):
            truth, predicted = scale.middle + scale.half_range * points[:, :, number].T
            upper, lower = axes[:, number]
            ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
            upper.plot(ends, ends, color="black", linewidth=0.8)
            upper.plot(truth, predicted, **dots)
            upper.set_title(label)
            lower.axhline(0, color="black", linewidth=0.8)
            lower.plot(truth, predicted - truth, **dots)
            lower.set_ylim(-largest * scale.half_range, largest * scale.half_range)
            lower.set_xlabel(f"true {label}" + (f", {scale.unit}" if scale.unit else ""))
        axes[0, 0].set_ylabel("predicted")
        axes[1, 0].set_ylabel("predicted - true\n(same part of each range)")
