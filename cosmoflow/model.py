"""The CosmoFlow network: blocks of convolution and pooling, then three dense layers, to four numbers in (-1.2, 1.2).

After the Keras model of the reference (mlcommons/hpc cosmoflow/models/cosmoflow.py): 8,907,556 parameters at 128³
voxels, 5,597,604 with the kernels of size 2 of round 0.7. The code is for one device and any precision; parallelism
and mixed precision come from outside.

Shapes: B batch, D H W space, C channels, F features, P parameters of the universe.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.candidate import Candidate
from cosmoflow.settings import ModelConfig, check_sides

OUTPUTS: Final = 4
OUTPUT_SCALE: Final = 1.2
"""The labels fill [-1, 1]; the scale lets tanh reach the ends."""
SLOPE: Final = 0.3
"""Slope of LeakyReLU below zero: the default of Keras."""

COPIES: Final = Candidate("cosmoflow-copies")
"""All weights are rounded to the format of their products in one launch, and their gradients back to float32."""


class CosmoFlow(nn.Module):
    """The network, with torch's own initial weights; `build_model` makes one with those of the reference.

    sample_shape: (D, H, W, C) of a sample. Raises ValueError for a side that the blocks would halve to nothing.
    """

    def __init__(self, config: ModelConfig, sample_shape: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.config = config
        check_sides(config, sample_shape)
        *sides, channels = sample_shape
        sizes = [channels, *(config.conv_size << layer for layer in range(config.conv_layers))]
        # "same" puts the padding of an even kernel at the far side, as Keras does.
        self.convs = nn.ModuleList(
            nn.Conv3d(before, after, config.kernel_size, padding="same") for before, after in itertools.pairwise(sizes)
        )
        features = sizes[-1] * math.prod(side >> config.conv_layers for side in sides)
        self.hidden = nn.ModuleList([nn.Linear(features, config.fc1), nn.Linear(config.fc1, config.fc2)])
        self.output = nn.Linear(config.fc2, OUTPUTS)

    def forward(self, x_BDHWC: Tensor) -> Tensor:
        """Return the predicted parameters (B, P) of samples (B, D, H, W, C), C fastest in memory: log(1 + counts)."""
        x_BCDHW = x_BDHWC.permute(0, 4, 1, 2, 3)  # a view: in memory the channels stay last, the fast layout
        for conv in self.convs:
            x_BCDHW = apply_block(conv, x_BCDHW, self.config.kernels)
        x_BF = x_BCDHW.permute(0, 2, 3, 4, 1).flatten(1)  # Keras's order of features: d, h, w, c
        for dense in self.hidden:
            x_BF = F.dropout(F.leaky_relu(dense(x_BF), SLOPE), self.config.dropout, self.training)
        return torch.tanh(self.output(x_BF)) * OUTPUT_SCALE

    def l2_penalty(self) -> Tensor:
        """Return lambda * sum(w²) over the kernels of the hidden dense layers, to be added to the loss.

        Its gradient is 2 * lambda * w. The log's opt_weight_decay is lambda, as with the reference; the submissions
        that log a `weight_decay` of torch write 2 * lambda for the same mathematics.
        """
        return self.config.l2 * sum(dense.weight.square().sum() for dense in self.hidden)


def round_weights(network: CosmoFlow, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return by name the weights in the format of their products, as autocast rounds them, but all at once.

    Those that Triton kernels read unrounded are left out: the first convolution's, and the biases of all.
    """
    kept = ("convs.0.weight", *(f"convs.{layer}.bias" for layer in range(len(network.convs))))
    weights = {name: weight for name, weight in network.named_parameters() if name not in kept}
    return dict(zip(weights, _Round.apply(dtype, *weights.values()), strict=True))


class _Round(torch.autograd.Function):
    """Rounds tensors to a format, and their gradients back to float32, in a launch for all."""

    @staticmethod
    def forward(_ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        copies = tuple(torch.empty_like(tensor, dtype=dtype) for tensor in tensors)
        torch._foreach_copy_(copies, tensors)
        return copies

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_Round.apply(torch.float32, *gradients)


def apply_block(conv: nn.Module, x_BCDHW: Tensor, kernels: str) -> Tensor:
    """Convolve, pool and activate, the way that `ModelConfig.kernels` names."""
    if kernels == "torch":
        return pool_and_activate(conv(x_BCDHW))
    from cosmoflow import kernels as triton  # an optional package, slow to import

    if kernels == "fused" and triton.fits_first_block(x_BCDHW, conv.weight):
        return triton.first_block(x_BCDHW, conv.weight, conv.bias, SLOPE)
    return triton.pool_and_activate(F.conv3d(x_BCDHW, conv.weight, padding="same"), conv.bias, SLOPE)


def pool_and_activate(x_BCDHW: Tensor) -> Tensor:
    """Return LeakyReLU of the greatest value of each 2 x 2 x 2 cube.

    The reference activates first. LeakyReLU never falls, so both orders give the same numbers, and this one has an
    eighth of the work. Of several equal values the first gets the gradient (in TensorFlow on a CPU, each that is within
    an absolute 1e-5 of the greatest).
    """
    # Asking for the indices keeps autocast on a CPU from pooling in float32, which halves the speed and gains nothing.
    pooled_BCDHW = F.max_pool3d(x_BCDHW, 2, return_indices=True)[0]
    return F.leaky_relu(pooled_BCDHW, SLOPE, inplace=True)


def build_model(config: ModelConfig, sample_shape: tuple[int, int, int, int], seed: int) -> CosmoFlow:
    """Return the network on the CPU as Keras starts it: Glorot-uniform kernels drawn from `seed`, biases 0.

    The convolutions' kernels are stored channels last. Leaves torch's own generator alone.
    """
    with torch.device("meta"):
        model = CosmoFlow(config, sample_shape)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("weight"):
            nn.init.xavier_uniform_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    model.to(memory_format=torch.channels_last_3d)
    return model
