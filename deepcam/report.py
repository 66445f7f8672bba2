"""The report on DeepCAM's predictions: the class of each pixel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from common.training.predictions import SAMPLES, Column, PredictionReport, Rows
from deepcam.metrics import class_iou, sum_scores
from deepcam.reference import CLASSES

COLOURS: Final = ("#e8e8e8", "#d81b60", "#1e88e5")
"""Of the classes in a map."""
FIELD: Final = "field "
"""The column of the picture alone with a channel of the snapshots; its name and unit follow."""
NUMBERED: Final = ", ".join(f"{number} {name}" for number, name in enumerate(CLASSES))


class Report(PredictionReport):
    """IoU of each class, confusion, and maps of the first snapshots."""

    columns = (
        Column("predictions", "u1", f"predicted class of each pixel: {NUMBERED}"),
        Column("targets", "u1", "the same, from the data"),
    )

    ending = ".h5"

    def __init__(self) -> None:
        super().__init__()
        self.confusion_KK: np.ndarray = np.zeros((len(CLASSES), len(CLASSES)), np.int64)
        self._iou_K = torch.zeros(len(CLASSES), dtype=torch.float64)
        self._maps: list[tuple[np.ndarray, ...]] = []
        self._field = ""

    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        return sum_scores(columns["predictions"], columns["targets"])

    def count(self, rows: Rows) -> None:
        predicted, true = rows["predictions"], rows["targets"]
        self._iou_K += class_iou(torch.from_numpy(predicted), torch.from_numpy(true)).sum(dim=0)
        pairs = np.bincount((true * np.uint8(len(CLASSES)) + predicted).ravel(), minlength=len(CLASSES) ** 2)
        self.confusion_KK += pairs.reshape(self.confusion_KK.shape)

    def keep(self, rows: Rows) -> None:
        for field in [name for name in rows if name.startswith(FIELD)]:
            self._field = field.removeprefix(FIELD)
            columns = ("names", field, "targets", "predictions")
            for row in range(min(SAMPLES - len(self._maps), len(rows[field]))):
                self._maps.append(tuple(rows[column][row].copy() for column in columns))

    def lines(self) -> Iterator[str]:
        """Yield the IoU of the classes, and the share of each true class (row) that was predicted as which."""
        both_K = self.confusion_KK.diagonal()
        either_K = self.confusion_KK.sum(axis=0) + self.confusion_KK.sum(axis=1) - both_K
        width = max(map(len, CLASSES)) + 2
        yield f"  {'class':<{width}}{'IoU, mean of images':>21}{'IoU of all pixels':>19}"
        for label, name in enumerate(CLASSES):
            of_images, pooled = self._iou_K[label] / self.samples, both_K[label] / max(1, either_K[label])
            yield f"  {name:<{width}}{of_images:>21.5f}{pooled:>19.5f}"
        yield "  confusion: of the pixels of a true class (row), the % that were predicted as (column)"
        yield f"  {'':<{width}}{''.join(f'{name:>{width}}' for name in CLASSES)}{'pixels':>16}"
        for label, name in enumerate(CLASSES):
            pixels = int(self.confusion_KK[label].sum())
            shares = "".join(f"{100 * number / max(1, pixels):>{width}.3f}" for number in self.confusion_KK[label])
            yield f"  {name:<{width}}{shares}{pixels:>16,}"

    def draw(self, figure: Any) -> None:
        """Draw for each of the first snapshots the field, the true map and the predicted one, side by side."""
        from matplotlib.colors import ListedColormap  # an optional package
        from matplotlib.patches import Patch

        figure.set_size_inches(14, 2.7 * len(self._maps) + 0.7)
        axes = figure.subplots(len(self._maps), 3, squeeze=False, sharex=True, sharey=True)
        where: dict[str, Any] = {"origin": "lower", "extent": (0, 360, -90, 90), "aspect": "auto"}
        classes = where | {"cmap": ListedColormap(COLOURS), "vmin": 0, "vmax": len(CLASSES) - 1}
        for row, (name, field, true, predicted) in enumerate(self._maps):
            image = axes[row, 0].imshow(field, cmap="YlGnBu_r", **where)
            figure.colorbar(image, ax=axes[row, 0], pad=0.01)
            axes[row, 1].imshow(true, interpolation="none", **classes)
            axes[row, 2].imshow(predicted, interpolation="none", **classes)
            axes[row, 0].set_ylabel(f"{name}\nlatitude (°)", fontsize=8)
        for axis, title in zip(axes[0], (self._field, "truth", "prediction"), strict=True):
            axis.set_title(title)
        for axis in axes[-1]:
            axis.set_xlabel("longitude (°)")
        marks = [Patch(color=colour, label=name) for colour, name in zip(COLOURS, CLASSES, strict=True)]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(CLASSES))
