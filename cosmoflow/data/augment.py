"""Augment samples at random, for the open division (`data.augment`).

A universe has no preferred direction or centre; one that drifts has a direction, which turns with it.
"""

from __future__ import annotations

from itertools import permutations, product
from typing import Final

import numpy as np
import torch
from torch import Tensor

SYMMETRIES: Final = tuple(product(permutations((0, 1, 2)), product((False, True), repeat=3)))
"""The 48 symmetries of a cube: the order of its axes, and for each axis whether it is reversed."""


def augment_batch(x: Tensor, seeds: np.ndarray, roll_step: int = 0) -> Tensor:
    """Return each sample under a random symmetry of the cube; with `roll_step` also shifted periodically on each axis.

    x: (B, N, N, N, C), any device, not modified. seeds: uint64 (B,), the only source of randomness.
    roll_step: shifts are multiples of this number of voxels; 0: none.
    Sample by sample, without waiting for the device: one gather for the whole batch would need an index of 8 bytes per
    voxel.
    Shifts are valid for a whole box only: opposite sides of a sub-volume, as in the published data, do not match.
    """
    side = x.shape[1]
    changed = torch.empty_like(x)
    for source, target, seed in zip(x, changed, seeds.tolist(), strict=True):
        second, third, last = (seed >> shift & 0xFFFF for shift in (16, 32, 48))
        order, reversals = choose_symmetry(seed)
        source = source.permute(*order, 3).flip([axis for axis in range(3) if reversals[axis]])
        if roll_step:
            shifts = [(number * (side // roll_step) >> 16) * roll_step for number in (second, third, last)]
            source = source.roll(shifts, (0, 1, 2))
        target.copy_(source)
    return changed


def turn_labels(y: Tensor, seeds: np.ndarray) -> Tensor:
    """Return the labels turned as `augment_batch` turns their samples: all but the first are a vector along the axes.

    y: (B, 4), any device, not modified.
    """
    drawn = [choose_symmetry(seed) for seed in seeds.tolist()]
    order = torch.tensor([order for order, _ in drawn]).reshape(-1, 3).to(y.device)
    sign = torch.tensor([[-1.0 if reverse else 1.0 for reverse in reversals] for _, reversals in drawn])
    return torch.cat((y[:, :1], y[:, 1:].gather(1, order) * sign.reshape(-1, 3).to(y.device)), 1)


def choose_symmetry(seed: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the symmetry that the lowest 16 bits of a seed choose."""
    return SYMMETRIES[(seed & 0xFFFF) * len(SYMMETRIES) >> 16]
