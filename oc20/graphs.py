"""Frames of atoms, and the graphs of neighbours across the cell's periodic borders that the network reads.

An edge leads from a source atom j, in some periodic image, to a centre atom i. Edges k -> j and j -> i make a triplet,
except for the pair that goes straight back, where k is i in the same image.

Shapes: N atoms of a frame, A atoms and E edges of a batch, G frames of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from common.candidate import Candidate
from common.data.prefetch import map_tensors
from oc20.settings import CUTOFF_ANGSTROM, FAR_ANGSTROM

MOST_NEIGHBOURS: Final = 50
SAME_PLACE_ANGSTROM: Final = 1e-8
"""Two atoms nearer than this have no defined direction between them, and get no edge."""
TIE_DECIMALS: Final = 6
"""Distances are compared to this many decimals, so that rounding does not choose among atoms of a perfect crystal."""
ROWS: Final = Candidate("oc20-rows")
"""Kernels add the edges of an atom, and no longer than it has some: without padding to the width of a table."""

Numbers = TypeVar("Numbers", np.ndarray, Tensor)


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

    @classmethod
    def without_forces(cls, numbers: np.ndarray, pos: np.ndarray, cell: np.ndarray, **edges: np.ndarray) -> Frame:
        """Return a frame of free atoms with these edges and offsets, in which all that only training needs is 0."""
        atoms = len(numbers)
        return cls(
            numbers=np.asarray(numbers, np.uint8),
            pos=np.asarray(pos, np.float32),
            cell=np.asarray(cell, np.float32),
            tags=np.zeros(atoms, np.int8),
            fixed=np.zeros(atoms, np.bool_),
            force=np.zeros((atoms, 3), np.float32),
            energy=0.0,
            sid=0,
            fid=0,
            **edges,
        )


@dataclass(frozen=True, slots=True)
class Tensors:
    """The base of what consists of tensors on one device, and of such parts."""

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on that device."""
        return map_tensors(self, lambda tensor: tensor.to(device))


@dataclass(frozen=True, slots=True)
class Joined(Tensors):
    """Frames side by side: what travels to the device, where `link_frames` makes their graph.

    numbers: atomic numbers, uint8 (A,).
    image: frame of each atom, int32 (A,).
    pos: in angstrom, float32 (A, 3).
    cells: of the frames, float32 (G, 3, 3).
    sources, targets: atoms j and i of each edge, grouped by target, int32 (E,).
    offsets: in which image of the cell the source is, int8 (E, 3).
    free, forces, energies: as in `Graph`.
    widths: of the tables of incoming and outgoing edges; at least the most edges of an atom.
    """

    numbers: Tensor
    image: Tensor
    pos: Tensor
    cells: Tensor
    sources: Tensor
    targets: Tensor
    offsets: Tensor
    free: Tensor
    forces: Tensor
    energies: Tensor
    widths: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EdgeTable(Tensors):
    """The edges of each atom, as a table with a row for each atom, at least as wide as the longest row.

    members: edges (A, width); empty places at the end of a row name edge 0.
    slots: place of each edge in the flattened table (E,).
    first: number of edges of the atoms before each, and of all atoms at the end; int32 (A + 1,).
    """

    members: Tensor
    slots: Tensor
    first: Tensor


@dataclass(frozen=True, slots=True)
class Graph(Tensors):
    """Frames joined to one graph, without edges between them.

    numbers: atomic numbers, int64 (A,).
    image: frame of each atom, int64 (A,).
    sources, targets: atoms j and i of each edge, grouped by target, int64 (E,).
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


def find_neighbours(
    pos: np.ndarray, cell: np.ndarray, cutoff: float = CUTOFF_ANGSTROM, most: int = MOST_NEIGHBOURS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges int32 (E, 2), source and centre, and the sources' images int8 (E, 3).

    Each atom is the centre of edges from the nearest atoms, at most `most`, that are within `cutoff` angstrom in any
    periodic image: of other atoms, or of itself. Equally near ones come by number and image. Grouped by centre, there
    sorted by distance. Raises ValueError where the cell has no volume or is too thin for the cutoff.
    """
    pos, cell = np.asarray(pos, np.float64), np.asarray(cell, np.float64)
    reach = images_within(pos, cell, cutoff)
    fractions = pos @ np.linalg.inv(cell)
    cells = np.floor(fractions)
    inside = pos - cells @ cell
    images = list_images([(-cells_away, cells_away + 1) for cells_away in reach])
    starts = inside[None, :, :] + (images @ cell)[:, None, :]
    squares = sum((starts[:, None, :, axis] - inside[None, :, None, axis]) ** 2 for axis in range(3))
    image, centre, source = np.nonzero((squares <= cutoff**2) & (squares > SAME_PLACE_ANGSTROM**2))
    distance = np.round(np.sqrt(squares[image, centre, source]), TIE_DECIMALS)
    offset = images[image] + (cells[centre] - cells[source]).astype(np.int64)
    order = select_nearest(centre, distance, source, offset, most)
    edges = np.stack([source[order], centre[order]], 1)
    return edges.astype(np.int32), offset[order].astype(np.int8)


def list_images(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return the images of a cell, int64 (images, 3), from the first to before the last along each axis."""
    axes = np.meshgrid(*(np.arange(first, last) for first, last in ranges), indexing="ij")
    return np.stack(axes, -1).reshape(-1, 3)


def images_within(pos: np.ndarray, cell: np.ndarray, cutoff: float) -> list[int]:
    """Return how many cells away, along each axis, an image of an atom in the cell can be nearer than the cutoff.

    Raises ValueError as `find_neighbours` does.
    """
    if not np.isfinite(pos).all():
        raise ValueError("a position is not finite; expected three numbers in angstrom for each atom")
    volume = abs(np.linalg.det(cell))
    if not (volume > 0 and np.isfinite(volume)):
        raise ValueError(f"the cell has rows {cell.tolist()}; expected three vectors that span a volume")
    heights = [volume / np.linalg.norm(np.cross(cell[axis - 2], cell[axis - 1])) for axis in range(3)]
    # Within the cell, fractions of a lattice vector differ by less than 1: hence ceil, as floor would miss some.
    reach = [math.ceil(cutoff / height) for height in heights]
    farthest = np.abs(np.floor(pos @ np.linalg.inv(cell))).max(initial=0)
    if max(reach) + 2 * farthest > np.iinfo(np.int8).max:
        raise ValueError(
            f"the cell is {min(heights):.3g} angstrom thick, and an atom is {farthest:.0f} cells away; expected "
            "fewer than 127 cells between neighbours"
        )
    return reach


def select_nearest(
    centre: np.ndarray, distance: np.ndarray, source: np.ndarray, offset: np.ndarray, most: int
) -> np.ndarray:
    """Return which of these edges remain if each centre keeps its `most` nearest, sorted by centre and distance.

    Equally near ones come by source and its image.
    """
    order = np.lexsort((offset[:, 2], offset[:, 1], offset[:, 0], source, distance, centre))
    degree = np.bincount(centre)
    first = np.cumsum(degree) - degree
    return order[np.arange(len(order)) - first[centre[order]] < most]


def count_triplets(edges: np.ndarray, offsets: np.ndarray, atoms: int) -> int:
    """Return the number of pairs of edges k -> j -> i in a frame of `atoms` atoms, without those straight back."""
    source, centre = edges.astype(np.int64).T
    shift: np.ndarray = offsets.astype(np.int64)
    back = _edge_keys(centre, source, -shift, atoms)
    there: np.ndarray = np.append(np.sort(_edge_keys(source, centre, shift, atoms)), -1)
    exists = there[np.searchsorted(there[:-1], back)] == back
    straight_back = exists & ((source != centre) | shift.any(1))
    return int(np.bincount(centre, minlength=atoms)[source].sum() - straight_back.sum())


def build_graph(frames: Sequence[Frame]) -> Graph:
    """Return the graph of these frames, possibly none."""
    return link_frames(join_frames(frames))


def join_frames(frames: Sequence[Frame], images: int = 0) -> Joined:
    """Return the frames side by side; more follow, without atoms, if there are fewer than `images`."""
    counts = [len(frame.numbers) for frame in frames]
    edges_E2 = _concatenate_parts([frame.edges for frame in frames], np.int32, 2)
    starts = np.cumsum([0, *counts], dtype=np.int32)
    starts_E: np.ndarray = np.repeat(starts[:-1], [len(frame.edges) for frame in frames])
    sources_E, targets_E = edges_E2[:, 0] + starts_E, edges_E2[:, 1] + starts_E
    if (targets_E[1:] < targets_E[:-1]).any():
        raise ValueError("the edges of a frame are not grouped by centre: sort them by their second column")
    cells_G33: np.ndarray = np.zeros((max(len(frames), images), 3, 3), np.float32)
    energies_G: np.ndarray = np.zeros(len(cells_G33), np.float32)
    for number, frame in enumerate(frames):
        cells_G33[number], energies_G[number] = frame.cell, frame.energy
    return Joined(
        numbers=torch.from_numpy(_concatenate_parts([frame.numbers for frame in frames], np.uint8)),
        image=torch.from_numpy(np.repeat(np.arange(len(frames), dtype=np.int32), counts)),
        pos=torch.from_numpy(_concatenate_parts([frame.pos for frame in frames], np.float32, 3)),
        cells=torch.from_numpy(cells_G33),
        sources=torch.from_numpy(sources_E),
        targets=torch.from_numpy(targets_E),
        offsets=torch.from_numpy(_concatenate_parts([frame.offsets for frame in frames], np.int8, 3)),
        free=torch.from_numpy(~_concatenate_parts([frame.fixed for frame in frames], np.bool_)),
        forces=torch.from_numpy(_concatenate_parts([frame.force for frame in frames], np.float32, 3)),
        energies=torch.from_numpy(energies_G),
        widths=(int(np.bincount(targets_E).max(initial=0)), int(np.bincount(sources_E).max(initial=0))),
    )


def link_frames(frames: Joined | Graph) -> Graph:
    """Return the graph of joined frames; a graph is returned as it is.

    It is made on their device, by operations whose results have sizes that do not depend on data: nothing waits.
    """
    if isinstance(frames, Graph):
        return frames
    sources_E, targets_E, atoms = frames.sources.long(), frames.targets.long(), len(frames.numbers)
    by_source_E, order_E = torch.sort(sources_E, stable=True)
    return Graph(
        numbers=frames.numbers.long(),
        image=frames.image.long(),
        sources=sources_E,
        targets=targets_E,
        vectors=_edge_vectors(frames),
        reverse=_reverse_edges(sources_E, targets_E, frames.offsets.long(), atoms),
        incoming=_build_table(targets_E, _number_rows(targets_E), atoms, frames.widths[0]),
        outgoing=_build_table(by_source_E, order_E, atoms, frames.widths[1]),
        free=frames.free,
        forces=frames.forces,
        energies=frames.energies,
        images=len(frames.energies),
    )


def _edge_vectors(frames: Joined) -> Tensor:
    """Return the vectors of the edges, float32 (E, 3); a long one for atoms at the same place, which have none."""
    pos_A3, cells_A33 = frames.pos.double(), frames.cells.double().index_select(0, frames.image)
    offsets_E3, cells_E33 = frames.offsets.double(), cells_A33.index_select(0, frames.targets)
    shifts_E3 = offsets_E3[:, :1] * cells_E33[:, 0]
    for axis in (1, 2):
        shifts_E3.addcmul_(offsets_E3[:, axis, None], cells_E33[:, axis])
    vectors_E3 = pos_A3.index_select(0, frames.sources) - pos_A3.index_select(0, frames.targets) + shifts_E3
    apart_E1 = (vectors_E3**2).sum(1, keepdim=True) > SAME_PLACE_ANGSTROM**2
    return torch.where(apart_E1, vectors_E3, FAR_ANGSTROM).float()


def _reverse_edges(sources_E: Tensor, targets_E: Tensor, offsets_E3: Tensor, atoms: int) -> Tensor:
    """Return for each edge the one from its target to its source in the opposite image, or itself if there is none."""
    back_E = _edge_keys(targets_E, sources_E, -offsets_E3, atoms)
    ascending_E, order_E = torch.sort(_edge_keys(sources_E, targets_E, offsets_E3, atoms))
    rank_E = torch.searchsorted(ascending_E, back_E).clamp_max(len(order_E) - 1)
    exists_E = ascending_E.index_select(0, rank_E) == back_E
    return torch.where(exists_E, order_E.index_select(0, rank_E), _number_rows(order_E))


def _build_table(owners_E: Tensor, edges_E: Tensor, atoms: int, width: int) -> EdgeTable:
    """Return the table of these edges, given the atoms to which they belong, ascending."""
    first = torch.searchsorted(owners_E, torch.arange(atoms + 1, device=owners_E.device), out_int32=True)
    slots_E = owners_E * width + _number_rows(owners_E) - first.index_select(0, owners_E)
    members = owners_E.new_zeros(atoms * width).index_copy(0, slots_E, edges_E)
    slots = torch.empty_like(slots_E).index_copy(0, edges_E, slots_E)
    return EdgeTable(members.unflatten(0, (atoms, width)), slots, first)


def _number_rows(x_E: Tensor) -> Tensor:
    """Return the numbers of the rows, int64 (E,)."""
    return torch.arange(len(x_E), device=x_E.device)


def _edge_keys(source: Numbers, centre: Numbers, offset: Numbers, atoms: int) -> Numbers:
    """Return a unique number for each edge, given arrays or tensors of int64."""
    key: Numbers = source * atoms + centre
    for axis in range(3):
        key = key * 256 + offset[:, axis] + 128
    return key


def _concatenate_parts(parts: list[np.ndarray], dtype: type[np.generic], columns: int | None = None) -> np.ndarray:
    """Return the concatenated parts, an empty array if there are none."""
    none = np.empty((0,) if columns is None else (0, columns), dtype)
    return np.concatenate([none, *parts], dtype=dtype)
