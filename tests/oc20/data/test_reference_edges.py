"""Edges as the reference counts them, against the numbers of AtomsToGraphs with pymatgen 2026.10.24."""

import numpy as np
import pytest

from oc20.data import conversion
from oc20.graphs import MOST_NEIGHBOURS, find_neighbours

build = pytest.importorskip("ase.build")


def slab(metal, adsorbate, size):
    atoms = build.fcc111(metal, size, vacuum=7.5, periodic=True)
    build.add_adsorbate(atoms, adsorbate, 1.6 if adsorbate != "H" else 1.0, "fcc")
    atoms.rattle(0.05, seed=1)
    return atoms


def edges_of(function, atoms):
    edges, offsets = function(atoms.positions, np.asarray(atoms.cell.array))
    assert edges.dtype == np.int32 and offsets.dtype == np.int8
    return list(map(tuple, np.hstack([edges, offsets]).tolist()))


@pytest.mark.parametrize(
    "given, official, ours",
    [
        (("Cu", "O", (2, 2, 3)), 624, 630),
        (("Pt", "C", (3, 3, 4)), 1568, 1570),
        (("Ni", "H", (1, 1, 4)), 245, 250),
    ],
)
def test_counts_are_those_of_the_reference(given, official, ours):
    atoms = slab(*given)
    theirs, all_of_them = edges_of(conversion.find_reference_neighbours, atoms), edges_of(find_neighbours, atoms)
    assert (len(theirs), len(all_of_them)) == (official, ours)
    degree = np.bincount([edge[1] for edge in theirs])
    assert set(degree[degree < np.bincount([edge[1] for edge in all_of_them])]) <= {MOST_NEIGHBOURS - 1}
    assert [edge[1] for edge in theirs] == sorted(edge[1] for edge in theirs)


def test_atoms_outside_of_the_cell_have_the_same_neighbours():
    atoms = slab("Pt", "C", (3, 3, 4))
    shift = np.random.default_rng(0).integers(-2, 3, (len(atoms), 3))
    moved = atoms.copy()
    moved.positions += shift @ atoms.cell.array
    edges, offsets = conversion.find_reference_neighbours(moved.positions, np.asarray(atoms.cell.array))
    back = offsets + shift[edges[:, 0]] - shift[edges[:, 1]]
    found = set(map(tuple, np.hstack([edges, back]).tolist()))
    assert found <= set(edges_of(find_neighbours, atoms)) and len(found) >= 1570 - len(atoms)


def test_a_cell_without_volume_is_refused():
    with pytest.raises(ValueError, match="span a volume"):
        conversion.find_reference_neighbours(np.zeros((1, 3)), np.ones((3, 3)))


def test_the_inverse_by_elimination():
    cells = np.random.default_rng(0).uniform(-10, 10, (50, 3, 3))
    for cell in cells:
        np.testing.assert_allclose(conversion._invert_by_elimination(cell) @ cell, np.eye(3), atol=1e-9)
