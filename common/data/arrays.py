"""Arrays stored contiguously in a file, as in npy and HDF5: read in place, optionally past the kernel's cache."""

from __future__ import annotations

import errno
import fcntl
import io
import math
import mmap
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from common.file_kind import NPY, explain_file
from common.files import open_whole_file
from common.spatial.grid import Block
from common.tree import open_regular

BLOCK_BYTES: Final = 4 * 2**20
"""Bytes to read at once while values are converted: they fit the cache of a processor."""
ALIGNMENT: Final = 4096
"""Of offset, length and memory for O_DIRECT: enough for all usual disks and file systems."""
NPY_HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""The functions that read a header, by version of the npy format."""
ONE_AT_A_TIME: Final = threading.Lock()
"""For these functions, which parse Python: CPython before 3.11.8 loses count where threads do (gh-106905)."""


class ArrayError(ValueError):
    """A file does not contain the array; the message names the file, what was expected and how to fix it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in C order that starts at byte `offset` of a file."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def row_at(self, index: int) -> StoredArray:
        """Return row `index` along the first axis, which it then lacks."""
        row = replace(self, shape=self.shape[1:])
        return replace(row, offset=self.offset + index * row.nbytes)

    def read_values(self, into: np.ndarray, direct: bool = False) -> None:
        """Read the array into `into`, of the same shape and type and in C order. See `read_blocks`."""
        if direct:  # the memory of a batch is not aligned as the file is
            for rows, block in self.read_blocks(direct):
                into[rows] = block
            return
        with _open_file(self, direct) as file:
            _fill_view(file, into.data.cast("B"), self.offset, self.path)

    def read_block(self, into: np.ndarray, block: Block) -> None:
        """Read only a block of the array into `into`, of the block's shape and the array's type, in C order."""
        with _open_file(self, direct=False) as file:
            for first, part in block.split_runs(np.frombuffer(into, into.dtype)):
                _fill_view(file, part.data.cast("B"), self.offset + first * self.dtype.itemsize, self.path)

    def read_blocks(self, direct: bool = False) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of rows along the first axis as (rows, values); each is valid until the next.

        direct: use O_DIRECT, which avoids the kernel's cache and a copy; where the file system refuses it, warn and
        read normally. ArrayError if the file ends early, OSError if it cannot be read.
        """
        row_bytes = max(1, self.nbytes // max(1, self.shape[0]))
        rows = max(1, BLOCK_BYTES // row_bytes)
        with _open_file(self, direct) as file:
            buffer = mmap.mmap(-1, rows * row_bytes + 2 * ALIGNMENT)  # starts at a page
            for start in range(0, self.shape[0], rows):
                count = min(rows, self.shape[0] - start)
                first = self.offset + start * row_bytes
                lead = first % ALIGNMENT
                end = lead + count * row_bytes
                view = memoryview(buffer)[: -(-end // ALIGNMENT) * ALIGNMENT]
                _fill_view(file, view, first - lead, self.path, needed=end)
                block = np.frombuffer(buffer, np.uint8, count * row_bytes, lead).view(self.dtype)
                yield slice(start, start + count), block.reshape(count, *self.shape[1:])


@contextmanager
def _open_file(array: StoredArray, direct: bool) -> Iterator[int]:
    """Open the file and yield its descriptor; ArrayError if it is too short for the array."""
    file = open_regular(array.path)
    try:
        size, expected = os.fstat(file).st_size, array.offset + array.nbytes
        if size < expected:
            raise ArrayError(array.path, f"ends after {size:,} of {expected:,} bytes; fetch it again")
        if direct:
            try:
                fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
            except OSError as error:
                _warn_of_cache(array.path, error)
        yield file
    finally:
        os.close(file)


def _fill_view(file: int, view: memoryview, start: int, path: Path, needed: int | None = None) -> None:
    """Read the bytes of the file from `start` into the view; at least the first `needed` if the file ends there."""
    needed = len(view) if needed is None else needed
    bytes_read = 0
    while bytes_read < needed:
        try:
            count = os.preadv(file, [view[bytes_read:]], start + bytes_read)
        except OSError as error:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            if error.errno != errno.EINVAL or not flags & os.O_DIRECT:
                raise
            _warn_of_cache(path, error)
            fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            continue
        if not count:
            raise ArrayError(path, f"ends after {start + bytes_read:,} bytes; fetch it again")
        bytes_read += count


def _warn_of_cache(path: Path, error: OSError) -> None:
    """Warn, once per folder, that direct reading is not available."""
    warnings.warn(
        f"{path.parent}: the file system refuses O_DIRECT ({error.strerror}); files are read through the kernel's "
        "cache; set data.direct=false",
        RuntimeWarning,
        stacklevel=2,
    )


def npy_array(path: Path) -> StoredArray:
    """Return the array of an npy file; ArrayError unless it is complete and in C order, OSError if unreadable."""
    with open(open_regular(path), "rb") as file:
        head = io.BytesIO(file.read(10_012))  # the longest header that NumPy accepts
    try:
        with ONE_AT_A_TIME:
            shape, by_columns, dtype = NPY_HEADERS[np.lib.format.read_magic(head)](head)
    except Exception as error:  # damage may raise anything
        raise ArrayError(path, explain_file(path, NPY) or f"not an npy file of version 1 or 2 ({error})") from error
    if dtype.hasobject:  # bytes of the file would become addresses
        raise ArrayError(path, f"Python objects ({dtype}); expected numbers: write it again")
    array = StoredArray(path, head.tell(), shape, dtype)
    size, expected = path.stat().st_size, array.offset + array.nbytes
    if size != expected:
        raise ArrayError(path, f"{size} bytes; expected {expected}; fetch it again")
    if by_columns and len(shape) > 1:
        raise ArrayError(path, f"{dtype} {shape} in Fortran order; expected C order: write it again")
    return array


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write an array in C order as an npy file, whole or not at all; an old file is replaced."""
    with open_whole_file(path) as file:
        # Not by numpy.save, whose error on a full disk does not say so.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
