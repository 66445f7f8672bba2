"""Read batches by the configured pipeline: the suite's own threads, or NVIDIA DALI."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from common.data.prefetch import TensorBatch, read_batches
from cosmoflow.data.dataset import Dataset
from cosmoflow.data.narrow import Body


def load_batches(dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield a batch for each array of indices, read ahead by threads; close it if it is not exhausted.

    x: int16 (B, D, H, W, C). y: float32 (B, 4). An error of a file is raised when its batch is due: see `Dataset.read`.
    """
    if dataset.config.pipeline == "dali":
        from cosmoflow.data import dali  # an optional package, and it takes a second to import

        return dali.load_batches(dataset, indices, device)
    read = read_batches(dataset, indices, device)
    return _widen_batches(read, dataset.body) if dataset.config.format == "narrow" else read


def _widen_batches(narrow: Generator[TensorBatch], body: Body) -> Generator[TensorBatch]:
    """Yield the batches with int16 counts; on a CPU the readers have made them."""
    with closing(narrow) as read:
        for batch in read:
            yield replace(batch, x=widen_counts(batch.x, body)) if batch.x.dtype == torch.uint8 else batch


def widen_counts(bodies: Tensor, body: Body) -> Tensor:
    """Return the counts, int16 (B, D, H, W, C), in the bodies of narrow samples, uint8 (B, n), on the same device.

    Two passes, and the shapes do not depend on the data.
    """
    entries = body.entries
    index, value, counts = bodies.tensor_split((4 * entries, 6 * entries), dim=1)
    x = counts[:, : body.counts].to(torch.int16)
    x.scatter_(1, index.view(torch.int32).to(torch.int64), value.view(torch.int16))
    return x.view(-1, *body.sides)
