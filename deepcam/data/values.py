"""The contract of DeepCAM's numbers, channels about as in `stats.h5`, and that file, beside the folders of the splits.

Classes are checked as they are read. The statistics of the training snapshots' channels are

climate/count    number of snapshots
climate/mean     float64 (16,)   mean over all pixels, each of equal weight
climate/sqmean   float64 (16,)   mean of the squares
climate/minval   float32 (16,)   the benchmark uses only minval and maxval
climate/maxval   float32 (16,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, Final

import h5py
import numpy as np

from common.data.arrays import npy_array
from common.data.build import BadItemError
from common.data.hdf5 import get_dataset, name_damage, open_hdf5
from common.data.values import Bounds, Content, Flaw, Identity, Values
from common.files import whole_file
from common.tree import open_regular
from deepcam.data import snapshot
from deepcam.data.snapshot import SnapshotBuffer
from deepcam.reference import CHANNELS, CLASSES

NAME: Final = "stats.h5"
GROUP: Final = "climate"


class StatsError(ValueError):
    """A file has no usable statistics; the message names file and key and says how to fix it."""


FILL: Final = 1e10
"""Far above any number of a channel in its unit, and below the usual values of what is missing: 1e20, 9.97e36."""


@dataclass(frozen=True)
class Stats:
    """The statistics of `count` snapshots; all others are float64, a value per channel."""

    count: int
    mean: np.ndarray
    sqmean: np.ndarray
    minval: np.ndarray
    maxval: np.ndarray


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value of each channel, float64: all that training needs."""

    minval: np.ndarray
    maxval: np.ndarray


VECTORS: Final = tuple(field.name for field in fields(Stats) if field.name != "count")


def write_stats(path: Path, stats: Stats) -> None:
    """Write the statistics, whole or not at all."""
    with whole_file(path) as part, h5py.File(part, "w") as file:
        file[f"{GROUP}/count"] = stats.count
        for name in VECTORS:
            kind = "<f4" if name in ("minval", "maxval") else "<f8"  # extremes of float32 are float32
            file[f"{GROUP}/{name}"] = np.asarray(getattr(stats, name), kind)


def read_stats(path: Path) -> Stats:
    """Return the statistics of a file, in any numeric type.

    StatsError if it is missing or damaged, or if a channel has an empty range.
    """
    return Stats(**_read_fields(path, tuple(field.name for field in fields(Stats))))


def read_range(path: Path) -> Range:
    """Return the range of each channel, of a file that may have nothing else; StatsError as in `read_stats`."""
    return Range(**_read_fields(path, tuple(field.name for field in fields(Range))))


def _read_fields(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return some statistics of a file, minval and maxval among them."""
    if not path.exists():
        raise StatsError(
            f"{path} is missing: make it from the training snapshots by `python -m deepcam.summarize {path.parent}`"
        )
    try:
        with open_hdf5(path) as file:
            values = {
                name: _read_numbers(file, path, name, () if name == "count" else (len(CHANNELS),)) for name in names
            }
    except BadItemError as error:
        raise StatsError(f"{error}; {_how_to_fix(path)}") from error
    for channel, low, high in zip(CHANNELS, values["minval"], values["maxval"], strict=True):
        if not -FILL < low < high < FILL:  # NaN compares false
            raise StatsError(
                f"{path}: {channel.name} has minval {low:g} and maxval {high:g}; expected minval < maxval, both "
                f"between {-FILL:g} and {FILL:g}; " + _how_to_fix(path)
            )
    return values | {"count": int(values["count"])} if "count" in values else values


def _read_numbers(file: Any, path: Path, name: str, shape: tuple[int, ...]) -> Any:
    key = f"{GROUP}/{name}"
    dataset = get_dataset(file, key, path)
    with name_damage(f"{path}: `{key}`"):
        values = np.asarray(dataset[()], np.float64)
    if values.size != np.prod(shape, dtype=int):
        raise StatsError(
            f"{path}: `{key}` has the shape {dataset.shape} where {shape} was expected; {_how_to_fix(path)}"
        )
    return values.reshape(shape)


def _how_to_fix(path: Path) -> str:
    return f"make it again by `python -m deepcam.summarize {path.parent}`"


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
        valid=(np.maximum(low - 10 * range_, -FILL), np.minimum(high + 10 * range_, FILL)),
        likely=(low - 2 * range_, high + 2 * range_),
        reached=(low - range_ / 2, high + range_ / 2),
        advice=f"{NAME} has other extremes: is the unit another one (of temperatures: degrees Celsius, K - 273.15)? "
        "Then convert the numbers and write the file again; if they are marks of what is missing, fetch it again, or "
        "leave it out",
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
    channels = bound_channels(read_range(folder / NAME))

    def read_file(name: str, path: Path, checksum: str) -> Iterator[tuple[str, Iterator[Content]]]:
        file = PurePosixPath(name)
        if len(file.parts) < 2:
            return
        if file.suffix == ".h5":
            with open(open_regular(path), "rb") as opened, open_hdf5(path, opened) as snapshots:
                data, labels = (snapshot.hdf5_array(snapshots, key, path) for key in (snapshot.DATA, snapshot.LABELS))
                buffer = SnapshotBuffer(np.empty(data.shape, np.float32), np.empty(labels.shape, np.uint8))
                buffer.take_data(data, f"{path}: `{snapshot.DATA}`")
                buffer.take_labels(labels, f"{path}: `{snapshot.LABELS}`")
            yield "", iter([Identity(checksum), *list_contents(buffer.data_HWC, buffer.labels_HW, channels)])
        elif file.name.startswith(snapshot.NPY_DATA):
            buffer = SnapshotBuffer(np.empty(npy_array(path).shape, np.float32), np.empty(0, np.uint8))
            buffer.take_data(npy_array(path), str(path))
            yield "", iter([Identity(checksum), Values("data", buffer.data_HWC, channels)])
        elif file.name.startswith(snapshot.NPY_LABEL):
            buffer = SnapshotBuffer(np.empty(0, np.float32), np.empty(npy_array(path).shape, np.uint8))
            buffer.take_labels(npy_array(path), str(path))
            yield "", iter([Values("labels", buffer.labels_HW[..., None], LABELS)])

    return read_file
