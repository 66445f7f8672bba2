"""The moments of triplets.py by two Triton kernels, for GPUs, storing nothing of size edges x channels x orders.

For each edge e of atom j, with s = sum over n of R W and t = sum over m of Y G, where G is a gradient by the moments,

    M[j, lm, c] = sum over e of Y[e, lm] b[e, c] s[e, l, c]
    gradients by b: sum over l of s t    R: sum over c of W b t    W: sum over e of R b t    Y: sum over c of G b s

All are one product of five factors, summed over what is not asked for. The first kernel sums over edges, for an atom
and an order at a time; the second makes the gradients, for some edges of an atom at a time. Training differentiates
the gradients again: along tangents (vb, vY, vR), each product becomes the sum of those with one factor replaced by its
tangent, and that is all the kernels do differently then. Each program writes rows of its own, but for the gradient by
W, of which each makes a share and torch adds them: no atomics, equal results in each run.

Edges are read through the table of incoming edges, so that nothing is as long as its empty places either. Sums are
float32, or float64 if all the rest is, and no tensor cores are used: their TF32 is too coarse, and with matrices of 6
or 13 rows they have little to win.

Memory traffic, counted and not timed, for each edge in an interaction block of the published network: torch's own
operations read and write some 2,300 numbers forward, 5,500 for the forces and 19,300 backward through both; here it is
220, 320 and 1,600, if what programs share stays in the cache. The tests run the kernels through Triton's interpreter
and compile them; on a GPU they have **not been run yet**, so that nothing is known of their speed.

Shapes: A atoms, E edges, C channels; L orders, M = L^2 harmonics, N roots; K places in the table, of which a program
takes a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from oc20.graphs import Graph

LARGEST_TILE: Final = 64
"""Places of the table that a program processes at a time; the published graphs have 50."""


@dataclass(frozen=True, slots=True)
class Fused:
    """Distances and directions of the edges k -> j of each atom j; the kernels compute the moments.

    members_AK: edges by centre; count_A: how many each atom has, int32.
    harmonics_EM, radial_ELN: of the edges.
    """

    members_AK: Tensor
    count_A: Tensor
    harmonics_EM: Tensor
    radial_ELN: Tensor

    @classmethod
    def of(cls, graph: Graph, radial_ELN: Tensor, harmonics_EM: Tensor) -> Fused:
        """Return the input of the kernels for a graph whose edges have these values."""
        targets, members_AK = graph.targets, graph.incoming.members
        count_A = torch.zeros(len(members_AK), dtype=torch.int32, device=targets.device)
        count_A = count_A.index_add(0, targets, torch.ones_like(targets, dtype=torch.int32))
        return cls(members_AK.contiguous(), count_A, harmonics_EM.contiguous(), radial_ELN.contiguous())

    def moments(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return the moments (A, M, C), in b's type. See `oc20.triplets.Surroundings.sums`."""
        factors = (b_EC.contiguous(), self.harmonics_EM, self.radial_ELN, weight_LNC.contiguous())
        moments_AMC: Tensor = _Moments.apply(self.members_AK, self.count_A, *factors)
        return moments_AMC


class _Moments(torch.autograd.Function):
    """The moments. As in `oc20.operations`, no gradient by W is needed where a graph is recorded."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, count: Tensor, *factors: Tensor) -> Tensor:
        ctx.save_for_backward(members, count, *factors)
        return _moments(members, count, factors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        by_harmonics = ctx.needs_input_grad[3]
        if torch.is_grad_enabled():
            return None, None, *_Slopes.apply(by_harmonics, gradient.contiguous(), *ctx.saved_tensors), None
        members, count, *factors = ctx.saved_tensors
        return None, None, *_slopes(members, count, (gradient.contiguous(), *factors), wanted=(by_harmonics, True))


class _Slopes(torch.autograd.Function):
    """The gradients of the moments by b, Y (None if not needed) and R."""

    @staticmethod
    def forward(
        ctx: Any, by_harmonics: bool, gradient: Tensor, members: Tensor, count: Tensor, *factors: Tensor
    ) -> tuple[Tensor | None, ...]:
        ctx.save_for_backward(members, count, gradient, *factors)
        return _slopes(members, count, (gradient, *factors), wanted=(by_harmonics, False))[:3]

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        members, count, *factors = ctx.saved_tensors
        tangents = tuple(v if v is None else v.contiguous() for v in second)
        by_gradient = _moments(members, count, factors[1:], tangents)
        by_factors = _slopes(members, count, factors, tangents, (ctx.needs_input_grad[5], True))
        return None, by_gradient, None, None, *by_factors


def _moments(members: Tensor, count: Tensor, factors: Any, tangents: Any = (None, None, None)) -> Tensor:
    """Return the moments (A, M, C) of the factors b, Y, R and W, or their derivative along tangents of b, Y and R."""
    b, harmonics, _, weight = factors
    atoms, orders = len(members), len(weight)
    moments = b.new_empty(atoms, harmonics.shape[1], b.shape[1])
    if moments.numel():
        arguments = (*factors, *tangents, members, count, moments, members.shape[1])
        sizes = _sizes(members, b, weight)
        warps = _warps(sizes["TILE_M"], sizes["TILE_C"], each=32)  # one, which adds without waiting for another
        _moments_kernel[orders, atoms](*arguments, **sizes, num_warps=warps)
    return moments


def _slopes(
    members: Tensor, count: Tensor, factors: Any, tangents: Any = (None, None, None), wanted: Any = (True, True)
) -> tuple[Tensor | None, ...]:
    """Return the gradients by b, Y, R and W of the moments times G, given G and these, or of that along tangents.

    wanted: whether those by Y and W are to be made; None stands for the others.
    """
    _, b, harmonics, radial, weight = factors
    sizes = _sizes(members, b, weight)
    tiles = triton.cdiv(members.shape[1], sizes["TILE_K"])
    by_b, by_radial = torch.empty_like(b), torch.empty_like(radial)
    by_harmonics = torch.empty_like(harmonics) if wanted[0] else None
    shares = b.new_empty(len(members) * tiles, *weight.shape, dtype=_wide(b)) if wanted[1] else None
    if b.numel():
        arguments = (*factors, *tangents, members, count, by_b, by_harmonics, by_radial, shares, members.shape[1])
        warps = _warps(sizes["TILE_K"], sizes["TILE_C"], each=8)
        _slopes_kernel[len(members), tiles](*arguments, **sizes, num_warps=warps)
    return by_b, by_harmonics, by_radial, None if shares is None else shares.sum(0).to(weight.dtype)


def _wide(b: Tensor) -> torch.dtype:
    return torch.float64 if b.dtype == torch.float64 else torch.float32


def _sizes(members: Tensor, b: Tensor, weight: Tensor) -> dict[str, Any]:
    """Return the sizes for which both kernels are compiled."""
    orders, roots, channels = weight.shape
    tiles = {"M": 2 * orders - 1, "N": roots, "C": channels, "K": min(members.shape[1], LARGEST_TILE)}
    return {
        "L": orders,
        "N": roots,
        "C": channels,
        **{f"TILE_{name}": triton.next_power_of_2(max(1, size)) for name, size in tiles.items()},
        "WIDE": tl.float64 if _wide(b) == torch.float64 else tl.float32,
    }


def _warps(rows: int, columns: int, each: int) -> int:
    """Return the number of warps for a tile such that each of their threads has about `each` of its numbers."""
    return max(1, min(16, rows * columns // (32 * each)))


# -- on the GPU ----------------------------------------------------------------------------------------------
# Names are those of the formulas above, in types as wide as the sums; what a tile has beyond the data is 0.


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _read(start, offsets, ok, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # types come with the arguments
    return tl.load(start + offsets, mask=ok, other=0).to(WIDE)


@triton.jit
def _write(start, offsets, ok, values):  # type: ignore[no-untyped-def]  # as above
    tl.store(start + offsets, values.to(start.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=["width"])  # type: ignore[untyped-decorator]  # triton's
def _moments_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    b, harmonics, radial, weight, b_tangent, harmonics_tangent, radial_tangent, members, count, moments, width,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    order, atom = tl.program_id(0), tl.program_id(1)
    m, n, c = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_C)
    m_ok, n_ok, c_ok = m < 2 * order + 1, n < N, c < C
    m, n = order * order + m, order * N + n
    w_NC = _read(weight, n[:, None] * C + c[None, :], n_ok[:, None] & c_ok[None, :], WIDE)
    sums_MC = tl.zeros([TILE_M, TILE_C], WIDE)
    for k in range(tl.load(count + atom)):
        e = tl.load(members + atom * width + k)
        b_C = _read(b, e * C + c, c_ok, WIDE)
        y_M = _read(harmonics, e * L * L + m, m_ok, WIDE)
        s_C = tl.sum(_read(radial, e * L * N + n, n_ok, WIDE)[:, None] * w_NC, 0)
        sent_C = b_C * s_C
        if b_tangent is not None:
            if harmonics_tangent is not None:
                sums_MC += _read(harmonics_tangent, e * L * L + m, m_ok, WIDE)[:, None] * sent_C[None, :]
            s_tangent_C = tl.sum(_read(radial_tangent, e * L * N + n, n_ok, WIDE)[:, None] * w_NC, 0)
            sent_C = _read(b_tangent, e * C + c, c_ok, WIDE) * s_C + b_C * s_tangent_C
        sums_MC += y_M[:, None] * sent_C[None, :]
    _write(moments + atom * L * L * C, m[:, None] * C + c[None, :], m_ok[:, None] & c_ok[None, :], sums_MC)


@triton.jit(do_not_specialize=["width"])  # type: ignore[untyped-decorator]  # triton's
def _slopes_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above; no objects here
    gradient, b, harmonics, radial, weight, b_tangent, harmonics_tangent, radial_tangent, members, count,
    by_b, by_harmonics, by_radial, by_weight, width,
    L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_C: tl.constexpr, TILE_K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    atom, tile = tl.program_id(0), tl.program_id(1)
    k, c = tile * TILE_K + tl.arange(0, TILE_K), tl.arange(0, TILE_C)
    k_ok, c_ok = k < tl.load(count + atom), c < C
    e = tl.load(members + atom * width + k, mask=k_ok, other=0)
    at, ok = e[:, None] * C + c[None, :], k_ok[:, None] & c_ok[None, :]
    b_KC = _read(b, at, ok, WIDE)
    if b_tangent is not None:
        b_tangent_KC = _read(b_tangent, at, ok, WIDE)
    by_b_KC = tl.zeros([TILE_K, TILE_C], WIDE)
    for order in range(L):
        s_KC = tl.zeros([TILE_K, TILE_C], WIDE)
        s_tangent_KC = tl.zeros([TILE_K, TILE_C], WIDE)
        for n in range(order * N, order * N + N):
            w_C = _read(weight, n * C + c, c_ok, WIDE)[None, :]
            s_KC += _read(radial, e * L * N + n, k_ok, WIDE)[:, None] * w_C
            if b_tangent is not None:
                s_tangent_KC += _read(radial_tangent, e * L * N + n, k_ok, WIDE)[:, None] * w_C
        t_KC = tl.zeros([TILE_K, TILE_C], WIDE)
        t_tangent_KC = tl.zeros([TILE_K, TILE_C], WIDE)
        for m in range(order * order, (order + 1) * (order + 1)):
            g_C = _read(gradient, (atom * L * L + m) * C + c, c_ok, WIDE)[None, :]
            t_KC += _read(harmonics, e * L * L + m, k_ok, WIDE)[:, None] * g_C
            if harmonics_tangent is not None:
                t_tangent_KC += _read(harmonics_tangent, e * L * L + m, k_ok, WIDE)[:, None] * g_C
        if b_tangent is not None:
            by_b_KC += s_tangent_KC * t_KC + s_KC * t_tangent_KC
            bs_KC = b_tangent_KC * s_KC + b_KC * s_tangent_KC
            bt_KC = b_tangent_KC * t_KC + b_KC * t_tangent_KC
        else:
            by_b_KC += s_KC * t_KC
            bs_KC, bt_KC = b_KC * s_KC, b_KC * t_KC
        for n in range(order * N, order * N + N):
            w_C = _read(weight, n * C + c, c_ok, WIDE)[None, :]
            _write(by_radial, e * L * N + n, k_ok, tl.sum(bt_KC * w_C, 1))
            if by_weight is not None:
                terms_KC = _read(radial, e * L * N + n, k_ok, WIDE)[:, None] * bt_KC
                if b_tangent is not None:
                    terms_KC += _read(radial_tangent, e * L * N + n, k_ok, WIDE)[:, None] * b_KC * t_KC
                share = by_weight + (atom * tl.num_programs(1) + tile) * L * N * C
                _write(share, n * C + c, c_ok, tl.sum(terms_KC, 0))
        if by_harmonics is not None:
            for m in range(order * order, (order + 1) * (order + 1)):
                g_C = _read(gradient, (atom * L * L + m) * C + c, c_ok, WIDE)[None, :]
                _write(by_harmonics, e * L * L + m, k_ok, tl.sum(bs_KC * g_C, 1))
    _write(by_b, at, ok, by_b_KC)
