"""Atoms and small molecules on metal surfaces, as they relax or move with heat: real forces of a simple potential.

A system is a slab of one or two face-centred cubic metals, mixed at random, with an adsorbate above a site of its
surface. Energies and forces come from effective medium theory as in ase, which is fitted for the metals and crude for
H, C, N and O: smooth, many-body and exact in its derivatives, which is all that a network can learn from.

Source of the potential: Jacobsen, Stoltze and Norskov, Surface Science 366 (1996) 394; ase.calculators.emt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ase import Atoms, units
from ase.build import add_adsorbate, fcc100, fcc111
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.data import chemical_symbols, covalent_radii
from ase.data.colors import jmol_colors
from ase.md.langevin import Langevin
from ase.optimize import BFGS

from oc20.data.extxyz import ExtxyzFrame

LATTICE: Final = {"Al": 4.05, "Ni": 3.52, "Cu": 3.61, "Pd": 3.89, "Ag": 4.09, "Pt": 3.92, "Au": 4.08}
"""Lattice constants in angstrom; that of a mixture is their mean (Vegard's law)."""
ADSORBATES: Final = {"H": 0.0, "C": 0.0, "N": 0.0, "O": 0.0, "CO": 1.1, "OH": 1.0, "NH": 1.1, "N2": 1.0}
"""With the length of the bond, in angstrom; the first atom is the one near the surface."""
LARGEST_FORCE: Final = 10.0
"""In eV per angstrom, on any atom: frames above it are not recorded, in no split; their run goes on without a gap."""

MIXED: Final = 0.5  # share of slabs of two metals
STRAIN: Final = 0.04  # of the lattice constant, up to this far either way
VACUUM_ANGSTROM: Final = 7.5  # on either side of the slab
HEIGHTS_ANGSTROM: Final = (0.8, 1.8)  # of an adsorbate at the start, above the top layer
RATTLES_ANGSTROM: Final = (0.1, 0.2)  # standard deviation of the free atoms' places at the start, per coordinate
TEMPERATURES_KELVIN: Final = (300.0, 900.0)
STEP_FS: Final = 2.0
FRICTION_PER_FS: Final = 0.02
RELAXING: Final = (0, 2)  # the first step that is recorded, and steps from one recorded frame to the next
MOVING: Final = (20, 10)

DEEP, SURFACE, ADSORBATE = 0, 1, 2  # tags of Open Catalyst


@dataclass(frozen=True)
class Trajectory:
    """What a run has recorded.

    frames: ase's Atoms with tags, fixed atoms, energy and forces (as they are, also on fixed atoms).
    steps: when each was recorded, in steps from the start. reference: energy of the parts apart from each other, in eV.
    """

    frames: list[Atoms]
    steps: list[int]
    reference: float


def simulate(size: tuple[int, int, int], frames: int, relaxing: bool, rng: np.random.Generator) -> Trajectory:
    """Return a trajectory of so many frames of a system that `rng` chooses.

    size: atoms of the slab along its two sides, and layers. relaxing: downhill by BFGS from a start out of balance;
    otherwise Langevin dynamics at a temperature that `rng` chooses. Every recorded force is at most LARGEST_FORCE.
    """
    system, reference = build_system(size, rng)
    descent = BFGS(system, logfile=None).irun(fmax=0.0)  # endless
    if relaxing:
        return _record_frames(system, descent, RELAXING, frames, reference)
    next(_ for _ in descent if largest_force(system) <= LARGEST_FORCE)
    motion = _run_dynamics(system, rng.uniform(*TEMPERATURES_KELVIN), rng)
    return _record_frames(system, motion, MOVING, frames, reference)


def build_system(size: tuple[int, int, int], rng: np.random.Generator) -> tuple[Atoms, float]:
    """Return a system at its start, with calculator, tags and the lowest layer fixed, and its reference energy in eV.

    The reference is the energy of the clean slab before its atoms are displaced, plus that of the adsorbate alone.
    """
    metals = rng.choice(list(LATTICE), 2 if rng.random() < MIXED else 1, replace=False)
    symbols = [str(metal) for metal in rng.choice(metals, int(np.prod(size)))]
    constant = float(np.mean([LATTICE[symbol] for symbol in symbols])) * (1 + rng.uniform(-STRAIN, STRAIN))
    face = fcc111 if rng.random() < 0.5 else fcc100
    slab = face("Cu", size, a=constant, vacuum=VACUUM_ANGSTROM, periodic=True)
    slab.set_chemical_symbols(symbols)
    adsorbate = _draw_adsorbate(rng)
    reference = _compute_energy(slab) + _compute_energy(adsorbate)

    sites = sorted(slab.info["adsorbate_info"]["sites"])
    add_adsorbate(slab, adsorbate, rng.uniform(*HEIGHTS_ANGSTROM), sites[rng.integers(len(sites))])
    layers = slab.get_tags()  # of ase: the top layer is 1, the lowest the last; an adsorbate has 0
    fixed = layers == size[2]
    slab.set_tags(np.select([layers == 0, layers == 1], [ADSORBATE, SURFACE], DEEP))
    spread = rng.uniform(*RATTLES_ANGSTROM)
    slab.positions[~fixed] += rng.normal(0, spread, (np.count_nonzero(~fixed), 3))
    slab.info.clear()  # no word of it belongs in a file
    slab.set_constraint(FixAtoms(mask=fixed))
    slab.calc = EMT()
    return slab, reference


def largest_force(atoms: Atoms) -> float:
    """Return the length of the longest force on an atom, fixed or free, in eV per angstrom."""
    return float(np.linalg.norm(atoms.get_forces(apply_constraint=False), axis=1).max())


def _draw_adsorbate(rng: np.random.Generator) -> Atoms:
    """Return an adsorbate; a molecule stands upright or leans, its second atom no lower than the first."""
    name = list(ADSORBATES)[rng.integers(len(ADSORBATES))]
    bond = rng.normal(size=3)
    bond *= ADSORBATES[name] / np.linalg.norm(bond)
    bond[2] = abs(bond[2])
    atoms = Atoms(name)
    atoms.positions[1:] = bond
    return atoms


def _compute_energy(atoms: Atoms) -> float:
    alone = atoms.copy()
    alone.calc = EMT()
    return float(alone.get_potential_energy())


def _run_dynamics(atoms: Atoms, kelvin: float, rng: np.random.Generator) -> Iterator[Any]:
    """Return the steps of a run at this temperature, endless, the start the first of them."""
    # By hand: the function of ase for it has changed its name.
    spread = np.sqrt(atoms.get_masses() * kelvin * units.kB)
    atoms.set_momenta(rng.standard_normal((len(atoms), 3)) * spread[:, None])  # fixed atoms get none
    return Langevin(
        atoms,
        STEP_FS * units.fs,
        temperature_K=kelvin,
        friction=FRICTION_PER_FS / units.fs,
        fixcm=False,
        rng=rng,
    ).irun(steps=10**9)


def _record_frames(
    system: Atoms, run: Iterable[Any], pace: tuple[int, int], frames: int, reference: float
) -> Trajectory:
    """Return steps of a run at this pace, later where a force is too large."""
    recorded: list[Atoms] = []
    steps: list[int] = []
    due, interval = pace
    for step, _ in enumerate(run):
        if step >= due and largest_force(system) <= LARGEST_FORCE:
            recorded.append(_copy_frame(system))
            steps.append(step)
            due = step + interval
            if len(recorded) == frames:
                break
    return Trajectory(recorded, steps, reference)


def _copy_frame(system: Atoms) -> Atoms:
    """Return a copy of what belongs in a file."""
    frame = Atoms(system.numbers, system.positions, cell=system.cell, pbc=True, tags=system.get_tags())
    frame.set_constraint(system.constraints)
    # The last digits differ among machines.
    energy = round(float(system.get_potential_energy()), 8)
    frame.calc = SinglePointCalculator(frame, energy=energy, forces=system.get_forces(apply_constraint=False))
    return frame


# -- pictures ------------------------------------------------------------------------------------------------

VIEWS: Final = {"from above": (0, 1, 2), "from the side": (0, 2, 1)}
"""Axes to the right, upwards, and along the line of sight."""
ARROW: Final = 0.6  # angstrom for 1 eV per angstrom
CORNERS: Final = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)])


def draw_frames(records: Sequence[ExtxyzFrame], figure: Any) -> None:
    """Draw frames in a figure of matplotlib, in two views: in turn of a relaxing and of a moving system."""
    from matplotlib.lines import Line2D

    figure.set_size_inches(3.6 * len(records), 9)
    axes: Any = figure.subplots(2, len(records), squeeze=False)
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
