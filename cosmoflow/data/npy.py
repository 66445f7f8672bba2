"""Samples as two files of numpy: `<stem>_data.npy`, int16 (D, H, W, 4), and `<stem>_label.npy`, float32 (4,)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from common.data.arrays import ArrayError, npy_array
from common.spatial.grid import Block
from cosmoflow.data.tfrecord import RecordError

DATA: Final = "_data.npy"
LABEL: Final = "_label.npy"


def read_array(path: Path, into: np.ndarray, block: Block | None = None) -> None:
    """Read the array of a file directly into `into`, or only a block of it.

    RecordError for a damaged file or a type or shape that differs from `into`, or from that of the block's array;
    OSError if it cannot be read.
    """
    try:
        array = npy_array(path)
        expected = block.shape if block else into.shape
        if (array.shape, array.dtype) != (expected, into.dtype):
            raise RecordError(f"{path}: {array.dtype} {array.shape}; expected {into.dtype} {expected}")
        if block:
            array.read_block(into, block)
        else:
            array.read_values(into)
    except ArrayError as error:
        raise RecordError(str(error)) from error
