"""Snapshots of DeepCAM: where they are, in which order they come, how they get to the device and are scaled there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.config import PLACE, REQUIRED, ROUTE, key
from common.data.sampling import shard_assignment, shard_order
from common.data.split import DatasetError as DatasetError
from common.data.split import Split
from common.distributed.dist import Dist
from deepcam.data import npy, single_file, snapshot
from deepcam.data.single_file import Single
from deepcam.data.snapshot import CHANNELS, Target
from deepcam.data.stats import Stats

STRIDE: Final = 16
"""Pixels of the input per pixel of the network's smallest map."""
SINGLE: Final = "hdf5-single"
ENDINGS: Final = {"hdf5": ".h5", "npy": npy.ENDING}


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Which snapshots, and how they are read."""

    data_dir: Path = key(
        REQUIRED,
        "holds stats.h5 and the folders train and validation, or with hdf5-single train.h5 and validation.h5",
        PLACE,
    )
    train_samples: int | None = key(None, "train on the first so many in order of names; null: all", unit="samples")
    eval_samples: int | None = key(None, "evaluate the first so many in order of names; null: all", unit="samples")
    height: int = key(snapshot.HEIGHT, "latitudes of a snapshot", unit="pixels")
    width: int = key(snapshot.WIDTH, "longitudes of a snapshot", unit="pixels")
    channels: tuple[int, ...] = key(
        tuple(range(len(CHANNELS))), "numbers of those that the network sees, in this order"
    )
    format: Literal["hdf5", "npy", "hdf5-single"] = key(
        "hdf5",
        "hdf5 as published, npy (pairs of files, see deepcam/data/npy.py), or hdf5-single (see "
        "deepcam/data/single_file.py)",
        ROUTE,
    )
    shuffle: Literal["global", "node", "rank"] = key(
        "global",
        "where a rank's part of each global batch comes from: from everywhere, or from the fixed shard of its node, or "
        "its own, in an order that changes with the epoch",
    )
    cache: bool = key(False, "keep what was read in memory, in each rank; with shuffle=rank at most its shard", PLACE)
    direct: bool = key(
        False, "read around the kernel's cache (O_DIRECT): good for what is read once from a fast disk", PLACE
    )
    augment: Literal["none", "symmetries"] = key(
        "none",
        "of training samples, for the open division; symmetries: rolled by any longitude, mirrored at the equator",
    )
    workers: int = key(4, "threads that read samples", PLACE)
    prefetch: int = key(4, "batches that are read ahead of their use", PLACE)
    pipeline: Literal["native", "dali"] = key("native", "dali: NVIDIA DALI, see deepcam/data/dali.py", PLACE)

    def __post_init__(self) -> None:
        for name in ("train_samples", "eval_samples", "workers", "prefetch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; expected at least 1")
        for name in ("height", "width"):
            value = getattr(self, name)
            if value < 1 or value % STRIDE:
                raise ValueError(
                    f"{name} is {value}; expected a multiple of {STRIDE}, as the network halves it 4 times"
                )
        if not self.channels or len(set(self.channels)) < len(self.channels):
            raise ValueError(f"channels is {self.channels}; expected at least one, and none twice")
        if not set(self.channels) <= set(range(len(CHANNELS))):
            raise ValueError(f"channels is {self.channels}; expected numbers from 0 to {len(CHANNELS) - 1}")
        if self.pipeline == "dali" and (self.format != "npy" or self.cache):
            raise ValueError("DALI reads npy files only, and keeps nothing; set format=npy, cache=false")

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """H, W, C of a sample."""
        return self.height, self.width, len(self.channels)

    @property
    def selection(self) -> tuple[int, ...] | None:
        """The channels that are picked out of a file; None: as they are."""
        return None if self.channels == tuple(range(len(CHANNELS))) else self.channels

    def shards(self, dist: Dist) -> int:
        """The number of shards that `shuffle` makes of the training samples."""
        return {"global": 1, "node": dist.nodes, "rank": dist.world_size}[self.shuffle]


class Sample(NamedTuple):
    """One sample. x: float32 (H, W, C), as in the file. y: uint8 (H, W), numbers of classes."""

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def empty(cls, shape: tuple[int, int, int]) -> Sample:
        """Room for a sample with H, W, C."""
        return cls(np.empty(shape, np.float32), np.empty(shape[:2], np.uint8))


class Dataset(Split):
    """The samples of one split, such as data_dir/train, in the order of their names, or of the rows of its only file.

    DatasetError if the folder is missing or empty, has another format, or fewer than `samples`.
    """

    config: DataConfig

    def __init__(self, folder: Path, config: DataConfig, samples: int | None = None) -> None:
        self._single = _single(folder) if config.format == SINGLE else None
        names = list(self._single.names) if self._single else _find(folder, config.format)
        super().__init__(folder, names, samples, config)

    def files(self) -> Iterator[tuple[str, int | None]]:
        """The name of each file below data_dir, and the index of its sample; None: it holds all samples."""
        return iter([(f"{self.split}.h5", None)]) if self._single else super().files()

    def files_of(self, index: int) -> tuple[str, ...]:
        """The names of the files of a sample, below data_dir: two in npy format."""
        if self._single:
            return (f"{self.split}.h5",)
        return tuple(f"{self.split}/{file}" for file in _files(self.names[index], self.config.format))

    def buffer(self, count: int, pinned: bool) -> tuple[Tensor, Tensor]:
        """Memory for so many samples."""
        height, width, channels = self.config.sample_shape
        x = torch.empty((count, height, width, channels), pin_memory=pinned)
        return x, torch.empty((count, height, width), dtype=torch.uint8, pin_memory=pinned)

    def read(self, index: int, into: tuple[np.ndarray, ...] | None = None) -> Sample:
        """A sample: in `into` if given. SnapshotError for a damaged file, OSError for one that cannot be read."""
        sample = Sample(*into) if into else Sample.empty(self.config.sample_shape)
        self.load(index, sample)
        return sample

    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """The arrays hold the sample, read from its files."""
        x, y = into
        target = Target(x, y, self.config.selection, self.config.direct)
        paths = self.paths(index)
        if self._single:
            name = f"{paths[0]}, row {index} of"  # in a staged copy everything is at the same place
            target.take_data(replace(self._single.data_NHWC.row(index), path=paths[0]), f"{name} `{single_file.DATA}`")
            target.take_labels(
                replace(self._single.labels_NHW.row(index), path=paths[0]), f"{name} `{single_file.LABELS}`"
            )
        elif self.config.format == "npy":
            npy.read(paths[0], paths[1], target)
        else:
            snapshot.read_into(paths[0], target)


def _find(folder: Path, format: str) -> list[str]:
    """The sorted names of the samples of a folder, which are those of their data files without the ending."""
    try:
        files = set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatasetError(
            f"{folder} is no folder: data.data_dir must hold train/ and validation/; deepcam/README.md says where the "
            "data come from, `python -m deepcam.split` makes the folders, and `python -m deepcam.synthesize` makes data"
        ) from error
    names = {
        kind: sorted(name.removesuffix(ending) for name in files if name.startswith("data") and name.endswith(ending))
        for kind, ending in ENDINGS.items()
    }
    if not names[format]:
        there = [f"{len(found):,} samples as {kind}: set data.format" for kind, found in names.items() if found]
        found = there[0] if there else f"none among its {len(files)} files"
        raise DatasetError(f"{folder}: expected samples as {format} (data*{ENDINGS[format]}), found {found}")
    if missing := {file for name in names[format] for file in _files(name, format)} - files:
        raise DatasetError(f"{folder}: {len(missing)} files are missing, such as {min(missing)}")
    return names[format]


def _files(name: str, format: str) -> tuple[str, ...]:
    """The names of the files of a sample."""
    label = npy.LABEL + name.removeprefix(npy.DATA)
    return (f"{name}.h5",) if format == "hdf5" else (name + npy.ENDING, label + npy.ENDING)


def _single(folder: Path) -> Single:
    """What the file beside the folder holds."""
    path = folder.with_name(f"{folder.name}.h5")
    try:
        return single_file.locate(path)
    except FileNotFoundError as error:
        raise DatasetError(
            f"{path} is missing: data.format={SINGLE} needs one file per split in data.data_dir; "
            f"`python -m deepcam.prepare convert --format {SINGLE}` makes it"
        ) from error


def to_stage(datasets: Sequence[Dataset], mode: str) -> tuple[dict[str, int | None], dict[str, int]]:
    """The files below data_dir with the numbers of their samples, and the samples that each folder must have.

    ValueError if they cannot be staged in this mode.
    """
    if mode == "shard" and any(dataset.config.format == SINGLE for dataset in datasets):
        raise ValueError(
            f"staging.mode=shard deals files to the nodes, and data.format={SINGLE} has one for all samples: set "
            "staging.mode to replicate, memory or none, or take data.format=npy or hdf5"
        )
    names = {name: number for dataset in datasets for name, number in dataset.files()}
    return names, {dataset.split: len(dataset) for dataset in datasets if dataset.config.format != SINGLE}


# -- order and batches ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How the order of the training samples changes from epoch to epoch.

    samples: of the dataset. shards: from `DataConfig.shards`; each makes an equal part of each global batch.
    shard_seed: decides which samples a shard has, for all epochs; with staged shards theirs, so that both agree.
    """

    samples: int
    global_batch_size: int
    shards: int = 1
    shard_seed: int = 0

    def __post_init__(self) -> None:
        if self.global_batch_size % self.shards:
            raise ValueError(
                f"the global batch size {self.global_batch_size} is no multiple of the {self.shards} shards of "
                "data.shuffle (a node or a rank each): change one of them, or set data.shuffle=global"
            )

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """Return the order of all samples in an epoch (from 0); with one shard it is `sampling.permutation`."""
        assignment = shard_assignment(self.samples, self.shard_seed)
        return shard_order(assignment, self.shards, self.global_batch_size, seed, epoch)


# -- what the network sees -----------------------------------------------------------------------------------


class Normalization:
    """Scales each channel by the extremes of the training samples: those become 0 and 1, others may lie outside."""

    def __init__(self, stats: Stats, channels: Sequence[int], device: torch.device) -> None:
        low, high = stats.minval[list(channels)], stats.maxval[list(channels)]
        self.low = torch.tensor(low, dtype=torch.float32, device=device)
        self.range = torch.tensor(high - low, dtype=torch.float32, device=device)

    def __call__(self, x_BHWC: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(x - min) / (max - min), computed in float32, then rounded to `dtype`; `x_BHWC` stays as it is."""
        shifted = x_BHWC - self.low
        if dtype == torch.float32:
            return shifted.div_(self.range)
        return torch.div(shifted, self.range, out=torch.empty_like(shifted, dtype=dtype))  # rounds in the same pass
