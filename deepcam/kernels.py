"""Depthwise 3 x 3 convolutions by Triton kernels, which normalise and activate their input while they read it.

Between two convolutions of the network come batch normalisation and ReLU: as operations of their own they read and
write the map twice each way. Here each value becomes scale x value + shift, and not less than 0, on its way into
registers, and what was normalised never reaches memory. The backward kernel reads gradient and input once each, for the
gradients of the input, the weights, scale and shift.

A program computes some columns of some channels, and walks down the rows, each of which it reads once. Dilated by d, it
walks every d-th row. Sums are float32, or float64 for float64 input. What is summed over programs is written by each
and added by torch: no atomics, and equal results in each run. The tests run the kernels in Triton's interpreter and
compile them for Hopper; no device has timed them.

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
"""Rows that a program computes at most."""
TILE: Final = 512
"""Values of a program in a row: 4 for each thread, since the backward kernel has 11 sums of each in registers."""


@torch.library.custom_op(  # type: ignore[untyped-decorator]  # torch's
    "deepcam::convolve_depthwise",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? affine, int stride, int dilation, bool relu) -> Tensor",
)
def convolve_depthwise(  # noqa: PLR0913  # those of a convolution
    x_BHWC: Tensor, weight: Tensor, affine_2C: Tensor | None, stride: int, dilation: int, relu: bool
) -> Tensor:
    """Return the convolution of relu(scale * x + shift) with a weight (C, 1, 3, 3), which is not rounded, in x's type.

    Zeros as wide as the dilation surround what is convolved. affine: scale and shift of each channel; None: x is
    convolved as it is. relu: only with them. A stride above 1 is 2, undilated.
    """
    y_BHWC = _allocate_output(x_BHWC, weight, affine_2C, stride)
    if y_BHWC.numel():
        grid, sizes = _plan(x_BHWC, affine_2C, stride, dilation, relu)
        # Without scale and shift nothing is compiled that would read them.
        others = weight.contiguous(), weight if affine_2C is None else affine_2C.contiguous()
        _convolve_kernel[grid](x_BHWC.contiguous(), *others, y_BHWC, *x_BHWC.shape[1:3], **sizes)
    return y_BHWC


@convolve_depthwise.register_fake  # type: ignore[untyped-decorator]  # torch's
def _allocate_output(x_BHWC: Tensor, _weight: Tensor, _affine_2C: Tensor | None, stride: int, *_shapes: int) -> Tensor:
    return x_BHWC[:, ::stride, ::stride].new_empty(x_BHWC[:, ::stride, ::stride].shape)


@torch.library.custom_op(  # type: ignore[untyped-decorator]  # torch's
    "deepcam::differentiate_depthwise",
    mutates_args=(),
    schema="(Tensor gradient, Tensor x, Tensor weight, Tensor? affine, int stride, int dilation, bool relu)"
    " -> (Tensor, Tensor)",
)
def _differentiate(
    gradient_BHWC: Tensor, x_BHWC: Tensor, weight: Tensor, affine_2C: Tensor | None, *shapes: Any
) -> tuple[Tensor, Tensor]:
    """Return the gradients by x, and those by the nine weights of each channel, scale and shift (11, C)."""
    by_x_BHWC, by_channels = _allocate_gradients(gradient_BHWC, x_BHWC)
    grid, sizes = _plan(x_BHWC, affine_2C, *shapes)
    shares = by_channels.new_empty(grid[1] * grid[2], *by_channels.shape)
    if x_BHWC.numel():
        others = weight.contiguous(), weight if affine_2C is None else affine_2C.contiguous(), by_x_BHWC, shares
        inputs = gradient_BHWC.contiguous(), x_BHWC.contiguous()
        _differentiate_kernel[grid](*inputs, *others, *x_BHWC.shape[1:3], **sizes)
    return by_x_BHWC, shares.sum(0)


@_differentiate.register_fake  # type: ignore[untyped-decorator]  # torch's
def _allocate_gradients(_gradient_BHWC: Tensor, x_BHWC: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(x_BHWC.dtype, torch.float32)
    return x_BHWC.new_empty(x_BHWC.shape), x_BHWC.new_empty(11, x_BHWC.shape[3], dtype=wide)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.shapes = inputs[3:]


def _backward(ctx: Any, gradient_BHWC: Tensor) -> tuple[Tensor | None, ...]:
    _, weight, affine_2C = ctx.saved_tensors
    by_x_BHWC, by_channels = _differentiate(gradient_BHWC, *ctx.saved_tensors, *ctx.shapes)
    by_affine_2C = None if affine_2C is None else by_channels[9:].to(affine_2C.dtype)
    return by_x_BHWC, by_channels[:9].T.reshape(weight.shape).to(weight.dtype), by_affine_2C, None, None, None


convolve_depthwise.register_autograd(_backward, setup_context=_save)


def _plan(
    x_BHWC: Tensor, affine_2C: Tensor | None, stride: int, dilation: int, relu: bool
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """Return the grid of the kernels, by channels, rows and columns, and batch, and what they are compiled for."""
    batch, height, width, channels = x_BHWC.shape
    tile, rows = min(64, triton.next_power_of_2(channels)), triton.cdiv(height, stride * dilation)
    blocks = max(1, triton.cdiv(rows, ROWS))
    tiles = dilation * blocks * triton.cdiv(triton.cdiv(width, stride), TILE // tile)
    sizes = {
        "C": channels,
        "P": TILE // tile,
        "TILE_C": tile,
        "ROWS": triton.cdiv(rows, blocks),
        "STRIDE": stride,
        "DILATION": dilation,
        "FLOOR": None if affine_2C is None else 0.0 if relu else float("-inf"),
        "WIDE": tl.float64 if x_BHWC.dtype == torch.float64 else tl.float32,
    }
    return (triton.cdiv(channels, tile), tiles, batch), {**sizes, "num_warps": 4, "num_stages": 1}


# -- on the GPU ----------------------------------------------------------------------------------------------
# Offsets from the start of a sample are 32 bits wide, those of samples 64. FLOOR: what is activated is at least that;
# None: there is no affine prologue.


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _locate(  # type: ignore[no-untyped-def]  # types come with the arguments
    w, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr, DILATION: tl.constexpr,
):  # fmt: skip
    """Return a program's sample, channels and columns, and the first of its rows, of which it takes every d-th."""
    block = tl.program_id(1) // tl.cdiv(w, P)
    first = block // DILATION * ROWS * DILATION + block % DILATION
    w_P = tl.program_id(1) % tl.cdiv(w, P) * P + tl.arange(0, P)
    return tl.program_id(2).to(tl.int64), tl.program_id(0) * TILE_C + tl.arange(0, TILE_C), w_P, first


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _load_channels(  # type: ignore[no-untyped-def]  # as above
    values, c_C, STEP: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    return tl.load(values + c_C * STEP, mask=c_C < C, other=0).to(WIDE)[None, :]


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _load_weights(weight, c_C, C: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    """Return the weights by rows and columns."""
    return (
        (
            _load_channels(weight, c_C, 9, C, WIDE),
            _load_channels(weight + 1, c_C, 9, C, WIDE),
            _load_channels(weight + 2, c_C, 9, C, WIDE),
        ),
        (
            _load_channels(weight + 3, c_C, 9, C, WIDE),
            _load_channels(weight + 4, c_C, 9, C, WIDE),
            _load_channels(weight + 5, c_C, 9, C, WIDE),
        ),
        (
            _load_channels(weight + 6, c_C, 9, C, WIDE),
            _load_channels(weight + 7, c_C, 9, C, WIDE),
            _load_channels(weight + 8, c_C, 9, C, WIDE),
        ),
    )


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _find_values(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    row, w_P, c_C, H, W, C: tl.constexpr,
):  # fmt: skip
    """Return where the values of a row are in a sample, and which of them there are."""
    ok_PC = (row >= 0) & (row < H) & ((w_P >= 0) & (w_P < W))[:, None] & (c_C < C)[None, :]
    return ((row * W + w_P) * C)[:, None] + c_C[None, :], ok_PC


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _activate(value_PC, ok_PC, affine, FLOOR: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    if FLOOR is not None:
        value_PC = tl.maximum(value_PC * affine[0] + affine[1], FLOOR, propagate_nan=tl.PropagateNan.ALL)
        value_PC = tl.where(ok_PC, value_PC, 0.0)
    return value_PC


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _load_three(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    x, row, w_P, c_C, H, W, affine, C: tl.constexpr, DILATION: tl.constexpr, FLOOR: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return the values of a row left of the columns, in them, and right of them."""
    left, left_ok = _find_values(row, w_P - DILATION, c_C, H, W, C)
    here, here_ok = _find_values(row, w_P, c_C, H, W, C)
    right, right_ok = _find_values(row, w_P + DILATION, c_C, H, W, C)
    return (
        _activate(tl.load(x + left, mask=left_ok, other=0).to(WIDE), left_ok, affine, FLOOR),
        _activate(tl.load(x + here, mask=here_ok, other=0).to(WIDE), here_ok, affine, FLOOR),
        _activate(tl.load(x + right, mask=right_ok, other=0).to(WIDE), right_ok, affine, FLOOR),
    )


@triton.jit
def _add_products(sum_PC, values, weights):  # type: ignore[no-untyped-def]  # as above
    return sum_PC + values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]


@triton.jit(do_not_specialize=["H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _convolve_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    x, weight, affine, y, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, FLOOR: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    h, w = tl.cdiv(H, STRIDE), tl.cdiv(W, STRIDE)
    sample, c_C, w_P, first = _locate(w, P, TILE_C, ROWS, DILATION)
    x += sample * H * W * C
    scales = _load_channels(affine, c_C, 1, C, WIDE), _load_channels(affine + C, c_C, 1, C, WIDE)
    k = _load_weights(weight, c_C, C, WIDE)
    zero_PC = tl.zeros([P, TILE_C], WIDE)
    now_PC, next_PC = zero_PC, zero_PC  # what a row has of the rows above the next one, and the row after it
    for i in range(-2, ROWS):  # two rows above the first one begin the sums
        row = first + DILATION * i
        below = _load_three(x, STRIDE * row + DILATION, w_P * STRIDE, c_C, H, W, scales, C, DILATION, FLOOR, WIDE)
        at_PC, ok_PC = _find_values(row, w_P, c_C, h, w, C)
        value_PC = _add_products(now_PC, below, k[2]).to(y.dtype.element_ty)
        tl.store(y + sample * h * w * C + at_PC, value_PC, mask=ok_PC & (i >= 0))
        if STRIDE == 1:
            now_PC, next_PC = _add_products(next_PC, below, k[1]), _add_products(zero_PC, below, k[0])
        else:
            here = _load_three(x, 2 * row + 2, w_P * 2, c_C, H, W, scales, C, DILATION, FLOOR, WIDE)
            now_PC = _add_products(_add_products(zero_PC, below, k[0]), here, k[1])


@triton.jit(do_not_specialize=["H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _differentiate_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    gradient, x, weight, affine, by_x, shares, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, ROWS: tl.constexpr,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, FLOOR: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    h, w = tl.cdiv(H, STRIDE), tl.cdiv(W, STRIDE)
    sample, c_C, w_P, first = _locate(w, P, TILE_C, ROWS, DILATION)
    gradient += sample * h * w * C
    scales = _load_channels(affine, c_C, 1, C, WIDE), _load_channels(affine + C, c_C, 1, C, WIDE)
    k = _load_weights(weight, c_C, C, WIDE)
    zero_PC = tl.zeros([P, TILE_C], WIDE)
    sums = (zero_PC,) * 11
    rows = (
        _load_three(gradient, first - DILATION, w_P, c_C, h, w, scales, C, DILATION, None, WIDE),
        _load_three(gradient, first, w_P, c_C, h, w, scales, C, DILATION, None, WIDE),
    )
    for i in range(ROWS):
        row = first + DILATION * i
        below = _load_three(gradient, row + DILATION, w_P, c_C, h, w, scales, C, DILATION, None, WIDE)
        window = (rows[0], rows[1], below)
        for down in tl.static_range(STRIDE):  # the pixels of the input that belong to one of the output
            for right in tl.static_range(STRIDE):
                at_PC, ok_PC = _find_values(STRIDE * row + down, STRIDE * w_P + right, c_C, H, W, C)
                at_PC += sample * H * W * C
                x_PC = tl.load(x + at_PC, mask=ok_PC, other=0).to(WIDE)
                active_PC = _activate(x_PC, ok_PC, scales, FLOOR)
                by_PC = zero_PC
                for j in tl.static_range(9):  # of the weights, if it takes the pixel to one of the output
                    if (down + 1 - j // 3) % STRIDE == 0 and (right + 1 - j % 3) % STRIDE == 0:
                        by_y_PC = window[(down + 1 - j // 3) // STRIDE + 1][(right + 1 - j % 3) // STRIDE + 1]
                        by_PC += by_y_PC * k[j // 3][j % 3]
                        sums = sums[:j] + (sums[j] + by_y_PC * active_PC,) + sums[j + 1 :]  # noqa: RUF005  # triton
                if FLOOR is not None:
                    by_PC = tl.where((active_PC <= FLOOR) | (ok_PC == 0), 0.0, by_PC)
                    sums = sums[:9] + (sums[9] + by_PC * x_PC, sums[10] + by_PC)  # noqa: RUF005  # triton
                    by_PC *= scales[0]
                tl.store(by_x + at_PC, by_PC.to(by_x.dtype.element_ty), mask=ok_PC)
        rows = window[1:]
    share = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    for j in tl.static_range(11):
        tl.store(shares + (share * 11 + j) * C + c_C, tl.sum(sums[j], 0), mask=c_C < C)
