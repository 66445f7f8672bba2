"""Edges as the reference counts them, rounding included: `python -m oc20.prepare convert --edges reference`.

The reference (AtomsToGraphs with pymatgen's neighbour list) takes an atom for its own nearest neighbour wherever its
place, computed in two ways, differs in the last digit. It drops such edges only after it has kept the 50 nearest, so
that 49 stay. Which atoms these are follows from the rounding of every step; so here each has the reference's order of
operations, in float64 without fused multiplication, on any machine alike:

1. positions to fractions of the lattice vectors and back, by the inverse that LAPACK finds (elimination with pivots);
2. fractions again, by the inverse of cofactors; wrapped into the cell, and back to positions;
3. distances from the places of step 1 to the images of those of step 2; nearer than 6 angstrom, the 50 nearest kept;
4. those below 1e-8 angstrom dropped.

What remains open in the reference: which of exactly equal distances its unstable sort keeps (here: by number and
image), and processors on which NumPy rounds step 1 otherwise, by fused multiplication, so that some frames have an edge
more or less (docs/performance/records/parity.md).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from oc20.graphs import MOST_NEIGHBOURS, SAME_PLACE_ANGSTROM, images_within, select_nearest
from oc20.settings import CUTOFF_ANGSTROM


def find_neighbours(pos: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and images as `oc20.graphs.find_neighbours` does, for positions and a cell in float64."""
    reach = np.array(images_within(pos, cell, CUTOFF_ANGSTROM))
    places = _wrap_positions(pos, cell)
    fractions = _multiply_matrix(places, _invert_by_cofactors(cell))
    within: np.ndarray = fractions % 1
    cells = np.round(fractions - within).astype(np.int64)
    wrapped = _multiply_matrix(within, cell)
    ranges = zip(cells.min(0) - reach - 1, cells.max(0) + reach + 2, strict=True)
    images = np.stack(np.meshgrid(*(np.arange(*ends) for ends in ranges), indexing="ij"), -1).reshape(-1, 3)
    starts = wrapped[None, :, :] + _multiply_matrix(images.astype(np.float64), cell)[:, None, :]
    apart = [starts[:, None, :, axis] - places[None, :, None, axis] for axis in range(3)]
    squares = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2]
    itself = (squares == 0) & np.eye(len(pos), dtype=bool)
    image, centre, source = np.nonzero((squares < CUTOFF_ANGSTROM**2) & ~itself)
    distance, offset = np.sqrt(squares[image, centre, source]), images[image] - cells[source]
    kept = select_nearest(centre, distance, source, offset, MOST_NEIGHBOURS)
    kept = kept[distance[kept].astype(np.float32) >= np.float32(SAME_PLACE_ANGSTROM)]
    return np.stack([source[kept], centre[kept]], 1).astype(np.int32), offset[kept].astype(np.int8)


def _wrap_positions(pos: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Return the positions that step 1 gives."""
    return _multiply_matrix(_multiply_matrix(pos, _invert_by_elimination(cell)), cell)


def _multiply_matrix(rows_N3: np.ndarray, matrix_33: np.ndarray) -> np.ndarray:
    """Return the matrix product, its terms added from first to last, each rounded: no library does that for sure."""
    first, second, third = (rows_N3[:, axis, None] * matrix_33[axis] for axis in range(3))
    total: np.ndarray = first + second + third
    return total


def _invert_by_cofactors(cell: np.ndarray) -> np.ndarray:
    """Return the inverse by cofactors, times one over the determinant."""
    a, b, c = cell
    across = np.stack([_cross_product(b, c), _cross_product(c, a), _cross_product(a, b)], 1)
    inverse: np.ndarray = across * (1 / (a[0] * across[0, 0] + a[1] * across[1, 0] + a[2] * across[2, 0]))
    return inverse


def _cross_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    turned, back = [1, 2, 0], [2, 0, 1]
    product: np.ndarray = a[turned] * b[back] - a[back] * b[turned]
    return product


def _invert_by_elimination(cell: np.ndarray) -> np.ndarray:
    """Return the inverse by Gaussian elimination with row pivots, multiplying by one over each pivot."""
    rows, order = cell.copy(), np.arange(3)
    for column in range(3):
        for row in range(1, 3):
            done = min(row, column)
            if done:
                terms = rows[row, :done] * rows[:done, column]
                rows[row, column] -= terms[0] if done == 1 else terms[0] + terms[1]
        pivot = column + int(np.argmax(np.abs(rows[column:, column])))
        rows[[column, pivot]], order[[column, pivot]] = rows[[pivot, column]], order[[pivot, column]]
        rows[column + 1 :, column] *= 1 / rows[column, column]
    inverse = np.eye(3)
    inverse[1, 0], inverse[2, 1] = -rows[1, 0], -rows[2, 1]
    # Rounded once, as LAPACK's kernels for processors with fused multiplication do.
    product = Fraction(float(rows[2, 1])) * Fraction(float(rows[1, 0]))
    inverse[2, 0] = float(product - Fraction(float(rows[2, 0])))
    for row in (2, 1, 0):
        inverse[row] *= 1 / rows[row, row]
        inverse[:row] -= rows[:row, row, None] * inverse[row]
    placed = np.empty((3, 3))
    placed[:, order] = inverse
    return placed
