"""DeepCAM's snapshots: their files, and scaling on the device.

`data.augment` turns snapshots at random, for the open division, by the symmetries of the planet: longitude and
hemisphere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from common.data.prefetch import send_values
from common.data.split import DatasetError as DatasetError
from common.data.split import Split, find_once, list_folder
from common.ranks.dist import Dist
from deepcam.data import conversion, snapshot
from deepcam.data.conversion import SingleFile
from deepcam.data.snapshot import SnapshotBuffer
from deepcam.data.values import NAME, Range, Stats, read_range
from deepcam.reference import CHANNELS
from deepcam.settings import DataConfig

SINGLE: Final = "hdf5-single"
ENDINGS: Final = {"hdf5": ".h5", "npy": snapshot.NPY}


class Dataset(Split, data.Dataset[tuple[Tensor, Tensor]]):
    """The samples of one split, such as data_dir/train, sorted by name, or in the order of the rows of a single file.

    `dataset[i]` is the input, float32 (H, W, C) without unit, each chosen channel scaled so that its extremes in
    stats.h5 are 0 and 1, and the classes, uint8 (H, W): 0 background, 1 cyclone, 2 atmospheric river.

    ranks: see `find_once`. DatasetError if the folder is missing or empty, has another format, or fewer than `samples`.
    """

    config: DataConfig

    def __init__(
        self, folder: Path | str, config: DataConfig, samples: int | None = None, ranks: Dist | None = None
    ) -> None:
        folder = Path(folder)
        self._single = _locate_single(folder) if config.format == SINGLE else None
        find = partial(_find_samples, folder, config.format)
        names = list(self._single.names) if self._single else find_once(find, ranks)
        super().__init__(folder, names, samples, config)
        self._stats = folder.with_name(NAME)

    @cached_property
    def _normalize(self) -> Normalization:
        return Normalization(read_range(self._stats), self.config.channels, torch.device("cpu"))

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return the input of the network for snapshots; StatsError without stats.h5."""
        return self._normalize(x)

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name of each file below data_dir and the index of its sample; None: it has all samples."""
        return iter([(f"{self.split}.h5", None)]) if self._single else super().files()

    def files_of(self, index: int) -> tuple[str, ...]:
        """Return the names of the files of a sample, below data_dir: two in npy format."""
        if self._single:
            return (f"{self.split}.h5",)
        return tuple(f"{self.split}/{file}" for file in _file_names(self.names[index], self.config.format))

    def buffer(self, count: int, pinned: bool) -> tuple[Tensor, Tensor]:
        """Allocate memory for `count` samples."""
        height, width, channels = self.config.sample_shape
        x = torch.empty((count, height, width, channels), pin_memory=pinned)
        return x, torch.empty((count, height, width), dtype=torch.uint8, pin_memory=pinned)

    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """Read a sample from its files into two arrays."""
        x, y = into
        buffer = SnapshotBuffer(x, y, self.config.selection, self.config.direct)
        paths = self.paths(index)
        if self._single:
            for array, take, key in (
                (self._single.data_NHWC, buffer.take_data, conversion.DATA),
                (self._single.labels_NHW, buffer.take_labels, conversion.LABELS),
            ):  # the rows of a staged copy have the same offsets
                take(replace(array.row_at(index), path=paths[0]), f"{paths[0]}, row {index} of `{key}`")
        elif self.config.format == "npy":
            snapshot.read_npy(paths[0], paths[1], buffer)
        else:
            snapshot.read_into(paths[0], buffer)


def _find_samples(folder: Path, format: str) -> list[str]:
    """Return the sorted names of the samples of a folder: those of their data files without the ending."""
    listing = list_folder(folder, "deepcam", "`python -m deepcam.split` makes the folders, ")
    data_files = [name for name in listing.names if name.startswith("data")]
    names = {
        kind: [name.removesuffix(ending) for name in data_files if name.endswith(ending)]
        for kind, ending in ENDINGS.items()
    }
    return listing.select_samples(format, names, f"data*{ENDINGS[format]}", partial(_file_names, format=format))


def _file_names(name: str, format: str) -> tuple[str, ...]:
    """Return the names of the files of a sample."""
    label = snapshot.NPY_LABEL + name.removeprefix(snapshot.NPY_DATA)
    return (f"{name}.h5",) if format == "hdf5" else (name + snapshot.NPY, label + snapshot.NPY)


def _locate_single(folder: Path) -> SingleFile:
    """Return the single file beside the folder."""
    path = folder.with_name(f"{folder.name}.h5")
    try:
        return conversion.locate_arrays(path)
    except FileNotFoundError as error:
        raise DatasetError(
            f"{path} is missing: data.format={SINGLE} needs one file per split in data.data_dir; "
            f"`python -m deepcam.prepare convert --format {SINGLE}` makes it"
        ) from error


# -- what the network sees -----------------------------------------------------------------------------------


class Normalization:
    """Scales each channel so that the extremes of the training samples become 0 and 1; others may lie outside."""

    def __init__(self, extremes: Range | Stats, channels: Sequence[int], device: torch.device) -> None:
        low, high = (torch.from_numpy(values[list(channels)]) for values in (extremes.minval, extremes.maxval))
        range_ = high - low
        self.low, self.range, self.shift, self.scale = (
            values.to(device, torch.float32) for values in (low, range_, -low / range_, 1 / range_)
        )

    def __call__(self, x_BHWC: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return (x - min) / (max - min), computed in float32 and rounded to `dtype`; `x_BHWC` is not modified."""
        if not x_BHWC.is_cpu:
            return self.in_one_pass(x_BHWC, dtype)
        shifted = x_BHWC - self.low
        if dtype == torch.float32:
            return shifted.div_(self.range)
        return torch.div(shifted, self.range, out=torch.empty_like(shifted, dtype=dtype))  # rounds in the same pass

    def in_one_pass(self, x_BHWC: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the same but for rounding, by one operation that reads x once and writes `dtype`."""
        return torch.addcmul(self.shift, x_BHWC, self.scale, out=torch.empty_like(x_BHWC, dtype=dtype))


NORTHWARD: Final = frozenset(i for i, channel in enumerate(CHANNELS) if channel.name in ("V850", "VBOT"))
"""Channels whose sign distinguishes north from south."""


def augment_batch(x_BHWC: Tensor, y_BHW: Tensor, seeds: np.ndarray, channels: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return each snapshot with its labels, rolled around the planet and, with even odds, mirrored at the equator.

    x_BHWC: values as in the files, not normalised; any device, not modified. y_BHW: labels. seeds: uint64 (B,), the
    only source of randomness. channels: their numbers, in the order of the last axis.
    Mirrored winds blow to the other pole, and turn the other way around a low, as on the other hemisphere. Mountains
    and seasons are not symmetric: a mirrored snapshot is similar to real ones, but not one of them.
    """
    height, width = y_BHW.shape[1:]
    device = x_BHWC.device
    # The low half of the bits is a fraction of a turn; the highest bit decides about mirroring.
    fractions, halves = seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(63)
    drawn = np.stack((fractions * np.uint64(width) >> np.uint64(32), halves))
    turns, mirrored = send_values(drawn.astype(np.int64), device)
    columns_BW = (torch.arange(width, device=device) - turns[:, None]) % width
    rows_BH = (torch.arange(height, device=device) - mirrored[:, None] * (height - 1)).abs()
    samples_B = torch.arange(len(seeds), device=device)
    cells = (samples_B[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :])
    moved = x_BHWC[cells]
    sign_B = (1 - 2 * mirrored).to(moved.dtype)
    for i, channel in enumerate(channels):  # a list of indices would be copied to the device, which waits
        if channel in NORTHWARD:
            moved[..., i] *= sign_B[:, None, None]
    return moved, y_BHW[cells]
