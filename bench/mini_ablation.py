"""Train a mini problem without what carries its signal: the network must then fall short of the target.

    python bench/mini_ablation.py cosmoflow-phases data.data_dir=data/cosmoflow-mini output_dir=runs/ablated
    python bench/mini_ablation.py deepcam-blocks train.epochs=5 output_dir=runs/ablated

All is as in `python -m <benchmark>.train mini`, training and evaluation alike, but for one thing:

cosmoflow-phases  each Fourier mode of log(1 + n) is turned by a random phase, the same for all redshifts: all spectra
                  are as before, and what goes beyond them is gone
deepcam-blocks    the 8 x 8 blocks of a snapshot are shuffled, with their labels: what is within a block is as before,
                  and what lies around it is gone
deepcam-window    the network sees 13 x 13 pixels around each, at full resolution, and nothing else
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.commands import train
from deepcam import model
from deepcam.reference import CLASSES

BLOCK = 8
REACH = 6
"""Pixels that the small network sees in each direction."""
FEATURES = 96


def without_phases(batch: Any) -> Any:
    """Return a batch of CosmoFlow with the phases of each sample replaced."""
    x_BDHWC = batch.x.float()
    sides = x_BDHWC.shape[1:4]
    for sample, index in zip(x_BDHWC, batch.indices.tolist(), strict=True):
        noise = torch.fft.rfftn(torch.from_numpy(np.random.default_rng(index).standard_normal(sides)))
        turn = (noise / noise.abs()).to(torch.complex64)[..., None]
        turn[0, 0, 0] = 1  # the mean stays
        modes = torch.fft.rfftn(sample, dim=(0, 1, 2)) * turn
        sample.copy_(torch.fft.irfftn(modes, s=sides, dim=(0, 1, 2)))
    return replace(batch, x=x_BDHWC.to(batch.x.dtype))


def in_shuffled_blocks(batch: Any) -> Any:
    """Return a batch of DeepCAM with the blocks of each snapshot in another order, and its labels alike."""
    x, y = batch.x.clone(), batch.y.clone()
    height, width = y.shape[1] // BLOCK, y.shape[2] // BLOCK
    for number, index in enumerate(batch.indices.tolist()):
        order = torch.from_numpy(np.random.default_rng(index).permutation(height * width))
        for field in (x[number], y[number]):
            blocks = field.reshape(height, BLOCK, width, BLOCK, -1).transpose(1, 2).reshape(height * width, BLOCK, -1)
            shuffled = blocks[order].reshape(height, width, BLOCK, BLOCK, -1).transpose(1, 2)
            field.copy_(shuffled.reshape(field.shape))
    return replace(batch, x=x, y=y)


class Window(nn.Module):
    """A network of full resolution in which a pixel depends on those at most REACH rows and columns away."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = model.add_activation(nn.Conv2d(channels, FEATURES, 3, padding=1, bias=False))
        for _ in range(REACH - 1):
            layers += model.add_activation(model.separable_convolution(FEATURES, FEATURES))
        self.layers = nn.Sequential(*layers, nn.Conv2d(FEATURES, len(CLASSES), 1))

    def forward(self, x_BHWC: Tensor) -> Tensor:
        """Return the logits (B, K, H, W) of snapshots (B, H, W, C)."""
        logits_BKHW: Tensor = self.layers(x_BHWC.permute(0, 3, 1, 2))
        return logits_BKHW


def seen_through_a_window(problem: Any) -> nn.Module:
    """Return the small network in the place of DeepCAM's."""
    with torch.random.fork_rng():
        torch.manual_seed(problem.seed)
        return Window(len(problem.config.data.channels)).to(memory_format=torch.channels_last)


INPUTS: dict[str, Callable[[Any], Any]] = {"cosmoflow-phases": without_phases, "deepcam-blocks": in_shuffled_blocks}
NETWORKS: dict[str, Callable[[Any], nn.Module]] = {"deepcam-window": seen_through_a_window}
ABLATIONS = (*INPUTS, *NETWORKS)


def main() -> int:
    """Run the training; return its exit status."""
    if len(sys.argv) < 2 or sys.argv[1] not in ABLATIONS:
        print(f"{__doc__}\nname one of {', '.join(ABLATIONS)}", file=sys.stderr)
        return 2
    name, *overrides = sys.argv[1:]
    benchmark = import_module(f"{name.partition('-')[0]}.train").BENCHMARK

    class Ablated(benchmark.problem):  # type: ignore[misc, name-defined]
        """The problem with another input or another network."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            if name in NETWORKS:
                self.model = NETWORKS[name](self)

        def prepared(self, batch: Any) -> Any:
            batch = super().prepared(batch)
            return INPUTS[name](batch) if name in INPUTS else batch

    return train.main(replace(benchmark, problem=Ablated), ["mini", *overrides])


if __name__ == "__main__":
    sys.exit(main())
