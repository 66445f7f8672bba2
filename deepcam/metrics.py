"""The loss of DeepCAM, cross-entropy with weights for the rare classes, and its quality, intersection over union.

Shapes: B images, K classes, H rows, W columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deepcam.reference import CLASSES


def cross_entropy(logits_BKHW: Tensor, labels_BHW: Tensor, weights_K: Tensor) -> Tensor:
    """Return the sum over the images of the mean over the pixels of the weighted cross-entropy; 0 without images.

    As in the reference, the mean is over all pixels: torch's would be divided by the sum of their weights. It is
    computed in float32 or better, whatever the format of the logits; labels are of any integer type.
    """
    logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
    # "none" and our own sum: the reductions of the CUDA kernel depend on the order of its threads.
    losses_BHW = F.cross_entropy(logits_BKHW, labels_BHW.long(), weights_K, reduction="none")
    return losses_BHW.mean((1, 2)).sum()


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
