"""The files of a sample: their names, and how they are written."""

from pathlib import Path
from typing import Final

import numpy as np

from common.data import npy

FIELD: Final = "_field.npy"
LABEL: Final = "_label.npy"


def write(stem: Path, field: np.ndarray, label: np.ndarray) -> None:
    """Write a sample; each file appears whole or not at all."""
    npy.write(stem.with_name(stem.name + FIELD), field)
    npy.write(stem.with_name(stem.name + LABEL), label)
