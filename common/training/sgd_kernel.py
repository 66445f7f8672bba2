"""The step of `common.training.optim.KerasSGD` by one Triton kernel for all weights, for GPUs.

It reads weights, velocities and gradients once and writes the first two, where torch's operations on lists pass over
memory ten times. It rounds each product and each sum, as those do: equal bits.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl
from torch import Tensor

TILE: Final = 1024
"""Numbers that a program updates."""


def update_weights(
    weights: list[Tensor], velocities: list[Tensor], gradients: list[Tensor], rate: Tensor, momentum: float
) -> None:
    """Set velocities to momentum * velocity - rate * gradient, and add them to the weights.

    The three tensors of a weight have its strides, as autograd makes gradients, and no gaps. rate: on their device.
    """
    sizes = tuple(weight.numel() for weight in weights)
    grid = (sum(triton.cdiv(size, TILE) for size in sizes),)
    _sgd_kernel[grid](
        *map(tuple, (weights, velocities, gradients)),
        *(rate, momentum),
        SIZES=sizes,
        TILE=TILE,
        enable_fp_fusion=False,  # fused with the sum, a product is not rounded
    )


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _sgd_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # types come with the arguments; no objects here
    weights, velocities, gradients, rate, momentum, SIZES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)  # counted from the tensor's first
    for i in tl.static_range(len(SIZES)):
        if (tile >= 0) & (tile * TILE < SIZES[i]):
            at = tile * TILE + tl.arange(0, TILE)
            ok = at < SIZES[i]
            velocity = tl.load(velocities[i] + at, ok) * momentum - tl.load(gradients[i] + at, ok) * tl.load(rate)
            tl.store(velocities[i] + at, velocity, ok)
            tl.store(weights[i] + at, tl.load(weights[i] + at, ok) + velocity, ok)
        tile -= tl.cdiv(SIZES[i], TILE)
