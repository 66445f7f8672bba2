"""Files of numpy (.npy): where their array lies, and how they are written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from common.data.arrays import ArrayError, StoredArray
from common.files import whole_file

HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Version of the format -> what reads its header."""


def located(path: Path) -> StoredArray:
    """The array of a file. ArrayError for anything but a whole npy file in C order; OSError if it cannot be read."""
    with path.open("rb") as file:
        try:
            shape, by_columns, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        except Exception as error:  # numpy parses the header as Python: damage may raise anything
            raise ArrayError(path, f"no npy file of version 1 or 2 ({error})") from error
        array = StoredArray(path, file.tell(), shape, dtype)
        size, expected = path.stat().st_size, file.tell() + array.nbytes
    if size != expected:
        raise ArrayError(path, f"{size} bytes; expected {expected}; fetch it again")
    if by_columns and len(shape) > 1:
        raise ArrayError(path, f"{dtype} {shape} in Fortran order; expected C order: write it anew")
    return array


def write(path: Path, array: np.ndarray) -> None:
    """The file holds the array, which is in C order: it appears whole or not at all, and an old one is replaced."""
    with whole_file(path) as part, part.open("wb") as file:
        # Not by numpy.save, whose error on a full disk does not say so.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
