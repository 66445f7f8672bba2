"""Files of predictions: HDF5, which takes any number of samples, or npz, which is in memory until it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from common.command import UsageError, check_new
from common.files import whole_file
from common.reference import FULL

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


class PredictionsError(ValueError):
    """A predictions file cannot be written; the message names it, or the sample."""


class Column(NamedTuple):
    """A column. dtype: in the file. meaning: for people, with the unit."""

    name: str
    dtype: str
    meaning: str


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
