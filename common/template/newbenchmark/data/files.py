"""The files of a sample: their names, and how they are written."""

from pathlib import Path
from typing import Final

import numpy as np
from common.data.arrays import write_npy

FIELD: Final = "_field.npy"
LABEL: Final = "_label.npy"


def write_sample(stem: Path, field: np.ndarray, label: np.ndarray) -> None:
    """Write a sample; each file appears whole or not at all."""
    write_npy(stem.with_name(stem.name + FIELD), field)
    write_npy(stem.with_name(stem.name + LABEL), label)
