"""Read batches by the pipeline that the configuration names: threads of our own, or NVIDIA DALI."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np
import torch

from common.data.prefetch import Batch, read_batches, timed
from deepcam.data.dataset import Dataset


def batches(dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device) -> Generator[Batch]:
    """Yield a batch for each array of indices, read ahead by threads; to be closed if it is not used up.

    x: float32 (B, H, W, C), as in the files. y: uint8 (B, H, W). What is wrong with a file is raised when its batch is
    due: see `Dataset.read`.
    """
    if dataset.config.pipeline == "dali":
        from deepcam.data import dali  # an optional package, and it takes a second to import

        return timed(dali.batches(dataset, indices, device), Batch)
    return timed(read_batches(dataset, indices, device), Batch)
