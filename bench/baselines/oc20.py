"""OC20: what a classical potential reaches on the mini problem.

The embedded-atom model (Daw and Baskes, Phys. Rev. B 29, 6443 (1984)) is the classical potential of metals. Here all of
its functions are free and fitted to the forces: a pair potential for each pair of elements, the density that an atom of
each element adds at its neighbours, and the energy of each element in a density. It has no messages and no angles.

Shapes: A atoms and E edges of a batch of frames, Z elements, P pairs of them, K Gaussians of distance, M of density.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from baselines import Baseline
from oc20.data.dataset import Dataset
from oc20.graphs import Graph, build_graph
from oc20.settings import CUTOFF_ANGSTROM, DataConfig

CENTRES_ANGSTROM, WIDTH_ANGSTROM = torch.linspace(0.6, CUTOFF_ANGSTROM, 24), 0.3
CENTRES_LOG, WIDTH_LOG = torch.linspace(-4, 2, 13), 0.5
DECAY: Final = 1.5
"""Per angstrom, by which the density falls off before it is fitted."""
CLOSE: Final = (12, 2.5)
"""Neighbours of an atom in a close-packed metal, and their distance in angstrom: there the density begins as 1."""
LEAST_DENSITY: Final = 1e-3
EPOCHS, BATCH, RATE = 30, 32, 3e-2


class Edges(NamedTuple):
    """A graph, and what an embedded-atom model needs to know of it, whatever its coefficients.

    atoms_A: numbers of the elements; pairs_E: of the pairs of elements; lengths_E: in angstrom; fade_E: a factor that
    falls from 1 to 0 at the cutoff; radial_EK: Gaussians of the length, faded. fading_E, slopes_EK: their derivatives.
    """

    graph: Graph
    atoms_A: Tensor
    pairs_E: Tensor
    lengths_E: Tensor
    fade_E: Tensor
    fading_E: Tensor
    radial_EK: Tensor
    slopes_EK: Tensor


class EmbeddedAtoms(nn.Module):
    """An embedded-atom model of some elements: energy = Σ φ(r) over pairs + Σ F(log ρ) over atoms, ρ = Σ exp(f(r)).

    elements: the atomic numbers. φ, F and f + DECAY r are sums of Gaussians with free coefficients; F also has ρ. What
    depends on r fades out at the cutoff.
    """

    number: Tensor
    pair: Tensor

    def __init__(self, elements: Sequence[int]) -> None:
        super().__init__()
        count = len(elements)
        number = torch.zeros(256, dtype=torch.long)
        number[list(elements)] = torch.arange(count)
        self.register_buffer("number", number)
        first, second = torch.triu_indices(count, count)
        pair = torch.zeros(count, count, dtype=torch.long)
        pair[first, second] = pair[second, first] = torch.arange(len(first))
        self.register_buffer("pair", pair)
        self.pair_PK = nn.Parameter(torch.zeros(len(first), len(CENTRES_ANGSTROM)))
        self.density_ZK = nn.Parameter(torch.zeros(count, len(CENTRES_ANGSTROM)))
        self.embedding_ZM = nn.Parameter(torch.zeros(count, len(CENTRES_LOG)))
        self.linear_Z = nn.Parameter(torch.zeros(count))

    def describe_edges(self, graph: Graph) -> Edges:
        """Return what forces need of a graph and no coefficient changes."""
        lengths_E = graph.vectors.norm(dim=1)
        phase_E = torch.pi * (lengths_E / CUTOFF_ANGSTROM).clamp_max(1)
        fade_E, fading_E = (1 + phase_E.cos()) / 2, phase_E.sin() * (-torch.pi / (2 * CUTOFF_ANGSTROM))
        radial_EK, slopes_EK = expand_gaussians(lengths_E, CENTRES_ANGSTROM, WIDTH_ANGSTROM)
        atoms_A = self.number[graph.numbers]
        return Edges(
            graph,
            atoms_A,
            self.pair[atoms_A[graph.targets], atoms_A[graph.sources]],
            lengths_E,
            fade_E,
            fading_E,
            radial_EK * fade_E[:, None],
            slopes_EK * fade_E[:, None] + radial_EK * fading_E[:, None],
        )

    def forward(self, edges: Edges) -> Tensor:
        """Return the forces on the free atoms of a graph, in eV per angstrom: the gradient of the energy."""
        graph, atoms_A, pairs_E, lengths_E, fade_E, fading_E, radial_EK, slopes_EK = edges
        pair_slope_E = (self.pair_PK.index_select(0, pairs_E) * slopes_EK).sum(1)

        density_EK = self.density_ZK.index_select(0, atoms_A[graph.sources])
        neighbours, distance = CLOSE
        share_E = ((density_EK * radial_EK).sum(1) - DECAY * (lengths_E - distance)).exp() / neighbours
        share_slope_E = share_E * (((density_EK * slopes_EK).sum(1) - DECAY) * fade_E + fading_E)
        density_A = torch.zeros(len(atoms_A)).index_add(0, graph.targets, share_E * fade_E) + LEAST_DENSITY
        _, slopes_AM = expand_gaussians(density_A.log(), CENTRES_LOG, WIDTH_LOG)
        embedding_slope_A = (self.embedding_ZM[atoms_A] * slopes_AM).sum(1) / density_A + self.linear_Z[atoms_A]

        pull_E = (pair_slope_E / 2 + embedding_slope_A[graph.targets] * share_slope_E) / lengths_E
        pulls_E3 = pull_E[:, None] * graph.vectors
        forces_A3 = torch.zeros_like(graph.forces).index_add(0, graph.targets, pulls_E3)
        return forces_A3.index_add(0, graph.sources, -pulls_E3)[graph.free]

    def measure_error(self, edges: Edges) -> Tensor:
        """Return the mean absolute error of a component of the force on a free atom, the benchmark's quality."""
        return (self(edges) - edges.graph.forces[edges.graph.free]).abs().mean()


def expand_gaussians(values: Tensor, centres: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Return Gaussians of values (n,) around centres (K,), and their derivatives, both (n, K)."""
    steps = (values[:, None] - centres) / width
    gaussians = torch.exp(steps * steps / -2)
    return gaussians, gaussians * steps / -width


def fit_baselines(folder: Path) -> Iterator[Baseline]:
    """Yield the baselines of the data in a folder."""
    train, validation = (Dataset(folder / split, DataConfig(data_dir=folder)) for split in ("train", "validation"))
    judged = build_graph([validation.read(number) for number in range(len(validation))])
    yield Baseline("zero force", float(judged.forces[judged.free].abs().mean()), "no atom feels a force", {})
    model = fit_embedded_atoms(train)
    coefficients = sum(parameter.numel() for parameter in model.parameters())
    note = f"pair potentials, densities and embedding energies, {coefficients:,} coefficients"
    yield Baseline(
        "embedded-atom model",
        model.measure_error(model.describe_edges(judged)).item(),
        note,
        {"coefficients": coefficients},
    )


def fit_embedded_atoms(train: Dataset) -> EmbeddedAtoms:
    """Return the model with the least absolute error of the forces of a split, by Adam."""
    rng = np.random.default_rng(0)
    frames = [train.read(number) for number in rng.permutation(len(train)).tolist()]
    model = EmbeddedAtoms(sorted({number for frame in frames for number in frame.numbers.tolist()}))
    batches = [
        model.describe_edges(build_graph(frames[start : start + BATCH])) for start in range(0, len(frames), BATCH)
    ]
    optimizer = torch.optim.Adam(model.parameters())
    steps = EPOCHS * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1, final_div_factor=1000)
    for _ in range(EPOCHS):
        for number in rng.permutation(len(batches)):
            optimizer.zero_grad()
            error = model.measure_error(batches[number])
            error.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
    return model
