"""Published snapshots of the climate, one HDF5 file each.

    climate/data       float32 (768, 1152, 16)   latitude, longitude, channel: see CHANNELS
    climate/labels_0   int32 (768, 1152)         class of each pixel: see CLASSES; readers take any type of number

The published files have more (labels_1, *_stats), which the benchmark does not use. `climate/data` and `labels_0` are
usually contiguous: then they are read without HDF5, whose library serialises all threads.

`prepare` also makes two files of numpy of each: `data-X.npy`, float32 (H, W, C), and `label-X.npy`, (H, W), of any
type of number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from common.data.arrays import StoredArray, npy_array
from common.data.build import BadItemError
from common.data.hdf5 import get_dataset, name_damage, open_hdf5
from common.files import whole_file
from deepcam.reference import CLASSES

DATA: Final = "climate/data"
LABELS: Final = "climate/labels_0"
NPY_DATA, NPY_LABEL, NPY = "data-", "label-", ".npy"
"""How the names of both files of numpy begin and end."""


def find_snapshots(folder: Path) -> list[str]:
    """Return the sorted names of the snapshots in a folder; OSError if it cannot be listed."""
    return sorted(name for name in os.listdir(folder) if name.startswith("data") and name.endswith(".h5"))


def write_snapshot(path: Path, data_HWC: np.ndarray, labels_HW: np.ndarray) -> None:
    """Write a snapshot in the published layout, contiguous, whole or not at all."""
    with whole_file(path) as part, h5py.File(part, "w") as file:
        file.create_dataset(DATA, data=data_HWC, dtype="<f4")
        file.create_dataset(LABELS, data=labels_HW, dtype="<i4")


@dataclass(frozen=True, slots=True)
class SnapshotBuffer:
    """The arrays into which a snapshot is read.

    data_HWC: float32. labels_HW: uint8. Both in C order.
    channels: numbers of the channels along the last axis of `data_HWC`; None: all channels of the file.
    direct: read past the kernel's cache, see `StoredArray.read_blocks`.
    """

    data_HWC: np.ndarray
    labels_HW: np.ndarray
    channels: Sequence[int] | None = None
    direct: bool = False

    def take_data(self, array: Any, name: str) -> None:
        """Read a StoredArray or an h5py.Dataset into `data_HWC`; `name` is for errors."""
        height, width, channels = self.data_HWC.shape
        if self.channels is not None and len(array.shape) == 3:
            channels = max(array.shape[2], 1 + max(self.channels))
        if array.shape != (height, width, channels):
            raise _wrong_shape(name, array.shape, (height, width, channels))
        if array.dtype != np.dtype("<f4"):
            raise BadItemError(f"{name} has the type {array.dtype} where float32 was expected; write it again")
        with name_damage(name):
            if self.channels is None and isinstance(array, StoredArray):
                array.read_values(self.data_HWC, self.direct)
                return
            for rows, block in _map_blocks(array, self.direct):
                if self.channels is None:
                    self.data_HWC[rows] = block
                else:  # with mode="raise" take fills a copy first
                    np.take(block, self.channels, axis=-1, out=self.data_HWC[rows], mode="clip")

    def take_labels(self, array: Any, name: str) -> None:
        """Read a StoredArray or an h5py.Dataset of class numbers into `labels_HW`."""
        if array.shape != self.labels_HW.shape:
            raise _wrong_shape(name, array.shape, self.labels_HW.shape)
        if array.dtype.kind not in "biuf":
            raise BadItemError(f"{name} has the type {array.dtype} where numbers were expected; write it again")
        with name_damage(name):
            for rows, block in _map_blocks(array, self.direct):
                labels = self.labels_HW[rows]
                with np.errstate(invalid="ignore"):  # of NaN, which is found below
                    labels[...] = block
                if labels.max(initial=0) >= len(CLASSES) or not np.array_equal(labels, block):
                    wrong = block[~np.isin(block, range(len(CLASSES)))].flat[0]
                    raise BadItemError(
                        f"{name} has the label {wrong}; expected 0, 1 or 2: {', '.join(CLASSES)}; fetch it again, or "
                        "remove this snapshot"
                    )


def read_into(path: Path, buffer: SnapshotBuffer) -> None:
    """Read the snapshot of a file into `buffer`.

    BadItemError for a damaged file, a missing dataset, a wrong type or shape, and invalid labels;
    FileNotFoundError and other OSErrors if the file cannot be read.
    """
    with open_hdf5(path) as file:
        buffer.take_data(hdf5_array(file, DATA), f"{path}: `{DATA}`")
        buffer.take_labels(hdf5_array(file, LABELS), f"{path}: `{LABELS}`")


def read_arrays(path: Path, shape_HWC: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return data, float32 (H, W, C), and labels, uint8 (H, W), of a snapshot; errors as in `read_into`."""
    buffer = SnapshotBuffer(np.empty(shape_HWC, np.float32), np.empty(shape_HWC[:2], np.uint8))
    read_into(path, buffer)
    return buffer.data_HWC, buffer.labels_HW


def read_npy(data: Path, label: Path, buffer: SnapshotBuffer) -> None:
    """Read a snapshot from two files into `buffer`; BadItemError if they are invalid, OSError if unreadable."""
    for path, take in ((data, buffer.take_data), (label, buffer.take_labels)):
        with name_damage(str(path)):
            take(npy_array(path), str(path))


def hdf5_array(file: Any, key: str, path: Path | None = None) -> Any:
    """Return the dataset of an open file: a StoredArray if it is contiguous, else the h5py.Dataset.

    path: of the file if it was not opened by its path. BadItemError if the file has no dataset of this name.
    """
    path = path or Path(file.filename)
    dataset = get_dataset(file, key, path)
    with name_damage(f"{path}: `{key}`"):
        if (offset := dataset.id.get_offset()) is None:
            return dataset  # in chunks, compressed, or never written
        return StoredArray(path, offset, dataset.shape, dataset.dtype)


def _map_blocks(array: Any, direct: bool) -> Iterator[tuple[slice, np.ndarray]]:
    return array.read_blocks(direct) if isinstance(array, StoredArray) else iter([(slice(None), array[()])])


def _wrong_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> BadItemError:
    sides = "data.height, data.width and data.channels to match the files"
    if len(shape) == 3 and shape[2:] == expected[2:]:
        sides = f"data.height={shape[0]} data.width={shape[1]}"
    return BadItemError(f"{name} has the shape {shape} where {expected} was expected: set {sides}, or name other data")
