"""Read batches by NVIDIA DALI from raw TFRecord or npy files, and copy them to the GPU if there is one.

DALI cannot read gzipped TFRecord: stage such data with staging.inflate=true, or use the native pipeline.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.dali import dali_batches  # first: its error says what to install
from common.data.prefetch import TensorBatch, time_batches
from cosmoflow.data import tfrecord
from cosmoflow.data.dataset import Dataset, DatasetError

# isort: split
from nvidia.dali import fn, types
from nvidia.dali import tfrecord as features


def load_batches(dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device) -> Generator[TensorBatch]:
    """Yield x, y and indices for each array of indices, as the native pipeline does. `indices` must end.

    DatasetError for records that DALI cannot read: gzipped ones and those of another size than the first.
    """
    with tempfile.TemporaryDirectory(prefix="cosmoflow-dali-") as scratch:
        tfrecords = partial(_build_tfrecord_nodes, scratch=Path(scratch))
        read = _build_npy_nodes if dataset.config.format == "npy" else tfrecords
        yield from time_batches(dali_batches(dataset, indices, device, partial(read, dataset)))


def _build_npy_nodes(dataset: Dataset, order: np.ndarray) -> tuple[Any, Any]:
    files = zip(*(map(str, map(Path.absolute, dataset.paths(index))) for index in order), strict=True)
    x, y = (fn.readers.numpy(files=list(paths)) for paths in files)
    return x, y


def _build_tfrecord_nodes(dataset: Dataset, order: np.ndarray, scratch: Path) -> tuple[Any, Any]:
    """Return the nodes of voxels and labels; the first record is also read here, so that damage has a clear error."""
    paths = [path for index in order for path in dataset.paths(index)]
    with paths[0].open("rb") as file:
        if file.read(2) == tfrecord.GZIP_MAGIC:
            raise DatasetError(
                f"{paths[0]} is gzipped, which DALI cannot read: set staging.inflate=true or data.pipeline=native"
            )
    dataset.read(int(order[0]))
    size = paths[0].stat().st_size
    for path in set(paths):
        if (actual_size := path.stat().st_size) != size:
            raise DatasetError(
                f"{path}: {actual_size} bytes, but {paths[0].name} has {size}; DALI needs records of one size"
            )
    index_file = scratch / "index"  # one for all files: offset and size of the only record are the same
    index_file.write_text(f"0 {size}\n")
    read = fn.readers.tfrecord(
        path=[str(path) for path in paths],
        index_path=[str(index_file)] * len(paths),
        features={
            "x": features.FixedLenFeature((), features.string, ""),
            "y": features.FixedLenFeature([tfrecord.LABELS], features.float32, 0.0),
        },
    )
    return fn.reinterpret(read["x"], dtype=types.INT16, shape=dataset.config.sample_shape), read["y"]
