"""Convert published snapshots to pairs of npy files, or to one HDF5 file per split.

Both keep the data unchanged, and labels as uint8. The HDF5 file, which many processes write concurrently, has

    data      float32 (N, 768, 1152, 16)   sample, latitude, longitude, channel
    labels    uint8 (N, 768, 1152)
    names     N strings                    the files from which the samples come

`data` and `labels` are contiguous and start at a page: a sample is read and written in place, without HDF5.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from common.console import open_bar
from common.data.arrays import ALIGNMENT, ArrayError, StoredArray, npy_array, write_npy
from common.data.build import BadItemError, BuildError, Item, Journal
from common.data.hdf5 import get_dataset, name_damage, open_hdf5
from common.data.manifest import Manifest
from common.data.values import Identity, Survey
from common.files import follow_no_link, new_file, write_whole_file
from common.processes import in_threads
from deepcam.data import snapshot, values
from deepcam.data.values import NAME, read_range

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
    """Locate the arrays of a file; BadItemError if it is damaged or malformed, OSError if it cannot be read."""
    with open_hdf5(path) as file:
        data, labels = _locate_array(file, DATA, 4), _locate_array(file, LABELS, 3)
        with name_damage(f"{path}: `{NAMES}`"):
            names = tuple(get_dataset(file, NAMES, path).asstr()[()])
    if data.shape[:3] != labels.shape or len(names) != labels.shape[0]:
        raise BadItemError(
            f"{path}: `{DATA}` has the shape {data.shape}, `{LABELS}` {labels.shape}, and there are {len(names):,} "
            f"names; expected equal numbers; make the file again by deepcam.prepare"
        )
    return SingleFile(names, data, labels)


def _locate_array(file: Any, key: str, axes: int) -> StoredArray:
    array = snapshot.hdf5_array(file, key)
    if not isinstance(array, StoredArray) or len(array.shape) != axes:
        raise BadItemError(
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


BLOCK: Final = 16
"""Samples per item of a single file: their bytes start and end at page boundaries, so that no page has two writers."""
CHECKSUMS: Final = "checksums"
"""Folder with the records of single files: a text file per block, with the SHA-256 of each sample's data and labels."""


Stored = tuple[Path, StoredArray, StoredArray]
"""A snapshot, and its data (H, W, C) and labels (H, W) in a converted dataset."""


@dataclass(frozen=True)
class NpyFormat:
    """A pair of npy files per snapshot; an item's source is the path of its snapshot.

    shape_HWC: of a sample.
    """

    shape_HWC: tuple[int, int, int]

    def list_items(self, split: str, paths: Sequence[Path]) -> Iterator[Item]:
        """Yield the items of a split."""
        for path in paths:
            name = path.stem.removeprefix(snapshot.NPY_DATA)
            files = tuple(f"{split}/{kind}{name}{snapshot.NPY}" for kind in (snapshot.NPY_DATA, snapshot.NPY_LABEL))
            yield Item(f"{split}/{path.name}", files, path)

    def create_files(self, splits: Mapping[str, Sequence[Path]], folder: Path) -> None:
        """Create what all items need; BuildError if something else is in its place."""

    def make_item(self, item: Item, folder: Path) -> None:
        """Make an item; BadItemError for unusable snapshots."""
        for name, array in zip(item.files, snapshot.read_arrays(item.source, self.shape_HWC), strict=True):
            write_npy(folder / name, array)

    def read_stored(self, item: Item, folder: Path) -> Iterator[Stored]:
        """Yield the samples of a finished item; ArrayError, BadItemError or OSError if they cannot be found."""
        data, labels = (npy_array(folder / name) for name in item.files)
        yield item.source, data, labels


@dataclass(frozen=True)
class SingleFileFormat:
    """One HDF5 file per split; an item is a block of rows, its file the record, its source: split, first row, paths."""

    shape_HWC: tuple[int, int, int]

    def list_items(self, split: str, paths: Sequence[Path]) -> Iterator[Item]:
        for first in range(0, len(paths), BLOCK):
            block = tuple(paths[first : first + BLOCK])
            name = f"{split}.h5, rows {first} to {first + len(block) - 1},"
            yield Item(name, (f"{CHECKSUMS}/{split}-{first:06d}.txt",), (split, first, block))

    def create_files(self, splits: Mapping[str, Sequence[Path]], folder: Path) -> None:
        recorded = {PurePosixPath(name).name.partition("-")[0] for name in Journal(folder).finished}
        for split, paths in splits.items():
            path, names = folder / f"{split}.h5", tuple(path.name for path in paths)
            if not path.exists() and split in recorded:
                raise BuildError(
                    f"{path} is missing although parts of it were written: delete {folder} and start again"
                )
            create_file(path, names, self.shape_HWC)
            existing = locate_arrays(path)
            if existing.names != names or existing.data_NHWC.shape[1:] != self.shape_HWC:
                raise BuildError(f"{path} has other samples; nothing was changed. Choose another folder")

    def make_item(self, item: Item, folder: Path) -> None:
        lines, errors = [], []
        with open_writer(folder / f"{item.source[0]}.h5") as put:
            for source, data, labels in self.read_stored(item, folder):
                try:
                    data_HWC, labels_HW = snapshot.read_arrays(source, self.shape_HWC)
                except (BadItemError, FileNotFoundError) as error:
                    errors.append(str(error))
                    continue
                put(data, data_HWC)
                put(labels, labels_HW)
                lines.append(f"{_hash_arrays(data_HWC, labels_HW)}  {source.name}\n")
        if errors:
            raise BadItemError("; ".join(errors))
        write_whole_file(folder / item.files[0], "".join(lines))

    def read_stored(self, item: Item, folder: Path) -> Iterator[Stored]:
        split, first, paths = item.source
        file = locate_arrays(folder / f"{split}.h5")
        for row, path in enumerate(paths, first):
            yield path, file.data_NHWC.row_at(row), file.labels_NHW.row_at(row)


Format = NpyFormat | SingleFileFormat
FORMATS: Final[Mapping[str, type[Format]]] = {"npy": NpyFormat, "hdf5-single": SingleFileFormat}


def compare_item(format: Format, folder: Path, item: Item) -> list[str]:
    """Return a line for each sample of an item that differs from the snapshot from which it was made."""
    problems = []
    try:
        for source, *stored in format.read_stored(item, folder):
            for array, expected in zip(stored, snapshot.read_arrays(source, format.shape_HWC), strict=True):
                actual = np.empty_like(expected)
                array.read_values(actual)
                if not np.array_equal(actual.view(np.uint8), expected.view(np.uint8)):  # bytes: a NaN equals itself
                    problems.append(f"{array.path}: differs from {source}; {_how_to_fix(folder / item.files[0])}")
    except (ArrayError, BadItemError, OSError) as error:
        problems.append(str(error))
    return problems


def verify_singles(folder: Path, manifest: Manifest, workers: int, survey: Survey | None) -> list[str]:
    """Return the differences between the single files of a folder and their recorded checksums: a line per sample.

    Without records in the manifest there are none. survey: to which samples with their checksums are added.
    """
    channels = values.bound_channels(read_range(folder / NAME)) if survey else None

    def add_sample(path: Path, name: str, checksum: str, arrays: Sequence[np.ndarray]) -> None:
        if survey and channels:
            contents = [Identity(checksum), *values.list_contents(arrays[0], arrays[1], channels)]
            survey.add_sample(str(path), path.stem, name, contents)

    records = sorted(name for name in manifest.files if PurePosixPath(name).parts[0] == CHECKSUMS)
    results = in_threads(lambda name: _find_differences(folder, PurePosixPath(name), add_sample), records, workers)
    bar = open_bar(results, total=len(records), unit=" blocks", desc=f"verify rows in {folder}", disable=None)
    return list(dict.fromkeys(line for lines in bar for line in lines))  # report a missing file once


def _find_differences(
    folder: Path, record: PurePosixPath, add_sample: Callable[[Path, str, str, Sequence[np.ndarray]], None]
) -> list[str]:
    split, _, first = record.stem.partition("-")
    path = folder / f"{split}.h5"
    problems = []
    try:
        file = locate_arrays(path)
        for row, line in enumerate((folder / record).read_text().splitlines(), int(first)):
            expected, _, name = line.partition("  ")
            stored = [array.row_at(row) for array in (file.data_NHWC, file.labels_NHW)]
            arrays = [np.empty(array.shape, array.dtype) for array in stored]
            for array, into in zip(stored, arrays, strict=True):
                array.read_values(into)
            if _hash_arrays(*arrays) != expected or file.names[row : row + 1] != (name,):
                problems.append(f"{path}, row {row}: not the recorded {name}; {_how_to_fix(folder / record)}")
            else:
                add_sample(path, f"row {row} ({name})", expected, arrays)
    except (ArrayError, BadItemError, OSError) as error:
        problems.append(str(error))
    return problems


def _how_to_fix(path: Path) -> str:
    return f"delete {path} and convert again"


def _hash_arrays(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()
