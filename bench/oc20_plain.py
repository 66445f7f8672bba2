"""The peer of `bench/oc20.py`: DimeNet++ written plainly from its equations, with a list of all triplets.

    python bench/oc20_plain.py CASE

Independent of oc20/ but for the frames: torch's modules, float32 or bf16 by its autocast, forces by autograd, AdamW.
The list of triplets is made once, before the steps; the reference makes it in each.

Shapes: A atoms, E edges, T triplets; H hidden channels, C channels of the sums over triplets, R radial functions, N of
each of L orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from oc20_frames import frames, sizes
from steps import autocast_plainly, facts, timed
from torch import Tensor, nn
from workers import given_case, serve

ELEMENTS, STD = 95, 2.887317180633545


@dataclass
class Atoms:
    """A batch: atoms, edges from sources to targets, and triplets, by their edges k -> j and j -> i.

    shift: vectors across the cells' borders. The loss counts the forces of free atoms.
    """

    numbers_A: Tensor
    pos_A3: Tensor
    force_A3: Tensor
    free_A: Tensor
    source_E: Tensor
    target_E: Tensor
    shift_E3: Tensor
    kj_T: Tensor
    ji_T: Tensor


def triplets(atoms: int, source: Tensor, target: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """Return the edges kj and ji of all triplets k -> j -> i, but for those with i = k in the same image."""
    order, degree = torch.argsort(target, stable=True), torch.bincount(target, minlength=atoms)
    counts = degree[source]
    ji = torch.repeat_interleave(torch.arange(len(source)), counts)
    place = torch.arange(len(ji)) - (counts.cumsum(0) - counts)[ji]
    kj = order[(degree.cumsum(0) - degree)[source[ji]] + place]
    back = (source[kj] == target[ji]) & (offset[kj] + offset[ji] == 0).all(1)
    return kj[~back], ji[~back]


def joined(batch: Any) -> Atoms:
    """Return the frames as one batch."""
    starts = np.cumsum([0, *(len(frame.numbers) for frame in batch)])
    edges = torch.tensor(np.concatenate([frame.edges + start for frame, start in zip(batch, starts, strict=False)]))
    source, target = edges.long().unbind(1)
    shifts, offsets, pos, force, numbers, fixed = (
        torch.tensor(np.concatenate(parts))
        for parts in (
            [frame.offsets.astype(np.float32) @ frame.cell for frame in batch],
            *([getattr(frame, name) for frame in batch] for name in ("offsets", "pos", "force", "numbers", "fixed")),
        )
    )
    listed = triplets(len(numbers), source, target, offsets.int())
    return Atoms(numbers.long(), pos, force, ~fixed, source, target, shifts, *listed)


# -- basis functions -----------------------------------------------------------------------------------------


def bessel(order: int, t: Any, sin: Callable[[Any], Any], cos: Callable[[Any], Any]) -> list[Any]:
    """Return the spherical Bessel functions j_0 to j_order of t, by their recursion."""
    values = [sin(t) / t, sin(t) / t**2 - cos(t) / t]
    for degree in range(1, order):
        values.append((2 * degree + 1) / t * values[-1] - values[-2])
    return values


def root(order: int, low: float, high: float) -> float:
    """Return the root of j_order that lies between, by halving."""
    sign = bessel(order, low, math.sin, math.cos)[order]
    for _ in range(60):
        middle = (low + high) / 2
        same = bessel(order, middle, math.sin, math.cos)[order] * sign > 0
        low, high = (middle, high) if same else (low, middle)
    return (low + high) / 2


class Basis(nn.Module):
    """Functions of distance x over the cutoff, and of the angle between two edges."""

    def __init__(self, radial: int, spherical: int) -> None:
        super().__init__()
        self.radial, self.spherical = radial, spherical
        self.frequencies = nn.Parameter(math.pi * torch.arange(1.0, radial + 1))
        rows = [[math.pi * n for n in range(1, radial + spherical)]]
        for order in range(1, spherical):  # between two roots of an order lies one of the next
            rows.append([root(order, low, high) for low, high in pairwise(rows[-1])])
        scales = []
        for order, row in enumerate(rows):
            after = (bessel(order + 1, z, math.sin, math.cos)[order + 1] for z in row[:radial])
            scales.append([math.sqrt(2) / abs(j) * math.sqrt((2 * order + 1) / (4 * math.pi)) for j in after])
        roots = [row[:radial] for row in rows]
        self.register_buffer("roots_LN", torch.tensor(roots, dtype=torch.float64), persistent=False)
        self.register_buffer("scales_LN", torch.tensor(scales), persistent=False)

    @staticmethod
    def envelope(x: Tensor) -> Tensor:
        return (1 / x - 28 * x**5 + 48 * x**6 - 21 * x**7) * (x < 1)

    def of_distance(self, x_E: Tensor) -> tuple[Tensor, Tensor]:
        """Return the radial basis (E, R), and the spherical one's part that depends on the distance (E, L, N)."""
        u_E1 = self.envelope(x_E)[:, None]
        t_ELN = x_E.double()[:, None, None] * self.roots_LN  # the recursion loses digits
        values = [bessel(order, t_EN, torch.sin, torch.cos)[order] for order, t_EN in enumerate(t_ELN.unbind(1))]
        distance_ELN = u_E1[..., None] * self.scales_LN * torch.stack(values, 1).float()
        return u_E1 * torch.sin(self.frequencies * x_E[:, None]), distance_ELN

    def of_angle(self, angle_T: Tensor) -> Tensor:
        """Return the Legendre polynomials of the cosine (T, L)."""
        z_T = angle_T.cos()
        values = [torch.ones_like(z_T), z_T]
        for degree in range(1, self.spherical - 1):
            values.append(((2 * degree + 1) * z_T * values[-1] - degree * values[-2]) / (degree + 1))
        return torch.stack(values[: self.spherical], 1)


# -- the network ---------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """x + SiLU(L2 SiLU(L1 x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.layers(x)
        return y


class Embedding(nn.Module):
    """The message of an edge, from its two elements and its length."""

    def __init__(self, hidden: int, radial: int) -> None:
        super().__init__()
        self.element = nn.Embedding(ELEMENTS, hidden)
        self.rbf, self.whole = nn.Linear(radial, hidden), nn.Linear(3 * hidden, hidden)

    def forward(self, atoms: Atoms, rbf_ER: Tensor) -> Tensor:
        e_AH = self.element(atoms.numbers_A)
        parts = e_AH[atoms.target_E], e_AH[atoms.source_E], F.silu(self.rbf(rbf_ER))
        return F.silu(self.whole(torch.cat(parts, 1)))


class Interaction(nn.Module):
    """The message of an edge learns from those of the edges before it."""

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__()
        hidden, narrow, basis = model["hidden"], model["interaction"], model["basis"]
        functions = model["spherical"] * model["radial"]
        self.rbf = nn.Sequential(nn.Linear(model["radial"], basis, bias=False), nn.Linear(basis, hidden, bias=False))
        self.sbf = nn.Sequential(nn.Linear(functions, basis, bias=False), nn.Linear(basis, narrow, bias=False))
        self.ji, self.kj = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.down, self.up = nn.Linear(hidden, narrow, bias=False), nn.Linear(narrow, hidden, bias=False)
        self.before = nn.Sequential(*(Residual(hidden) for _ in range(model["before_skip"])))
        self.skip = nn.Linear(hidden, hidden)
        self.after = nn.Sequential(*(Residual(hidden) for _ in range(model["after_skip"])))

    def forward(self, m_EH: Tensor, rbf_ER: Tensor, sbf_TF: Tensor, atoms: Atoms) -> Tensor:
        b_EC = F.silu(self.down(F.silu(self.kj(m_EH)) * self.rbf(rbf_ER)))
        sent_TC = b_EC[atoms.kj_T] * self.sbf(sbf_TF)
        sums_EC = torch.zeros_like(b_EC).index_add(0, atoms.ji_T, sent_TC)
        h_EH = F.silu(self.ji(m_EH)) + F.silu(self.up(sums_EC))
        h_EH = F.silu(self.skip(self.before(h_EH))) + m_EH
        y_EH: Tensor = self.after(h_EH)
        return y_EH


class Output(nn.Module):
    """The energies of atoms from the messages of the edges to them."""

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__()
        hidden, out = model["hidden"], model["out"]
        self.rbf, self.up = nn.Linear(model["radial"], hidden, bias=False), nn.Linear(hidden, out)
        layers = (nn.Sequential(nn.Linear(out, out), nn.SiLU()) for _ in range(model["output_layers"]))
        self.layers = nn.Sequential(*layers, nn.Linear(out, 1, bias=False))

    def forward(self, m_EH: Tensor, rbf_ER: Tensor, atoms: Atoms) -> Tensor:
        x_AH = m_EH.new_zeros(len(atoms.numbers_A), m_EH.shape[1])
        x_AH = x_AH.index_add(0, atoms.target_E, self.rbf(rbf_ER) * m_EH)
        y_A1: Tensor = self.layers(self.up(x_AH))
        return y_A1


PUBLISHED = {"hidden": 192, "blocks": 3, "radial": 6, "spherical": 7, "cutoff": 6.0, "interaction": 64, "basis": 8}
PUBLISHED |= {"out": 192, "before_skip": 1, "after_skip": 2, "output_layers": 3}


class Network(nn.Module):
    """DimeNet++ by its equations. `model` are options of oc20's configuration."""

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__()
        model = PUBLISHED | model
        self.cutoff = model["cutoff"]
        self.basis = Basis(model["radial"], model["spherical"])
        self.embedding = Embedding(model["hidden"], model["radial"])
        self.interactions = nn.ModuleList(Interaction(model) for _ in range(model["blocks"]))
        self.outputs = nn.ModuleList(Output(model) for _ in range(model["blocks"] + 1))

    def forward(self, atoms: Atoms) -> Tensor:
        """Return the forces (A, 3), whose loss has gradients."""
        pos_A3 = atoms.pos_A3.detach().requires_grad_()
        v_E3 = pos_A3[atoms.source_E] - pos_A3[atoms.target_E] + atoms.shift_E3
        rbf_ER, distance_ELN = self.basis.of_distance(v_E3.norm(dim=1) / self.cutoff)
        a_T3, b_T3 = v_E3.detach()[atoms.ji_T], v_E3.detach()[atoms.kj_T]
        angle_T = torch.atan2(torch.linalg.cross(a_T3, b_T3).norm(dim=1), (a_T3 * b_T3).sum(1))
        sbf_TF = (distance_ELN[atoms.kj_T] * self.basis.of_angle(angle_T)[..., None]).flatten(1)
        m_EH = self.embedding(atoms, rbf_ER)
        energy_A1 = self.outputs[0](m_EH, rbf_ER, atoms)
        for interaction, output in zip(self.interactions, self.outputs[1:], strict=True):
            m_EH = interaction(m_EH, rbf_ER, sbf_TF, atoms)
            energy_A1 = energy_A1 + output(m_EH, rbf_ER, atoms)
        (slope_A3,) = torch.autograd.grad(energy_A1.sum(), pos_A3, create_graph=True)
        return -slope_A3


def main() -> None:
    case = given_case()
    torch.set_num_threads(case.threads)
    batch = frames(case)
    known, atoms = sizes(batch), joined(batch)
    network = Network(case.model)
    optimizer = torch.optim.AdamW(network.parameters(), 0.001, weight_decay=0.01)

    def step() -> None:
        optimizer.zero_grad()
        with autocast_plainly(case):
            forces_A3 = network(atoms)
        errors_A3 = (forces_A3 - atoms.force_A3 / STD).abs()
        (50 * errors_A3[atoms.free_A].sum() / case.batch).backward()
        optimizer.step()

    serve(case, step, lambda: facts(network) | known, lambda steps: timed(torch.device("cpu"), step, steps))


if __name__ == "__main__":
    main()
