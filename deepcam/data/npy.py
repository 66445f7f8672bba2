"""Snapshots as two files of numpy: `data-X.npy`, float32 (H, W, C), and `label-X.npy`, (H, W), any type of number."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.data.arrays import npy_array
from deepcam.data.snapshot import SnapshotBuffer, name_errors

DATA: Final = "data-"
LABEL: Final = "label-"
ENDING: Final = ".npy"


def read_npy(data: Path, label: Path, buffer: SnapshotBuffer) -> None:
    """Read a snapshot from two files into `buffer`; SnapshotError if they are invalid, OSError if unreadable."""
    for path, take in ((data, buffer.take_data), (label, buffer.take_labels)):
        with name_errors(str(path)):
            take(npy_array(path), str(path))
