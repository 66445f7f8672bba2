"""Frames of atoms, and the graphs of neighbours across the cell's periodic borders that the network reads.

An edge leads from a source atom j, in some periodic image, to a centre atom i. Edges k -> j and j -> i make a triplet,
except for the pair that goes straight back, where k is i in the same image.

Shapes: N atoms of a frame, A atoms and E edges of a batch, G frames of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor

CUTOFF_ANGSTROM: Final = 6.0
MOST_NEIGHBOURS: Final = 50
SAME_PLACE_ANGSTROM: Final = 1e-8
"""Two atoms nearer than this have no defined direction between them, and get no edge."""
TIE_DECIMALS: Final = 6
"""Distances are compared to this many decimals, so that rounding does not choose among atoms of a perfect crystal."""

Parts = TypeVar("Parts", "EdgeTable", "Graph")


@dataclass(frozen=True, slots=True)
class Frame:
    """One arrangement of atoms with its energy and forces.

    numbers: atomic numbers, uint8 (N,).
    pos: positions in angstrom, float32 (N, 3); atoms may lie outside the cell.
    cell: lattice vectors in rows, in angstrom, float32 (3, 3).
    tags: 0 for atoms deep in the slab, 1 at its surface, 2 in the adsorbate; int8 (N,).
    fixed: whether the simulation held the atom still; bool (N,).
    force: in eV per angstrom, float32 (N, 3).
    energy: in eV, less the system's reference energy.
    edges: source and centre of each edge, int32 (E, 2), grouped by centre and there sorted by distance.
    offsets: in which image of the cell the source is, int8 (E, 3).
    sid, fid: numbers of the system and of the frame in its trajectory.
    """

    numbers: np.ndarray
    pos: np.ndarray
    cell: np.ndarray
    tags: np.ndarray
    fixed: np.ndarray
    force: np.ndarray
    energy: float
    edges: np.ndarray
    offsets: np.ndarray
    sid: int
    fid: int


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """The edges of each atom, as a table with a row for each atom, as wide as the longest row.

    members: edges (A, width); empty places at the end of a row name edge 0.
    slots: place of each edge in the flattened table (E,).
    """

    members: Tensor
    slots: Tensor


@dataclass(frozen=True, slots=True)
class Graph:
    """Frames joined to one graph, without edges between them. Tensors on one device.

    numbers: atomic numbers, int64 (A,).
    image: frame of each atom, int64 (A,).
    sources, targets: atoms j and i of each edge, int64 (E,).
    vectors: from i to j's image, in angstrom, float32 (E, 3); none is shorter than 1e-8.
    reverse: the edge straight back, from i to j, or the edge itself where that is not in the graph; int64 (E,).
    incoming, outgoing: the edges by centre and by source.
    free: whether the atom may move, bool (A,).
    forces: in eV per angstrom, float32 (A, 3).
    energies: in eV, float32 (G,).
    images: G.
    """

    numbers: Tensor
    image: Tensor
    sources: Tensor
    targets: Tensor
    vectors: Tensor
    reverse: Tensor
    incoming: EdgeTable
    outgoing: EdgeTable
    free: Tensor
    forces: Tensor
    energies: Tensor
    images: int

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Graph:
        """Return the graph on that device."""
        return _mapped(self, lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Graph:
        """Return the graph in pinned memory, from which a GPU can copy asynchronously."""
        return _mapped(self, Tensor.pin_memory)

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the graph's memory from being reused before the stream's work so far is done."""
        _mapped(self, lambda tensor: (tensor, tensor.record_stream(stream))[0])


def neighbours(
    pos: np.ndarray, cell: np.ndarray, cutoff: float = CUTOFF_ANGSTROM, most: int = MOST_NEIGHBOURS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges int32 (E, 2), source and centre, and the sources' images int8 (E, 3).

    Each atom is the centre of edges from the nearest atoms, at most `most`, that are within `cutoff` angstrom in any
    periodic image: of other atoms, or of itself. Equally near ones come by number and image. Grouped by centre, there
    sorted by distance. Raises ValueError where the cell has no volume or is too thin for the cutoff.
    """
    pos, cell = np.asarray(pos, np.float64), np.asarray(cell, np.float64)
    if not np.isfinite(pos).all():
        raise ValueError("a position is not finite; expected three numbers in angstrom for each atom")
    volume = abs(np.linalg.det(cell))
    if not (volume > 0 and np.isfinite(volume)):
        raise ValueError(f"the cell has rows {cell.tolist()}; expected three vectors that span a volume")
    heights = [volume / np.linalg.norm(np.cross(cell[axis - 2], cell[axis - 1])) for axis in range(3)]
    # Within the cell, fractions of a lattice vector differ by less than 1: hence ceil, as floor would miss some.
    reach = [math.ceil(cutoff / height) for height in heights]
    fractions = pos @ np.linalg.inv(cell)
    cells = np.floor(fractions)
    farthest = np.abs(cells).max(initial=0)
    if max(reach) + 2 * farthest > np.iinfo(np.int8).max:
        raise ValueError(
            f"the cell is {min(heights):.3g} angstrom thick, and an atom is {farthest:.0f} cells away; expected "
            "fewer than 127 cells between neighbours"
        )
    inside = pos - cells @ cell
    images = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in reach), indexing="ij"), -1).reshape(-1, 3)
    starts = inside[None, :, :] + (images @ cell)[:, None, :]
    squares = sum((starts[:, None, :, axis] - inside[None, :, None, axis]) ** 2 for axis in range(3))
    image, centre, source = np.nonzero((squares <= cutoff**2) & (squares > SAME_PLACE_ANGSTROM**2))
    distance = np.round(np.sqrt(squares[image, centre, source]), TIE_DECIMALS)
    offset = images[image] + (cells[centre] - cells[source]).astype(np.int64)
    order: np.ndarray = np.lexsort((offset[:, 2], offset[:, 1], offset[:, 0], source, distance, centre))
    degree = np.bincount(centre, minlength=len(pos))
    first = np.cumsum(degree) - degree
    order = order[np.arange(len(order)) - first[centre[order]] < most]
    return np.stack([source[order], centre[order]], 1).astype(np.int32), offset[order].astype(np.int8)


def reverse_edges(edges: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return for each edge the one from its centre to its source in the opposite image, or itself if there is none."""
    source, centre = edges.astype(np.int64).T
    atoms = int(edges.max(initial=-1)) + 1
    there = _keys(source, centre, offsets.astype(np.int64), atoms)
    back = _keys(centre, source, -offsets.astype(np.int64), atoms)
    order = np.argsort(there)
    found = np.searchsorted(there, back, sorter=order)
    candidates = np.append(order, -1)[found]
    reverse: np.ndarray = np.where(np.append(there, -1)[candidates] == back, candidates, np.arange(len(edges)))
    return reverse


def count_triplets(edges: np.ndarray, offsets: np.ndarray, atoms: int) -> int:
    """Return the number of pairs of edges k -> j -> i in a frame of `atoms` atoms, without those straight back."""
    degree = np.bincount(edges[:, 1], minlength=atoms)
    straight_back = reverse_edges(edges, offsets) != np.arange(len(edges))
    return int(degree[edges[:, 0]].sum() - straight_back.sum())


def collate(frames: Sequence[Frame]) -> Graph:
    """Return the graph of these frames, possibly none. Edges between atoms at the same place are left out."""
    counts = [len(frame.numbers) for frame in frames]
    starts = np.cumsum([0, *counts])
    joined: dict[str, list[np.ndarray]] = {"edges": [], "offsets": [], "vectors": []}
    for start, frame in zip(starts, frames, strict=False):
        source, centre = frame.edges.astype(np.int64).T
        pos: np.ndarray = frame.pos.astype(np.float64)
        vectors = pos[source] - pos[centre] + frame.offsets @ frame.cell.astype(np.float64)
        apart = (vectors**2).sum(1) > SAME_PLACE_ANGSTROM**2
        joined["edges"].append(np.stack([source, centre], 1)[apart] + start)
        joined["offsets"].append(frame.offsets[apart])
        joined["vectors"].append(vectors[apart])
    edges = _concatenated(joined["edges"], np.int64, 2)
    atoms = int(starts[-1])
    return Graph(
        numbers=_tensor(_concatenated([frame.numbers for frame in frames], np.int64)),
        image=_tensor(np.repeat(np.arange(len(frames)), counts)),
        sources=_tensor(edges[:, 0]),
        targets=_tensor(edges[:, 1]),
        vectors=_tensor(_concatenated(joined["vectors"], np.float32, 3)),
        reverse=_tensor(reverse_edges(edges, _concatenated(joined["offsets"], np.int64, 3))),
        incoming=_table(edges[:, 1], atoms),
        outgoing=_table(edges[:, 0], atoms),
        free=_tensor(~_concatenated([frame.fixed for frame in frames], np.bool_)),
        forces=_tensor(_concatenated([frame.force for frame in frames], np.float32, 3)),
        energies=_tensor(np.array([frame.energy for frame in frames], np.float32)),
        images=len(frames),
    )


def _keys(source: np.ndarray, centre: np.ndarray, offset: np.ndarray, atoms: int) -> np.ndarray:
    """Return a unique number for each edge."""
    key: np.ndarray = source * atoms + centre
    for axis in range(3):
        key = key * 256 + offset[:, axis] + 128
    return key


def _table(owners: np.ndarray, atoms: int) -> EdgeTable:
    """Return the table of the edges of each atom, given the atom to which each edge belongs."""
    counts = np.bincount(owners, minlength=atoms)
    order = np.argsort(owners, kind="stable")
    place: np.ndarray = np.empty(len(owners), np.int64)
    place[order] = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners[order]]
    width = int(counts.max(initial=0))
    slots = owners * width + place
    members: np.ndarray = np.zeros(atoms * width, np.int64)
    members[slots] = np.arange(len(owners))
    return EdgeTable(_tensor(members.reshape(atoms, width)), _tensor(slots))


def _concatenated(parts: list[np.ndarray], dtype: type[np.generic], columns: int | None = None) -> np.ndarray:
    """Return the concatenated parts, an empty array if there are none."""
    none = np.empty((0,) if columns is None else (0, columns), dtype)
    joined: np.ndarray = np.concatenate([none, *(part.astype(dtype) for part in parts)])
    return joined


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _mapped(parts: Parts, function: Callable[[Tensor], Tensor]) -> Parts:
    """Return a copy with a function applied to each tensor."""
    changes: dict[str, Any] = {}
    for field in fields(parts):
        value = getattr(parts, field.name)
        if isinstance(value, Tensor):
            changes[field.name] = function(value)
        elif isinstance(value, EdgeTable):
            changes[field.name] = _mapped(value, function)
    return replace(parts, **changes)
