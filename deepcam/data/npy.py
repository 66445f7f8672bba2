"""Snapshots as two files of numpy: `data-X.npy`, float32 (H, W, C), and `label-X.npy`, (H, W), any type of number."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.data.arrays import npy_array
from deepcam.data.snapshot import Target, naming

DATA: Final = "data-"
LABEL: Final = "label-"
ENDING: Final = ".npy"


def read(data: Path, label: Path, target: Target) -> None:
    """`target` holds the snapshot of the two files. SnapshotError if they hold none, OSError if they cannot be read."""
    for path, take in ((data, target.take_data), (label, target.take_labels)):
        with naming(str(path)):
            take(npy_array(path), str(path))
