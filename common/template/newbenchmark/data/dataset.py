"""Samples of New Benchmark: which files they are in, and how they are read.

A sample is two files of numpy: `<name>_field.npy`, float32 (side, side), and `<name>_label.npy`, float32 (1,).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from common.data.arrays import ArrayError, npy_array
from common.data.split import DatasetError, Split
from torch import Tensor

from newbenchmark.data.files import FIELD, LABEL
from newbenchmark.settings import DataConfig


class Dataset(Split):
    """The samples of one folder, sorted by name.

    Raises DatasetError if the folder is missing or empty, or has fewer samples than the configuration asks for.
    """

    config: DataConfig

    def __init__(self, folder: Path, config: DataConfig, samples: int | None = None) -> None:
        super().__init__(folder, _find_samples(folder), samples, config)

    def files_of(self, index: int) -> tuple[str, ...]:
        """Return the names of the files of a sample, below data_dir."""
        return tuple(f"{self.split}/{self.names[index]}{ending}" for ending in (FIELD, LABEL))

    def buffer(self, count: int, pinned: bool) -> tuple[Tensor, Tensor]:
        """Return memory for the fields and labels of `count` samples; part i of each is the array of a sample."""
        side = self.config.side
        return torch.empty((count, side, side), pin_memory=pinned), torch.empty((count, 1), pin_memory=pinned)

    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """Read a sample from its files; DatasetError for another shape or type, or a damaged file."""
        for path, array in zip(self.paths(index), into, strict=True):
            try:
                stored = npy_array(path)
                if (stored.shape, stored.dtype) != (array.shape, array.dtype):
                    expected = f"expected {array.dtype} {array.shape}; is data.side right?"
                    raise DatasetError(f"{path}: found {stored.dtype} {stored.shape}, {expected}")
                stored.read_values(array)
            except ArrayError as error:
                raise DatasetError(str(error)) from error


def _find_samples(folder: Path) -> list[str]:
    """Return the sorted names of the samples of a folder."""
    try:
        names = sorted(name.removesuffix(FIELD) for name in os.listdir(folder) if name.endswith(FIELD))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatasetError(
            f"{folder} is not a folder: data.data_dir must contain train/ and validation/; "
            "`python -m newbenchmark.synthesize` makes them"
        ) from error
    if not names:
        raise DatasetError(f"{folder} has no samples: expected files *{FIELD} and *{LABEL}")
    return names
