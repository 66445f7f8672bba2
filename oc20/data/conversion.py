"""Convert frames to files that training reads, from published pairs of files or from another format.

    train/data.0000.lmdb       the frames of the source with this number; or data.0000.bin
    train/data_log.0000.txt    `random<sid>,frame<fid>` of each, as the reference writes it
    train/metadata.0000.npz    their sizes, as in oc20/data/dataset.py
    train/metadata.npz         the sizes of all frames, made last

The frames of a split are in the order of their files' names.

`find_reference_neighbours` counts edges as the reference does, rounding included: `convert --edges reference`.

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

import errno
import fnmatch
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np

from common.data.build import BadItemError, BuildError, DatasetPlan, Item
from common.files import list_data, suggest_folder, write_whole_file
from common.reference import SPLITS
from common.values import group_pairs
from oc20.data import compact, dataset, extxyz, records
from oc20.data.dataset import Metadata
from oc20.data.extxyz import Pair
from oc20.graphs import (
    MOST_NEIGHBOURS,
    SAME_PLACE_ANGSTROM,
    Frame,
    find_neighbours,
    images_within,
    list_images,
    select_nearest,
)
from oc20.settings import CUTOFF_ANGSTROM


def find_reference_neighbours(pos: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and images as `oc20.graphs.find_neighbours` does, for positions and a cell in float64."""
    reach = np.array(images_within(pos, cell, CUTOFF_ANGSTROM))
    inside = _wrap_positions(pos, cell)
    fractions = _multiply_matrix(inside, _invert_by_cofactors(cell))
    within: np.ndarray = fractions % 1
    cells = np.round(fractions - within).astype(np.int64)
    wrapped = _multiply_matrix(within, cell)
    images = list_images(zip(cells.min(0) - reach - 1, cells.max(0) + reach + 2, strict=True))
    starts = wrapped[None, :, :] + _multiply_matrix(images.astype(np.float64), cell)[:, None, :]
    x, y, z = (starts[:, None, :, axis] - inside[None, :, None, axis] for axis in range(3))
    squares = x * x + y * y + z * z
    itself = (squares == 0) & np.eye(len(pos), dtype=bool)
    image, centre, source = np.nonzero((squares < CUTOFF_ANGSTROM**2) & ~itself)
    distance, offset = np.sqrt(squares[image, centre, source]), images[image] - cells[source]
    kept = select_nearest(centre, distance, source, offset, MOST_NEIGHBOURS)
    kept = kept[distance[kept].astype(np.float32) >= np.float32(SAME_PLACE_ANGSTROM)]
    edges = np.stack([source[kept], centre[kept]], 1)
    return edges.astype(np.int32), offset[kept].astype(np.int8)


def _wrap_positions(pos: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Return the positions that step 1 gives."""
    return _multiply_matrix(_multiply_matrix(pos, _invert_by_elimination(cell)), cell)


def _multiply_matrix(rows_N3: np.ndarray, matrix_33: np.ndarray) -> np.ndarray:
    """Return the matrix product, its terms added from first to last, each rounded: no library does that for sure."""
    first, second, third = (rows_N3[:, axis, None] * matrix_33[axis] for axis in range(3))
    return first + second + third


def _invert_by_cofactors(cell: np.ndarray) -> np.ndarray:
    """Return the inverse by cofactors, times one over the determinant."""
    a, b, c = cell
    across = np.stack([_cross_product(b, c), _cross_product(c, a), _cross_product(a, b)], 1)
    x, y, z = a * across[:, 0]
    return across * (1 / (x + y + z))


def _cross_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    turned, back = [1, 2, 0], [2, 0, 1]
    return a[turned] * b[back] - a[back] * b[turned]


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


GRAPH: Final = {"cutoff": CUTOFF_ANGSTROM, "most_neighbours": MOST_NEIGHBOURS}
"""The facts about edges for a manifest."""
EDGES: Final = ("nearest", "reference")
"""How edges are counted: by oc20/graphs.py, or rounding included as by the reference's code, as above."""
BYTES_PER_ATOM, BYTES_PER_EDGE = 60, 40  # in LMDB
SHARD: Final = re.compile(r"data\.(\d+)")
"""The name of a file that this suite or the reference made; its number stays that of what is made from it."""


@dataclass(frozen=True)
class FrameFormat:
    """A file format of frames. read_as: its name in a configuration. share: its size relative to LMDB."""

    read_as: str
    ending: str
    write: Callable[[Path, Iterable[Frame]], int]
    share: float = 1.0


FORMATS: Final[Mapping[str, FrameFormat]] = {
    "lmdb": FrameFormat("lmdb", ".lmdb", partial(records.write_frames, layout="pyg1")),
    "lmdb-new": FrameFormat("lmdb", ".lmdb", partial(records.write_frames, layout="pyg2")),
    "compact": FrameFormat("compact", ".bin", compact.write_frames, share=1 / 7),
}


@dataclass(frozen=True)
class Published(Pair):
    """A published pair of files; edges are added to its frames. edges: one of EDGES."""

    edges: str = "nearest"

    @property
    def lmdb_bytes(self) -> float:
        """The approximate size of the frames with edges in LMDB."""
        return self.path.stat().st_size * (80.0 if self.path.suffix == ".xz" else 15.0)  # measured

    def read_frames(self) -> Iterator[Frame]:
        """Yield the frames with edges; BadItemError for a damaged one, and for edges where it is not periodic."""
        for count, (frame, atoms) in enumerate(extxyz.read_exact(self), 1):
            try:
                if self.edges == "reference":
                    edges, offsets = find_reference_neighbours(atoms.positions, atoms.cell.array)
                else:
                    edges, offsets = find_neighbours(frame.pos, frame.cell)
                if crossing := np.count_nonzero(offsets[:, ~atoms.pbc].any(1)):
                    raise ValueError(
                        f"pbc is {' '.join('FT'[int(axis)] for axis in atoms.pbc)}, but graphs are periodic, and "
                        f"{crossing:,} edges cross a border that is not; give it a cell with {CUTOFF_ANGSTROM:g} "
                        "angstrom of vacuum"
                    )
            except (ValueError, ArithmeticError, MemoryError) as error:  # of impossible cells
                raise BadItemError(f"{self.path}, frame {count}: {error}") from error
            yield replace(frame, edges=edges, offsets=offsets)


@dataclass(frozen=True)
class Converted:
    """A file whose frames have edges. number: see `find_sources`. format: of the file."""

    path: Path
    number: int
    format: str

    @property
    def lmdb_bytes(self) -> float:
        return self.path.stat().st_size / FORMATS[self.format].share

    def read_frames(self) -> Iterator[Frame]:
        shard = dataset.SHARDS[self.format](self.path)
        yield from map(shard.read_frame, range(len(shard)))


FrameSource = Published | Converted
"""A pair of files, or a file, with frames; picklable."""


def find_sources(folder: Path, edges: str = "nearest") -> list[FrameSource]:
    """Return the sources in a folder, sorted by number; BuildError if there are several kinds. edges: of EDGES.

    Where an LMDB file has another name than data.N.lmdb, the files are numbered by the order of their names.
    """
    by_kind: dict[str, Sequence[FrameSource]] = {
        "N.extxyz": [Published(**vars(pair), edges=edges) for pair in extxyz.find_pairs(folder)]
    }
    files = list_data(folder) if folder.is_dir() else ()
    for name, pattern in dataset.PATTERNS.items():
        paths = [folder / file for file in fnmatch.filter(files, pattern)]
        matches = [SHARD.fullmatch(path.stem) for path in paths]
        numbers = [int(match[1]) if match and all(matches) else order for order, match in enumerate(matches)]
        shards = [Converted(path, number, name) for path, number in zip(paths, numbers, strict=True)]
        by_kind[pattern] = sorted(shards, key=lambda shard: shard.number)
    kinds = {kind: sources for kind, sources in by_kind.items() if sources}
    if edges != "nearest" and kinds and "N.extxyz" not in kinds:
        raise BuildError(f"the frames in {folder} have edges already: leave out --edges, or convert published files")
    if len(kinds) > 1:
        raise BuildError(f"{folder} has files {' and '.join(kinds)}: keep one kind per folder")
    return list(next(iter(kinds.values()), ()))


def find_splits(folder: Path, edges: str = "nearest") -> dict[str, list[FrameSource]]:
    """Return the sources of each split; BuildError if one has none. edges: of EDGES."""
    splits = {split: find_sources(folder / split, edges) for split in SPLITS}
    for split, sources in splits.items():
        if not sources:
            raise BuildError(
                f"no frames in {folder / split}{suggest_folder(folder, SPLITS)}: expected N.extxyz.xz with N.txt.xz as "
                "published, *.lmdb, or data.N.bin"
            )
    return splits


def names_of(split: str, number: int, format: FrameFormat) -> tuple[str, str, str]:
    """Return the files made from a source: frames, their system and frame numbers, and their sizes."""
    return (
        f"{split}/data.{number:04d}{format.ending}",
        f"{split}/data_log.{number:04d}.txt",
        f"{split}/metadata.{number:04d}.npz",
    )


def make_shard(frames: Iterable[Frame], format: FrameFormat, folder: Path, names: Sequence[str]) -> None:
    """Write the files of one source, `names` as in `names_of`; BadItemError for a damaged frame, or OSError."""
    import lmdb  # needed only to make data

    lines: list[str] = []
    sizes: list[tuple[int, ...]] = []

    def note_sizes() -> Iterator[Frame]:
        for frame in frames:
            lines.append(f"random{frame.sid},frame{frame.fid}\n")
            sizes.append(dataset.count_parts(frame))
            yield frame

    shard, log, part_sizes = (folder / name for name in names)
    try:
        format.write(shard, note_sizes())
    except lmdb.Error as error:
        # LMDB reports a write that a full disk cuts short as an input/output error.
        needed = sum(BYTES_PER_ATOM * atoms + BYTES_PER_EDGE * edges for atoms, edges, *_ in sizes)
        full = isinstance(error, lmdb.DiskError) or shutil.disk_usage(folder).free < 2 * needed
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(shard)) from error
    write_whole_file(log, "".join(lines))
    dataset.write_metadata(part_sizes, Metadata.from_sizes(sizes))


def add_metadata_items(plan: DatasetPlan) -> DatasetPlan:
    """Return the plan with items for the metadata.npz of each split."""
    parts = group_pairs((str(PurePosixPath(item.files[0]).parent), item.files[-1]) for item in plan.items)
    items = []
    for split, names in parts.items():
        file = f"{split}/{dataset.NAME}"
        items.append(Item(file, (file,), tuple(sorted(names))))
    return replace(plan, make=partial(_make_or_merge, plan.make), closing=tuple(items))


def _make_or_merge(make: Callable[[Item, Path], None], item: Item, folder: Path) -> None:
    """Make an item by `make`, or merge sizes, of which the source is the names of the parts in order."""
    if PurePosixPath(item.name).name == dataset.NAME:
        parts = [dataset.read_arrays(folder / name) for name in item.source]
        whole = (np.concatenate([part[key] for part in parts]) for key in Metadata._fields)
        dataset.write_metadata(folder / item.name, Metadata(*whole))
    else:
        make(item, folder)


def compare_frames(source: FrameSource, shard: FrameSource) -> list[str]:
    """Return a line for the first frame of a shard that differs from its source; none if all are equal."""
    again = f"delete {shard.path} and convert again"
    try:
        for number, (expected, actual) in enumerate(zip_longest(source.read_frames(), shard.read_frames()), 1):
            if expected is None or actual is None:
                return [f"{shard.path} has {'fewer' if actual is None else 'more'} frames than {source.path}; {again}"]
            names = (field.name for field in fields(Frame))
            if wrong := [name for name in names if not np.array_equal(getattr(expected, name), getattr(actual, name))]:
                return [f"{shard.path}, frame {number}: {', '.join(wrong)} differ from {source.path}; {again}"]
    except (BadItemError, OSError) as error:
        return [str(error)]
    return []
