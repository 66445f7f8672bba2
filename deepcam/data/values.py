"""The contract of DeepCAM's numbers: channels about as in `stats.h5`; classes are checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import h5py
import numpy as np

from common.data.arrays import npy_array
from common.data.values import Bounds, Content, Flaw, Identity, Values
from common.tree import open_regular
from deepcam.data import snapshot, stats
from deepcam.data.snapshot import SnapshotBuffer
from deepcam.data.stats import Range
from deepcam.reference import CHANNELS, CLASSES

LABELS: Final = Bounds(
    valid=(0, len(CLASSES) - 1),
    likely=(0, len(CLASSES) - 1),
    advice=f"classes of pixels: {', '.join(CLASSES)}; fetch the file again",
    is_truth=True,
)


def bound_channels(extremes: Range, channels: Sequence[int] = range(len(CHANNELS))) -> Bounds:
    """Return the bounds of some channels, from the extremes of the training snapshots.

    Other snapshots are more extreme where the statistics are of few: up to two ranges of the channel beyond them is
    likely, above all for rain, and up to ten possible. A channel of which no number is near the extremes has another
    unit.
    """
    low, high = (values[list(channels)] for values in (extremes.minval, extremes.maxval))
    range_ = high - low
    return Bounds(
        valid=(np.maximum(low - 10 * range_, -stats.FILL), np.minimum(high + 10 * range_, stats.FILL)),
        likely=(low - 2 * range_, high + 2 * range_),
        reached=(low - range_ / 2, high + range_ / 2),
        advice=f"{stats.NAME} has other extremes: is the unit another one, or the number a mark of what is missing? "
        "Fetch the file again, or leave it out",
        varies=True,
        components=tuple(f"{CHANNELS[channel].name}, {CHANNELS[channel].unit}" for channel in channels),
    )


def list_contents(data_HWC: np.ndarray, labels_HW: np.ndarray, channels: Bounds) -> Iterator[Content]:
    """Yield the contents of a snapshot."""
    if data_HWC.shape[:2] != labels_HW.shape:
        sizes = f"labels are {labels_HW.shape}, data {data_HWC.shape}"
        yield Flaw(f"{sizes}; expected a label for each pixel: fetch the file again")
    yield Values("data", data_HWC, channels)
    yield Values("labels", labels_HW[..., None], LABELS)


def read_contents(folder: Path) -> Callable[[str, Path, str], Iterator[tuple[str, Iterator[Content]]]]:
    """Return what yields the samples of a file of a dataset, given its name, where to read it, and its SHA-256."""
    channels = bound_channels(stats.read_range(folder / stats.NAME))

    def read_file(name: str, path: Path, checksum: str) -> Iterator[tuple[str, Iterator[Content]]]:
        file = PurePosixPath(name)
        if len(file.parts) < 2:
            return
        if file.suffix == ".h5":
            # HDF5 itself opens no file that has no name, as the copy in memory.
            with (
                snapshot.name_errors(str(path)),
                open(open_regular(path), "rb") as opened,
                h5py.File(opened, "r") as snapshots,
            ):
                stored = [snapshot.hdf5_array(snapshots, key, path) for key in (snapshot.DATA, snapshot.LABELS)]
                data, labels = np.empty(stored[0].shape, np.float32), np.empty(stored[1].shape, np.uint8)
                buffer = SnapshotBuffer(data, labels)
                buffer.take_data(stored[0], f"{path}: `{snapshot.DATA}`")
                buffer.take_labels(stored[1], f"{path}: `{snapshot.LABELS}`")
            yield "", iter([Identity(checksum), *list_contents(data, labels, channels)])
        elif file.name.startswith(snapshot.NPY_DATA):
            data = np.empty(npy_array(path).shape, np.float32)
            SnapshotBuffer(data, np.empty(0, np.uint8)).take_data(npy_array(path), str(path))
            yield "", iter([Identity(checksum), Values("data", data, channels)])
        elif file.name.startswith(snapshot.NPY_LABEL):
            labels = np.empty(npy_array(path).shape, np.uint8)
            SnapshotBuffer(np.empty(0, np.float32), labels).take_labels(npy_array(path), str(path))
            yield "", iter([Values("labels", labels[..., None], LABELS)])

    return read_file
