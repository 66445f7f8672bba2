"""How frames become files that are read in training: from published pairs of files, or from another format.

    train/data.0000.lmdb       the frames of the source with this number; or data.0000.bin, with more of the same name
    train/data_log.0000.txt    `random<sid>,frame<fid>` of each, as the reference writes it
    train/metadata.0000.npz    their sizes; merged to metadata.npz, in order of the files' names, when all are there
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

import lmdb
import numpy as np

from common.files import whole_file
from common.production import BadItemError, Item, Plan, ProductionError
from oc20 import compact, extxyz, records
from oc20.extxyz import Pair
from oc20.graphs import CUTOFF_ANGSTROM, MOST_NEIGHBOURS, Frame, count_triplets, neighbours
from oc20.lmdbfile import LmdbError
from oc20.records import RecordError

SPLITS: Final = ("train", "validation")
GRAPH: Final = {"cutoff": CUTOFF_ANGSTROM, "most_neighbours": MOST_NEIGHBOURS}
"""What a manifest says about the edges."""
METADATA: Final = "metadata.npz"
SIZES: Final = ("natoms", "neighbors", "triplets", "free")
"""What `metadata.npz` has of each frame, int32: atoms, edges, triplets and atoms that are free."""
SHARD: Final = re.compile(r"data\.(\d+)")


class Shard(Protocol):
    """A file of frames, opened."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Frame: ...


@dataclass(frozen=True)
class Format:
    """How frames are kept in a file. read_as: what `data.format` of a configuration calls it."""

    ending: str
    read_as: str
    write: Callable[[Path, Iterable[Frame]], int]
    open: Callable[[Path], Shard]


FORMATS: Final[Mapping[str, Format]] = {
    "lmdb": Format(records.ENDING, "lmdb", partial(records.write, layout="pyg1"), records.Shard),
    "lmdb-new": Format(records.ENDING, "lmdb", partial(records.write, layout="pyg2"), records.Shard),
    "compact": Format(compact.ENDING, "compact", compact.write, compact.Shard),
}
BROKEN: Final = (LmdbError, RecordError)


class Source(Protocol):
    """A file with frames, or a pair of files; picklable."""

    @property
    def path(self) -> Path:
        """Of the frames."""

    @property
    def number(self) -> int:
        """By which it is called, and the file that becomes of it."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frames with edges. BadItemError for a damaged one."""


@dataclass(frozen=True)
class Published:
    """A pair of files, whose frames get edges."""

    pair: Pair

    @property
    def path(self) -> Path:
        return self.pair.xyz

    @property
    def number(self) -> int:
        return self.pair.number

    def frames(self) -> Iterator[Frame]:
        for count, frame in enumerate(extxyz.read(self.pair), 1):
            try:
                edges, offsets = neighbours(frame.pos, frame.cell)
            except ValueError as error:
                raise BadItemError(f"{self.path}, frame {count}: {error}") from error
            yield replace(frame, edges=edges, offsets=offsets)


@dataclass(frozen=True)
class Converted:
    """A file whose frames have edges. format: one of those in which it can be read."""

    path: Path
    number: int
    format: str

    def frames(self) -> Iterator[Frame]:
        try:
            shard = FORMATS[self.format].open(self.path)
            yield from map(shard.read, range(len(shard)))
        except BROKEN as error:
            raise BadItemError(str(error)) from error


def find(folder: Path) -> list[Source]:
    """The sources in a folder, in order of their numbers. ProductionError where they are of several kinds."""
    found: dict[str, list[Source]] = {"N.extxyz": [Published(pair) for pair in extxyz.find_pairs(folder)]}
    for name in ("lmdb", "compact"):
        ending = FORMATS[name].ending
        matches = [(path, SHARD.fullmatch(path.stem)) for path in sorted(folder.glob(f"data.*{ending}"))]
        shards = [Converted(path, int(match[1]), name) for path, match in matches if match]
        found[f"data.N{ending}"] = sorted(shards, key=lambda shard: shard.number)
    kinds = {kind: sources for kind, sources in found.items() if sources}
    if len(kinds) > 1:
        raise ProductionError(f"{folder} has files {' and '.join(kinds)}: leave those of one kind there")
    return next(iter(kinds.values()), [])


def find_splits(folder: Path) -> dict[str, list[Source]]:
    """The sources of each split; ProductionError where one has none."""
    splits = {split: find(folder / split) for split in SPLITS}
    for split, sources in splits.items():
        if not sources:
            raise ProductionError(
                f"no frames in {folder / split}: expected N.extxyz.xz with N.txt.xz as published, or data.N.lmdb"
            )
    return splits


def names_of(split: str, number: int, format: Format) -> tuple[str, str, str]:
    """The files that a source becomes: frames, who they are, and their sizes."""
    return (
        f"{split}/data.{number:04d}{format.ending}",
        f"{split}/data_log.{number:04d}.txt",
        f"{split}/metadata.{number:04d}.npz",
    )


def make_shard(frames: Iterable[Frame], format: Format, folder: Path, names: Sequence[str]) -> None:
    """The files of one source are there, `names` as of `names_of`. BadItemError for a damaged frame, OSError."""
    who: list[str] = []
    sizes: list[tuple[int, ...]] = []

    def noted() -> Iterator[Frame]:
        for frame in frames:
            who.append(f"random{frame.sid},frame{frame.fid}\n")
            sizes.append(sizes_of(frame))
            yield frame

    shard, log, metadata = (folder / name for name in names)
    try:
        format.write(shard, noted())
    except BROKEN as error:
        raise BadItemError(str(error)) from error
    except lmdb.DiskError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(shard)) from error
    with whole_file(log) as part:
        part.write_text("".join(who))
    write_metadata(metadata, np.array(sizes, np.int32).reshape(-1, len(SIZES)))


def sizes_of(frame: Frame) -> tuple[int, ...]:
    """Its SIZES."""
    atoms = len(frame.numbers)
    return atoms, len(frame.edges), count_triplets(frame.edges, frame.offsets, atoms), int((~frame.fixed).sum())


def write_metadata(path: Path, sizes: np.ndarray) -> None:
    """The file has the columns of `sizes`, int32 (frames, 4), by the names SIZES."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, **dict(zip(SIZES, sizes.T, strict=True)))


def read_metadata(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, those of SIZES that it has. ProductionError if it is damaged."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in SIZES if name in file}
    except (ValueError, EOFError, KeyError, OSError) as error:
        raise ProductionError(f"{path} cannot be read: {error}; delete it and give the command again") from error


def closing(plan: Plan) -> Plan:
    """The plan, which also merges the sizes of each split to its metadata.npz."""
    parts: dict[str, list[str]] = {}
    for item in plan.items:
        parts.setdefault(str(PurePosixPath(item.files[0]).parent), []).append(item.files[-1])
    items = [
        Item(f"{split}/{METADATA}", (f"{split}/{METADATA}",), tuple(sorted(names))) for split, names in parts.items()
    ]
    return replace(plan, make=_Closing(plan.make), closing=tuple(items))


@dataclass(frozen=True)
class _Closing:
    """Makes what `make` makes, and merges sizes."""

    make: Callable[[Item, Path], None]

    def __call__(self, item: Item, folder: Path) -> None:
        if PurePosixPath(item.name).name != METADATA:
            self.make(item, folder)
            return
        parts = [read_metadata(folder / name) for name in item.source]
        write_metadata(folder / item.name, np.stack([np.concatenate([part[key] for part in parts]) for key in SIZES], 1))


def compare(source: Source, shard: Source) -> list[str]:
    """A line for the first frame of a shard that is not, value by value, as in its source; none if all are."""
    again = f"delete {shard.path} and convert again"
    try:
        pairs = zip_longest(source.frames(), shard.frames())
        for number, (expected, found) in enumerate(pairs, 1):
            if expected is None or found is None:
                return [f"{shard.path} has {'fewer' if found is None else 'more'} frames than {source.path}; {again}"]
            wrong = [field.name for field in fields(Frame) if not _same(expected, found, field.name)]
            if wrong:
                return [f"{shard.path}, frame {number}: {', '.join(wrong)} not as in {source.path}; {again}"]
    except (BadItemError, OSError) as error:
        return [str(error)]
    return []


def _same(expected: Frame, found: Frame, name: str) -> bool:
    values: list[Any] = [getattr(frame, name) for frame in (expected, found)]
    return np.array_equal(*values)
