"""The quality of DeepCAM: intersection over union. B images, K classes, H rows, W columns."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcam.reference import CLASSES


def class_iou(prediction_BHW: Tensor, labels_BHW: Tensor) -> Tensor:
    """Return for each image and class the pixels in both masks over those in either, and 1 for a class in neither.

    (B, K) in float64, from exact counts. An image's score is its mean over the classes, background included, and the
    benchmark's quality the mean score of all images: pixels of different images are never counted together.
    """
    right_BHW = torch.where(prediction_BHW == labels_BHW, labels_BHW, len(CLASSES))
    both_BK, predicted_BK, labelled_BK = map(_count_pixels, (right_BHW, prediction_BHW, labels_BHW))
    either_BK = predicted_BK + labelled_BK - both_BK
    return torch.where(either_BK > 0, both_BK.double() / either_BK, 1.0)


def sum_scores(prediction_BHW: Tensor, labels_BHW: Tensor) -> Tensor:
    """Return the sum of the scores of the images, and their number: float64 (2,)."""
    scores_B = class_iou(prediction_BHW, labels_BHW).mean(dim=1)
    return torch.stack((scores_B.sum(), torch.full((), len(scores_B), dtype=scores_B.dtype, device=scores_B.device)))


def _count_pixels(classes_BHW: Tensor) -> Tensor:
    """Return (B, K): how many pixels of each image are of each class."""
    return torch.stack([(classes_BHW == number).sum((1, 2)) for number in range(len(CLASSES))], dim=1)
