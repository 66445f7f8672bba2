"""Operations that store little for their second derivatives, which a loss of forces needs.

torch has all of them, but stores each intermediate result, in the forward pass and again in that of the forces. Here
the latter pass, the one that records a graph, gives gradients by messages and basis functions only. Forces do not need
those by weights and shifts; asking for them gives torch's error of a tensor that is not in the graph.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def dense(x: Tensor, weight: Tensor, shift: Tensor | None) -> Tensor:
    """Return the SiLU of x @ weight.T + shift; the shift may differ from row to row.

    The result has autocast's type under autocast.
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    x, weight = x.to(dtype), weight.to(dtype)
    z = x @ weight.T if shift is None else torch.addmm(shift.to(dtype), x, weight.T)
    y: Tensor = _Dense.apply(x, z, weight)
    return y


def gated(m: Tensor, basis: Tensor, weight: Tensor) -> Tensor:
    """Return m (basis @ weight), in m's type: each channel of m times a weighted sum of the basis.

    m: (E, C). basis: (..., E, N), weight: (..., N, C).
    """
    product: Tensor = _Gated.apply(m, basis.to(m.dtype), weight.to(m.dtype))
    return product


def moved(x: Tensor, there: Tensor, back: Tensor) -> Tensor:
    """Return the rows `there` of x; `back` gives the row of the result that each row of x became.

    Rows of x that `there` does not name must be of no use, and rows of the result that `back` does not name must be
    multiplied by 0 later: then the gradient comes back by the same operation, without an addition by index.
    """
    y: Tensor = _Moved.apply(x, there, back)
    return y


class _Dense(torch.autograd.Function):
    """SiLU of z = x @ weight.T + shift.

    The gradient goes to z, and from there on as torch has it; but where a graph is recorded straight to x, so that the
    gradient by z need not be kept.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(z, weight)
        return F.silu(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        z, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _DenseSlope.apply(gradient, z, weight), None, None
        return None, torch.ops.aten.silu_backward(gradient, z), None


class _DenseSlope(torch.autograd.Function):
    """The gradient of a dense layer by x."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, z, weight)
        return torch.ops.aten.silu_backward(gradient, z) @ weight

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradient, z, weight = ctx.saved_tensors
        by_product = second @ weight.T
        s = torch.sigmoid(z)
        y = s * z
        slope = torch.lerp(y, y.new_ones(()), s)  # s + y (1 - s)
        curvature = y.neg_().add_(slope, alpha=2)
        curvature.addcmul_(curvature, s, value=-1)  # (1 - s) (2 slope - y)
        by_z = curvature.mul_(gradient).mul_(by_product)
        by_gradient = by_product.mul_(slope)
        return by_gradient, by_z, slope.mul_(gradient).T @ second


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, m: Tensor, basis: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(m, basis, weight)
        return m * (basis @ weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        m, basis, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            by_m = _Gated.apply(gradient, basis, weight).sum_to_size(m.shape)
            return by_m, _GatedBasis.apply(gradient, m, weight), None
        by_gate = gradient * m
        by_m = (basis @ weight).mul_(gradient).sum_to_size(m.shape)
        return by_m, by_gate @ weight.mT, basis.mT @ by_gate


class _GatedBasis(torch.autograd.Function):
    """The gradient of a gated product by the basis."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, m: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, m, weight)
        return (gradient * m) @ weight.mT

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradient, m, weight = ctx.saved_tensors
        gate = second @ weight
        by_weight = second.mT @ (gradient * m)
        return gate * m, gate.mul_(gradient).sum_to_size(m.shape), by_weight


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(there, back)
        return x.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        there, back = ctx.saved_tensors
        return moved(gradient, back, there), None, None
