"""Triton kernels for GPUs: the moments and the derivatives of the activation of operations.py.

The moments, and all their derivatives, are made without storing anything of size edges x channels x orders. For each
edge e of atom j, with s = sum over n of R W and t = sum over m of Y G, where G is a gradient by the moments,

    M[j, lm, c] = sum over e of Y[e, lm] b[e, c] s[e, l, c]
    gradients by b: sum over l of s t    R: sum over c of W b t    W: sum over e of R b t    Y: sum over c of G b s

All are one product of five factors, summed over what is not asked for. There is a kernel for the moments, one for the
gradient by b (the messages), one for those by R and Y (the bases) and one for that by W. Each takes some edges of an
atom at a time and consists of small matrix products, so that it needs few registers. Training differentiates the
gradients again: along tangents (vb, vY, vR), each product becomes the sum of those with one factor replaced by its
tangent, and that is all the kernels do differently then. Each program writes rows of its own, but for the gradient by
W: there each program writes a share, and torch adds the shares. No atomics, equal results in each run.

Sums are float32, or float64 if all the rest is. On NVIDIA's GPUs a product of float32 matrices is three of TF32, which
keep about 21 of its 24 bits; a single one would keep 11. On AMD's it is one of float32.

The tests run the kernels through Triton's interpreter, and compile them for an H100, an A100 and an MI300 as they are
launched, where no register is spilled. On an H200 they make a recorded step of 32 frames 2.2 times as fast
(docs/performance/gpu.md).

Shapes: A atoms, E edges, C channels; L orders, M = L^2 harmonics, N roots; K edges that are processed at a time. Within
a kernel M and N are those of one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.candidate import Candidate
from oc20.graphs import ROWS, EdgeTable, Graph

TF32: Final = Candidate("oc20-tf32")
"""Where a run computes in bfloat16, a product of float32 matrices is a single one of TF32."""
BASES_64: Final = Candidate("oc20-bases-64")
"""`bases_kernel` has a tile of 64 edges, but in float64, where it would spill."""
TILES: Final = {
    "moments_kernel": (32, 4, 2),
    "messages_kernel": (32, 4, 1),
    "bases_kernel": (32, 4, 1),
    "weights_kernel": (32, 8, 1),
}
"""By kernel: edges of an atom at a time, warps of a program, and how far its loads run ahead.

Large ones that spill nothing. On an H200 the best of 12 others takes 9 % of the sums' time away, less of a step
(docs/performance/gpu.md). float64 takes half the edges. A run does not tune them: other tiles add in another order, so
that equal runs would have different results.
"""
LEAST: Final = 16
"""The shortest side of a matrix product in Triton: fewer harmonics, roots or edges are filled up with zeros."""
ATOMS: Final = 8
"""Atoms whose sum is a share of the gradient by W."""
BLOCK: Final = 1024
"""Numbers of an activation that a program reads: in bfloat16, 16 bytes a thread."""
EDGES, COLUMNS = 32, 64
"""Of `sum_rows`: edges of an atom at a time, and the most columns that a program adds."""
DIRECTIONS: Final = 128
"""Edges whose harmonics a program computes."""


class Rows(NamedTuple):
    """Which edges are those of an atom a: from first[a] to, not including, first[a + 1]; at most `longest`.

    precision: of the products of float32 matrices that are summed over these edges, in Triton's words. The forward pass
    chooses it, for all derivatives: autocast is off in theirs.
    """

    first: Tensor
    longest: int
    precision: str


def _choose_precision(dtype: torch.dtype) -> str:
    """Return the precision of products of float32 matrices in a run that computes others in `dtype`."""
    if torch.version.hip is not None:
        return "ieee"  # the only one of Triton's back end
    return "tf32" if TF32.enabled and dtype == torch.bfloat16 else "tf32x3"


@dataclass(frozen=True, slots=True)
class Fused:
    """Distances and directions of the edges k -> j of each atom j; the kernels compute the moments.

    harmonics_EM, radial_ELN: of the edges.
    """

    rows: Rows
    harmonics_EM: Tensor
    radial_ELN: Tensor

    @classmethod
    def from_graph(cls, graph: Graph, radial_ELN: Tensor, harmonics_EM: Tensor, dtype: torch.dtype) -> Fused:
        """Return the input of the kernels for a graph whose edges have these values.

        dtype: in which the run computes products.
        """
        incoming = graph.incoming  # in the order of their atoms
        rows = Rows(incoming.first, incoming.members.shape[1], _choose_precision(dtype))
        return cls(rows, harmonics_EM.contiguous(), radial_ELN.contiguous())

    def sum_moments(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return the moments (A, M, C), in b's type. See `oc20.operations.Surroundings.sum_triplets`."""
        factors = (b_EC.contiguous(), self.harmonics_EM, self.radial_ELN, weight_LNC.contiguous())
        return _Moments.apply(self.rows, *factors)


class _Moments(torch.autograd.Function):
    """The moments. As in `oc20.operations`, no gradient by W is needed where a graph is recorded."""

    @staticmethod
    def forward(ctx: Any, rows: Rows, *factors: Tensor) -> Tensor:
        ctx.rows = rows
        ctx.save_for_backward(*factors)
        return _compute_moments(rows, factors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        by_harmonics = ctx.needs_input_grad[2]
        factors = (gradient.contiguous(), *ctx.saved_tensors)
        if torch.is_grad_enabled():
            return None, *_Slopes.apply(ctx.rows, by_harmonics, *factors), None
        return None, *_compute_slopes(ctx.rows, factors, by_harmonics), _by_weight(ctx.rows, factors)


class _Slopes(torch.autograd.Function):
    """The gradients of the moments by b, Y (None if not needed) and R."""

    @staticmethod
    def forward(ctx: Any, rows: Rows, by_harmonics: bool, *factors: Tensor) -> tuple[Tensor | None, ...]:
        ctx.rows = rows
        ctx.save_for_backward(*factors)
        return _compute_slopes(rows, factors, by_harmonics)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, factors = ctx.rows, ctx.saved_tensors
        tangents = tuple(v if v is None else v.contiguous() for v in second)
        by_gradient = _compute_moments(rows, factors[1:], tangents)
        by_factors = _compute_slopes(rows, factors, ctx.needs_input_grad[4], tangents)
        return None, None, by_gradient, *by_factors, _by_weight(rows, factors, tangents)


NO_TANGENTS: Final = (None, None, None)
"""Of b, Y and R: not a derivative."""


def _compute_moments(rows: Rows, factors: Any, tangents: Any = NO_TANGENTS) -> Tensor:
    """Return the moments (A, M, C) of the factors b, Y, R and W, or their derivative along tangents of b, Y and R."""
    b, harmonics, _, weight = factors
    moments = b.new_empty(len(rows.first) - 1, harmonics.shape[1], b.shape[1])
    arguments = (*factors, *tangents, moments)
    _launch_kernel(moments_kernel, len(moments) * len(weight), rows, arguments, _choose_sizes(b, weight))
    return moments


def _compute_slopes(
    rows: Rows, factors: Any, by_harmonics: bool, tangents: Any = NO_TANGENTS
) -> tuple[Tensor | None, ...]:
    """Return the gradients by b, Y (None if not needed) and R of the moments times G, or of that along tangents.

    factors: G, b, Y, R and W.
    """
    gradient, b, harmonics, radial, weight = factors
    by_b, by_radial = torch.empty_like(b), torch.empty_like(radial)
    by_y = torch.empty_like(harmonics) if by_harmonics else None
    atoms, sizes = len(gradient), _choose_sizes(b, weight)
    _launch_kernel(messages_kernel, atoms, rows, (gradient, *factors[2:], *tangents[1:], by_b), sizes)
    sizes |= {"TILE_C": LEAST}  # it sums over the channels
    _launch_kernel(bases_kernel, atoms * len(weight), rows, (*factors, *tangents, by_y, by_radial), sizes)
    return by_b, by_y, by_radial


def _by_weight(rows: Rows, factors: Any, tangents: Any = NO_TANGENTS) -> Tensor:
    """Return the gradient by W, from what `_compute_slopes` takes."""
    *values, weight = factors
    atoms = len(values[0])
    parts = triton.cdiv(atoms, ATOMS)
    shares = torch.empty(
        parts, *weight.shape, dtype=torch.promote_types(values[1].dtype, torch.float32), device=weight.device
    )
    sizes = _choose_sizes(values[1], weight) | {"ATOMS": ATOMS}
    _launch_kernel(weights_kernel, parts * len(weight), rows, (*values, *tangents, shares, atoms), sizes)
    return shares.sum(0).to(weight.dtype)


def _launch_kernel(kernel: Any, programs: int, rows: Rows, arguments: tuple[Any, ...], sizes: dict[str, Any]) -> None:
    edges, warps, stages = TILES[kernel.__name__]
    if sizes["WIDE"] == tl.float64:
        edges = max(LEAST, edges // 2)
    elif BASES_64.enabled and kernel is bases_kernel:
        edges, stages = 64, 2
    tiles = {
        "TILE_K": edges,
        "ROW_TILES": None if ROWS.enabled else triton.cdiv(rows.longest, edges),
        "PRECISION": rows.precision,
    }
    if programs:
        kernel[programs,](rows.first, *arguments, **sizes, **tiles, num_warps=warps, num_stages=stages)


def _choose_sizes(b: Tensor, weight: Tensor) -> dict[str, Any]:
    """Return the sizes for which a kernel is compiled."""
    orders, roots, channels = weight.shape
    tiles = {"M": 2 * orders - 1, "N": roots, "C": channels}
    return {
        "L": orders,
        "N": roots,
        "C": channels,
        **{f"TILE_{name}": triton.next_power_of_2(max(LEAST, size)) for name, size in tiles.items()},
        "WIDE": _choose_wide(b),
    }


def _choose_wide(x: Tensor) -> Any:
    """Return the type in which kernels compute with x."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def sum_rows(x_E: Tensor, edges: EdgeTable) -> Tensor:
    """Return for each atom the sum of the rows (E, ...) of its edges, in their order in the table.

    Sums are float32, or float64 for that, and are rounded once.
    """
    x_E, atoms, columns = x_E.contiguous(), len(edges.members), math.prod(x_E.shape[1:])
    sums = x_E.new_empty(atoms, *x_E.shape[1:])
    if sums.numel():
        tile = min(COLUMNS, triton.next_power_of_2(columns))
        sum_kernel[atoms, triton.cdiv(columns, tile)](
            x_E, edges.members, edges.first, sums, edges.members.shape[1],
            C=columns, TILE_C=tile, TILE_K=EDGES, WIDE=_choose_wide(x_E), num_warps=4,
        )  # fmt: skip
    return sums


def compute_harmonics(unit_E3: Tensor, orders: int) -> Tensor:
    """Return the values of `oc20.basis.spherical_harmonics` side by side, (E, orders^2), without a gradient."""
    harmonics_EM = unit_E3.new_empty(len(unit_E3), orders**2)
    if edges := len(unit_E3):
        harmonics_kernel[triton.cdiv(edges, DIRECTIONS),](
            unit_E3.contiguous(), harmonics_EM, edges, L=orders, TILE_E=DIRECTIONS, num_warps=4
        )
    return harmonics_EM


def add_silu_backward(by_z: Tensor, by_y: Tensor, z: Tensor) -> Tensor:
    """Return by_z + by_y silu'(z), computed in float32, or float64 for that."""
    sums = torch.empty_like(z)
    if size := z.numel():
        silu_backward_kernel[triton.cdiv(size, BLOCK),](
            by_z.contiguous(), by_y.contiguous(), z.contiguous(), sums, size,
            BLOCK=BLOCK, WIDE=_choose_wide(z), num_warps=4,
        )  # fmt: skip
    return sums


def silu_double_backward(by_product: Tensor, gradient: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by `gradient` and z of gradient silu'(z), given that by this product, and the product.

    In one pass, computed in float32, or float64 for that. The first overwrites by_product.
    """
    by_gradient, gradient, z = by_product.contiguous(), gradient.contiguous(), z.contiguous()
    by_z, product = torch.empty_like(z), torch.empty_like(z)
    if size := z.numel():
        arguments = (by_gradient, gradient, z, by_z, product, size)
        sizes = {"BLOCK": BLOCK, "WIDE": _choose_wide(z)}
        silu_double_backward_kernel[triton.cdiv(size, BLOCK),](*arguments, **sizes, num_warps=4)
    return by_gradient, by_z, product


# -- on the GPU ----------------------------------------------------------------------------------------------
# Names are those of the formulas above, in types as wide as the sums; what a tile has beyond the data is 0. Numbers
# of a tensor are counted in 32 bits, enough for 33 million edges with 64 channels.


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _load_tile(start, rows, rows_ok, columns, columns_ok, WIDTH: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: PLR0913  # types come with the arguments
    ok = rows_ok[:, None] & columns_ok[None, :]
    return tl.load(start + rows[:, None] * WIDTH + columns[None, :], mask=ok, other=0).to(WIDE)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _store_tile(start, rows, rows_ok, columns, columns_ok, WIDTH: tl.constexpr, values):  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    ok = rows_ok[:, None] & columns_ok[None, :]
    tl.store(start + rows[:, None] * WIDTH + columns[None, :], values.to(start.dtype.element_ty), mask=ok)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _multiply_tiles(x, y, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    return tl.dot(x, y, input_precision=PRECISION, out_dtype=x.dtype)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _count_tiles(start, end, TILE_K: tl.constexpr, ROW_TILES: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    return tl.cdiv(end - start, TILE_K) if ROW_TILES is None else ROW_TILES


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def moments_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    first, b, harmonics, radial, weight, b_tangent, harmonics_tangent, radial_tangent, moments,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr,
    ROW_TILES: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the moments of one order of an atom."""
    atom, order = tl.program_id(0) // L, tl.program_id(0) % L
    m, n, c = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_C)
    m_ok, n_ok, c_ok = m < 2 * order + 1, n < N, c < C
    m, n = order * order + m, order * N + n
    w_NC = _load_tile(weight, n, n_ok, c, c_ok, C, WIDE)
    sums_MC = tl.zeros([TILE_M, TILE_C], WIDE)
    start, end = tl.load(first + atom), tl.load(first + atom + 1)
    for tile in range(_count_tiles(start, end, TILE_K, ROW_TILES)):
        e = start + tile * TILE_K + tl.arange(0, TILE_K)
        ok = e < end
        b_KC = _load_tile(b, e, ok, c, c_ok, C, WIDE)
        s_KC = _multiply_tiles(_load_tile(radial, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION)
        sent_KC = b_KC * s_KC
        if b_tangent is not None:
            if harmonics_tangent is not None:
                sums_MC += _multiply_tiles(
                    tl.trans(_load_tile(harmonics_tangent, e, ok, m, m_ok, L * L, WIDE)), sent_KC, PRECISION
                )
            s_tangent_KC = _multiply_tiles(_load_tile(radial_tangent, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION)
            sent_KC = _load_tile(b_tangent, e, ok, c, c_ok, C, WIDE) * s_KC + b_KC * s_tangent_KC
        sums_MC += _multiply_tiles(tl.trans(_load_tile(harmonics, e, ok, m, m_ok, L * L, WIDE)), sent_KC, PRECISION)
    _store_tile(moments + atom * (L * L * C), m, m_ok, c, c_ok, C, sums_MC)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def messages_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    first, gradient, harmonics, radial, weight, harmonics_tangent, radial_tangent, by_b,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr,
    ROW_TILES: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients by b of the edges of an atom."""
    atom = tl.program_id(0)
    c = tl.arange(0, TILE_C)
    c_ok = c < C
    start, end = tl.load(first + atom), tl.load(first + atom + 1)
    for tile in range(_count_tiles(start, end, TILE_K, ROW_TILES)):
        e = start + tile * TILE_K + tl.arange(0, TILE_K)
        ok = e < end
        by_b_KC = tl.zeros([TILE_K, TILE_C], WIDE)
        for order in range(L):
            m, n = tl.arange(0, TILE_M), tl.arange(0, TILE_N)
            m_ok, n_ok = m < 2 * order + 1, n < N
            m, n = order * order + m, order * N + n
            w_NC = _load_tile(weight, n, n_ok, c, c_ok, C, WIDE)
            g_MC = _load_tile(gradient + atom * (L * L * C), m, m_ok, c, c_ok, C, WIDE)
            s_KC = _multiply_tiles(_load_tile(radial, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION)
            t_KC = _multiply_tiles(_load_tile(harmonics, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION)
            if radial_tangent is None:
                by_b_KC += s_KC * t_KC
            else:
                if harmonics_tangent is not None:
                    by_b_KC += s_KC * _multiply_tiles(
                        _load_tile(harmonics_tangent, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION
                    )
                by_b_KC += (
                    _multiply_tiles(_load_tile(radial_tangent, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION) * t_KC
                )
        _store_tile(by_b, e, ok, c, c_ok, C, by_b_KC)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def bases_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    first, gradient, b, harmonics, radial, weight, b_tangent, harmonics_tangent, radial_tangent,
    by_harmonics, by_radial,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr,
    ROW_TILES: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients by R, and by Y if wanted, of one order of the edges of an atom."""
    atom, order = tl.program_id(0) // L, tl.program_id(0) % L
    m, n = tl.arange(0, TILE_M), tl.arange(0, TILE_N)
    m_ok, n_ok = m < 2 * order + 1, n < N
    m, n = order * order + m, order * N + n
    start, end = tl.load(first + atom), tl.load(first + atom + 1)
    for tile in range(_count_tiles(start, end, TILE_K, ROW_TILES)):
        e = start + tile * TILE_K + tl.arange(0, TILE_K)
        ok = e < end
        by_radial_KN = tl.zeros([TILE_K, TILE_N], WIDE)
        by_harmonics_KM = tl.zeros([TILE_K, TILE_M], WIDE)
        for channel in range(0, C, TILE_C):
            c = channel + tl.arange(0, TILE_C)
            c_ok = c < C
            w_NC = _load_tile(weight, n, n_ok, c, c_ok, C, WIDE)
            g_MC = _load_tile(gradient + atom * (L * L * C), m, m_ok, c, c_ok, C, WIDE)
            b_KC = _load_tile(b, e, ok, c, c_ok, C, WIDE)
            t_KC = _multiply_tiles(_load_tile(harmonics, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION)
            if b_tangent is None:
                bt_KC = b_KC * t_KC
            else:
                b_tangent_KC = _load_tile(b_tangent, e, ok, c, c_ok, C, WIDE)
                bt_KC = b_tangent_KC * t_KC
                if harmonics_tangent is not None:
                    bt_KC += b_KC * _multiply_tiles(
                        _load_tile(harmonics_tangent, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION
                    )
            by_radial_KN += _multiply_tiles(bt_KC, tl.trans(w_NC), PRECISION)
            if by_harmonics is not None:
                s_KC = _multiply_tiles(_load_tile(radial, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION)
                bs_KC = b_KC * s_KC
                if b_tangent is not None:
                    s_tangent_KC = _multiply_tiles(
                        _load_tile(radial_tangent, e, ok, n, n_ok, L * N, WIDE), w_NC, PRECISION
                    )
                    bs_KC = b_tangent_KC * s_KC + b_KC * s_tangent_KC
                by_harmonics_KM += _multiply_tiles(bs_KC, tl.trans(g_MC), PRECISION)
        _store_tile(by_radial, e, ok, n, n_ok, L * N, by_radial_KN)
        if by_harmonics is not None:
            _store_tile(by_harmonics, e, ok, m, m_ok, L * L, by_harmonics_KM)


@triton.jit(do_not_specialize=["atoms"])  # type: ignore[untyped-decorator]  # triton's
def weights_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    first, gradient, b, harmonics, radial, b_tangent, harmonics_tangent, radial_tangent, shares, atoms,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr,
    ROW_TILES: tl.constexpr, ATOMS: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a share of the gradient by W: that of one order, by the edges of some atoms."""
    part, order = tl.program_id(0) // L, tl.program_id(0) % L
    m, n, c = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_C)
    m_ok, n_ok, c_ok = m < 2 * order + 1, n < N, c < C
    m, n = order * order + m, order * N + n
    sums_NC = tl.zeros([TILE_N, TILE_C], WIDE)
    for i in range(ATOMS):
        atom = part * ATOMS + i
        there = atom < atoms
        start, end = tl.load(first + atom, mask=there, other=0), tl.load(first + atom + 1, mask=there, other=0)
        g_MC = _load_tile(gradient + atom * (L * L * C), m, m_ok & there, c, c_ok, C, WIDE)
        for tile in range(_count_tiles(start, end, TILE_K, ROW_TILES)):
            e = start + tile * TILE_K + tl.arange(0, TILE_K)
            ok = e < end
            b_KC = _load_tile(b, e, ok, c, c_ok, C, WIDE)
            t_KC = _multiply_tiles(_load_tile(harmonics, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION)
            bt_KC = b_KC * t_KC
            if b_tangent is not None:
                sums_NC += _multiply_tiles(
                    tl.trans(_load_tile(radial_tangent, e, ok, n, n_ok, L * N, WIDE)), bt_KC, PRECISION
                )
                bt_KC = _load_tile(b_tangent, e, ok, c, c_ok, C, WIDE) * t_KC
                if harmonics_tangent is not None:
                    bt_KC += b_KC * _multiply_tiles(
                        _load_tile(harmonics_tangent, e, ok, m, m_ok, L * L, WIDE), g_MC, PRECISION
                    )
            sums_NC += _multiply_tiles(tl.trans(_load_tile(radial, e, ok, n, n_ok, L * N, WIDE)), bt_KC, PRECISION)
    _store_tile(shares + part * (L * N * C), n, n_ok, c, c_ok, C, sums_NC)


@triton.jit(do_not_specialize=["width"])  # type: ignore[untyped-decorator]  # triton's
def sum_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    x, members, first, sums, width,
    C: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write some columns of the sum of an atom's rows."""
    atom, c = tl.program_id(0), tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    edges = tl.load(first + atom + 1) - tl.load(first + atom)
    sums_KC = tl.zeros([TILE_K, TILE_C], WIDE)
    for start in range(0, edges, TILE_K):
        k = start + tl.arange(0, TILE_K)
        e = tl.load(members + atom.to(tl.int64) * width + k, mask=k < edges, other=0)
        sums_KC += _load_tile(x, e, k < edges, c, c < C, C, WIDE)
    tl.store(sums + atom.to(tl.int64) * C + c, tl.sum(sums_KC, 0).to(sums.dtype.element_ty), mask=c < C)


@triton.jit(do_not_specialize=["edges"])  # type: ignore[untyped-decorator]  # triton's
def harmonics_kernel(unit, harmonics, edges, L: tl.constexpr, TILE_E: tl.constexpr):  # type: ignore[no-untyped-def]  # as above
    """Write the harmonics of some directions in float64, by Schmidt's recursion (see `spherical_harmonics`)."""
    e = tl.program_id(0) * TILE_E + tl.arange(0, TILE_E)
    ok = e < edges
    x = tl.load(unit + 3 * e, mask=ok, other=0).to(tl.float64)
    y = tl.load(unit + 3 * e + 1, mask=ok, other=0).to(tl.float64)
    z = tl.load(unit + 3 * e + 2, mask=ok, other=0).to(tl.float64)
    cosine, sine = 1 + 0 * x, 0 * x
    first = cosine
    for m in tl.static_range(L):
        before, now = 0 * x, first
        for degree in tl.static_range(m, L):
            column = harmonics + e * (L * L) + degree * degree + 2 * m
            tl.store(column, (now * (sine if m > 0 else 1)).to(harmonics.dtype.element_ty), mask=ok)
            if m > 0:
                tl.store(column - 1, (now * cosine).to(harmonics.dtype.element_ty), mask=ok)
            lower = before * (degree * degree - m * m) ** 0.5
            before, now = now, ((2 * degree + 1) * z * now - lower) * ((degree + 1) ** 2 - m * m) ** -0.5
        if m > 0:
            first *= ((2 * m + 1) / (2 * m + 2)) ** 0.5
        cosine, sine = x * cosine - y * sine, x * sine + y * cosine


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def silu_backward_kernel(by_z, by_y, z, sums, size, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    """Write by_z + by_y silu'(z)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < size
    x, by = tl.load(z + i, mask=ok, other=0).to(WIDE), tl.load(by_y + i, mask=ok, other=0).to(WIDE)
    s = tl.sigmoid(x)
    total = tl.load(by_z + i, mask=ok, other=0).to(WIDE) + by * (s + s * x * (1 - s))
    tl.store(sums + i, total.to(sums.dtype.element_ty), mask=ok)


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def silu_double_backward_kernel(by_product, gradient, z, by_z, product, size, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    """Write by_product silu'(z) in its place, by_product gradient silu''(z), and gradient silu'(z)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < size
    x = tl.load(z + i, mask=ok, other=0).to(WIDE)
    by, g = tl.load(by_product + i, mask=ok, other=0).to(WIDE), tl.load(gradient + i, mask=ok, other=0).to(WIDE)
    s = tl.sigmoid(x)
    slope = s + s * x * (1 - s)
    tl.store(by_product + i, (by * slope).to(z.dtype.element_ty), mask=ok)
    tl.store(by_z + i, (by * g * (1 - s) * (2 * slope - s * x)).to(z.dtype.element_ty), mask=ok)
    tl.store(product + i, (g * slope).to(z.dtype.element_ty), mask=ok)
