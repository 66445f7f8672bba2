"""Convert frames to files that training reads, from published pairs of files or from another format.

    train/data.0000.lmdb       the frames of the source with this number; or data.0000.bin
    train/data_log.0000.txt    `random<sid>,frame<fid>` of each, as the reference writes it
    train/metadata.0000.npz    their sizes, as in oc20/data/metadata.py
    train/metadata.npz         the sizes of all frames, made last

The frames of a split are in the order of their files' names.
"""

from __future__ import annotations

import errno
import fnmatch
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np

from common.data.build import BadItemError, BuildError, DatasetPlan, Item
from common.files import list_data, write_whole_file
from common.record import group_pairs
from common.reference import SPLITS
from oc20.data import compact, extxyz, metadata, records, reference_edges
from oc20.data.extxyz import Pair
from oc20.data.lmdb_file import LmdbError
from oc20.data.metadata import Metadata
from oc20.data.records import FrameError
from oc20.graphs import MOST_NEIGHBOURS, Frame, find_neighbours
from oc20.settings import CUTOFF_ANGSTROM

GRAPH: Final = {"cutoff": CUTOFF_ANGSTROM, "most_neighbours": MOST_NEIGHBOURS}
"""The facts about edges for a manifest."""
EDGES: Final = ("nearest", "reference")
"""How edges are counted: by oc20/graphs.py, or rounding included as by the reference's code (reference_edges.py)."""
BYTES_PER_ATOM, BYTES_PER_EDGE = 60, 40  # in LMDB
SHARD: Final = re.compile(r"data\.(\d+)")
"""The name of a file that this suite or the reference made; its number stays that of what is made from it."""


@dataclass(frozen=True)
class FrameFormat:
    """A file format of frames. read_as: its name in a configuration. share: its size relative to LMDB."""

    read_as: str
    ending: str
    write: Callable[[Path, Iterable[Frame]], int]
    open: Callable[[Path], records.LmdbShard | compact.CompactShard]
    share: float = 1.0


FORMATS: Final[Mapping[str, FrameFormat]] = {
    "lmdb": FrameFormat("lmdb", records.ENDING, partial(records.write_frames, layout="pyg1"), records.LmdbShard),
    "lmdb-new": FrameFormat("lmdb", records.ENDING, partial(records.write_frames, layout="pyg2"), records.LmdbShard),
    "compact": FrameFormat("compact", compact.ENDING, compact.write_frames, compact.CompactShard, share=1 / 7),
}
BROKEN: Final = (LmdbError, FrameError)


@dataclass(frozen=True)
class Published:
    """A published pair of files; edges are added to its frames. edges: one of EDGES."""

    pair: Pair
    edges: str = "nearest"

    @property
    def path(self) -> Path:
        """The file with the frames."""
        return self.pair.xyz

    @property
    def number(self) -> int:
        """The number in its name, and in that of the file made from it."""
        return self.pair.number

    @property
    def lmdb_bytes(self) -> float:
        """The approximate size of the frames with edges in LMDB."""
        return self.path.stat().st_size * (80.0 if self.path.suffix == ".xz" else 15.0)  # measured

    def read_frames(self) -> Iterator[Frame]:
        """Yield the frames with edges; BadItemError for a damaged one, and for edges where it is not periodic."""
        for count, (frame, atoms) in enumerate(extxyz.read_exact(self.pair), 1):
            try:
                if self.edges == "reference":
                    edges, offsets = reference_edges.find_neighbours(atoms.positions, atoms.cell.array)
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
        try:
            shard = FORMATS[self.format].open(self.path)
            yield from map(shard.read_frame, range(len(shard)))
        except BROKEN as error:
            raise BadItemError(str(error)) from error


FrameSource = Published | Converted
"""A pair of files, or a file, with frames; picklable."""


def find_sources(folder: Path, edges: str = "nearest") -> list[FrameSource]:
    """Return the sources in a folder, sorted by number; BuildError if there are several kinds. edges: of EDGES.

    Where an LMDB file has another name than data.N.lmdb, the files are numbered by the order of their names.
    """
    by_kind: dict[str, list[FrameSource]] = {"N.extxyz": [Published(pair, edges) for pair in extxyz.find_pairs(folder)]}
    for name, pattern in (("lmdb", records.PATTERN), ("compact", compact.PATTERN)):
        paths = [folder / file for file in fnmatch.filter(list_data(folder) if folder.is_dir() else (), pattern)]
        matches = [SHARD.fullmatch(path.stem) for path in paths]
        numbers = [int(match[1]) if match and all(matches) else order for order, match in enumerate(matches)]
        shards = [Converted(path, number, name) for path, number in zip(paths, numbers, strict=True)]
        by_kind[pattern] = sorted(shards, key=lambda shard: shard.number)
    kinds = {kind: sources for kind, sources in by_kind.items() if sources}
    if edges != "nearest" and kinds and "N.extxyz" not in kinds:
        raise BuildError(f"the frames in {folder} have edges already: leave out --edges, or convert published files")
    if len(kinds) > 1:
        raise BuildError(f"{folder} has files {' and '.join(kinds)}: keep one kind per folder")
    return next(iter(kinds.values()), [])


def find_splits(folder: Path, edges: str = "nearest") -> dict[str, list[FrameSource]]:
    """Return the sources of each split; BuildError if one has none. edges: of EDGES."""
    splits = {split: find_sources(folder / split, edges) for split in SPLITS}
    for split, sources in splits.items():
        if not sources:
            raise BuildError(
                f"no frames in {folder / split}: expected N.extxyz.xz with N.txt.xz as published, *.lmdb, or data.N.bin"
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

    who: list[str] = []
    sizes: list[tuple[int, ...]] = []

    def note_sizes() -> Iterator[Frame]:
        for frame in frames:
            who.append(f"random{frame.sid},frame{frame.fid}\n")
            sizes.append(metadata.count_parts(frame))
            yield frame

    shard, log, part_sizes = (folder / name for name in names)
    try:
        format.write(shard, note_sizes())
    except BROKEN as error:
        raise BadItemError(str(error)) from error
    except lmdb.Error as error:
        # LMDB reports a write that a full disk cuts short as an input/output error.
        needed = sum(BYTES_PER_ATOM * atoms + BYTES_PER_EDGE * edges for atoms, edges, *_ in sizes)
        full = isinstance(error, lmdb.DiskError) or shutil.disk_usage(folder).free < 2 * needed
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(shard)) from error
    write_whole_file(log, "".join(who))
    metadata.write_metadata(part_sizes, Metadata.from_sizes(sizes))


def add_metadata_items(plan: DatasetPlan) -> DatasetPlan:
    """Return the plan with items for the metadata.npz of each split."""
    parts = group_pairs((str(PurePosixPath(item.files[0]).parent), item.files[-1]) for item in plan.items)
    items = []
    for split, names in parts.items():
        file = f"{split}/{metadata.NAME}"
        items.append(Item(file, (file,), tuple(sorted(names))))
    return replace(plan, make=partial(_make_or_merge, plan.make), closing=tuple(items))


def _make_or_merge(make: Callable[[Item, Path], None], item: Item, folder: Path) -> None:
    """Make an item by `make`, or merge sizes, of which the source is the names of the parts in order."""
    if PurePosixPath(item.name).name != metadata.NAME:
        make(item, folder)
        return
    parts = [metadata.read_arrays(folder / name) for name in item.source]
    whole = (np.concatenate([part[key] for part in parts]) for key in Metadata._fields)
    metadata.write_metadata(folder / item.name, Metadata(*whole))


def compare_frames(source: FrameSource, shard: FrameSource) -> list[str]:
    """Return a line for the first frame of a shard that differs from its source; none if all are equal."""
    again = f"delete {shard.path} and convert again"
    try:
        pairs = zip_longest(source.read_frames(), shard.read_frames())
        for number, (expected, actual) in enumerate(pairs, 1):
            if expected is None or actual is None:
                return [f"{shard.path} has {'fewer' if actual is None else 'more'} frames than {source.path}; {again}"]
            names = [field.name for field in fields(Frame)]
            wrong = [name for name in names if not np.array_equal(getattr(expected, name), getattr(actual, name))]
            if wrong:
                return [f"{shard.path}, frame {number}: {', '.join(wrong)} differ from {source.path}; {again}"]
    except (BadItemError, OSError) as error:
        return [str(error)]
    return []
