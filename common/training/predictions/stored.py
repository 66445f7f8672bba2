"""The arrays in npz and HDF5 files that nobody vouches for, read from their start on, a few rows at a time.

An npz file is a zip archive of npy files, stored or deflated; arrays of Python objects, which numpy would unpickle, are
refused. In HDF5, links and storage in other files are refused.
"""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from common.data.arrays import NPY_HEADER_BYTES, NPY_HEADERS, ONE_AT_A_TIME
from common.files import check_regular, open_regular
from common.training.predictions.columns import PredictionsError
from common.training.predictions.writing import hdf5

MOST_ROW_BYTES: Final = 2**28
"""Of one row of an array: 100 times a map of classes."""
MOST_FACT_BYTES: Final = 800
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DAMAGE: Final = (
    *(OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError),  # the last two for the header of an array
)
"""Errors that the libraries raise for damaged files, depending on where the damage is."""


class Array(Protocol):
    """An array in a file, read from its start on. left: rows that were not read."""

    dtype: np.dtype
    shape: tuple[int, ...]
    left: int

    def take(self, count: int) -> np.ndarray:
        """Return the next rows, at most as many as are left."""

    def finish(self) -> None:
        """Raise an error if the file is not as long as the array, or has another checksum; called after the rows."""


@contextmanager
def naming(path: Path, name: str = "") -> Iterator[None]:
    """Turn errors about content into PredictionsError; those of the system pass, with the path."""
    try:
        yield
    except PredictionsError:
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        what = f"`{name}` is damaged" if name else f"not a readable {path.suffix} file"
        raise PredictionsError(f"{path}: {what} ({error}); write it again") from error


# -- npz -----------------------------------------------------------------------------------------------------


class Npz:
    """The arrays of an npz file."""

    def __init__(self, path: Path, opened: ExitStack) -> None:
        self.path, self._opened = path, opened
        file = opened.enter_context(os.fdopen(open_regular(path), "rb"))
        with naming(path):
            self._archive = opened.enter_context(zipfile.ZipFile(file))
        names = self._archive.namelist()
        self.names = sorted({name.removesuffix(".npy") for name in names})
        if len(self.names) < len(names):
            raise PredictionsError(f"{path}: two arrays have the same name; expected one of each")

    def array(self, name: str) -> NpyArray | None:
        """Return the array of this name; None if there is none."""
        if name not in self.names:
            return None
        place = f"{self.path}: `{name}`"
        with naming(self.path, name):
            member = self._archive.getinfo(f"{name}.npy")
            if member.compress_type not in METHODS:
                raise PredictionsError(f"{place} is compressed as numpy never does; write it again by numpy")
            stream = self._opened.enter_context(self._archive.open(member))
            head = io.BytesIO(stream.read(NPY_HEADER_BYTES))
            with ONE_AT_A_TIME:
                shape, by_columns, dtype = NPY_HEADERS[np.lib.format.read_magic(head)](head)
            stream.seek(head.tell())
        if dtype.hasobject:
            raise PredictionsError(
                f"{place} has Python objects ({dtype}), which only running code could read; expected numbers, or texts "
                "of a fixed length (numpy's S or U)"
            )
        if by_columns and len(shape) > 1:
            raise PredictionsError(f"{place} is in Fortran order; write numpy.ascontiguousarray of it")
        return NpyArray(stream, shape, dtype)

    def fact(self, name: str) -> Any:
        """Return the value of an array without axes; None if there is none."""
        found = self.array(name)
        if found is None:
            return None
        if found.shape or found.dtype.kind not in "iuSU" or found.dtype.itemsize > MOST_FACT_BYTES:
            raise PredictionsError(f"{self.path}: `{name}` is {found.dtype} {found.shape}; expected one value")
        with naming(self.path, name):
            value: Any = found.take(1).item()
            return value.decode() if isinstance(value, bytes) else value


class NpyArray:
    """An array of an npz file. stream: stands at its first value."""

    def __init__(self, stream: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._stream, self.shape, self.dtype = stream, shape, dtype
        self.left = shape[0] if shape else 1

    def take(self, count: int) -> np.ndarray:
        wanted = count * math.prod(self.shape[1:]) * self.dtype.itemsize
        read: bytes = self._stream.read(wanted)
        if len(read) < wanted:
            raise EOFError(f"{wanted - len(read):,} bytes are missing")
        rows: np.ndarray = np.frombuffer(read, self.dtype).reshape(count, *self.shape[1:])
        return rows

    def finish(self) -> None:
        if self._stream.read(1):
            raise EOFError("longer than its shape says")


# -- HDF5 ----------------------------------------------------------------------------------------------------


class Hdf5:
    """The datasets at the top of an HDF5 file."""

    def __init__(self, path: Path, opened: ExitStack) -> None:
        self.path, self._h5py = path, hdf5()
        check_regular(path)
        with naming(path):
            self._file = opened.enter_context(self._h5py.File(path, "r", locking=False))
            self.names = sorted(self._file)

    def array(self, name: str) -> Hdf5Array | None:
        """Return the dataset of this name; None if there is none."""
        if name not in self.names:
            return None
        with naming(self.path, name):
            problem = self._problem(name)
            if problem:
                raise PredictionsError(f"{self.path}: `{name}` {problem}")
            return Hdf5Array(self._file[name])

    def _problem(self, name: str) -> str:
        """Return why an object is not read, "" if it is."""
        if not isinstance(self._file.get(name, getlink=True), self._h5py.HardLink):
            return "is a link; expected the dataset itself"
        found = self._file[name]
        if not isinstance(found, self._h5py.Dataset) or found.dtype.hasobject or not found.shape:
            return "is not a dataset of numbers, or of texts of a fixed length, with a row for each sample"
        if found.is_virtual or found.external:
            return "is stored in another file; expected the values themselves"
        if found.chunks and math.prod(found.chunks) * found.dtype.itemsize > 2 * MOST_ROW_BYTES:
            return f"is stored in too large chunks, of {found.chunks} values"
        return ""

    def fact(self, name: str) -> Any:
        """Return the value of an attribute of the file; None if there is none."""
        with naming(self.path, name):
            value = self._file.attrs.get(name)
        if isinstance(value, np.ndarray):
            shape = f"{value.dtype} {value.shape}"
            raise PredictionsError(f"{self.path}: the attribute `{name}` is {shape}; expected one value")
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        return value.item() if isinstance(value, np.generic) else value


class Hdf5Array:
    """A dataset of an HDF5 file."""

    def __init__(self, found: Any) -> None:
        self._found, self.shape, self.dtype = found, found.shape, found.dtype
        self.left = found.shape[0]

    def take(self, count: int) -> np.ndarray:
        start = self.shape[0] - self.left
        rows: np.ndarray = self._found[start : start + count]
        return rows

    def finish(self) -> None:
        """Do nothing: HDF5 knows the size."""
