"""The loss of DeepCAM: cross-entropy with weights for the rare classes. B images, K classes, H rows, W columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

CLASS_FREQUENCIES: Final = (0.986267818390377, 0.0004578708870701058, 0.01327431072255291)
"""Shares of the pixels of the full dataset: background, tropical cyclones, atmospheric rivers (mlcommons/hpc)."""


def class_weights(frequencies: Sequence[float] = CLASS_FREQUENCIES) -> tuple[float, ...]:
    """Return frequency^(-1/8) of each class; of the full dataset 1.00173, 2.61461, 1.71642."""
    return tuple(float(frequency**-0.125) for frequency in frequencies)


def cross_entropy(logits_BKHW: Tensor, labels_BHW: Tensor, weights_K: Tensor) -> Tensor:
    """Return the sum over the images of the mean over the pixels of the weighted cross-entropy; 0 without images.

    As in the reference, the mean is over all pixels: torch's own would be divided by the sum of their weights. It is
    computed in float32 or better, whatever the format of the logits; labels are of any integer type.
    """
    logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
    # "none" and a sum of our own: the reductions of the CUDA kernel depend on the order of its threads.
    losses_BHW = functional.cross_entropy(logits_BKHW, labels_BHW.long(), weights_K, reduction="none")
    return losses_BHW.mean((1, 2)).sum()
