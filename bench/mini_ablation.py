"""Train a mini problem's network on data without what it should need: it must then be no better than the baselines.

    python bench/mini_ablation.py cosmoflow data.data_dir=data/cosmoflow-mini output_dir=runs/ablated
    python bench/mini_ablation.py deepcam train.epochs=5 output_dir=runs/ablated

All is as in `python -m <benchmark>.train mini`, training and evaluation alike, but for the network's input:

cosmoflow   each Fourier mode of log(1 + n) is turned by a random phase, the same for all redshifts: all spectra are as
            before, and what goes beyond them is gone
deepcam     the 8 x 8 blocks of a snapshot are shuffled, with their labels: what is within a block is as before, and
            what lies around it is gone
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.training import train_command

BLOCK = 8


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


ABLATIONS: dict[str, Callable[[Any], Any]] = {"cosmoflow": without_phases, "deepcam": in_shuffled_blocks}


def main() -> int:
    """Run the training; return its exit status."""
    if len(sys.argv) < 2 or sys.argv[1] not in ABLATIONS:
        print(f"{__doc__}\nname one of {', '.join(ABLATIONS)}", file=sys.stderr)
        return 2
    name, *overrides = sys.argv[1:]
    benchmark, ablate = import_module(f"{name}.train").BENCHMARK, ABLATIONS[name]

    class Ablated(benchmark.problem):  # type: ignore[misc, name-defined]
        """The problem with other input."""

        def prepared(self, batch: Any) -> Any:
            return ablate(super().prepared(batch))

    return train_command.main(replace(benchmark, problem=Ablated), ["mini", *overrides])


if __name__ == "__main__":
    sys.exit(main())
