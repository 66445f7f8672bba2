"""The trained DeepCAM network with its preprocessing: snapshots as in the data files in, scores of the classes out.

Its loss, cross-entropy with weights for the rare classes; its quality, intersection over union; and the report on its
predictions, the class of each pixel. Shapes: B images, K classes, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.training import benchmark
from common.training.predictions import SAMPLES, Column, PredictionReport, Rows
from deepcam.data import values
from deepcam.data.dataset import Normalization
from deepcam.data.values import Range
from deepcam.model import DeepLab
from deepcam.reference import CHANNELS, CLASSES


def cross_entropy(logits_BKHW: Tensor, labels_BHW: Tensor, weights_K: Tensor) -> Tensor:
    """Return the sum over the images of the mean over the pixels of the weighted cross-entropy; 0 without images.

    As in the reference, the mean is over all pixels: torch's would be divided by the sum of their weights. It is
    computed in float32 or better, whatever the format of the logits; labels are of any integer type.
    """
    logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
    # "none" and our own sum: the reductions of the CUDA kernel depend on the order of its threads.
    losses_BHW = F.cross_entropy(logits_BKHW, labels_BHW.long(), weights_K, reduction="none")
    return losses_BHW.mean((1, 2)).sum()


def sum_pixel_losses(logits_BKHW: Tensor, labels_BHW: Tensor, weights_K: Tensor) -> Tensor:
    """Return what `cross_entropy` does, in operations that torch.compile makes one kernel of in each direction.

    It reads logits in any layout and labels as bytes, and keeps the classes of a pixel in registers.
    """
    logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
    surprise_BKHW = logits_BKHW.logsumexp(1, keepdim=True) - logits_BKHW
    classes_K11 = torch.arange(len(weights_K), dtype=labels_BHW.dtype, device=labels_BHW.device)[:, None, None]
    weights_BKHW = torch.where(labels_BHW[:, None] == classes_K11, weights_K[:, None, None], 0)
    return (weights_BKHW * surprise_BKHW).sum(1).mean((1, 2)).sum()


def class_iou(prediction_BHW: Tensor, labels_BHW: Tensor) -> Tensor:
    """Return for each image and class the pixels in both masks over those in either, and 1 for a class in neither.

    (B, K) in float64, from exact counts. An image's score is its mean over the classes, background included, and the
    benchmark's quality the mean score of all images: pixels of different images are never counted together.
    """
    right_BHW = torch.where(prediction_BHW == labels_BHW, labels_BHW, len(CLASSES))
    both_BK, predicted_BK, labelled_BK = (
        torch.stack([(classes_BHW == number).sum((1, 2)) for number in range(len(CLASSES))], dim=1)
        for classes_BHW in (right_BHW, prediction_BHW, labels_BHW)
    )
    either_BK = predicted_BK + labelled_BK - both_BK
    return torch.where(either_BK > 0, both_BK.double() / either_BK, 1.0)


def sum_scores(prediction_BHW: Tensor, labels_BHW: Tensor) -> Tensor:
    """Return the sum of the scores of the images, and their number: float64 (2,)."""
    scores_B = class_iou(prediction_BHW, labels_BHW).mean(dim=1)
    return torch.stack((scores_B.sum(), torch.full((), len(scores_B), dtype=scores_B.dtype, device=scores_B.device)))


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


class Predictor(benchmark.Predictor):
    """The class of each grid point; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network."""
        return DeepLab(config.model, len(config.data.channels))

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return the steps around the network, with the extremes of each channel from stats.h5."""
        data, extremes = config.data, values.read_range(config.data.data_dir / values.NAME)
        chosen = list(data.channels)
        return {
            "input": {
                "shape": ["batch", data.height, data.width, len(CHANNELS)],
                "type": "float32",
                "channels": [channel._asdict() for channel in CHANNELS],
            },
            "preprocessing": {
                "first": "the channels with these numbers",
                "channels": chosen,
                "then": "(x - minval) / (maxval - minval) of each",
                "minval": extremes.minval[chosen].tolist(),
                "maxval": extremes.maxval[chosen].tolist(),
            },
            "output": {
                "shape": ["batch", len(CLASSES), data.height, data.width],
                "type": "float32",
                "unit": "logit of each class; the greatest is the class of a grid point",
                "classes": list(CLASSES),
            },
        }

    def forward(self, snapshots_BHWC: Tensor | np.ndarray) -> Tensor:
        """Return the logits (B, K, H, W) of float32 snapshots (B, H, W, C) with all 16 channels, in their units."""
        x_BHWC = torch.as_tensor(snapshots_BHWC, device=self.device)
        if x_BHWC.dtype != torch.float32 or x_BHWC.dim() != 4 or x_BHWC.shape[-1] != len(CHANNELS):
            raise TypeError(
                f"snapshots are {x_BHWC.dtype} {tuple(x_BHWC.shape)}; expected float32 (batch, H, W, {len(CHANNELS)})"
            )
        facts = self.interface["preprocessing"]
        extremes = Range(*(np.array(facts[name], np.float64) for name in ("minval", "maxval")))
        normalize = Normalization(extremes, range(len(extremes.minval)), self.device)
        return self.model(normalize(x_BHWC[..., facts["channels"]])).float()
