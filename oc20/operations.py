"""Operations that store little for their second derivatives, which a loss of forces needs.

torch has all of them, but stores each intermediate result, in the forward pass and again in that of the forces. Here
the latter pass, the one that records a graph, gives gradients by messages and basis functions only. Forces do not need
those by weights and shifts; asking for them gives torch's error of a tensor that is not in the graph.

Sums over triplets of atoms k -> j -> i without a list of triplets.

The network needs, for each edge ji and channel c,

    out[ji, c] = sum over k of b[kj, c] * sum over l of S_l[kj, c] P_l(cos of the angle between kj and ji)

where S_l is computed from the part of the spherical basis that depends on the distance. As P_l is a sum over m of
products of the spherical harmonics of the two directions, the sum over k can be taken first, once for each atom j:

    M[j, c, lm] = sum over k of b[kj, c] S_l[kj, c] Y_lm[kj],      out[ji, c] = sum over lm of M[j, c, lm] Y_lm[ji]

With some fifty neighbours that is a fifth of the operations, and nothing is as long as the list of triplets. The
sum also includes the pair straight back, which is not a triplet; its angle is known, P_l(-1) = (-1)^l, so that it is
subtracted edge by edge.

Shapes: A atoms, E edges, C channels; L orders, M = L^2 harmonics, N roots; K and D places in the tables of incoming and
outgoing edges, P = A K.

"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from common.candidate import Candidate
from common.precision import product_dtype
from oc20.basis import BASIS, spherical_harmonics
from oc20.graphs import ROWS, EdgeTable, Graph
from oc20.settings import Kernels

if TYPE_CHECKING:
    from oc20.kernels import Fused


SUMS: Final = Candidate("oc20-sums")
"""A kernel adds the gradients by the sum z of a dense layer, from the energies' pass and from that of the forces."""


def dense_silu(x: Tensor, weight: Tensor, shift: Tensor | None, kernels: Kernels = "torch") -> Tensor:
    """Return the SiLU of x @ weight.T + shift; the shift may differ from row to row.

    The result has autocast's type under autocast. kernels: of the second derivative; the others are a single operation
    of torch each.
    """
    dtype = product_dtype(x)
    x, weight = x.to(dtype), weight.to(dtype)
    z = x @ weight.T if shift is None else torch.addmm(shift.to(dtype), x, weight.T)
    return _Dense.apply(x, z, weight, kernels)[0]


def gate_rows(m: Tensor, basis: Tensor, weight: Tensor) -> Tensor:
    """Return m (basis @ weight), in m's type: each channel of m times a weighted sum of the basis.

    m: (E, C). basis: (..., E, N), weight: (..., N, C).
    """
    return _Gated.apply(m, basis.to(m.dtype), weight.to(m.dtype))


def move_rows(x: Tensor, there: Tensor, back: Tensor) -> Tensor:
    """Return the rows `there` of x; `back` gives the row of the result that each row of x became.

    Rows of x that `there` does not name must be of no use, and rows of the result that `back` does not name must be
    multiplied by 0 later: then the gradient comes back by the same operation, without an addition by index.
    """
    return _Moved.apply(x, there, back)


def sum_edges(x_E: Tensor, edges: EdgeTable, atoms_E: Tensor, kernels: Kernels = "torch") -> Tensor:
    """Return for each atom the sum of the rows (E, ...) of its edges, added in the same order in each run.

    edges: by atom; atoms_E: the atom of each edge.
    """
    by_kernel = kernels == "triton" and ROWS.enabled
    if x_E.is_cpu and not by_kernel:  # where index_add keeps the order, too
        return x_E.new_zeros(len(edges.members), *x_E.shape[1:]).index_add(0, atoms_E, x_E)
    return _AtomRows.apply(x_E, True, edges, atoms_E, by_kernel)


def hand_out_rows(x_A: Tensor, edges: EdgeTable, atoms_E: Tensor, kernels: Kernels = "torch") -> Tensor:
    """Return for each edge the row (A, ...) of its atom: the counterpart of `sum_edges`."""
    by_kernel = kernels == "triton" and ROWS.enabled
    if x_A.is_cpu and not by_kernel:
        return x_A.index_select(0, atoms_E)
    return _AtomRows.apply(x_A, False, edges, atoms_E, by_kernel)


class _Dense(torch.autograd.Function):
    """SiLU of z = x @ weight.T + shift, and z.

    The gradient goes to z, and from there on as torch has it; but where a graph is recorded straight to x, so that the
    gradient by z need not be kept. The second result is what `_DenseSlope` is differentiated by: so both gradients by
    z, which are None where there is none, arrive here together.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, weight: Tensor, kernels: Kernels) -> tuple[Tensor, Tensor]:
        ctx.kernels, result = kernels, z.detach()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(result, weight)
        return F.silu(z), result

    @staticmethod
    def backward(ctx: Any, by_y: Tensor | None, by_z: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        z, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _DenseSlope.apply(by_y, z, weight, ctx.kernels), None, None, None
        return None, _add_silu_backward(by_z, by_y, z, ctx.kernels), None, None


class _DenseSlope(torch.autograd.Function):
    """The gradient of a dense layer by x."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, z: Tensor, weight: Tensor, kernels: Kernels) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(gradient, z, weight)
        return torch.ops.aten.silu_backward(gradient, z) @ weight

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        gradient, z, weight = ctx.saved_tensors
        by_gradient, by_z, product = _silu_double_backward(second @ weight.T, gradient, z, ctx.kernels)
        return by_gradient, by_z, product.T @ second, None


def _add_silu_backward(by_z: Tensor | None, by_y: Tensor | None, z: Tensor, kernels: Kernels) -> Tensor | None:
    """Return by_z + by_y silu'(z), where None is 0."""
    if by_y is None:
        return by_z
    if by_z is not None and kernels == "triton" and SUMS.enabled:
        from oc20.kernels import add_silu_backward  # an optional package, slow to import

        return add_silu_backward(by_z, by_y, z)
    product = torch.ops.aten.silu_backward(by_y, z)
    return product if by_z is None else product.add_(by_z)


def _silu_double_backward(
    by_product: Tensor, gradient: Tensor, z: Tensor, kernels: Kernels
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by `gradient` and z of gradient silu'(z), given that by this product, and the product.

    by_product may be overwritten.
    """
    if kernels == "triton":
        from oc20.kernels import silu_double_backward  # an optional package, slow to import

        return silu_double_backward(by_product, gradient, z)
    s = torch.sigmoid(z)
    y = s * z
    slope = torch.lerp(y, y.new_ones(()), s)  # s + y (1 - s)
    curvature = y.neg_().add_(slope, alpha=2)
    curvature.addcmul_(curvature, s, value=-1)  # (1 - s) (2 slope - y)
    by_z = curvature.mul_(gradient).mul_(by_product)
    by_gradient = by_product.mul_(slope)
    return by_gradient, by_z, slope.mul_(gradient)


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
        return move_rows(gradient, back, there), None, None


class _AtomRows(torch.autograd.Function):
    """Sums of the rows of an atom's edges, or for each edge the row of its atom: the gradient of one is the other.

    Through the table: index_add, and index_select's gradient, add in any order on a GPU.
    """

    @staticmethod
    def forward(  # noqa: PLR0913  # what both ways need
        ctx: Any, x: Tensor, sums: bool, edges: EdgeTable, atoms: Tensor, by_kernel: bool
    ) -> Tensor:
        ctx.others = not sums, edges, atoms, by_kernel
        if not sums:
            return x.index_select(0, atoms)
        if by_kernel:
            from oc20.kernels import sum_rows  # an optional package, slow to import

            return sum_rows(x, edges)
        table = x.new_zeros(edges.members.numel(), *x.shape[1:]).index_copy_(0, edges.slots, x)
        return table.unflatten(0, edges.members.shape).sum(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _AtomRows.apply(gradient, *ctx.others), None, None, None, None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Distances and directions of the edges of a graph, also by atom; the same for all blocks of the network.

    radial_ELN: the spherical basis's part that depends on the distance.
    incoming: the edges k -> j, which give the moments.
    outgoing_ADM: the harmonics of the edges j -> i; 0 at empty places.
    """

    graph: Graph
    radial_ELN: Tensor
    incoming: Tabled | Fused
    outgoing_ADM: Tensor

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        radial_ELN: Tensor,
        unit_E3: Tensor,
        kernels: Kernels = "torch",
        dtype: torch.dtype = torch.float32,
    ) -> Surroundings:
        """Return the surroundings in a graph, given these values and directions (centre to source) of its edges.

        dtype: in which the run computes products; kernels choose the precision of theirs by it.
        """
        orders = radial_ELN.shape[1]
        if kernels == "triton" and BASIS.enabled and not unit_E3.requires_grad:
            from oc20.kernels import compute_harmonics  # an optional package, slow to import

            harmonics_LEM = [compute_harmonics(unit_E3, orders)]
        else:
            harmonics_LEM = spherical_harmonics(unit_E3, orders)
        harmonics_EM = torch.cat(harmonics_LEM, 1)
        incoming: Tabled | Fused
        if kernels == "triton":
            from oc20.kernels import Fused  # an optional package, slow to import

            incoming = Fused.from_graph(graph, radial_ELN, harmonics_EM, dtype)
        else:
            incoming = Tabled.from_graph(graph, radial_ELN, harmonics_LEM)
        return cls(graph, radial_ELN, incoming, _fill_table(harmonics_EM, graph.outgoing))

    def sum_triplets(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return the sum for each edge ji (E, C).

        b_EC: what the edges k -> j send.
        weight_LNC: gives S_l from the basis.
        """
        sums_ADC = self.outgoing_ADM @ self.incoming.sum_moments(b_EC, weight_LNC)
        table = self.graph.outgoing
        sums_EC = move_rows(sums_ADC.flatten(0, 1), table.slots, table.members.flatten())
        return sums_EC - self._straight_back(b_EC, weight_LNC)

    def _straight_back(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return what the edge from i to j contributes to the sum of the edge from j to i, where both exist."""
        reverse_E = self.graph.reverse
        signs_L11 = (1 - 2 * (torch.arange(len(weight_LNC), device=b_EC.device) % 2))[:, None, None]
        sent_EC = gate_rows(b_EC, self.radial_ELN.flatten(1), (signs_L11 * weight_LNC).flatten(0, 1))
        both_E1 = (reverse_E != torch.arange(len(reverse_E), device=b_EC.device))[:, None]
        return move_rows(sent_EC, reverse_E, reverse_E) * both_E1


@dataclass(frozen=True, slots=True)
class Tabled:
    """Distances and directions of the edges k -> j in their table; torch's own operations compute the moments.

    radial_LPN: the spherical basis's part that depends on the distance.
    harmonics_LAMK: for each order the harmonics, (A, 2l + 1, K); 0 at empty places.
    """

    table: EdgeTable
    radial_LPN: Tensor
    harmonics_LAMK: list[Tensor]

    @classmethod
    def from_graph(cls, graph: Graph, radial_ELN: Tensor, harmonics_LEM: list[Tensor]) -> Tabled:
        """Return the tables of a graph whose edges have these values."""
        table = graph.incoming
        return cls(
            table,
            _spread_rows(radial_ELN, table).transpose(0, 1),
            [_fill_table(y_EM, table).mT for y_EM in harmonics_LEM],
        )

    def sum_moments(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return the moments (A, M, C). See `Surroundings.sum_triplets`."""
        sent_LPC = gate_rows(_spread_rows(b_EC, self.table), self.radial_LPN, weight_LNC)
        sent_LAKC = sent_LPC.unflatten(1, self.table.members.shape)
        moments_LAMC = [y_AMK @ sent_AKC for y_AMK, sent_AKC in zip(self.harmonics_LAMK, sent_LAKC, strict=True)]
        return torch.cat(moments_LAMC, 1)


def _spread_rows(x_E: Tensor, table: EdgeTable) -> Tensor:
    """Return rows (E, ...) at their places in the flattened table, and finite ones at its empty places."""
    return move_rows(x_E, table.members.flatten(), table.slots)


def _fill_table(x_EM: Tensor, table: EdgeTable) -> Tensor:
    """Return rows at their places in the table, and 0 at its empty places: (A, K, M)."""
    empty = x_EM.new_zeros(table.members.numel(), x_EM.shape[1])
    return empty.index_copy(0, table.slots, x_EM).unflatten(0, table.members.shape)
