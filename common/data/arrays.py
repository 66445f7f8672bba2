"""Arrays that lie in one piece in a file: read straight to their place, on request around the cache of the kernel."""

from __future__ import annotations

import errno
import fcntl
import math
import mmap
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

BLOCK_BYTES: Final = 4 * 2**20
"""What is read at once where values are converted on the way: it stays in the cache of a processor."""
ALIGNMENT: Final = 4096
"""Of offset, length and memory for O_DIRECT: enough for all usual disks and file systems."""


class ArrayError(ValueError):
    """A file does not hold the array; the message names the file and the problem: what was expected, how to fix it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in C order, whose first byte is number `offset` of a file."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def row(self, index: int) -> StoredArray:
        """Row `index` along the first axis, which it has no more."""
        row = replace(self, shape=self.shape[1:])
        return replace(row, offset=self.offset + index * row.nbytes)

    def read(self, into: np.ndarray, direct: bool = False) -> None:
        """`into`, of the same shape and type and in C order, holds the array. See `blocks`."""
        if direct:  # the place of a batch in memory is no multiple of ALIGNMENT away from that in the file
            for rows, block in self.blocks(direct):
                into[rows] = block
            return
        with _opened(self, direct) as file:
            _fill(file, into.data.cast("B"), self.offset, self.path)

    def blocks(self, direct: bool = False) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the rows along the first axis in blocks, each valid until the next: which rows, and their values.

        direct: with O_DIRECT, which spares the kernel's cache and a copy; where the file system refuses it, a warning
        says why and the file is read as any other. ArrayError if the file ends early, OSError if it cannot be read.
        """
        row_bytes = max(1, self.nbytes // max(1, self.shape[0]))
        rows = max(1, BLOCK_BYTES // row_bytes)
        with _opened(self, direct) as file:
            room = mmap.mmap(-1, rows * row_bytes + 2 * ALIGNMENT)  # memory that begins at a page
            for start in range(0, self.shape[0], rows):
                count = min(rows, self.shape[0] - start)
                first = self.offset + start * row_bytes
                lead = first % ALIGNMENT
                end = lead + count * row_bytes
                view = memoryview(room)[: -(-end // ALIGNMENT) * ALIGNMENT]
                _fill(file, view, first - lead, self.path, needed=end)
                block = np.frombuffer(room, np.uint8, count * row_bytes, lead).view(self.dtype)
                yield slice(start, start + count), block.reshape(count, *self.shape[1:])


@contextmanager
def _opened(array: StoredArray, direct: bool) -> Iterator[int]:
    """The file's descriptor; ArrayError if the file is too short for the array."""
    file = os.open(array.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, expected = os.fstat(file).st_size, array.offset + array.nbytes
        if size < expected:
            raise ArrayError(array.path, f"ends after {size:,} of {expected:,} bytes; fetch it again")
        if direct:
            try:
                fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
            except OSError as error:
                _warn(array.path, error)
        yield file
    finally:
        os.close(file)


def _fill(file: int, view: memoryview, start: int, path: Path, needed: int | None = None) -> None:
    """The view holds the bytes of the file from `start`, or at least the first `needed`, where the file ends."""
    needed = len(view) if needed is None else needed
    filled = 0
    while filled < needed:
        try:
            got = os.preadv(file, [view[filled:]], start + filled)
        except OSError as error:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            if error.errno != errno.EINVAL or not flags & os.O_DIRECT:
                raise
            _warn(path, error)
            fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            continue
        if not got:
            raise ArrayError(path, f"ends after {start + filled:,} bytes; fetch it again")
        filled += got


def _warn(path: Path, error: OSError) -> None:
    """The user knows, once per folder, that there is no direct reading."""
    warnings.warn(
        f"{path.parent}: its file system refuses O_DIRECT ({error.strerror}); files are read through the kernel's "
        "cache, set data.direct=false",
        RuntimeWarning,
        stacklevel=2,
    )
