"""Read batches by NVIDIA DALI from npy files, and copy them to the GPU if there is one.

The first sample is also read by the native pipeline, so that wrong files have a clear error; the labels of the others
are not checked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from common.data.dali import dali_batches  # first: its error says what to install
from common.data.prefetch import TensorBatch, time_batches
from deepcam.data.dataset import Dataset

# isort: split
from nvidia.dali import fn, types


def load_batches(dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield x, y and indices for each array of indices, as the native pipeline does. `indices` must end."""
    channels = dataset.config.selection
    for batch in time_batches(dali_batches(dataset, indices, device, partial(_build_nodes, dataset))):
        x = batch.x
        if channels is not None:
            x = x[..., list(channels)] if len(x) else x.new_empty((0, *dataset.config.sample_shape))
        yield replace(batch, x=x)


def _build_nodes(dataset: Dataset, order: np.ndarray) -> tuple[Any, Any]:
    dataset.read(int(order[0]))
    direct = dataset.config.direct
    files = zip(*(map(str, dataset.paths(index)) for index in order), strict=True)
    x, y = (fn.readers.numpy(files=list(paths), use_o_direct=direct, dont_use_mmap=direct) for paths in files)
    return x, fn.cast(y, dtype=types.UINT8)
