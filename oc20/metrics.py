"""The quality of OC20: the mean absolute error of the forces on free atoms. A atoms."""

from __future__ import annotations

import torch
from torch import Tensor


def force_errors(forces_A3: Tensor, targets_A3: Tensor, free_A: Tensor) -> Tensor:
    """Return the errors of forces, float64 (A, 3), in the unit of both; 0 on atoms that are not free."""
    return (forces_A3.double() - targets_A3.double()) * free_A[:, None]


def absolute_errors(wrong_A3: Tensor, free_A: Tensor) -> Tensor:
    """Return the sum of the absolute errors over components of free atoms, and their number: float64 (2,)."""
    return torch.stack((wrong_A3.abs().sum(), wrong_A3.shape[1] * free_A.sum(dtype=torch.float64)))
