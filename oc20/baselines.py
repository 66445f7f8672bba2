"""`python -m oc20.baselines`: what methods without a deep network reach on OC20's mini problem.

The linear pair model is the classical force field of materials science with free coefficients: a pair potential for
each pair of elements, and an embedding energy for each element, which depends on the density at the atom as in the
embedded atom method (Daw and Baskes, Phys. Rev. B 29, 6443 (1984)). Forces are linear in all coefficients, so that
ridge regression finds the best ones.

Shapes: A atoms and E edges of a portion of frames, K radial functions, P pairs of elements, Z elements, M embedding
functions, C = P K + Z M coefficients, R rows: three components for each free atom.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.commands import baselines
from common.commands.baselines import Baseline, Baselines, Say
from oc20.data.dataset import Dataset
from oc20.graphs import Graph, build_graph
from oc20.reference import MINIS
from oc20.settings import CUTOFF_ANGSTROM, DataConfig
from oc20.synthesize import SYNTHESIS

FRAMES: Final = 100
"""In a portion, which is held in memory as a table of rows and coefficients."""
CENTRES_ANGSTROM: Final = torch.arange(0.8, CUTOFF_ANGSTROM, 0.3, dtype=torch.float64)
WIDTH_ANGSTROM: Final = 0.3
"""The radial functions are Gaussians."""
RANGES_ANGSTROM: Final = (0.4, 0.8)
"""Over which densities fall off, by a factor of e."""
POWERS: Final = (0.5, 2.0)
"""Of the density, in the embedding energy."""
LEAST_DENSITY: Final = 1e-3
RIDGES: Final = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Penalties to choose the best from, relative to a coefficient's own square sum."""
HELD_OUT: Final = 6
"""One training trajectory of N is left out to choose the penalty."""


class Rows(NamedTuple):
    """A portion of the regression: a column for each coefficient (R, C), forces (R,)."""

    columns: Tensor
    forces: Tensor


class Features:
    """Makes the rows of frames. elements: the atomic numbers that there are."""

    def __init__(self, elements: Sequence[int]) -> None:
        self.elements = sorted(elements)
        count = len(self.elements)
        self.number = torch.full((256,), -1)
        self.number[self.elements] = torch.arange(count)
        first, second = torch.triu_indices(count, count)
        self.pair = torch.empty(count, count, dtype=torch.long)
        self.pair[first, second] = self.pair[second, first] = torch.arange(len(first))
        self.pairs = len(first)

    @property
    def coefficients(self) -> int:
        """The number of columns."""
        return self.pairs * len(CENTRES_ANGSTROM) + len(self.elements) * len(RANGES_ANGSTROM) * len(POWERS)

    def build_rows(self, graph: Graph) -> Rows:
        """Return the rows of the free atoms of these frames."""
        elements_A = self.number[graph.numbers]
        vectors_E3 = graph.vectors.double()
        lengths_E = vectors_E3.norm(dim=1)
        units_E3 = vectors_E3 / lengths_E[:, None]
        free_A = graph.free
        parts = [
            self._pair_columns(graph, elements_A, lengths_E, units_E3),
            *self._embedding_columns(graph, elements_A, lengths_E, units_E3),
        ]
        columns_RC = torch.cat([part[free_A].flatten(0, 1) for part in parts], dim=1)
        return Rows(columns_RC, graph.forces[free_A].double().flatten())

    def _pair_columns(self, graph: Graph, elements_A: Tensor, lengths_E: Tensor, units_E3: Tensor) -> Tensor:
        """Return the force of each radial function of each pair of elements on each atom, (A, 3, P K)."""
        radial_EK = torch.exp(-(((lengths_E[:, None] - CENTRES_ANGSTROM) / WIDTH_ANGSTROM) ** 2) / 2)
        radial_EK *= _fade_factor(lengths_E)[:, None]
        pairs_E = self.pair[elements_A[graph.targets], elements_A[graph.sources]]
        forces_E3K = units_E3[:, :, None] * radial_EK[:, None, :]
        sums = forces_E3K.new_zeros(len(elements_A) * self.pairs, *forces_E3K.shape[1:])
        sums.index_add_(0, graph.targets * self.pairs + pairs_E, forces_E3K)
        return sums.unflatten(0, (-1, self.pairs)).transpose(1, 2).flatten(2)

    def _embedding_columns(
        self, graph: Graph, elements_A: Tensor, lengths_E: Tensor, units_E3: Tensor
    ) -> Iterator[Tensor]:
        """Yield the force of each embedding function of each element on each atom, (A, 3, Z) at a time."""
        count = len(self.elements)
        for reach in RANGES_ANGSTROM:
            density_E = torch.exp(-lengths_E / reach) * _fade_factor(lengths_E)
            slope_E = torch.exp(-lengths_E / reach) * (_fade_slope(lengths_E) - _fade_factor(lengths_E) / reach)
            density_A = density_E.new_zeros(len(elements_A)).index_add_(0, graph.targets, density_E)
            scale = torch.exp(torch.tensor(-2.5 / reach)) * 12  # of an atom with twelve neighbours at 2.5 angstrom
            density_A = (density_A / scale).clamp_min(LEAST_DENSITY)
            for power in POWERS:
                change_A = power * density_A ** (power - 1)
                sums = slope_E.new_zeros(len(elements_A) * count, 3)
                for atoms_E in (graph.targets, graph.sources):  # whose density the distance changes
                    pull_E3 = units_E3 * (change_A[atoms_E] * slope_E / scale)[:, None]
                    sums.index_add_(0, graph.targets * count + elements_A[atoms_E], pull_E3)
                yield sums.unflatten(0, (-1, count)).transpose(1, 2)


def _fade_factor(lengths_E: Tensor) -> Tensor:
    """Return a factor that falls from 1 at distance 0 to 0 at the cutoff."""
    return (1 + torch.cos(torch.pi * (lengths_E / CUTOFF_ANGSTROM).clamp_max(1))) / 2


def _fade_slope(lengths_E: Tensor) -> Tensor:
    """Return the derivative of `_fade_factor`."""
    return -torch.sin(torch.pi * (lengths_E / CUTOFF_ANGSTROM).clamp_max(1)) * torch.pi / (2 * CUTOFF_ANGSTROM)


class Sums(NamedTuple):
    """What a regression needs to know of its rows: columns' products (C, C), and with the forces (C,)."""

    products: Tensor
    forces: Tensor

    def solve_ridge(self, ridge: float) -> Tensor:
        """Return the coefficients (C,)."""
        own = self.products.diagonal()
        penalty = ridge * own + 1e-12 * own.mean()
        solved: Tensor = torch.linalg.solve(self.products + penalty.diag(), self.forces)
        return solved


def fit_baselines(folder: Path, say: Say) -> Iterator[Baseline]:
    """Yield the baselines of the data in a folder."""
    train, validation = (Dataset(folder / split, DataConfig(data_dir=folder)) for split in ("train", "validation"))
    yield _zero_force(validation)
    yield _mean_force(train, validation)
    yield _pair_model(train, validation, say)


def _zero_force(validation: Dataset) -> Baseline:
    errors = [graph.forces[graph.free].abs().flatten() for graph in _read_portions(validation)]
    return Baseline("zero force", float(torch.cat(errors).double().mean()), "no atom feels a force")


def _mean_force(train: Dataset, validation: Dataset) -> Baseline:
    """Return the error of the mean force on the free atoms of each element."""
    sums, counts = torch.zeros(256, 3, dtype=torch.float64), torch.zeros(256, dtype=torch.float64)
    for graph in _read_portions(train):
        numbers = graph.numbers[graph.free]
        sums.index_add_(0, numbers, graph.forces[graph.free].double())
        counts += torch.bincount(numbers, minlength=256)
    means = sums / counts.clamp_min(1)[:, None]
    errors = [
        (graph.forces - means[graph.numbers])[graph.free].abs().flatten().double()
        for graph in _read_portions(validation)
    ]
    return Baseline("mean force", float(torch.cat(errors).mean()), "each element's mean force in training")


def _pair_model(train: Dataset, validation: Dataset, say: Say) -> Baseline:
    """Return the error of the linear pair model, whose penalty is chosen on trajectories that are held out."""
    frames = [train.read(index) for index in range(len(train))]
    features = Features(sorted({int(number) for frame in frames for number in np.unique(frame.numbers)}))
    systems = np.array([frame.sid for frame in frames])
    held = np.isin(systems, np.unique(systems)[::HELD_OUT])
    fitted, other = (_sum_products(features, train, np.flatnonzero(part), say) for part in (~held, held))
    tried = torch.stack([fitted.solve_ridge(ridge) for ridge in RIDGES], dim=1)
    errors = _measure_errors(features, train, tried, np.flatnonzero(held))
    ridge = RIDGES[int(errors.argmin())]
    say(f"linear pair model: penalty {ridge:g}, error {errors.min():.4f} on held-out trajectories")
    both = Sums(fitted.products + other.products, fitted.forces + other.forces)
    quality = _measure_errors(features, validation, both.solve_ridge(ridge)[:, None])
    details = {
        "coefficients": features.coefficients,
        "ridge": ridge,
        "held_out_frames": int(held.sum()),
        "held_out_errors": dict(zip(map(str, RIDGES), errors.tolist(), strict=True)),
    }
    note = f"pair and embedding functions, {features.coefficients:,} coefficients, ridge regression"
    return Baseline("linear pair model", float(quality), note, details)


def _sum_products(features: Features, frames: Dataset, chosen: np.ndarray, say: Say) -> Sums:
    """Return the sums of a regression on these frames."""
    size = features.coefficients
    products, forces = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for number, graph in enumerate(_read_portions(frames, chosen), 1):
        rows = features.build_rows(graph)
        products.addmm_(rows.columns.T, rows.columns)
        forces.addmv_(rows.columns.T, rows.forces)
        if number % 5 == 0:
            say(f"linear pair model: {number * FRAMES:,} of {len(chosen):,} frames")
    return Sums(products, forces)


def _measure_errors(features: Features, frames: Dataset, solutions: Tensor, chosen: np.ndarray | None = None) -> Tensor:
    """Return the mean absolute error of each solution, a column of (C, S), on frames."""
    total, count = torch.zeros(solutions.shape[1], dtype=torch.float64), 0
    for graph in _read_portions(frames, chosen):
        rows = features.build_rows(graph)
        total += (rows.columns @ solutions - rows.forces[:, None]).abs().sum(0)
        count += len(rows.forces)
    return total / count


def _read_portions(frames: Dataset, chosen: np.ndarray | None = None) -> Iterator[Graph]:
    """Yield frames, by default all, a portion at a time."""
    numbers = (np.arange(len(frames)) if chosen is None else chosen).tolist()
    for start in range(0, len(numbers), FRAMES):
        yield build_graph([frames.read(number) for number in numbers[start : start + FRAMES]])


BASELINES: Final = Baselines("oc20", MINIS, fit_baselines, SYNTHESIS.provide_data)
main = partial(baselines.main, BASELINES)

if __name__ == "__main__":
    sys.exit(main())
