"""Samples as two files of numpy: `<stem>_data.npy`, int16 (D, H, W, 4), and `<stem>_label.npy`, float32 (4,)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cosmoflow.tfrecord import RecordError

DATA: Final = "_data.npy"
LABEL: Final = "_label.npy"


def read_array(path: Path, into: np.ndarray) -> None:
    """`into` holds the array of the file, read straight to its place.

    RecordError for a damaged file and for another type or shape than that of `into`; OSError if it cannot be read.
    """
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, by_columns, dtype = read_header[version](file)
        except Exception as error:  # numpy parses the header as Python: damage may raise anything
            raise RecordError(f"{path}: no npy file of version 1 or 2 ({error})") from error
        if (shape, dtype) != (into.shape, into.dtype) or (by_columns and into.ndim > 1):
            order = " in Fortran order" if by_columns else ""
            raise RecordError(f"{path}: {dtype} {shape}{order}; expected {into.dtype} {into.shape}")
        expected = file.tell() + into.nbytes
        if file.readinto(into.data.cast("B")) != into.nbytes or file.read(1):
            raise RecordError(f"{path}: {path.stat().st_size} bytes; expected {expected}")
