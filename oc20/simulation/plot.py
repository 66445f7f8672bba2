"""Plot surfaces: slabs from above and from the side, with the forces on their free atoms."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols, covalent_radii
from ase.data.colors import jmol_colors

from oc20.simulation.recipe import Recipe
from oc20.simulation.surface import ADSORBATE

SYSTEMS: Final = 4
VIEWS: Final = {"from above": (0, 1, 2), "from the side": (0, 2, 1)}
"""Axes to the right, upwards, and along the line of sight."""
ARROW: Final = 0.6  # angstrom for 1 eV per angstrom
CORNERS: Final = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)])


def draw_samples(recipe: Recipe, seed: int, figure: Any) -> None:
    """Draw the first frames of the first training trajectories in a figure of matplotlib, in two views."""
    from matplotlib.lines import Line2D

    records = [next(recipe.simulate_trajectory(seed, 0, i)) for i in range(SYSTEMS)]
    figure.set_size_inches(3.6 * SYSTEMS, 9)
    axes: Any = figure.subplots(2, SYSTEMS, squeeze=False)
    numbers: set[int] = set()
    for column, record in enumerate(records):
        atoms = record.atoms
        numbers |= set(atoms.numbers.tolist())
        for row, (view, directions) in enumerate(VIEWS.items()):
            _draw_view(axes[row, column], atoms, directions)
            axes[row, 0].set_ylabel(f"{view}, in Å")
        energy = atoms.get_potential_energy() - record.reference
        kind = "moving" if column % 2 else "relaxing"
        adsorbed = atoms.get_tags() == ADSORBATE
        slab, adsorbate = (atoms[part].get_chemical_formula() for part in (~adsorbed, adsorbed))
        axes[0, column].set_title(f"{adsorbate} on {slab}, {kind}\nstep {record.fid}, {energy:.2f} eV", fontsize=9)
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgecolor": "black"}
    marks = [Line2D([], [], color=jmol_colors[n], label=chemical_symbols[n], **dot) for n in sorted(numbers)]
    marks.append(Line2D([], [], color="#d00000", label=f"force, {ARROW:g} Å for 1 eV/Å"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
    size = " x ".join(map(str, recipe.size))
    figure.suptitle(f"Slabs of {size} atoms with adsorbates, seed {seed}; hatched atoms are fixed")


def _draw_view(axes: Any, atoms: Any, directions: tuple[int, int, int]) -> None:
    """Draw the cell, the atoms and the forces on free atoms, seen along the last direction."""
    from matplotlib.patches import Circle

    right, up, depth = directions
    for start in CORNERS:
        for edge in np.eye(3, dtype=int)[start == 0]:
            line = np.stack([start, start + edge]) @ atoms.cell.array
            axes.plot(line[:, right], line[:, up], color="#999999", linewidth=0.7, zorder=0)
    fixed = {int(i) for constraint in atoms.constraints for i in constraint.index}
    forces = atoms.get_forces(apply_constraint=False)
    order = np.argsort(atoms.positions[:, depth] * (1 if depth == 2 else -1))
    for layer, i in enumerate(order, 1):
        number, position = atoms.numbers[i], atoms.positions[i]
        circle = Circle(
            (position[right], position[up]),
            covalent_radii[number] * 0.85,
            facecolor=jmol_colors[number],
            edgecolor="black",
            linewidth=1.6 if atoms.get_tags()[i] == ADSORBATE else 0.6,
            hatch="///" if i in fixed else None,
            zorder=layer,
        )
        axes.add_patch(circle)
        if i not in fixed:
            tip = position + ARROW * forces[i]
            arrow = {"arrowstyle": "->", "color": "#d00000", "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
            axes.annotate(
                "", (tip[right], tip[up]), (position[right], position[up]), arrowprops=arrow, zorder=len(order) + 1
            )
    axes.set_aspect("equal")
    axes.autoscale_view()
