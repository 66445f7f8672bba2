"""Augment snapshots at random, for the open division (`data.augment`).

The symmetries are those of the planet: longitude and hemisphere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from common.data.prefetch import send_values
from deepcam.reference import CHANNELS

NORTHWARD: Final = frozenset(i for i, channel in enumerate(CHANNELS) if channel.name in ("V850", "VBOT"))
"""Channels whose sign distinguishes north from south."""


def augment_batch(x_BHWC: Tensor, y_BHW: Tensor, seeds: np.ndarray, channels: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return each snapshot with its labels, rolled around the planet and, with even odds, mirrored at the equator.

    x_BHWC: values as in the files, not normalised; any device, not modified. y_BHW: labels. seeds: uint64 (B,), the
    only source of randomness. channels: their numbers, in the order of the last axis.
    Mirrored winds blow to the other pole, and turn the other way around a low, as on the other hemisphere. Mountains
    and seasons are not symmetric: a mirrored snapshot is similar to real ones, but not one of them.
    """
    height, width = y_BHW.shape[1:]
    device = x_BHWC.device
    # The low half of the bits is a fraction of a turn; the highest bit decides about mirroring.
    drawn = ((seeds & np.uint64(0xFFFFFFFF)) * np.uint64(width) >> np.uint64(32), seeds >> np.uint64(63))
    turns, mirrored = send_values(np.stack(drawn).astype(np.int64), device)
    columns_BW = (torch.arange(width, device=device) - turns[:, None]) % width
    rows_BH = (torch.arange(height, device=device) - mirrored[:, None] * (height - 1)).abs()
    cells = (torch.arange(len(seeds), device=device)[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :])
    moved = x_BHWC[cells]
    sign_B = (1 - 2 * mirrored).to(moved.dtype)
    for i, channel in enumerate(channels):  # a list of indices would be copied to the device, which waits
        if channel in NORTHWARD:
            moved[..., i] *= sign_B[:, None, None]
    return moved, y_BHW[cells]
