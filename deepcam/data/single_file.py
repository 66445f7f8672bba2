"""All snapshots of a split in one HDF5 file, which many processes write concurrently.

    data      float32 (N, 768, 1152, 16)   sample, latitude, longitude, channel
    labels    uint8 (N, 768, 1152)
    names     N strings                    the files from which the samples come

`data` and `labels` are contiguous and start at a page: a sample is read and written in place, without HDF5.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from common.data.arrays import ALIGNMENT, StoredArray
from common.data.hdf5 import find_dataset
from common.files import follow_no_link, new_file
from deepcam.data import snapshot
from deepcam.data.snapshot import SnapshotError

DATA: Final = "data"
LABELS: Final = "labels"
NAMES: Final = "names"


@dataclass(frozen=True)
class SingleFile:
    """The names of the samples in the order of the rows, and the arrays in the file."""

    names: tuple[str, ...]
    data_NHWC: StoredArray
    labels_NHW: StoredArray


def locate_arrays(path: Path) -> SingleFile:
    """Locate the arrays of a file; SnapshotError if it is damaged or malformed, OSError if it cannot be read."""
    with snapshot.open_hdf5(path) as file:
        data, labels = _locate_array(file, DATA, 4), _locate_array(file, LABELS, 3)
        with snapshot.name_errors(f"{path}: `{NAMES}`"):
            dataset = find_dataset(file, NAMES)
            if dataset is None:
                raise KeyError(NAMES)
            names = tuple(dataset.asstr()[()])
    if data.shape[:3] != labels.shape or len(names) != labels.shape[0]:
        raise SnapshotError(
            f"{path}: `{DATA}` has the shape {data.shape}, `{LABELS}` {labels.shape}, and there are {len(names):,} "
            f"names; expected equal numbers; make the file again by deepcam.prepare"
        )
    return SingleFile(names, data, labels)


def _locate_array(file: Any, key: str, axes: int) -> StoredArray:
    array = snapshot.hdf5_array(file, key)
    if not isinstance(array, StoredArray) or len(array.shape) != axes:
        raise SnapshotError(
            f"{file.filename}: `{key}` has the shape {array.shape}; expected {axes} axes, contiguous and "
            f"uncompressed; make the file again by deepcam.prepare"
        )
    return array


def create_file(path: Path, names: Sequence[str], shape_HWC: tuple[int, ...]) -> None:
    """Create the file with empty, sparse arrays for these samples.

    An existing file, which another process may be creating at this moment, is left unchanged.
    """
    if path.exists():
        return
    with new_file(path) as (new, _):
        with h5py.File(new, "w", alignment_threshold=ALIGNMENT, alignment_interval=ALIGNMENT) as file:
            file[NAMES] = np.array(names, "S")
            plan = h5p.create(h5p.DATASET_CREATE)
            plan.set_layout(h5d.CONTIGUOUS)
            plan.set_obj_track_times(False)  # so that equal data give equal files
            plan.set_alloc_time(h5d.ALLOC_TIME_EARLY)  # allocate space in the file now ...
            plan.set_fill_time(h5d.FILL_TIME_NEVER)  # ... but write no values
            for key, kind, shape in ((DATA, "<f4", shape_HWC), (LABELS, "u1", shape_HWC[:2])):
                space = h5s.create_simple((len(names), *shape))
                h5d.create(file.id, key.encode(), h5t.py_create(np.dtype(kind)), space, plan)
        with contextlib.suppress(FileExistsError):
            os.link(new, path)  # unlike a rename, it replaces nothing


@contextmanager
def open_writer(path: Path) -> Iterator[Callable[[StoredArray, np.ndarray], None]]:
    """Yield a function that writes values of the right type in C order to a place in the file; sync at the end."""
    file = follow_no_link(str(path), os.O_WRONLY)

    def write_array(array: StoredArray, values: np.ndarray) -> None:
        view, done = values.data.cast("B"), 0
        while done < len(view):
            done += os.pwrite(file, view[done:], array.offset + done)

    try:
        yield write_array
        os.fsync(file)  # some file systems report only now that they are full
    finally:
        os.close(file)
