"""The blocks of model.py by Triton kernels, for GPUs: pooling, bias and activation in one, and the whole first block.

Pooling reads the convolution's output without its bias, takes the greatest of the 2 x 2 x 2 voxels of a cell, adds the
bias to that one alone, activates it, and stores it with a byte: bits 0 to 2 say which voxel it was, 4 d + 2 h + w, and
bit 3 that it was not above 0. From gradient and byte the backward kernel writes all eight gradients, zeros included:
no indices of eight bytes, no filling with zeros, no atomics. The bias's gradient is a sum over cells, not over voxels.

In the first block, 4 channels to 32, the convolution still writes eight times what the block returns. There, a kernel
convolves as well, a row of cells along W at a time, and only cells are stored. Along H and W the voxels of a cell see
4 x 4 voxels together. With 4 channels these are the 64 rows of a product whose 128 columns are the cell's four voxels
in a plane times 32 channels; weights are 0 where a voxel is out of reach. Three such products, one for each plane of
the kernel, make the four voxels, and six the cell. The gradient of the weights is the transposed product, for which the
eight gradients are made from the byte in registers.

Of equal values the first gets the gradient, and NaN is the greatest of all, as in torch. Sums are float32, or float64
for float64 input. What is summed over programs is written by each and added by torch: equal results in each run. The
tests run the kernels in Triton's interpreter and compile them for Hopper. On an H200 they make a step 1.5 times as
fast, with the first block 2.9 times (batch 16; docs/performance/gpu.md).

Shapes: B batch, D H W voxels, d h w cells, C channels; in kernels P cells, K rows and N columns of the product.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from common.candidate import Candidate
from common.precision import product_dtype

HALVES: Final = Candidate("cosmoflow-halves")
"""The gradient of the first block's weights by two programs, one for each place of the voxel along W, not by three."""
ARRANGING: Final = Candidate("cosmoflow-arrange")
"""The kernel of the first block itself arranges the weights for its products."""
FIRST_WEIGHT: Final = (32, 4, 3, 3, 3)
"""Shape of the weight of the convolution that `first_block` can compute."""
ROWS: Final = 8
"""Rows of cells for which a program of the first block reads the weights once."""
SHARES: Final = 128
"""Shares in which the gradient of these weights is summed, each by three programs, one for each plane.

How many rows that makes is compiled into the kernel, so that each batch size has its own.
"""


# -- pooling -------------------------------------------------------------------------------------------------


def pool_and_activate(x_BCDHW: Tensor, bias_C: Tensor, slope: float) -> Tensor:
    """Return LeakyReLU of the greatest value of each 2 x 2 x 2 cell plus the bias, in x's type, channels last."""
    return _Pool.apply(x_BCDHW, bias_C, slope)


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BCDHW: Tensor, bias_C: Tensor, slope: float) -> Tensor:
        x_BDHWC = _channels_last(x_BCDHW)
        y_BdhwC, byte_BdhwC = _allocate_outputs(x_BDHWC, x_BDHWC.shape[-1])
        if y_BdhwC.numel():
            grid, sizes = _plan_pooling(x_BDHWC, slope)
            _pool_kernel[grid](x_BDHWC, bias_C, y_BdhwC, byte_BdhwC, *x_BDHWC.shape[1:4], **sizes)
        ctx.save_for_backward(byte_BdhwC, bias_C)
        ctx.sides, ctx.slope = x_BDHWC.shape, slope
        return y_BdhwC.permute(0, 4, 1, 2, 3)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, gradient_BCdhw: Tensor) -> tuple[Tensor, Tensor, None]:
        byte_BdhwC, bias_C = ctx.saved_tensors
        gradient_BdhwC = _channels_last(gradient_BCdhw)
        odd = any(side % 2 for side in ctx.sides[1:4])  # then some voxels are in no cell
        by_x_BDHWC = (gradient_BdhwC.new_zeros if odd else gradient_BdhwC.new_empty)(ctx.sides)
        grid, sizes = _plan_pooling(by_x_BDHWC, ctx.slope)
        shares = torch.empty(
            grid[0], len(bias_C), dtype=torch.promote_types(by_x_BDHWC.dtype, torch.float32), device=bias_C.device
        )
        if gradient_BdhwC.numel():
            _unpool_kernel[grid](gradient_BdhwC, byte_BdhwC, by_x_BDHWC, shares, *ctx.sides[1:4], **sizes)
        return by_x_BDHWC.permute(0, 4, 1, 2, 3), shares.sum(0).to(bias_C.dtype), None


def _channels_last(x_BCDHW: Tensor) -> Tensor:
    """Return (B, D, H, W, C) in this order in memory."""
    return x_BCDHW.permute(0, 2, 3, 4, 1).contiguous()


def _allocate_outputs(x_BDHWC: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Return memory for values and bytes of the cells, (B, d, h, w, C)."""
    batch, *sides, _ = x_BDHWC.shape
    shape = (batch, *(side // 2 for side in sides), channels)
    return x_BDHWC.new_empty(shape), x_BDHWC.new_empty(shape, dtype=torch.uint8)


def _plan_pooling(x_BDHWC: Tensor, slope: float) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid of the pooling kernels, and the sizes and warps for which they are compiled."""
    batch, depth, height, width, channels = x_BDHWC.shape
    tile = min(128, triton.next_power_of_2(channels))
    cells = 2048 // tile
    tiles = triton.cdiv((depth // 2) * (height // 2) * (width // 2), cells)
    sizes = {"C": channels, "P": cells, "TILE_C": tile, "SLOPE": slope, "WIDE": _triton_wide(x_BDHWC)}
    return (batch * tiles, triton.cdiv(channels, tile)), {**sizes, "num_warps": 8}


def _triton_wide(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


# -- the first block -----------------------------------------------------------------------------------------


def fits_first_block(x_BCDHW: Tensor, weight: Tensor) -> bool:
    """Return whether `first_block` can convolve these: in formats of two bytes, and without a gradient by x."""
    return weight.shape == FIRST_WEIGHT and product_dtype(x_BCDHW).itemsize == 2 and not x_BCDHW.requires_grad


def first_block(x_BCDHW: Tensor, weight: Tensor, bias_C: Tensor, slope: float) -> Tensor:
    """Return what `pool_and_activate` makes of the convolution with padding "same", where that `fits_first_block`."""
    x_BDHWC = _channels_last(x_BCDHW.to(product_dtype(x_BCDHW)))
    return _FirstBlock.apply(x_BDHWC, weight if ARRANGING.enabled else _arrange_weights(weight), bias_C, slope)


def _arrange_weights(weight: Tensor) -> Tensor:
    """Return the weights of the three products (64, 128): rows (h, w, channel) of the window, columns (w, h, channel).

    A voxel at h in its cell sees the window's rows h to h + 2.
    """
    padded = F.pad(weight, (1, 1, 1, 1))  # (out, in, 3, 5, 5): the weights of a voxel at h are the 4 from 1 - h on
    windows = padded.unfold(3, 4, 1).unfold(4, 4, 1).flip((3, 4))  # (out, in, 3, cell's h, w, window's h, w)
    return windows.permute(2, 5, 6, 1, 4, 3, 0).reshape(3, 64, -1)


def _add_positions(by_weight_3KN: Tensor) -> Tensor:
    """Return the gradient of the weights from that of the arranged ones, where each stands for a plane's four voxels.

    A voxel's weights are one further along H or W than its neighbour's, in rows and columns alike.
    """
    row, column, plane = 16 * 128, 4 * 128, 64 * 128
    strides = (1, 128, plane, row, column, row + 32, column + 64)
    return by_weight_3KN.as_strided((*FIRST_WEIGHT, 2, 2), strides).sum(-1).sum(-1)


class _FirstBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BDHWC: Tensor, weight: Tensor, bias_C: Tensor, slope: float) -> Tensor:
        ctx.arranged, ctx.slope = weight.ndim == 3, slope
        y_BdhwC, byte_BdhwC = _allocate_outputs(x_BDHWC, len(bias_C))
        if y_BdhwC.numel():
            grid, rows, sizes = _first_forward(x_BDHWC, slope)
            weight = weight.to(x_BDHWC.dtype) if ctx.arranged else _channels_last(weight)
            arguments = (x_BDHWC, weight, bias_C, y_BdhwC, byte_BdhwC, rows)
            _first_block_kernel[grid](*arguments, *x_BDHWC.shape[1:4], **sizes, ARRANGED=ctx.arranged)
        ctx.save_for_backward(x_BDHWC, byte_BdhwC, bias_C)
        return y_BdhwC.permute(0, 4, 1, 2, 3)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, gradient_BCdhw: Tensor) -> tuple[None, Tensor, Tensor, None]:
        x_BDHWC, byte_BdhwC, bias_C = ctx.saved_tensors
        gradient_BdhwC = _channels_last(gradient_BCdhw)
        kernel, grid, rows, sizes = _first_backward(x_BDHWC, ctx.slope)
        wide: dict[str, Any] = {
            "dtype": torch.promote_types(x_BDHWC.dtype, torch.float32),
            "device": x_BDHWC.device,
        }
        by_weight = torch.empty(grid[1], 3, 64, 4 * len(bias_C), **wide)
        by_bias = torch.empty(grid[1], len(bias_C), **wide)
        if gradient_BdhwC.numel():
            arguments = (x_BDHWC, gradient_BdhwC, byte_BdhwC, by_weight, by_bias, rows)
            kernel[grid](*arguments, *x_BDHWC.shape[1:4], **sizes)
        by_weight = by_weight.sum(0).to(bias_C.dtype)
        by_weight = by_weight if ctx.arranged else _add_positions(by_weight)
        return None, by_weight, by_bias.sum(0).to(bias_C.dtype), None


def _first_forward(x_BDHWC: Tensor, slope: float) -> tuple[tuple[int], int, dict[str, Any]]:
    """Return the grid, the number of rows, and the sizes, warps and stages for which the kernel is compiled."""
    rows, sizes = _plan_rows(x_BDHWC, 64)
    return (triton.cdiv(rows, ROWS),), rows, {**sizes, "ROWS": ROWS, "SLOPE": slope, "num_warps": 4, "num_stages": 1}


def _first_backward(x_BDHWC: Tensor, slope: float) -> tuple[Any, tuple[int, int], int, dict[str, Any]]:
    """Return the gradient's kernel, and the same for it."""
    kernel, programs, most, stages = _first_weight_kernel, 3, 32, 2
    if HALVES.enabled:
        a100 = x_BDHWC.is_cuda and torch.cuda.get_device_capability(x_BDHWC.device)[0] == 8  # where 64 cells spill
        kernel, programs, most, stages = _half_weight_kernel, 2, 32 if a100 else 64, 1
    rows, sizes = _plan_rows(x_BDHWC, most)
    each = max(1, triton.cdiv(rows, SHARES))
    grid = programs, triton.cdiv(rows, each)
    return kernel, grid, rows, {**sizes, "ROWS": each, "SLOPE": slope, "num_warps": 4, "num_stages": stages}


def _plan_rows(x_BDHWC: Tensor, most: int) -> tuple[int, dict[str, Any]]:
    """Return the number of rows of at most `most` cells along W, and the kernels' sizes."""
    batch, depth, height, width, _ = x_BDHWC.shape
    cells = max(16, min(most, triton.next_power_of_2(width // 2)))  # the least side of a product is 16
    rows = batch * (depth // 2) * (height // 2) * triton.cdiv(width // 2, cells)
    return rows, {"C": FIRST_WEIGHT[0], "P": cells, "WIDE": _triton_wide(x_BDHWC)}


# -- on the GPU ----------------------------------------------------------------------------------------------
# Offsets from the start of a sample or row are 32 bits wide, those of samples and rows 64.


@triton.jit
def _keep_greater(a, a_place, b, b_place):  # type: ignore[no-untyped-def]  # types come with the arguments
    better = (b > a) | (b != b)
    return tl.where(better, b, a), tl.where(better, b_place, a_place)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _write_cells(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    y, byte, at, ok, value, position, SLOPE: tl.constexpr,
):  # fmt: skip
    above = value > 0
    tl.store(y + at, tl.where(above, value, value * SLOPE).to(y.dtype.element_ty), mask=ok)
    tl.store(byte + at, tl.where(above, position, position + 8).to(tl.uint8), mask=ok)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _read_cells(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    gradient, byte, at, ok, SLOPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    position = tl.load(byte + at, mask=ok, other=0).to(tl.int32)
    value = tl.load(gradient + at, mask=ok, other=0).to(WIDE)
    return tl.where(position < 8, value, value * SLOPE), position & 7


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _locate_cells(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    D, H, W, C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """Return a program's channels; offsets of its cells and of their first voxels; and which of these there are."""
    h, w = H // 2, W // 2
    cells = (D // 2) * h * w
    tiles = tl.cdiv(cells, P)
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    cell_P = tl.program_id(0) % tiles * P + tl.arange(0, P)
    voxel_P = (cell_P // (h * w) * 2 * H + cell_P // w % h * 2) * W + cell_P % w * 2
    c_C = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    ok_PC = (cell_P < cells)[:, None] & (c_C < C)[None, :]
    cell_PC = (sample * cells + cell_P)[:, None] * C + c_C[None, :]
    voxel_PC = (sample * D * H * W + voxel_P)[:, None] * C + c_C[None, :]
    return c_C, cell_PC, voxel_PC, ok_PC


@triton.jit(do_not_specialize=["D", "H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _pool_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    x, bias, y, byte, D, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    c_C, cell_PC, voxel_PC, ok_PC = _locate_cells(D, H, W, C, P, TILE_C)
    best_PC = tl.full([P, TILE_C], float("-inf"), WIDE)
    place_PC = tl.zeros([P, TILE_C], tl.int32)
    for position in tl.static_range(8):
        step = ((position // 4 * H + position // 2 % 2) * W + position % 2) * C
        value_PC = tl.load(x + voxel_PC + step, mask=ok_PC, other=0).to(WIDE)
        best_PC, place_PC = _keep_greater(best_PC, place_PC, value_PC, position)
    best_PC += tl.load(bias + c_C, mask=c_C < C, other=0).to(WIDE)[None, :]
    _write_cells(y, byte, cell_PC, ok_PC, best_PC, place_PC, SLOPE)


@triton.jit(do_not_specialize=["D", "H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _unpool_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    gradient, byte, by_x, by_bias, D, H, W,
    C: tl.constexpr, P: tl.constexpr, TILE_C: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    c_C, cell_PC, voxel_PC, ok_PC = _locate_cells(D, H, W, C, P, TILE_C)
    value_PC, place_PC = _read_cells(gradient, byte, cell_PC, ok_PC, SLOPE, WIDE)
    for position in tl.static_range(8):
        step = ((position // 4 * H + position // 2 % 2) * W + position % 2) * C
        tl.store(
            by_x + voxel_PC + step, tl.where(place_PC == position, value_PC, 0).to(by_x.dtype.element_ty), mask=ok_PC
        )
    tl.store(by_bias + tl.program_id(0).to(tl.int64) * C + c_C, tl.sum(value_PC, 0), mask=c_C < C)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _locate_row(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    row, rows, D, H, W, P: tl.constexpr,
):  # fmt: skip
    """Return sample, d, h and the cells along W of a (part of a) row; past the last row, cells outside of the box."""
    parts = tl.cdiv(W // 2, P)
    w_P = tl.where(row < rows, row % parts * P + tl.arange(0, P), W)
    row //= parts
    return (row // ((D // 2) * (H // 2))).to(tl.int64), row // (H // 2) % (D // 2), row % (H // 2), w_P


@triton.jit
def _load_windows(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    x, sample, plane, h, w_P, D, H, W,
):  # fmt: skip
    """Return the 4 x 4 voxels x 4 channels (P, 64) that the cells see in a plane; 0 outside of the box."""
    k_K = tl.arange(0, 64)
    height_K = 2 * h - 1 + k_K // 16
    width_PK = 2 * w_P[:, None] - 1 + (k_K // 4 % 4)[None, :]
    ok_PK = (height_K >= 0) & (height_K < H) & (plane >= 0) & (plane < D)
    ok_PK = ok_PK[None, :] & (width_PK >= 0) & (width_PK < W)
    start = x + ((sample * D + plane) * H + 2 * h - 1) * W * 4
    return tl.load(start + (k_K // 16 * W * 4)[None, :] + (8 * w_P[:, None] - 4 + (k_K % 16)[None, :]), ok_PK, other=0)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _halve_columns(  # type: ignore[no-untyped-def]  # as above
    value_PN, place_PN, P: tl.constexpr, N: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """Return the greater of the two halves of the columns, with places, which in the second half are `step` further."""
    a, b = tl.split(tl.permute(tl.reshape(value_PN, [P, 2, N // 2]), [0, 2, 1]))
    a_place, b_place = tl.split(tl.permute(tl.reshape(place_PN, [P, 2, N // 2]), [0, 2, 1]))
    return _keep_greater(a, a_place, b, b_place + step)


@triton.jit(do_not_specialize=["rows", "D", "H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _first_block_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    x, weight, bias, y, byte, rows, D, H, W,
    C: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr,
    ARRANGED: tl.constexpr,
):  # fmt: skip
    c_C = tl.arange(0, C)
    k_K, n_N = tl.arange(0, 64), tl.arange(0, 4 * C)
    if ARRANGED:
        at_KN = k_K[:, None] * 4 * C + n_N[None, :]
        weight_KN = (tl.load(weight + at_KN), tl.load(weight + 256 * C + at_KN), tl.load(weight + 512 * C + at_KN))
    else:  # (out, d, h, w, in): the plane's weights that `_arrange_weights` gives
        height_KN = (k_K // 16)[:, None] - (n_N // C % 2)[None, :]
        width_KN = (k_K // 4 % 4)[:, None] - (n_N // (2 * C))[None, :]
        ok_KN = (height_KN >= 0) & (height_KN < 3) & (width_KN >= 0) & (width_KN < 3)
        at_KN = (n_N % C * 108)[None, :] + 12 * height_KN + 4 * width_KN + (k_K % 4)[:, None]
        weight_KN = (
            tl.load(weight + at_KN, ok_KN, other=0).to(x.dtype.element_ty),
            tl.load(weight + 36 + at_KN, ok_KN, other=0).to(x.dtype.element_ty),
            tl.load(weight + 72 + at_KN, ok_KN, other=0).to(x.dtype.element_ty),
        )
    bias_C = tl.load(bias + c_C).to(WIDE)
    for i in range(ROWS):
        sample, d, h, w_P = _locate_row(tl.program_id(0) * ROWS + i, rows, D, H, W, P)
        best_PC = tl.full([P, C], float("-inf"), WIDE)
        place_PC = tl.zeros([P, C], tl.int32)
        for depth in tl.static_range(2):
            value_PN = tl.zeros([P, 4 * C], WIDE)
            for k in tl.static_range(3):
                window_PK = _load_windows(x, sample, 2 * d + (depth + k - 1), h, w_P, D, H, W)
                value_PN = tl.dot(window_PK, weight_KN[k], value_PN, input_precision="ieee", out_dtype=WIDE)
            half, position = _halve_columns(value_PN, tl.zeros([P, 4 * C], tl.int32), P, 4 * C, 1)
            half, position = _halve_columns(half, position, P, 2 * C, 2)
            best_PC, place_PC = _keep_greater(best_PC, place_PC, half, position + 4 * depth)
        start = ((sample * (D // 2) + d) * (H // 2) + h) * (W // 2) * C
        at_PC = start + w_P[:, None] * C + c_C[None, :]
        _write_cells(y, byte, at_PC, (w_P < W // 2)[:, None], best_PC + bias_C[None, :], place_PC, SLOPE)


@triton.jit(do_not_specialize=["rows", "D", "H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _first_weight_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    x, gradient, byte, by_weight, by_bias, rows, D, H, W,
    C: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    k, share = tl.program_id(0), tl.program_id(1)
    n_N, c_C = tl.arange(0, 4 * C), tl.arange(0, C)
    here_N = n_N // C % 2 * 2 + n_N // (2 * C)  # columns are by w, then h
    sum_KN = tl.zeros([64, 4 * C], WIDE)
    sum_PC = tl.zeros([P, C], WIDE)
    for i in range(ROWS):
        sample, d, h, w_P = _locate_row(share * ROWS + i, rows, D, H, W, P)
        start = ((sample * (D // 2) + d) * (H // 2) + h) * (W // 2) * C
        at_P1, ok_P1 = start + w_P[:, None] * C, (w_P < W // 2)[:, None]
        sum_PC += _read_cells(gradient, byte, at_P1 + c_C[None, :], ok_P1, SLOPE, WIDE)[0]
        value_PN, place_PN = _read_cells(gradient, byte, at_P1 + (n_N % C)[None, :], ok_P1, SLOPE, WIDE)
        for depth in tl.static_range(2):
            window_PK = _load_windows(x, sample, 2 * d + depth + k - 1, h, w_P, D, H, W)
            here_PN = tl.where(place_PN == 4 * depth + here_N[None, :], value_PN, 0).to(window_PK.dtype)
            sum_KN = tl.dot(tl.trans(window_PK), here_PN, sum_KN, input_precision="ieee", out_dtype=WIDE)
    at_KN = tl.arange(0, 64)[:, None] * 4 * C + tl.arange(0, 4 * C)[None, :]
    tl.store(by_weight + (share * 3 + k).to(tl.int64) * 256 * C + at_KN, sum_KN)
    if k == 0:
        tl.store(by_bias + share * C + c_C, tl.sum(sum_PC, 0))


@triton.jit(do_not_specialize=["rows", "D", "H", "W"])  # type: ignore[untyped-decorator]  # triton's
def _half_weight_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    x, gradient, byte, by_weight, by_bias, rows, D, H, W,
    C: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """As `_first_weight_kernel`, but for all planes of the kernel, half of the columns and half of the bias.

    A row's four planes of windows are read once, and its gradients selected once for each plane of cells.
    """
    half, share = tl.program_id(0), tl.program_id(1)
    n_N, c_C = tl.arange(0, 2 * C), half * (C // 2) + tl.arange(0, C // 2)
    here_N = n_N // C * 2 + half  # columns are by w, which is the half, then h
    sum_PC, zero_KN = tl.zeros([P, C // 2], WIDE), tl.zeros([64, 2 * C], WIDE)
    sums_KN = zero_KN, zero_KN, zero_KN
    for i in range(ROWS):
        sample, d, h, w_P = _locate_row(share * ROWS + i, rows, D, H, W, P)
        start = ((sample * (D // 2) + d) * (H // 2) + h) * (W // 2) * C
        at_P1, ok_P1 = start + w_P[:, None] * C, (w_P < W // 2)[:, None]
        sum_PC += _read_cells(gradient, byte, at_P1 + c_C[None, :], ok_P1, SLOPE, WIDE)[0]
        value_PN, place_PN = _read_cells(gradient, byte, at_P1 + (n_N % C)[None, :], ok_P1, SLOPE, WIDE)
        near_PN = tl.where(place_PN == here_N[None, :], value_PN, 0).to(x.dtype.element_ty)
        far_PN = tl.where(place_PN == here_N[None, :] + 4, value_PN, 0).to(x.dtype.element_ty)
        window_KP = tl.trans(_load_windows(x, sample, 2 * d - 1, h, w_P, D, H, W))
        for k in tl.static_range(3):  # the sums change places: after three times each is where it was
            sum_KN = tl.dot(window_KP, near_PN, sums_KN[0], input_precision="ieee", out_dtype=WIDE)
            window_KP = tl.trans(_load_windows(x, sample, 2 * d + k, h, w_P, D, H, W))
            sum_KN = tl.dot(window_KP, far_PN, sum_KN, input_precision="ieee", out_dtype=WIDE)
            sums_KN = sums_KN[1], sums_KN[2], sum_KN
    at_KN = tl.arange(0, 64)[:, None] * 4 * C + (half * 2 * C + n_N)[None, :]
    for k in tl.static_range(3):
        tl.store(by_weight + (share * 3 + k).to(tl.int64) * 256 * C + at_KN, sums_KN[k])
    tl.store(by_bias + share * C + c_C, tl.sum(sum_PC, 0))
