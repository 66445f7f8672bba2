"""Files of predictions: HDF5, which takes any number of samples, or npz, which is in memory until it is written.

Only files that `predict` wrote are read. None of their content is run.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from common.command import UsageError, check_new
from common.files import check_regular, whole_file
from common.reference import FULL, OWN, SPLITS, VARIANTS
from common.tree import RefusedFileError, open_regular

Rows = Mapping[str, np.ndarray]
"""The columns of a batch of samples, by name."""

INDEX: Final = "index"
NAMES: Final = "names"
HDF5: Final = (".h5", ".hdf5")
NPZ: Final = ".npz"
MOST_NPZ_BYTES: Final = 2**30
"""Of the arrays of an npz file, since they are in memory until it is written."""
NAME_BYTES: Final = 128
"""The longest name of a sample in HDF5, whose strings of any length readers have to trust."""
CHUNK_BYTES: Final = 2**18
DAMAGE: Final = (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""Errors that the libraries raise for damaged files, depending on where the damage is."""


class PredictionsError(ValueError):
    """A predictions file cannot be written, or is not valid; the message names file, column and sample."""


class Column(NamedTuple):
    """A column. dtype: in the file. shape: of a row; None: any length, alike in all rows.

    meaning: for people, with the unit. truth: it comes from the data; the network predicts the others. per: the column
    that counts the rows of each sample; "": one.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    meaning: str
    truth: bool = False
    per: str = ""

    def sample_at(self, row: int, rows: Rows) -> int:
        """Return the number in its batch of the sample that a row of this column belongs to."""
        return int(np.searchsorted(np.cumsum(rows[self.per]), row, side="right")) if self.per else row


class About(NamedTuple):
    """What a file says of all its samples, in HDF5 as attributes.

    batch_size: samples that were predicted, and whose quality is summed up, at a time. variant: of the problem.
    """

    benchmark: str
    split: str
    batch_size: int
    variant: str = FULL


def _load_h5py() -> Any:
    """Return the module h5py; UsageError without it."""
    try:
        import h5py  # an optional package for some benchmarks
    except ImportError as error:
        raise UsageError(f"HDF5 needs h5py: pip install h5py, or use an {NPZ} file") from error
    return h5py


# -- writing -------------------------------------------------------------------------------------------------


class Output(NamedTuple):
    """What is to be written: facts, columns besides index and names, and how many samples will come."""

    about: About
    columns: Sequence[Column]
    samples: int

    def typed(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return the index and the columns of a batch, each of its type in the file."""
        dtypes = {INDEX: "i8"} | {column.name: column.dtype for column in self.columns}
        return {name: rows[name].astype(dtype, copy=False) for name, dtype in dtypes.items()}


def check_output(path: Path) -> None:
    """Raise UsageError unless predictions can be written to this file, before anything is computed."""
    if path.suffix not in (NPZ, *HDF5):
        raise UsageError(f"-o {path}: expected a file that ends in {NPZ} (numpy) or {HDF5[0]} (HDF5)")
    check_new("-o", path)
    if path.suffix != NPZ:
        _load_h5py()


@contextmanager
def write_predictions(path: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that adds the rows of the next samples; the file appears whole at the end, or not at all.

    Rows have the columns, the index and the names. PredictionsError if they cannot be written.
    """
    write = _write_npz if path.suffix == NPZ else _write_hdf5
    with whole_file(path) as part, write(path, part, output) as add:
        yield add


@contextmanager
def _write_npz(path: Path, part: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    batches: list[Rows] = []

    def add(rows: Rows) -> None:
        size = sum(values.nbytes for values in rows.values()) * output.samples / len(rows[INDEX])
        if not batches and size > MOST_NPZ_BYTES:
            raise PredictionsError(
                f"{path}: some {size / 2**30:.0f} GiB, and the arrays of an npz file are in memory until it is "
                f"written; name a file that ends in {HDF5[0]}, which is written batch by batch"
            )
        batches.append({**output.typed(rows), NAMES: rows[NAMES]})

    yield add
    arrays = {name: np.concatenate([rows[name] for rows in batches]) for name in batches[0]}
    about = {name: np.array(value) for name, value in output.about._asdict().items()}
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays, **about)


@contextmanager
def _write_hdf5(path: Path, part: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    file = _load_h5py().File(part, "w")
    try:
        file.attrs.update(output.about._asdict())

        def add(rows: Rows) -> None:
            with _name_file(path):
                for name, values in output.typed(rows).items():
                    _append(file, name, values)
                _append(file, NAMES, _encode_names(rows[NAMES]))

        yield add
    finally:
        with _name_file(path):
            file.close()


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Turn the errors of HDF5, such as that of a full disk, into PredictionsError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise PredictionsError(f"{path}: cannot be written ({error})") from error


def _append(file: Any, name: str, rows: np.ndarray) -> None:
    """Append rows to a dataset of an HDF5 file, which the first ones make."""
    if name not in file:
        shape = rows.shape[1:]
        chunk = max(1, min(2**14, CHUNK_BYTES // max(1, rows[:1].nbytes)))
        options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        file.create_dataset(name, (0, *shape), rows.dtype, maxshape=(None, *shape), chunks=(chunk, *shape), **options)
    dataset = file[name]
    start = len(dataset)
    dataset.resize(start + len(rows), axis=0)
    dataset[start:] = rows


def _encode_names(names: np.ndarray) -> np.ndarray:
    """Return names as bytes of a fixed length; PredictionsError for a longer one."""
    encoded = [name.encode() for name in names.tolist()]
    if longer := [name for name in encoded if len(name) > NAME_BYTES]:
        raise PredictionsError(
            f"a sample's name has {len(longer[0])} bytes, and HDF5 files have names of at most {NAME_BYTES}: write "
            f"{NPZ}, or rename the sample {longer[0].decode()!r}"
        )
    fixed: np.ndarray = np.array(encoded, f"S{NAME_BYTES}")
    return fixed


# -- reading -------------------------------------------------------------------------------------------------


class Predictions:
    """An open file that `predict` wrote. about: what it says of itself. samples: how many it has."""

    def __init__(self, path: Path, about: About, arrays: Mapping[str, Any], columns: Sequence[Column]) -> None:
        self.path, self.about, self._arrays, self._columns = path, about, arrays, columns
        self.samples = len(arrays[INDEX])

    def read_batches(self) -> Iterator[Rows]:
        """Yield the columns and the names of `about.batch_size` samples at a time.

        PredictionsError for values that are not finite.
        """
        ends = {column.name: 0 for column in self._columns}
        for start in range(0, self.samples, self.about.batch_size):
            count = min(self.about.batch_size, self.samples - start)
            rows: dict[str, np.ndarray] = {}
            with _name_damage(self.path):
                names = self._arrays[NAMES][start : start + count]
                rows[NAMES] = np.char.decode(names) if names.dtype.kind == "S" else names
                for column in self._columns:
                    first = ends[column.name]
                    ends[column.name] += int(rows[column.per].sum()) if column.per else count
                    rows[column.name] = self._arrays[column.name][first : ends[column.name]]
            for column in self._columns:
                for index in map(tuple, np.argwhere(~np.isfinite(rows[column.name]))[:1].tolist()):
                    sample, value = start + column.sample_at(index[0], rows), rows[column.name][index]
                    raise self.make_error(f"`{column.name}` of sample {sample} is {value}; expected finite numbers")
            yield rows

    def check(self) -> None:
        """Raise PredictionsError unless number, types and shapes are those that `predict` writes."""
        if not np.array_equal(self._arrays[INDEX], np.arange(self.samples)):
            raise self.make_error(f"`{INDEX}` does not count the samples from 0; write the file again by predict")
        totals = {column.per: int(self._arrays[column.per][:].sum()) for column in self._columns if column.per}
        for column in self._columns:
            array = self._arrays[column.name]
            expected = (totals.get(column.per, self.samples), *column.shape)
            fits = len(expected) == len(array.shape) and all(
                wanted in (None, length) for wanted, length in zip(expected, array.shape, strict=True)
            )
            if array.dtype != column.dtype or not fits:
                raise self.make_error(
                    f"`{column.name}` is {array.dtype} {array.shape}; expected {np.dtype(column.dtype)} "
                    f"({', '.join('any' if length is None else str(length) for length in expected)})"
                )
        names = self._arrays[NAMES]
        if names.dtype.kind not in "SU" or names.shape != (self.samples,):
            raise self.make_error(f"`{NAMES}` is {names.dtype} {names.shape}; expected a name for each sample")

    def make_error(self, problem: str) -> PredictionsError:
        """Return an error that names the file."""
        return PredictionsError(f"{self.path}: {problem}")


@contextmanager
def read_predictions(path: Path, benchmark: str, columns: Sequence[Column]) -> Iterator[Predictions]:
    """Open a file that `predict` wrote for the benchmark.

    PredictionsError for any other file; OSError if it cannot be read.
    """
    if path.suffix not in (NPZ, *HDF5):
        raise PredictionsError(f"{path}: expected a file that ends in {NPZ} (numpy) or {HDF5[0]} (HDF5)")
    with ExitStack() as opened:
        with _name_damage(path):
            arrays, facts = (_open_npz if path.suffix == NPZ else _open_hdf5)(path, opened)
            names = [INDEX, NAMES, *(column.name for column in columns), *About._fields[:3]]
            missing = [name for name in names if name not in arrays and name not in facts]
            if missing:
                raise PredictionsError(
                    f"{path}: `{missing[0]}` is missing; expected a file that `python -m {benchmark}.predict` wrote"
                )
            about = About(**facts)
            if about.benchmark != benchmark or about.split not in SPLITS or about.variant not in (*VARIANTS, OWN):
                raise PredictionsError(
                    f"{path}: these are predictions of {about.benchmark} ({about.split}, {about.variant}); expected "
                    f"{benchmark}"
                )
            file = Predictions(path, about, arrays, columns)
            file.check()
        yield file


def _open_npz(path: Path, opened: ExitStack) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the facts of an npz file."""
    archive = np.load(opened.enter_context(os.fdopen(open_regular(path), "rb")), allow_pickle=False)
    if (size := sum(entry.file_size for entry in archive.zip.infolist())) > MOST_NPZ_BYTES:
        raise PredictionsError(f"{path}: {size:,} bytes of arrays; predict writes at most {MOST_NPZ_BYTES:,} to {NPZ}")
    arrays = dict(archive)
    return arrays, {name: arrays[name].item() for name in About._fields if name in arrays}


def _open_hdf5(path: Path, opened: ExitStack) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the datasets and the facts of an HDF5 file."""
    h5py = _load_h5py()
    from common.data.hdf5 import find_dataset  # which needs h5py

    check_regular(path)
    file = opened.enter_context(h5py.File(path, "r", locking=False))
    datasets = {name: dataset for name in file if (dataset := find_dataset(file, name)) is not None}
    return datasets, {name: file.attrs[name] for name in About._fields if name in file.attrs}


@contextmanager
def _name_damage(path: Path) -> Iterator[None]:
    """Turn the errors of damaged content into PredictionsError; those of the system pass, with the path."""
    try:
        yield
    except (PredictionsError, RefusedFileError, UsageError):
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise PredictionsError(f"{path} is damaged, or no file of predictions ({error}); write it again") from error
