"""Read predictions that may come from another program: nothing in the file is trusted, and none of it is run.

Arrays are read batch by batch, and memory does not grow with them, whatever the file says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from common.reference import FULL, VARIANTS
from common.training.predictions.columns import INDEX, NAMES, Column, PredictionsError, Rows
from common.training.predictions.stored import MOST_ROW_BYTES, Array, Hdf5, Npz, naming
from common.training.predictions.writing import HDF5, NPZ, About

MOST_BATCH_BYTES: Final = 2**31
MOST_BATCH: Final = 2**16
MOST_NAME_BYTES: Final = 4096
BATCH: Final = 64
"""Samples at a time, where a file does not say."""
SPLITS: Final = ("train", "validation")


class Predictions:
    """An open file, whose batches can be read once.

    about: what it says of itself, or the usual. samples: how many it has. there: the names of the columns that it has.
    """

    def __init__(self, path: Path, about: About, arrays: Mapping[str, Array], columns: Sequence[Column]) -> None:
        self.path, self.about, self._arrays = path, about, arrays
        self._columns = [column for column in columns if column.name in arrays]
        self.there = frozenset(arrays)
        self.samples = arrays[INDEX].shape[0]

    def batches(self) -> Iterator[Rows]:
        """Yield the columns of `about.batch_size` samples at a time; PredictionsError for what is not valid."""
        for start in range(0, self.samples, self.about.batch_size):
            count = min(self.about.batch_size, self.samples - start)
            self._check_index(start, count)
            rows: dict[str, np.ndarray] = {}
            for column in self._columns:
                rows[column.name] = self._rows(column, start, count, rows)
            if NAMES in self._arrays:
                rows[NAMES] = self._names(start, count)
            yield rows
        for name, array in self._arrays.items():
            if array.left:
                raise self.error(f"`{name}` has {array.left:,} rows after those of the last sample")
            with naming(self.path, name):
                array.finish()

    def error(self, problem: str) -> PredictionsError:
        """Return an error that names the file."""
        return PredictionsError(f"{self.path}: {problem}")

    def _check_index(self, start: int, count: int) -> None:
        found, expected = self._take(INDEX, count), np.arange(start, start + count)
        wrong = np.flatnonzero(found != expected)
        if not len(wrong):
            return
        place = start + int(wrong[0])
        number = int(found[wrong[0]])
        hint = "each sample once, sorted by `index`, which counts from 0"
        if number > place:
            raise self.error(f"sample {place} is missing: row {place} of `{INDEX}` is {number}; expected {hint}")
        if number < 0:
            raise self.error(f"row {place} of `{INDEX}` is {number}; expected {hint}")
        raise self.error(f"sample {number} is there twice: row {place} of `{INDEX}`, too; expected {hint}")

    def _rows(self, column: Column, start: int, count: int, before: Rows) -> np.ndarray:
        """Return the rows of a column for some samples, valid ones."""
        per = before[column.per] if column.per else None
        values = self._take(column.name, count if per is None else int(per.sum()))
        wrong = column.wrong_values(values)
        if wrong.any():
            place = int(np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1))[0])
            sample = start + (place if per is None else int(np.searchsorted(np.cumsum(per), place, side="right")))
            raise self.error(
                f"`{column.name}` of sample {sample} has the value {values[wrong].flat[0]}; expected "
                f"{column.range_text}"
            )
        if column.kind == "i":
            self._check_counts(column, values, start)
        return values.astype(column.dtype) if column.kind in "iu" or values.dtype == np.float16 else values

    def _check_counts(self, column: Column, counts: np.ndarray, start: int) -> None:
        """Refuse counts for which the rows would not be there, or not fit into memory, before they are read."""
        counted = [self._arrays[other.name] for other in self._columns if other.per == column.name]
        total = sum(map(int, counts))
        most = MOST_BATCH_BYTES // sum(_row_bytes(array) for array in counted)
        least = min(array.left for array in counted)
        if total > min(most, least):
            raise self.error(
                f"`{column.name}` of the samples from {start} on adds up to {total:,}, more than the "
                f"{min(most, least):,} rows that {'are there' if least < most else 'can be read at a time'}"
            )

    def _names(self, start: int, count: int) -> np.ndarray:
        names = self._take(NAMES, count)
        try:
            texts = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
        except ValueError as error:
            raise self.error(f"`{NAMES}` from row {start} on: not text ({error})") from error
        read: np.ndarray = np.array(texts)
        return read

    def _take(self, name: str, count: int) -> np.ndarray:
        array = self._arrays[name]
        if array.left < count:
            raise self.error(f"`{name}` ends {count - array.left:,} rows early")
        with naming(self.path, name):
            values = array.take(count)
        array.left -= count
        # Its own memory, in the byte order of this machine.
        native: np.ndarray = values.astype(values.dtype.newbyteorder("="))
        return native


@contextmanager
def reading(path: Path, benchmark: str, columns: Sequence[Column]) -> Iterator[Predictions]:
    """Open a file for the benchmark; its types and shapes are valid, its values are checked as they are read.

    Columns with the truth may be missing. PredictionsError if it is not a predictions file, or of another benchmark;
    OSError if it cannot be read.
    """
    if path.suffix not in (NPZ, *HDF5):
        raise PredictionsError(f"{path}: expected a file that ends in {NPZ} (numpy) or {HDF5[0]} (HDF5)")
    with ExitStack() as opened:
        found: Npz | Hdf5 = (Npz if path.suffix == NPZ else Hdf5)(path, opened)
        names = [INDEX, NAMES, *(column.name for column in columns)]
        arrays: dict[str, Array] = {name: array for name in names if (array := found.array(name)) is not None}
        counts = {one.per for one in columns}
        needed = [INDEX, *(one.name for one in columns if not one.truth or one.name in counts)]
        missing = [name for name in needed if name not in arrays]
        if missing:
            there = ", ".join(found.names) or "nothing"
            raise PredictionsError(f"{path}: `{missing[0]}` is missing; the file has {there}")
        _check_shapes(path, arrays, columns)
        size = sum(_row_bytes(arrays[one.name]) for one in columns if one.name in arrays and not one.per)
        yield Predictions(path, _about(path, found, benchmark, size), arrays, columns)


def _check_shapes(path: Path, arrays: Mapping[str, Array], columns: Sequence[Column]) -> None:
    """Raise PredictionsError unless types and shapes of the arrays are valid."""
    samples = arrays[INDEX].shape[:1]
    for column in (Column(INDEX, "i8", (), ""), *columns):
        if column.name not in arrays:
            continue
        array = arrays[column.name]
        problem = column.shape_problem(array.dtype, array.shape)
        if not problem and not column.per and array.shape[:1] != samples:
            problem = f"has {array.shape[0]:,} rows, but `{INDEX}` {samples[0]:,}; expected a row for each sample"
        if not problem and _row_bytes(array) > MOST_ROW_BYTES:
            problem = f"has rows of {_row_bytes(array):,} bytes; expected at most {MOST_ROW_BYTES:,}"
        if problem:
            raise PredictionsError(f"{path}: `{column.name}` {problem}")
    shapes = {arrays[one.name].shape[1:]: one.name for one in columns if None in one.shape and one.name in arrays}
    if len(shapes) > 1:
        raise PredictionsError(f"{path}: {' and '.join(f'`{name}`' for name in shapes.values())} have other shapes")
    if samples[0] < 1:
        raise PredictionsError(f"{path}: `{INDEX}` is empty; expected samples")
    names = arrays.get(NAMES)
    if names and (names.dtype.kind not in "SU" or names.shape != samples or names.dtype.itemsize > MOST_NAME_BYTES):
        raise PredictionsError(
            f"{path}: `{NAMES}` is {names.dtype} {names.shape}; expected {samples[0]:,} texts of a fixed length of at "
            f"most {MOST_NAME_BYTES:,} bytes (numpy's S or U); leave it out, or write it so"
        )


def _about(path: Path, found: Npz | Hdf5, benchmark: str, sample_bytes: int) -> About:
    """Return what the file says of all samples, with the usual where it says nothing."""
    named, split, size, variant = (found.fact(name) for name in About._fields)
    if named not in (None, benchmark):
        raise PredictionsError(f"{path}: `benchmark` is {named!r}; expected predictions of {benchmark!r}")
    if split not in (None, *SPLITS):
        raise PredictionsError(f"{path}: `split` is {split!r}; expected one of {', '.join(SPLITS)}")
    if size is None:
        size = BATCH
    if not isinstance(size, int) or not 1 <= size <= MOST_BATCH:
        raise PredictionsError(f"{path}: `batch_size` is {size!r}; expected 1 to {MOST_BATCH:,}")
    if variant not in (None, *VARIANTS):
        raise PredictionsError(f"{path}: `variant` is {variant!r}; expected one of {', '.join(VARIANTS)}")
    size = max(1, min(size, MOST_BATCH_BYTES // max(1, sample_bytes)))
    return About(benchmark, str(split or SPLITS[-1]), size, str(variant or FULL))


def _row_bytes(array: Array) -> int:
    return math.prod(array.shape[1:]) * array.dtype.itemsize
