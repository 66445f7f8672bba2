"""The step of LAMB by Triton kernels, over flat buffers of all parameters.

Buffers consist of chunks of `CHUNK` numbers; a parameter fills whole ones, the rest of its last one with zeros, which
a step leaves alone. A program works on a chunk, so that it needs no masks. A step is three launches: the first updates
the moments and sums the squares of weights and step for each chunk, the second adds those up for each parameter, the
third computes the step again from the moments, scales it and makes it. Each sum is one program's: there are no atomics,
and runs are equal bit by bit. What changes between steps (rate, step count, gradient norm) is read from the device.

Bytes read and written per number of float32, by design: 44 (the norm reads g; w g m v are read, m v written; w m v
read, w written), without weight decay 32. The tests run the kernels on a GPU or through Triton's interpreter, and
compile them for an H100.

C chunks, T parameters; names of numbers are those of the algorithms' papers (w, g, m, v, and u for the step).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK: Final = 1024
"""Numbers that a program works on at a time, by `WARPS` warps of 32 threads."""
WARPS: Final = 4
BLOCK: Final = 256
"""Chunks of a parameter whose sums are added up at a time."""


class Chunks(NamedTuple):
    """The chunks to work on, those of a parameter one after another.

    numbers_C: where they are in the buffers, in chunks; owners_C: the parameters they belong to, from 0 on;
    first_T: where the chunks of each parameter begin in both, and a last entry where they end. All int32.
    """

    numbers_C: Tensor
    owners_C: Tensor
    first_T: Tensor


class Buffers(NamedTuple):
    """Flat buffers of one type and length, and what of them a step updates; moments: m and v."""

    chunks: Chunks
    weights: Tensor
    gradients: Tensor
    moments: tuple[Tensor, ...]


class Constants(NamedTuple):
    """Constants of LAMB, see `OptimConfig`."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    max_grad_norm: float


def lamb_step(buffers: Buffers, rate: Tensor, step: Tensor, constants: Constants) -> None:
    """Make the step of LAMB that `step` () counts, from 1 on; without weight decay, one of Adam after clipping."""
    factors = _factors(buffers, step, constants)
    if not constants.weight_decay:
        _moments(buffers, rate, factors, constants)
        return
    numbers_C, owners_C, first_T = buffers.chunks
    squares_C2 = torch.empty(len(numbers_C), 2, dtype=rate.dtype, device=rate.device)
    rates_T = torch.empty(len(first_T) - 1, dtype=rate.dtype, device=rate.device)
    _moments(buffers, rate, factors, constants, squares_C2)
    _rates_kernel[(len(rates_T),)](squares_C2, first_T, rate, rates_T, BLOCK, num_warps=1)
    tensors = (numbers_C, owners_C, buffers.weights, *buffers.moments, rates_T, factors)
    _scaled_kernel[(len(numbers_C),)](*tensors, constants.eps, constants.weight_decay, CHUNK, num_warps=WARPS)


def _factors(buffers: Buffers, step: Tensor, constants: Constants) -> Tensor:
    """Return the factors of this step: of the gradient, which clip its norm, and of m and sqrt(v), against bias."""
    norm = torch.linalg.vector_norm(buffers.gradients)
    factors = buffers.weights.new_empty(3)
    logs = [math.log(max(beta, 1e-300)) for beta in constants.betas]
    _factors_kernel[(1,)](step, norm, factors, constants.max_grad_norm, *logs, num_warps=1)
    return factors


def _moments(
    buffers: Buffers, rate: Tensor, factors: Tensor, constants: Constants, squares: Tensor | None = None
) -> None:
    """Update the moments and make the step of Adam; with `squares`, write sums of squares there instead of it."""
    numbers_C = buffers.chunks.numbers_C
    tensors = (numbers_C, buffers.weights, buffers.gradients, *buffers.moments, rate, factors, squares)
    _moments_kernel[(len(numbers_C),)](
        *tensors, *constants.betas, constants.eps, constants.weight_decay, CHUNK, num_warps=WARPS
    )


# -- on the GPU ----------------------------------------------------------------------------------------------


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _factors_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # types come with the arguments; no objects here
    step, norm, factors, MAX_NORM: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr
):
    tl.store(factors, 1 / tl.maximum(tl.load(norm).to(tl.float64) / MAX_NORM, 1.0))
    number = tl.load(step).to(tl.float64)  # in float32, 1 - 0.999 has four digits
    tl.store(factors + 1, 1 / (1 - tl.exp(number * LOG_BETA1)))
    tl.store(factors + 2, 1 / tl.sqrt(1 - tl.exp(number * LOG_BETA2)))


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _direction(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    w, m, v, factors, EPS: tl.constexpr, DECAY: tl.constexpr
):
    """Return the step for a rate of 1: that of Adam, and weight decay."""
    return m * tl.load(factors + 1) / (tl.sqrt(v) * tl.load(factors + 2) + EPS) + DECAY * w


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _moments_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    numbers, weights, gradients, means, variances, rate, factors, squares,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr, DECAY: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    place = tl.load(numbers + tl.program_id(0)).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    w, g = tl.load(weights + place), tl.load(gradients + place) * tl.load(factors)
    m = BETA1 * tl.load(means + place) + (1 - BETA1) * g
    v = BETA2 * tl.load(variances + place) + (1 - BETA2) * g * g
    tl.store(means + place, m)
    tl.store(variances + place, v)
    u = _direction(w, m, v, factors, EPS, DECAY)
    if squares is None:
        tl.store(weights + place, w - tl.load(rate) * u)
    else:
        mine = squares + 2 * tl.program_id(0)
        tl.store(mine, tl.sum(w * w))
        tl.store(mine + 1, tl.sum(u * u))


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _rates_kernel(squares, first, rate, rates, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    """Write the rate of each parameter: times |w| / |u|, or 1 where that is 0 or not a finite number."""
    begin, end = tl.load(first + tl.program_id(0)), tl.load(first + tl.program_id(0) + 1)
    w_squared = tl.zeros([BLOCK], rates.dtype.element_ty)
    u_squared = tl.zeros([BLOCK], rates.dtype.element_ty)
    while begin < end:
        chunk = begin + tl.arange(0, BLOCK)
        w_squared += tl.load(squares + 2 * chunk, mask=chunk < end, other=0)
        u_squared += tl.load(squares + 2 * chunk + 1, mask=chunk < end, other=0)
        begin += BLOCK
    w, u = tl.sqrt(tl.sum(w_squared)), tl.sqrt(tl.sum(u_squared))
    ok = (w > 0) & (u > 0) & (w < float("inf")) & (u < float("inf"))
    ratio = tl.where(ok, w / tl.where(ok, u, 1), 1)
    tl.store(rates + tl.program_id(0), tl.load(rate) * ratio)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _scaled_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    numbers, owners, weights, means, variances, rates, factors,
    EPS: tl.constexpr, DECAY: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    place = tl.load(numbers + tl.program_id(0)).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    rate = tl.load(rates + tl.load(owners + tl.program_id(0)))
    w = tl.load(weights + place)
    u = _direction(w, tl.load(means + place), tl.load(variances + place), factors, EPS, DECAY)
    tl.store(weights + place, w - rate * u)
