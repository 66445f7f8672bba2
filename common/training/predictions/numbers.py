"""The report of benchmarks that predict a few numbers for each sample, judged by their mean absolute error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from common.training.predictions.file import Column, Rows
from common.training.predictions.report import PredictionReport, Thinned


def absolute_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the absolute errors of numbers, and how many they are: float64 (2,)."""
    total = (predictions - targets).abs().sum(dtype=torch.float64)
    return torch.stack((total, torch.full_like(total, targets.numel())))


def number_columns(labels: tuple[str, ...], meaning: str) -> tuple[Column, ...]:
    """Return the columns for numbers with these names. meaning: what they are."""
    shape = (len(labels),)
    return (
        Column("predictions", "f4", shape, f"{meaning}, as predicted: {', '.join(labels)}"),
        Column("targets", "f4", shape, "the same, from the data", truth=True),
    )


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

    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        return absolute_errors(columns["predictions"], columns["targets"])

    def count(self, rows: Rows) -> None:
        true: np.ndarray = rows["targets"].astype(np.float64)
        wrong = rows["predictions"] - true
        self._sums += np.stack([part.sum(axis=0) for part in (np.abs(wrong), wrong, wrong**2, true, true**2)])

    def keep(self, rows: Rows) -> None:
        self._points.add(np.stack((rows["targets"], rows["predictions"]), axis=1))

    def facts(self) -> dict[str, Any]:
        """Return for each number its errors, and the share of its variance that the predictions explain."""
        error, bias, square, t, t_t = self._sums / self.samples
        explained = 1 - square / np.maximum(t_t - t**2, 1e-30)
        columns = zip(error.tolist(), bias.tolist(), (square**0.5).tolist(), explained.tolist(), strict=True)
        names = ("mean_absolute_error", "mean_error", "rms_error", "r2")
        return {label: dict(zip(names, found, strict=True)) for label, found in zip(self.names, columns, strict=True)}

    def lines(self) -> Iterator[str]:
        """Yield the table of `facts`."""
        width = max(8, *map(len, self.names))
        yield f"  {'':<{width}}{'mean |error|':>14}{'mean error':>12}{'rms error':>12}{'R²':>9}"
        for label, of in self.facts().items():
            yield (
                f"  {label:<{width}}{of['mean_absolute_error']:>14.5f}{of['mean_error']:>12.5f}{of['rms_error']:>12.5f}"
                f"{of['r2']:>9.4f}"
            )

    def draw(self, figure: Any) -> None:
        """Draw for each number the predictions over the truth, and below them the residuals."""
        points = self._points.rows
        figure.set_size_inches(3.6 * len(self.labels) + 0.6, 5.2)
        axes = figure.subplots(
            2, len(self.labels), squeeze=False, sharex="col", gridspec_kw={"height_ratios": (2.2, 1)}
        )
        dots: dict[str, Any] = {"marker": ".", "linestyle": "", "markersize": 3, "alpha": 0.5}
        for place, label in enumerate(self.names):
            truth, predicted = points[:, 0, place], points[:, 1, place]
            upper, lower = axes[:, place]
            ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
            upper.plot(ends, ends, color="black", linewidth=0.8)
            upper.plot(truth, predicted, **dots)
            upper.set_title(label)
            lower.axhline(0, color="black", linewidth=0.8)
            lower.plot(truth, predicted - truth, **dots)
            lower.set_xlabel("truth")
        axes[0, 0].set_ylabel("prediction")
        axes[1, 0].set_ylabel("prediction - truth")
