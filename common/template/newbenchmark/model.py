"""The network: convolutions round the edges of the plate, a mean over it, and one number.

For one device and any precision; parallelism and mixed precision come from outside.
Shapes: B batch, C channels, H W cells of the plate.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from newbenchmark.settings import ModelConfig


class NewBenchmark(nn.Module):
    """Predict log10 of the diffusivity, centred, from a field of temperatures."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes = [1] + [config.channels] * config.layers
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding="same", padding_mode="circular")
            for before, after in itertools.pairwise(sizes)
        )
        self.output = nn.Linear(config.channels, 1)

    def forward(self, x_BHW: Tensor) -> Tensor:
        """Return the predictions (B, 1) for fields (B, H, W)."""
        x_BCHW = x_BHW[:, None]
        for number, conv in enumerate(self.convs):
            x_BCHW = F.silu(conv(F.avg_pool2d(x_BCHW, 2) if number else x_BCHW))
        y_B1: Tensor = self.output(x_BCHW.mean(dim=(2, 3)))
        return y_B1


def build_model(config: ModelConfig, seed: int) -> NewBenchmark:
    """Return the network on the CPU, with torch's initial weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NewBenchmark(config)
