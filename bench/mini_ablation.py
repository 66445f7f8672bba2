"""Train DeepCAM's mini problem without what is far away: neither run may do better than the best baseline.

    python bench/mini_ablation.py blocks data/deepcam-mini -o runs/blocks   on snapshots whose 8 x 8 blocks are shuffled
    python bench/mini_ablation.py window data/deepcam-mini -o runs/window   by a network that sees 13 x 13 pixels

Training and validation snapshots are shuffled alike, each in its own order. Other arguments are overrides of the
configuration, as for deepcam.train. The run goes on to its last epoch, whatever it reaches; history.csv has the curve.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

# Before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from torch import Tensor, nn

from common.datasets.manifest import NAME, Manifest, describe_file, read_manifest, write_manifest
from deepcam import model, train
from deepcam.data import snapshot, stats
from deepcam.data.snapshot import CHANNELS, CLASSES

BLOCK = 8
REACH = 6
"""Pixels that the small network sees in each direction."""
FEATURES = 96


def shuffle_blocks(source: Path, folder: Path) -> None:
    """Write a copy of a dataset in which the blocks of each snapshot and its labels are in a random order."""
    height, width, channels = read_manifest(source / NAME).facts["sample_shape"]
    data, labels = np.empty((height, width, channels), np.float32), np.empty((height, width), np.uint8)
    names = [f"{split}/{name}" for split in ("train", "validation") for name in snapshot.find(source / split)]
    for split in ("train", "validation"):
        (folder / split).mkdir(parents=True)
    for number, name in enumerate(names):
        snapshot.read(source / name, data, labels)
        order = np.random.default_rng(number).permutation(height * width // BLOCK**2)
        snapshot.write(folder / name, shuffled(data, order), shuffled(labels[..., None], order)[..., 0])
    shutil.copyfile(source / stats.NAME, folder / stats.NAME)
    files = {name: describe_file(folder / name) for name in names}
    facts = {"made_by": "bench/mini_ablation.py", "source": read_manifest(source / NAME).digest()}
    write_manifest(folder / NAME, Manifest(benchmark="deepcam", variant="synthetic", facts=facts, files=files))


def shuffled(field_HWC: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return a field with its blocks in another order."""
    height, width, channels = field_HWC.shape
    rows, columns = height // BLOCK, width // BLOCK
    blocks = field_HWC.reshape(rows, BLOCK, columns, BLOCK, channels).swapaxes(1, 2)
    blocks = blocks.reshape(-1, BLOCK, BLOCK, channels)[order].reshape(rows, columns, BLOCK, BLOCK, channels)
    return blocks.swapaxes(1, 2).reshape(height, width, channels)


class Window(nn.Module):
    """A network of full resolution in which a pixel depends on those at most REACH rows and columns away."""

    def __init__(self) -> None:
        super().__init__()
        layers = model.activated(nn.Conv2d(len(CHANNELS), FEATURES, 3, padding=1, bias=False))
        for _ in range(REACH - 1):
            layers += model.activated(model.separable(FEATURES, FEATURES))
        self.layers = nn.Sequential(*layers, nn.Conv2d(FEATURES, len(CLASSES), 1))

    def forward(self, x_BHWC: Tensor) -> Tensor:
        """Return the logits (B, K, H, W) of snapshots (B, H, W, C)."""
        logits_BKHW: Tensor = self.layers(x_BHWC.permute(0, 3, 1, 2))
        return logits_BKHW


def window(config: model.ModelConfig, channels: int, seed: int) -> Window:
    """Return the small network with weights drawn from a seed; in the place of `model.build`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Window().to(memory_format=torch.channels_last)


def main() -> int:
    """Run the command; return 0 if the target is out of reach, as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("without", choices=("blocks", "window"))
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("override", nargs="*")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_intermixed_args()
    data = given.data_dir
    if given.without == "blocks":
        data = given.out.with_name(f"{given.out.name}-data")
        shuffle_blocks(given.data_dir, data)
    else:
        build: Callable[..., nn.Module] = window
        model.build = build  # type: ignore[assignment]
    overrides = [f"data.data_dir={data}", f"output_dir={given.out}", "train.target=1", *given.override]
    return 0 if train.main(["mini", *overrides]) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
