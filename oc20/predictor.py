"""The trained OC20 network with its preprocessing: frames of atoms in, energies in eV and forces in eV/angstrom out.

Its quality, the mean absolute error of the forces on free atoms, and the report on its predictions, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from common.training import benchmark
from common.training.predictions import Column, PredictionReport, Rows, Thinned
from oc20.graphs import MOST_NEIGHBOURS, Frame, find_neighbours, join_frames, link_frames
from oc20.model import ELEMENTS, DimeNet
from oc20.settings import CUTOFF_ANGSTROM

SYMBOLS: Final = (
    "X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv "
    "Ts Og"
).split()
"""Of the elements, by atomic number."""


def force_errors(forces_A3: Tensor, targets_A3: Tensor, free_A: Tensor) -> Tensor:
    """Return the errors of forces, float64 (A, 3), in the unit of both; 0 on atoms that are not free."""
    return (forces_A3.double() - targets_A3.double()) * free_A[:, None]


def absolute_errors(wrong_A3: Tensor, free_A: Tensor) -> Tensor:
    """Return the sum of the absolute errors over components of free atoms, and their number: float64 (2,)."""
    return torch.stack((wrong_A3.abs().sum(), wrong_A3.shape[1] * free_A.sum(dtype=torch.float64)))


class Report(PredictionReport):
    """Errors of energies, errors of forces by element, and parity plots."""

    columns = (
        Column("natoms", "i4", "atoms of the frame: the rows that it has in the columns of atoms"),
        Column("energies", "f4", "energy of the frame as predicted, less the reference's, in eV"),
        Column("energy_targets", "f4", "the same, from the data"),
        Column("forces", "f4", "force on the atom as predicted, in eV/Å"),
        Column("force_targets", "f4", "the same, from the data"),
        Column("numbers", "u1", "atomic number of the atom"),
        Column("free", "?", "whether the atom may move; the others are not judged"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._energy = np.zeros(3)
        self._forces = np.zeros((len(SYMBOLS), 3))
        self._force_points, self._energy_points = Thinned(), Thinned()

    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        free_A = columns["free"]
        return absolute_errors(force_errors(columns["forces"], columns["force_targets"], free_A), free_A)

    def count(self, rows: Rows) -> None:
        wrong_N = rows["energies"].astype(np.float64) - rows["energy_targets"]
        self._energy += np.abs(wrong_N).sum(), wrong_N.sum(), (wrong_N**2).sum()
        free = rows["free"]
        numbers, true_A3 = rows["numbers"][free], rows["force_targets"][free].astype(np.float64)
        wrong_A = np.abs(rows["forces"][free] - true_A3).mean(axis=1)
        for column, weights in enumerate((None, wrong_A, np.abs(true_A3).mean(axis=1))):
            self._forces[:, column] += np.bincount(numbers, weights, minlength=len(SYMBOLS))

    def keep(self, rows: Rows) -> None:
        free = rows["free"]
        columns = (rows["force_targets"][free], rows["forces"][free], rows["numbers"][free, None])
        self._force_points.add(np.concatenate(columns, axis=1).astype(np.float32))
        self._energy_points.add(np.stack((rows["energy_targets"], rows["energies"]), axis=1))

    def lines(self) -> Iterator[str]:
        """Yield the errors of energies, and of forces by element."""
        error, bias, square = (self._energy / self.samples).tolist()
        yield (
            f"  energy: mean |error| {error:.5g} eV; mean error {bias:.5g} eV, and "
            f"{max(0.0, square - bias**2) ** 0.5:.5g} eV rms about it (the reference's loss has forces alone, so the "
            "energies of each system are free by a constant)"
        )
        yield f"  {'element':<9}{'free atoms':>12}{'mean |force error|':>21}{'mean |force|':>15}  eV/Å, by component"
        for number in np.flatnonzero(self._forces[:, 0]).tolist():
            atoms, wrong, true = self._forces[number].tolist()
            yield f"  {SYMBOLS[number]:<9}{int(atoms):>12,}{wrong / atoms:>21.5f}{true / atoms:>15.5f}"

    def draw(self, figure: Any) -> None:
        """Draw the components of forces, predicted over true, coloured by element, and the energies."""
        from matplotlib import colormaps  # an optional package

        figure.set_size_inches(12, 5.6)
        left, right = figure.subplots(1, 2)
        dots: dict[str, Any] = {"marker": ".", "linestyle": "", "markersize": 3, "alpha": 0.6}
        points = self._force_points.rows
        elements = np.unique(points[:, 6]).astype(int).tolist()
        colours = colormaps["turbo"](np.linspace(0.03, 0.97, len(elements)))
        for number, colour in zip(elements, colours, strict=True):  # rare elements are drawn over frequent ones
            true, predicted = np.split(points[points[:, 6] == number, :6], 2, axis=1)
            front = 2 + 1 / len(true)
            left.plot(true.ravel(), predicted.ravel(), color=colour, label=SYMBOLS[number], zorder=front, **dots)
        left.legend(ncols=1 + len(elements) // 16, markerscale=4, fontsize=8)
        energies = self._energy_points.rows
        right.plot(energies[:, 0], energies[:, 1], **dots)
        for axes, values, quantity in ((left, points[:, :6], "force in eV/Å"), (right, energies, "energy in eV")):
            ends = float(values.min()), float(values.max())
            axes.plot(ends, ends, color="black", linewidth=0.8, zorder=0)
            axes.set_xlabel(f"true {quantity}")
            axes.set_ylabel(f"predicted {quantity}")
        left.set_title("forces on free atoms, each component")
        right.set_title("energies: those of each system are free by a constant")


class Predictor(benchmark.Predictor):
    """Energies and forces; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network, computed by torch's own operations."""
        return DimeNet(replace(config.model, kernels="torch"))

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return the steps around the network."""
        return {
            "input": {
                "numbers": {"shape": ["atoms"], "unit": f"atomic number, at most {ELEMENTS - 1}"},
                "positions": {"shape": ["atoms", 3], "unit": "angstrom"},
                "cell": {"shape": [3, 3], "unit": "angstrom", "rows": "lattice vectors, periodic in all directions"},
            },
            "preprocessing": {
                "first": "the edges from the nearest atoms and images to each atom, within the cutoff",
                "cutoff_angstrom": CUTOFF_ANGSTROM,
                "most_neighbours": MOST_NEIGHBOURS,
                "after the network": "energy * energy_std + energy_mean, forces * energy_std",
                "energy_mean": config.data.energy_mean,
                "energy_std": config.data.energy_std,
            },
            "output": {
                "energy": {"shape": ["frames"], "type": "float32", "unit": "eV, less the system's reference energy"},
                "forces": {"shape": ["atoms", 3], "type": "float32", "unit": "eV/angstrom"},
            },
        }

    def forward(self, frames: Sequence[Frame]) -> tuple[Tensor, Tensor]:
        """Return the energies (G,) of frames with edges, and the forces (A, 3) on all their atoms, one after another.

        Forces have gradients by the weights where torch records them; they are computed in inference mode, too.
        """
        recorded = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        facts = self.interface["preprocessing"]
        with torch.inference_mode(False), torch.set_grad_enabled(recorded):  # forces are gradients
            energy_G, forces_A3 = self.model(link_frames(join_frames(frames).to(self.device)))
            return energy_G * facts["energy_std"] + facts["energy_mean"], forces_A3 * facts["energy_std"]


def frame(numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray) -> Frame:
    """Return the frame of atoms with its edges, such as of ase's `atoms.numbers, atoms.positions, atoms.cell.array`.

    numbers: atomic numbers (N,). positions (N, 3), cell (3, 3): in angstrom. Raises ValueError for a cell or positions
    that make no graph, other shapes, and atomic numbers that the network does not have. Energy, forces and tags, which
    only training needs, are 0.
    """
    atoms = len(numbers)
    if (np.shape(positions), np.shape(cell)) != ((atoms, 3), (3, 3)):
        raise ValueError(
            f"positions have the shape {np.shape(positions)}, the cell {np.shape(cell)}; expected {(atoms, 3)} for as "
            "many atomic numbers, and (3, 3)"
        )
    if atoms and not 1 <= np.min(numbers) <= np.max(numbers) < ELEMENTS:
        raise ValueError(f"atomic numbers from {np.min(numbers)} to {np.max(numbers)}; expected 1 to {ELEMENTS - 1}")
    edges, offsets = find_neighbours(positions, cell)
    return Frame.without_forces(numbers, positions, cell, edges=edges, offsets=offsets)
