"""Depthwise 3 x 3 convolutions by Triton kernels, which normalise and activate their input while they read it.

Between two convolutions of the network come batch normalisation and ReLU: as operations of their own they read and
write the map twice each way. Here each value becomes scale x value + shift, and not less than 0, on its way into
registers, and what was normalised never reaches memory. The backward kernel reads gradient and input once each, for the
gradients of the input, the weights, scale and shift.

A program computes some columns of some channels, and walks down the rows, of which three at a time are in registers.
Dilated by d, it walks every d-th row. Sums are float32, or float64 for float64 input. What is summed over programs is
written by each and added by torch: no atomics, and equal results in each run. The tests run the kernels in Triton's
interpreter and compile them for Hopper; they were not measured on a device.

Both are operations of `torch.library`, which torch.compile takes as they are.

Shapes: B batch, H rows, W columns, C channels; in kernels P columns of a program.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS: Final = 24
"""Rows that a program walks down at most, each of which it reads once, and two more."""
TILE: Final = 512
"""Values of a program in a row: 4 for each thread, since 11 sums of each stay in registers."""
SHAPES: Final = "int stride, int dilation, bool relu"


@torch.library.custom_op(
    "deepcam::convolve_depthwise",
    mutates_args=(),
    schema=f"(Tensor x, Tensor weight, Tensor? affine, {SHAPES}) -> Tensor",
)
def convolve_depthwise(
    x_BHWC: Tensor, weight: Tensor, affine_2C: Tensor | None, stride: int, dilation: int, relu: bool
) -> Tensor:
    """Return the convolution of relu(scale * x + shift) with a weight (C, 1, 3, 3), in x's type.

    Zeros as wide as the dilation surround what is convolved. affine: scale and shift of each channel; None: x is
    convolved as it is. relu: only with them. A stride above 1 is 2, undilated.
    """
    x_BHWC = x_BHWC.contiguous()
    y_BHWC = _allocate_output(x_BHWC, weight, affine_2C, stride, dilation, relu)
    if y_BHWC.numel():
        grid, sizes = _plan(x_BHWC, affine_2C, stride, dilation, relu)
        _convolve_kernel[grid](x_BHWC, weight.contiguous(), affine_2C, y_BHWC, *x_BHWC.shape[1:3], **sizes)
    return y_BHWC


@convolve_depthwise.register_fake
def _allocate_output(
    x_BHWC: Tensor, _weight: Tensor, _affine_2C: Tensor | None, stride: int, _dilation: int, _relu: bool
) -> Tensor:
    batch, height, width, channels = x_BHWC.shape
    return x_BHWC.new_empty(batch, -(-height // stride), -(-width // stride), channels)


@torch.library.custom_op(
    "deepcam::convolve_depthwise_backward",
    mutates_args=(),
    schema=f"(Tensor gradient, Tensor x, Tensor weight, Tensor? affine, {SHAPES}) -> (Tensor, Tensor)",
)
def _differentiate(  # noqa: PLR0913  # those of the convolution
    gradient_BHWC: Tensor,
    x_BHWC: Tensor,
    weight: Tensor,
    affine_2C: Tensor | None,
    stride: int,
    dilation: int,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients by x, and those by the nine weights of each channel, scale and shift (11, C)."""
    x_BHWC, gradient_BHWC = x_BHWC.contiguous(), gradient_BHWC.contiguous()
    by_x_BHWC, by_others = _allocate_gradients(gradient_BHWC, x_BHWC, weight, affine_2C, stride, dilation, relu)
    grid, sizes = _plan(x_BHWC, affine_2C, stride, dilation, relu)
    shares = by_others.new_empty(grid[1] * grid[2], *by_others.shape)
    if x_BHWC.numel():
        arguments = (gradient_BHWC, x_BHWC, weight.contiguous(), affine_2C, by_x_BHWC, shares, *x_BHWC.shape[1:3])
        _differentiate_kernel[grid](*arguments, **sizes)
    return by_x_BHWC, shares.sum(0)


@_differentiate.register_fake
def _allocate_gradients(
    _gradient_BHWC: Tensor, x_BHWC: Tensor, _weight: Tensor, affine_2C: Tensor | None, *_shapes: int
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(x_BHWC.dtype, torch.float32)
    return x_BHWC.new_empty(x_BHWC.shape), x_BHWC.new_empty(9 if affine_2C is None else 11, x_BHWC.shape[3], dtype=wide)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.shapes = inputs[3:]


def _backward(ctx: Any, gradient_BHWC: Tensor) -> tuple[Tensor | None, ...]:
    x_BHWC, weight, affine_2C = ctx.saved_tensors
    by_x_BHWC, by_others = _differentiate(gradient_BHWC, x_BHWC, weight, affine_2C, *ctx.shapes)
    by_weight = by_others[:9].T.reshape(weight.shape).to(weight.dtype)
    return by_x_BHWC, by_weight, None if affine_2C is None else by_others[9:].to(affine_2C.dtype), None, None, None


convolve_depthwise.register_autograd(_backward, setup_context=_save)


def _plan(
    x_BHWC: Tensor, affine_2C: Tensor | None, stride: int, dilation: int, relu: bool
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """Return the grid of the kernels, by channels, columns and rows, and batch, and what they are compiled for."""
    batch, height, width, channels = x_BHWC.shape
    tile = min(64, triton.next_power_of_2(channels))
    columns, rows = TILE // tile, triton.cdiv(height, stride * dilation)
    blocks = max(1, triton.cdiv(rows, ROWS))
    tiles = dilation * blocks * triton.cdiv(triton.cdiv(width, stride), columns)
    wide = tl.float64 if x_BHWC.dtype == torch.float64 else tl.float32
    sizes = {"C": channels, "P": columns, "TILE_C": tile, "ROWS": triton.cdiv(rows, blocks), "WIDE": wide}
    sizes |= {"STRIDE": stride, "DILATION": dilation, "MODE": 0 if affine_2C is None else 1 + relu}
    return (triton.cdiv(channels, tile), tiles, batch), {**sizes, "num_warps": 4, "num_stages": 1}


# -- on the GPU ----------------------------------------------------------------------------------------------
# Offsets from the start of a sample are 32 bits wide, those of samples 64.


@triton.jit
def _locate(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # types come with the arguments; no objects here
    w, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr, DILATION: tl.constexpr,
):  # fmt: skip
    """Return a program's sample, channels and columns, and the first of its rows, of which it takes every d-th."""
    tiles = tl.cdiv(w, P)
    w_P = tl.program_id(1) % tiles * P + tl.arange(0, P)
    block = tl.program_id(1) // tiles
    first = block // DILATION * ROWS * DILATION + block % DILATION
    return tl.program_id(2).to(tl.int64), tl.program_id(0) * TILE_C + tl.arange(0, TILE_C), w_P, first


@triton.jit
def _load_affine(affine, c_C, C: tl.constexpr, MODE: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    if MODE == 0:
        return 1.0, 0.0
    else:
        scale_C = tl.load(affine + c_C, mask=c_C < C, other=0).to(WIDE)
        return scale_C[None, :], tl.load(affine + C + c_C, mask=c_C < C, other=0).to(WIDE)[None, :]


@triton.jit
def _load_weights(weight, c_C, row: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    at_C = weight + c_C * 9 + 3 * row
    ok_C = c_C < C
    left, middle = tl.load(at_C, mask=ok_C, other=0).to(WIDE), tl.load(at_C + 1, mask=ok_C, other=0).to(WIDE)
    return left[None, :], middle[None, :], tl.load(at_C + 2, mask=ok_C, other=0).to(WIDE)[None, :]


@triton.jit
def _find_values(row, w_P, c_C, H, W, C: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    """Return where the values of a row are in a sample, and which of them there are."""
    ok_PC = (row >= 0) & (row < H) & ((w_P >= 0) & (w_P < W))[:, None] & (c_C < C)[None, :]
    return ((row * W + w_P) * C)[:, None] + c_C[None, :], ok_PC


@triton.jit
def _activate(value_PC, ok_PC, affine, MODE: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    if MODE > 0:
        value_PC = value_PC * affine[0] + affine[1]
        if MODE == 2:
            value_PC = tl.maximum(value_PC, 0.0, propagate_nan=tl.PropagateNan.ALL)
        value_PC = tl.where(ok_PC, value_PC, 0.0)
    return value_PC


@triton.jit
def _load_three(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    x, row, w_P, c_C, H, W, affine, C: tl.constexpr, DILATION: tl.constexpr, MODE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return the values of a row left of the columns, in them, and right of them."""
    left, left_ok = _find_values(row, w_P - DILATION, c_C, H, W, C)
    here, here_ok = _find_values(row, w_P, c_C, H, W, C)
    right, right_ok = _find_values(row, w_P + DILATION, c_C, H, W, C)
    return (
        _activate(tl.load(x + left, mask=left_ok, other=0).to(WIDE), left_ok, affine, MODE),
        _activate(tl.load(x + here, mask=here_ok, other=0).to(WIDE), here_ok, affine, MODE),
        _activate(tl.load(x + right, mask=right_ok, other=0).to(WIDE), right_ok, affine, MODE),
    )


@triton.jit
def _add_products(sum_PC, values, weights):  # type: ignore[no-untyped-def]  # as above
    return sum_PC + values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]


@triton.jit(do_not_specialize=["H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _convolve_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    x, weight, affine, y, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    h, w = tl.cdiv(H, STRIDE), tl.cdiv(W, STRIDE)
    sample, c_C, w_P, first = _locate(w, P, TILE_C, ROWS, DILATION)
    x += sample * H * W * C
    y += sample * h * w * C
    scales = _load_affine(affine, c_C, C, MODE, WIDE)
    k0, k1, k2 = (
        _load_weights(weight, c_C, 0, C, WIDE),
        _load_weights(weight, c_C, 1, C, WIDE),
        _load_weights(weight, c_C, 2, C, WIDE),
    )
    x_P = w_P * STRIDE
    zero_PC = tl.zeros([P, TILE_C], WIDE)
    above = _load_three(x, STRIDE * first - DILATION, x_P, c_C, H, W, scales, C, DILATION, MODE, WIDE)
    here = _load_three(x, STRIDE * first, x_P, c_C, H, W, scales, C, DILATION, MODE, WIDE)
    now_PC = _add_products(_add_products(zero_PC, above, k0), here, k1)
    next_PC = _add_products(zero_PC, here, k0)  # what a row of the output has so far
    for i in range(ROWS):
        row = first + DILATION * i
        below = _load_three(x, STRIDE * row + DILATION, x_P, c_C, H, W, scales, C, DILATION, MODE, WIDE)
        at_PC, ok_PC = _find_values(row, w_P, c_C, h, w, C)
        tl.store(y + at_PC, _add_products(now_PC, below, k2).to(y.dtype.element_ty), mask=ok_PC)
        if STRIDE == 1:
            now_PC = _add_products(next_PC, below, k1)
            next_PC = _add_products(zero_PC, below, k0)
        else:
            here = _load_three(x, 2 * row + 2, x_P, c_C, H, W, scales, C, DILATION, MODE, WIDE)
            now_PC = _add_products(_add_products(zero_PC, below, k0), here, k1)


@triton.jit(do_not_specialize=["H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _differentiate_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    gradient, x, weight, affine, by_x, shares, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    h, w = tl.cdiv(H, STRIDE), tl.cdiv(W, STRIDE)
    sample, c_C, w_P, first = _locate(w, P, TILE_C, ROWS, DILATION)
    gradient += sample * h * w * C
    x += sample * H * W * C
    by_x += sample * H * W * C
    scales = _load_affine(affine, c_C, C, MODE, WIDE)
    k = (
        _load_weights(weight, c_C, 0, C, WIDE),
        _load_weights(weight, c_C, 1, C, WIDE),
        _load_weights(weight, c_C, 2, C, WIDE),
    )
    zero_PC = tl.zeros([P, TILE_C], WIDE)
    sums = (zero_PC,) * 11
    above = _load_three(gradient, first - DILATION, w_P, c_C, h, w, scales, C, DILATION, 0, WIDE)
    here = _load_three(gradient, first, w_P, c_C, h, w, scales, C, DILATION, 0, WIDE)
    for i in range(ROWS):
        row = first + DILATION * i
        below = _load_three(gradient, row + DILATION, w_P, c_C, h, w, scales, C, DILATION, 0, WIDE)
        window = (above, here, below)
        for down in tl.static_range(STRIDE):  # the pixels of the input that belong to one of the output
            for right in tl.static_range(STRIDE):
                at_PC, ok_PC = _find_values(STRIDE * row + down, STRIDE * w_P + right, c_C, H, W, C)
                x_PC = tl.load(x + at_PC, mask=ok_PC, other=0).to(WIDE)
                active_PC = _activate(x_PC, ok_PC, scales, MODE)
                by_PC = zero_PC
                for y in tl.static_range(3):
                    for z in tl.static_range(3):
                        if (down + 1 - y) % STRIDE == 0 and (right + 1 - z) % STRIDE == 0:
                            by_y_PC = window[(down + 1 - y) // STRIDE + 1][(right + 1 - z) // STRIDE + 1]
                            by_PC += by_y_PC * k[y][z]
                            more_PC = sums[3 * y + z] + by_y_PC * active_PC
                            sums = sums[: 3 * y + z] + (more_PC,) + sums[3 * y + z + 1 :]
                if MODE > 0:
                    if MODE == 2:
                        by_PC = tl.where(active_PC <= 0, 0.0, by_PC)
                    by_PC = tl.where(ok_PC, by_PC, 0.0)
                    sums = sums[:9] + (sums[9] + by_PC * x_PC, sums[10] + by_PC)
                    by_PC *= scales[0]
                tl.store(by_x + at_PC, by_PC.to(by_x.dtype.element_ty), mask=ok_PC)
        above, here = here, below
    count: tl.constexpr = 11 if MODE > 0 else 9
    share = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    for number in tl.static_range(count):
        tl.store(shares + (share * count + number) * C + c_C, tl.sum(sums[number], 0), mask=c_C < C)
