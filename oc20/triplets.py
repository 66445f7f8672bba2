"""Sums over triplets of atoms k -> j -> i without a list of triplets.

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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oc20.basis import spherical_harmonics
from oc20.graphs import EdgeTable, Graph
from oc20.operations import gate_rows, move_rows
from oc20.settings import Kernels

if TYPE_CHECKING:
    from oc20.kernels import Fused


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
    def from_graph(cls, graph: Graph, radial_ELN: Tensor, unit_E3: Tensor, kernels: Kernels = "torch") -> Surroundings:
        """Return the surroundings in a graph, given these values and directions (centre to source) of its edges."""
        harmonics_LEM = spherical_harmonics(unit_E3, radial_ELN.shape[1])
        harmonics_EM = torch.cat(harmonics_LEM, 1)
        incoming: Tabled | Fused
        if kernels == "triton":
            from oc20.kernels import Fused  # an optional package, slow to import

            incoming = Fused.from_graph(graph, radial_ELN, harmonics_EM)
        else:
            incoming = Tabled.from_graph(graph, radial_ELN, harmonics_LEM)
        return cls(graph, radial_ELN, incoming, _fill_table(harmonics_EM, graph.outgoing))

    def sum_triplets(self, b_EC: Tensor, weight_LNC: Tensor) -> Tensor:
        """Return the sum for each edge ji (E, C).

        b_EC: what the edges k -> j send.
        weight_LNC: gives S_l from the basis.
        """
        sums_ADC = self.outgoing_ADM @ self.incoming.sum_moments(b_EC, weight_LNC)
        return _gather_rows(sums_ADC, self.graph.outgoing) - self._straight_back(b_EC, weight_LNC)

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


def _gather_rows(x_AK: Tensor, table: EdgeTable) -> Tensor:
    """Return the rows (E, ...) of the edges, given the rows of a table (A, K, ...)."""
    return move_rows(x_AK.flatten(0, 1), table.slots, table.members.flatten())


def _fill_table(x_EM: Tensor, table: EdgeTable) -> Tensor:
    """Return rows at their places in the table, and 0 at its empty places: (A, K, M)."""
    empty = x_EM.new_zeros(table.members.numel(), x_EM.shape[1])
    return empty.index_copy(0, table.slots, x_EM).unflatten(0, table.members.shape)
