"""The quality of OC20, the mean absolute error of the forces on free atoms, and the report on its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from common.training.predictions import Column, PredictionReport, Rows, Thinned

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
        self._energy: np.ndarray = np.zeros(3)
        self._forces: np.ndarray = np.zeros((len(SYMBOLS), 3))
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
