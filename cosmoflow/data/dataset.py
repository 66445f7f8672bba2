"""CosmoFlow's samples: their files, their configuration, and the input of the network made from them.

`data.augment` turns samples at random, for the open division. A universe has no preferred direction or centre; one that
drifts has a direction, which turns with it.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import permutations, product
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from common.data.split import DatasetError as DatasetError
from common.data.split import Split, find_once, list_folder
from common.ranks.dist import Dist
from common.spatial.grid import Block
from cosmoflow.data import packed, tfrecord
from cosmoflow.data.sample_files import ENDINGS, read_sample
from cosmoflow.data.tfrecord import Sample
from cosmoflow.settings import DataConfig


class Dataset(Split, data.Dataset[tuple[Tensor, Tensor]]):
    """The samples of one folder, sorted by name.

    `dataset[i]` is the input, float32 (D, H, W, C) without unit, log(1 + counts) unless the configuration says
    otherwise, and the labels, float32 (4,), where -1 and 1 are the ends of a parameter's range.

    block: the part of each sample that is read; None: all of it. ranks: see `find_once`.
    DatasetError if the folder is missing or empty, has the wrong or more than one format, or fewer than `samples`.
    """

    config: DataConfig
    decodes = True

    def __init__(
        self,
        folder: Path | str,
        config: DataConfig,
        samples: int | None = None,
        block: Block | None = None,
        ranks: Dist | None = None,
    ) -> None:
        names = find_once(partial(_find_samples, folder, config.format), ranks)
        super().__init__(folder, names, samples, config)
        self.block = block

    def undecoded(self) -> Dataset:
        """Return the same packed samples, each read as the bytes of its file, for `cosmoflow.unpack`."""
        samples = copy(self)
        samples.decodes = False
        return samples

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part of a sample that this rank reads."""
        return self.block.sides if self.block else self.config.sample_shape

    def files_of(self, index: int) -> tuple[str, ...]:
        """Return the names of the files of a sample, below data_dir: two in npy format."""
        return tuple(f"{self.split}/{self.names[index]}{ending}" for ending in ENDINGS[self.config.format])

    def buffer(self, count: int, pinned: bool) -> tuple[Tensor, Tensor]:
        """Allocate memory for the voxels, or the bytes of files, and labels of `count` samples."""
        shape, dtype = self.shape, torch.int16
        if not self.decodes:
            shape, dtype = (packed.file_room(prod(shape)),), torch.uint8
        x = torch.empty((count, *shape), dtype=dtype, pin_memory=pinned)
        return x, torch.empty((count, tfrecord.LABELS), pin_memory=pinned)

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return the input of the network for counts."""
        return scaled_input(x, self.config)

    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """Read a sample from its files into two arrays."""
        if self.decodes:
            read_sample(self.paths(index), Sample(*into), self.config.verify_crc, self.block)
        else:
            _, _, _, into[1][:], _ = packed.read_file(self.paths(index)[0], self.shape, into[0])


def _find_samples(folder: Path | str, format: str) -> list[str]:
    """Return the sorted names of the samples, which are those of their files without the endings."""
    listing = list_folder(folder, "cosmoflow")
    names = {
        kind: [name[: -len(first)] for name in listing.names if name.endswith(first)]
        for kind, (first, *_) in ENDINGS.items()
    }
    there = [f"{len(samples):,} samples as {kind}" for kind, samples in names.items() if samples]
    if len(there) > 1:
        raise DatasetError(f"{folder} has {' and '.join(there)}: keep one format per folder")
    endings = ENDINGS[format]
    return listing.select_samples(format, names, f"*{endings[0]}", lambda name: (name + ending for ending in endings))


# -- what the network sees -----------------------------------------------------------------------------------


def to_input(x: Tensor, apply_log: bool, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the input of the network for int16 counts `x` (B, D, H, W, C), of the same shape on the same device.

    It is log(1 + x), or x divided by the mean of its sample, computed in float32 and rounded to `dtype`.
    """
    if not apply_log:
        counts = x.to(torch.float32)
        return counts.div_(counts.mean(dim=(1, 2, 3, 4), keepdim=True)).to(dtype)
    if x.device.type == "cpu":  # 1 + x is exact, and these three passes take half the time of log1p
        return x.to(torch.float32).add_(1).log_().to(dtype)
    # One kernel: accelerators convert the counts as they read them, and the results as they write them.
    return torch.log1p(x, out=torch.empty(x.shape, dtype=dtype, device=x.device))


def scaled_input(x: Tensor, config: DataConfig, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return `to_input` of the counts with `shift` and `scale` of the configuration applied, rounded once."""
    if (config.shift, config.scale) == (0.0, 1.0):
        return to_input(x, config.apply_log, dtype)
    return to_input(x, config.apply_log).sub_(config.shift).div_(config.scale).to(dtype)


SYMMETRIES: Final = tuple(product(permutations((0, 1, 2)), product((False, True), repeat=3)))
"""The 48 symmetries of a cube: the order of its axes, and for each axis whether it is reversed."""


def augment_batch(x: Tensor, seeds: np.ndarray, roll_step: int = 0) -> Tensor:
    """Return each sample under a random symmetry of the cube; with `roll_step` also shifted periodically on each axis.

    x: (B, N, N, N, C), any device, not modified. seeds: uint64 (B,), the only source of randomness.
    roll_step: shifts are multiples of this number of voxels; 0: none.
    Sample by sample, without waiting for the device: one gather for the whole batch would need an index of 8 bytes per
    voxel.
    Shifts are valid for a whole box only: opposite sides of a sub-volume, as in the published data, do not match.
    """
    side = x.shape[1]
    changed = torch.empty_like(x)
    for source, target, seed in zip(x, changed, seeds.tolist(), strict=True):
        order, reversals = choose_symmetry(seed)
        source = source.permute(*order, 3).flip([axis for axis in range(3) if reversals[axis]])
        if roll_step:
            shifts = [((seed >> bits & 0xFFFF) * (side // roll_step) >> 16) * roll_step for bits in (16, 32, 48)]
            source = source.roll(shifts, (0, 1, 2))
        target.copy_(source)
    return changed


def turn_labels(y: Tensor, seeds: np.ndarray) -> Tensor:
    """Return the labels turned as `augment_batch` turns their samples: all but the first are a vector along the axes.

    y: (B, 4), any device, not modified.
    """
    drawn = [choose_symmetry(seed) for seed in seeds.tolist()]
    order = torch.tensor([order for order, _ in drawn]).reshape(-1, 3).to(y.device)
    reversals = torch.tensor([reversals for _, reversals in drawn], dtype=torch.bool).reshape(-1, 3).to(y.device)
    vectors = y[:, 1:].gather(1, order)
    return torch.cat((y[:, :1], torch.where(reversals, -vectors, vectors)), 1)


def choose_symmetry(seed: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the symmetry that the lowest 16 bits of a seed choose."""
    return SYMMETRIES[(seed & 0xFFFF) * len(SYMMETRIES) >> 16]
