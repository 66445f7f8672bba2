"""Batches read by NVIDIA DALI and copied by it to the GPU, if there is one: the part that all benchmarks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from common.data.prefetch import AHEAD, TensorBatch, reading_threads
from common.data.split import Split

try:
    from nvidia.dali.pipeline import Pipeline
    from nvidia.dali.plugin.pytorch import DALIGenericIterator
except ImportError as error:
    raise ValueError(
        "data.pipeline=dali needs NVIDIA DALI: pip install nvidia-dali-cuda130, or nvidia-dali-cuda120 for a driver "
        "of CUDA 12; or set data.pipeline=native"
    ) from error


def dali_batches(
    samples: Split,
    indices: Iterable[np.ndarray],
    device: torch.device,
    read: Callable[[np.ndarray], tuple[Any, Any]],
) -> Iterator[TensorBatch]:
    """Yield a batch for each array of indices, as `prefetch.read_batches` does but not timed. `indices` must end.

    read: called with all indices in order, within a pipeline; returns the nodes of x and y.
    """
    steps = list(indices)
    filler = next((step for step in steps if len(step)), None)
    if filler is None:
        for step in steps:
            x, y = samples.buffer(0, pinned=False)
            yield TensorBatch(x.to(device), y.to(device), step)
        return
    # DALI's batches all have one size: smaller ones are padded here, and cut to size afterwards.
    width = max(map(len, steps))
    order = np.concatenate([np.resize(step if len(step) else filler, width) for step in steps])
    pipeline = Pipeline(
        batch_size=width,
        num_threads=reading_threads(samples.config.workers, device),
        device_id=None if device.type == "cpu" else torch.accelerator.current_device_index(),
        prefetch_queue_depth=AHEAD,
    )
    with pipeline:
        x, y = read(order)
        pipeline.set_outputs(*((x, y) if device.type == "cpu" else (x.gpu(), y.gpu())))
    for step, (batch,) in zip(steps, DALIGenericIterator(pipeline, ["x", "y"]), strict=False):  # it never ends
        yield TensorBatch(batch["x"][: len(step)], batch["y"][: len(step)], step)
