"""The loss of DeepCAM: cross-entropy with weights for the rare classes. B images, K classes, H rows, W columns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(logits_BKHW: Tensor, labels_BHW: Tensor, weights_K: Tensor) -> Tensor:
    """Return the sum over the images of the mean over the pixels of the weighted cross-entropy; 0 without images.

    As in the reference, the mean is over all pixels: torch's would be divided by the sum of their weights. It is
    computed in float32 or better, whatever the format of the logits; labels are of any integer type.
    """
    logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
    # "none" and our own sum: the reductions of the CUDA kernel depend on the order of its threads.
    losses_BHW = functional.cross_entropy(logits_BKHW, labels_BHW.long(), weights_K, reduction="none")
    return losses_BHW.mean((1, 2)).sum()
