"""Data of the published sizes, drawn on the device and never zeros, as files that the trainer reads.

The folders are made once in the work folder of a run: `cosmoflow`, `packed`, `deepcam`, `oc20`, each with train/ and
validation/.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.data.arrays import write_npy
from cosmoflow.data import sample_files
from deepcam.data import values
from deepcam.data.snapshot import NPY, NPY_DATA, NPY_LABEL
from gpu.cases import Bench
from gpu.references import frames
from oc20.data import compact, dataset

COSMOFLOW_SIDE: Final = 128
DEEPCAM_SIDES: Final = (768, 1152)
TINY_SIDE: Final = 4
TINY_SIDES: Final = (32, 48)
CHANNELS: Final = 16
SPLITS: Final = ("train", "validation")
LABEL_SHARES: Final = (0.982, 0.001, 0.017)
"""Of background, cyclones and rivers in the published snapshots."""


def universe(side: int, generator: torch.Generator) -> Tensor:
    """Return counts int16 (side, side, side, 4): Poisson with a mean of about 1 and clumps of up to a few hundred."""
    device = generator.device
    coarse = torch.randn((1, 4, *[side // 4] * 3), generator=generator, device=device)
    smooth = F.interpolate(coarse, (side,) * 3, mode="trilinear")[0].permute(1, 2, 3, 0)
    clumps = 1 + 200 * (torch.rand(smooth.shape, generator=generator, device=device) > 0.9995)
    rates = torch.exp(1.2 * smooth - 0.5) * clumps
    return torch.poisson(rates, generator=generator).clamp(max=32000).to(torch.int16).contiguous()


def snapshot(sides: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return smooth fields (H, W, 16) in about [-3, 3], and classes uint8 (H, W) with the published shares."""
    device = generator.device
    height, width = sides
    coarse = torch.randn((1, CHANNELS + 1, height // 16, width // 16), generator=generator, device=device)
    fields = F.interpolate(coarse, sides, mode="bicubic")[0]
    noise = 0.05 * torch.randn(fields.shape, generator=generator, device=device)
    x = (fields + noise)[:CHANNELS].permute(1, 2, 0).contiguous()
    marker = fields[CHANNELS].flatten()
    ranks = torch.empty_like(marker).scatter_(
        0, marker.argsort(), torch.arange(len(marker), device=device) / len(marker)
    )
    background, cyclones, _ = LABEL_SHARES
    classes = (ranks > background).to(torch.uint8) + (ranks > background + cyclones).to(torch.uint8)
    return x, classes.reshape(sides)


def once(make: Callable[[Bench, Path], None]) -> Callable[[Bench], Path]:
    """Return a function that makes a folder in the work folder unless it is there, whole, and returns its path."""

    def provide(bench: Bench) -> Path:
        folder = bench.work / make.__name__
        if not folder.exists():
            part = folder.with_name(f".{folder.name}.{os.getpid()}")
            shutil.rmtree(part, ignore_errors=True)
            make(bench, part)
            part.rename(folder)
        return folder

    provide.__doc__ = make.__doc__
    return provide


def _generator(bench: Bench) -> torch.Generator:
    return torch.Generator(bench.device).manual_seed(7)


@once
def cosmoflow(bench: Bench, folder: Path) -> None:
    """Make 64 universes as uncompressed TFRecords, the same for validation."""
    write_universes(bench, folder, "tfrecord")


@once
def packed(bench: Bench, folder: Path) -> None:
    """Make the same packed."""
    write_universes(bench, folder, "packed")


def write_universes(bench: Bench, folder: Path, kind: str) -> None:
    """Write 64 universes in a format of `cosmoflow.data.sample_files`, the same for validation."""
    generator, side = _generator(bench), bench.size(COSMOFLOW_SIDE, TINY_SIDE)
    labels = np.random.default_rng(7)
    format = sample_files.SampleFormat(kind, gzip=False)
    train, validation = (folder / split for split in SPLITS)
    for part in (train, validation):
        part.mkdir(parents=True)
    for number in range(bench.size(64, 8)):
        x, y = universe(side, generator).cpu().numpy(), labels.uniform(-1, 1, 4).astype(np.float32)
        format.write_sample(train / f"universe_{number:04}", x, y)
        for name in format.file_names(f"universe_{number:04}"):
            os.link(train / name, validation / name)


@once
def deepcam(bench: Bench, folder: Path) -> None:
    """Make 32 snapshots as pairs of npy files, 8 of which are different, the same for validation."""
    generator, sides, different = _generator(bench), bench.size(DEEPCAM_SIDES, TINY_SIDES), bench.size(8, 2)
    low, high = np.full(CHANNELS, -4.0), np.full(CHANNELS, 4.0)
    train, validation = (folder / split for split in SPLITS)
    for part in (train, validation):
        part.mkdir(parents=True)
    values.write_stats(folder / values.NAME, values.Stats(different, 0 * low, high, low, high))
    for number in range(different):
        for prefix, tensor in zip((NPY_DATA, NPY_LABEL), snapshot(sides, generator), strict=True):
            write_npy(train / f"{prefix}{number:04}{NPY}", tensor.cpu().numpy())
    for number in range(bench.size(32, 4)):
        for prefix in (NPY_DATA, NPY_LABEL):
            first = train / f"{prefix}{number % different:04}{NPY}"
            for part in (train, validation):
                path = part / f"{prefix}{number:04}{NPY}"
                if path != first:
                    os.link(first, path)


@once
def oc20(bench: Bench, folder: Path) -> None:
    """Make 1,024 compact frames, of 32 structures, for each split, whose frames have numbers of their own."""
    some = frames(bench.size(32, 4), bench.dry)
    sizes = [dataset.count_parts(frame) for frame in some]
    numbers = range(bench.size(1024, 8))
    for fid, split in enumerate(SPLITS):
        (folder / split).mkdir(parents=True)
        split_frames = (replace(some[sid % len(some)], sid=sid, fid=fid) for sid in numbers)
        compact.write_frames(folder / split / "data.0000.bin", split_frames)
        dataset.write_metadata(
            folder / split / dataset.NAME, dataset.Metadata.from_sizes(sizes[sid % len(some)] for sid in numbers)
        )


def folder(bench: Bench, name: str) -> Path:
    """Return the folder of a network's data, or of CosmoFlow's packed ones."""
    makers = {"cosmoflow": cosmoflow, "packed": packed, "deepcam": deepcam, "oc20": oc20}
    path: Path = makers[name](bench)
    return path
