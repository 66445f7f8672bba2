"""Raw universes, one HDF5 file each, as the simulations published them.

    full       int16 (N, N, N, 4)   particles per voxel at the redshifts 0, 0.5, 1.5 and 3
    unitPar    4 floats             labels in [-1, 1]: Omega_m, sigma_8, n_s, H_0, or as `namePar` says
    physPar    4 floats             the same in physical units
    namePar    4 strings
    redshifts  4 floats

Only `full` and `unitPar` are read: the others follow from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from common.data.build import BadItemError
from common.data.hdf5 import get_dataset, name_damage, open_hdf5
from common.files import whole_file
from cosmoflow.data.sample_files import CHANNELS
from cosmoflow.simulation import REDSHIFTS, Prior

PUBLISHED_NAMES = {"omega_m": "Omega_m", "n_s": "N_spec", "h_0": "H_0"}
"""Of parameters whose published name is another one."""


@dataclass(frozen=True)
class RawUniverse:
    """An open file with checked shape, type and labels.

    labels: float32 (4,) in [-1, 1]. grid: voxels per side.
    """

    path: Path
    labels: np.ndarray
    grid: int
    counts: Any  # h5py.Dataset

    def read_slabs(self, thickness: int) -> Iterator[np.ndarray]:
        """Yield the counts in slabs along the first axis: int16 (thickness, grid, grid, 4).

        BadItemError for damaged chunks, and for negative counts, which an overflow of int16 leaves.
        """
        for start in range(0, self.grid, thickness):
            rows = f"{self.path}: `full` in rows {start} to {start + thickness - 1}"
            with name_damage(rows):
                slab = np.asarray(self.counts[start : start + thickness], "<i2")
            if slab.min() < 0:
                raise BadItemError(f"{rows}: negative particle counts, down to {slab.min()}; expected 0 or more")
            yield slab


@contextmanager
def open_universe(path: Path) -> Iterator[RawUniverse]:
    """Open a universe, and close it at the end of the `with`.

    BadItemError unless it is an HDF5 file with int16 counts (N, N, N, 4) and four finite labels in [-1, 1].
    """
    with open_hdf5(path) as file:
        counts = get_dataset(file, "full", path)
        shape = counts.shape
        if len(shape) != 4 or shape[3] != CHANNELS or len(set(shape[:3])) != 1:
            raise BadItemError(f"{path}: `full` has the shape {shape} where (N, N, N, {CHANNELS}) was expected")
        if counts.dtype.kind != "i" or counts.dtype.itemsize != 2:
            raise BadItemError(f"{path}: `full` has the type {counts.dtype} where int16 was expected")
        with name_damage(f"{path}: `unitPar`"):
            labels: np.ndarray = np.asarray(get_dataset(file, "unitPar", path)[()], np.float32)
        if labels.shape != (4,) or not np.all(np.abs(labels) <= 1):  # NaN compares false
            raise BadItemError(
                f"{path}: `unitPar` is {labels.tolist()} where four numbers in [-1, 1] were expected: scale physical "
                "values, each by the whole range of its parameter in the simulations"
            )
        yield RawUniverse(path, labels, shape[0], counts)


def write_universe(path: Path, counts: np.ndarray, labels: np.ndarray, prior: Prior) -> None:
    """Write a universe to a file, whole or not at all.

    counts: int16 (N, N, N, 4). labels: float32 (4,), read through `prior` for `physPar`.
    """
    with whole_file(path) as part, h5py.File(part, "w") as file:
        file["full"] = counts
        file["unitPar"] = labels
        file["physPar"] = np.array(prior.physical(labels))
        file["namePar"] = np.array([PUBLISHED_NAMES.get(name, name) for name in prior.ranges], "S")
        file["redshifts"] = np.array(REDSHIFTS)
