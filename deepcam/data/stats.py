"""The statistics of the training snapshots' channels: `stats.h5`, beside the folders of the splits.

climate/count    number of snapshots
climate/mean     float64 (16,)   mean over all pixels, each of equal weight
climate/sqmean   float64 (16,)   mean of the squares
climate/minval   float32 (16,)   the benchmark uses only minval and maxval
climate/maxval   float32 (16,)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from common.data.hdf5 import HDF5_ERRORS, find_dataset
from common.files import check_regular, whole_file
from deepcam.reference import CHANNELS

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
    check_regular(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            values = {
                name: _read_numbers(file, path, name, () if name == "count" else (len(CHANNELS),)) for name in names
            }
    except HDF5_ERRORS as error:
        if isinstance(error, StatsError):
            raise
        raise StatsError(f"{path}: not a readable HDF5 file with numbers ({error}); {_how_to_fix(path)}") from error
    for channel, low, high in zip(CHANNELS, values["minval"], values["maxval"], strict=True):
        if not -FILL < low < high < FILL:  # NaN compares false
            raise StatsError(
                f"{path}: {channel.name} has minval {low:g} and maxval {high:g}; expected minval < maxval, both "
                f"between {-FILL:g} and {FILL:g}; " + _how_to_fix(path)
            )
    return values | {"count": int(values["count"])} if "count" in values else values


def _read_numbers(file: Any, path: Path, name: str, shape: tuple[int, ...]) -> Any:
    key = f"{GROUP}/{name}"
    dataset = find_dataset(file, key)
    if dataset is None:
        raise StatsError(f"{path}: `{key}` is missing; {_how_to_fix(path)}")
    values = np.asarray(dataset[()], np.float64)
    if values.size != np.prod(shape, dtype=int):
        raise StatsError(
            f"{path}: `{key}` has the shape {dataset.shape} where {shape} was expected; {_how_to_fix(path)}"
        )
    return values.reshape(shape)


def _how_to_fix(path: Path) -> str:
    return f"make it again by `python -m deepcam.summarize {path.parent}`"
