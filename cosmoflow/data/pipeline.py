"""Read batches by the configured pipeline: the suite's own threads, or NVIDIA DALI."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np
import torch

from common.data.prefetch import TensorBatch, read_batches, time_batches
from cosmoflow.data.dataset import Dataset


def load_batches(dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield a batch for each array of indices, read ahead by threads; close it if it is not exhausted.

    x: int16 (B, D, H, W, C). y: float32 (B, 4). An error of a file is raised when its batch is due: see `Dataset.read`.
    """
    if dataset.config.pipeline == "dali":
        from cosmoflow.data import dali  # an optional package, and it takes a second to import

        return time_batches(dali.load_batches(dataset, indices, device), TensorBatch)
    return read_batches(dataset, indices, device)
