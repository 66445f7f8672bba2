"""The contract of OC20's numbers: finite, which reading checks, too, of atomic size, and no frame twice."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Final

import numpy as np

from common.data.values import Bounds, Content, Flaw, Identity, Values
from oc20.data.dataset import PATTERNS, SHARDS
from oc20.data.lmdb_file import LmdbError
from oc20.data.records import AGAIN, FrameError
from oc20.graphs import Frame

FAR: Final = 1e6
POSITIONS: Final = Bounds(valid=(-FAR, FAR), likely=(-1e4, 1e4), advice=f"positions are in angstrom: {AGAIN}")
CELL: Final = Bounds(valid=(-FAR, FAR), likely=(-1e4, 1e4), advice=f"lattice vectors are in angstrom: {AGAIN}")
FORCES: Final = Bounds(
    valid=(-FAR, FAR), likely=(-200, 200), advice=f"forces are in eV/angstrom, published ones below 50: {AGAIN}"
)
NEAREST_ANGSTROM: Final = 0.5
"""Below any distance between atoms: those of hydrogen have 0.74."""


def list_contents(frame: Frame) -> Iterator[Content]:
    """Yield the contents of a frame."""
    yield Identity(hash((frame.sid, frame.fid, zlib.crc32(frame.pos.tobytes()))))
    yield Values("cell", frame.cell, CELL)
    yield Values("pos", frame.pos, POSITIONS)
    yield Values("force", frame.force, FORCES)
    forces = frame.force[~frame.fixed]
    if not len(forces):
        yield Flaw(f"no atom is free, so that there is nothing to predict: {AGAIN}")
    elif len(forces) > 1 and (forces == forces[0]).all():
        numbers = ", ".join(f"{number:g}" for number in forces[0])
        yield Flaw(f"force is {numbers} on all free atoms; expected forces that differ: {AGAIN}", is_error=False)
    if not len(frame.edges):
        yield Flaw(f"no atom has a neighbour; expected edges: {AGAIN}", is_error=False)
    sources_E, centres_E = frame.edges.T
    across_E3 = frame.pos[sources_E] + frame.offsets.astype(np.float32) @ frame.cell - frame.pos[centres_E]
    lengths_E = np.linalg.norm(across_E3, axis=1)
    if lengths_E.min(initial=np.inf) < NEAREST_ANGSTROM:
        edge = int(lengths_E.argmin())
        yield Flaw(
            f"atoms {sources_E[edge]} and {centres_E[edge]} are {lengths_E[edge]:g} angstrom apart; expected "
            f"{NEAREST_ANGSTROM:g} or more: {AGAIN}",
            is_error=False,
        )


def name_frame(frame: Frame) -> str:
    """Return the name of a frame, for people."""
    return f"frame {frame.sid}_{frame.fid}"


def read_contents(_: Path) -> Callable[[str, Path, str], Iterator[tuple[str, Iterator[Content]]]]:
    """Return what yields the frames of a file of a dataset, given its name, where to read it, and its SHA-256."""

    def read_file(name: str, path: Path, _: str) -> Iterator[tuple[str, Iterator[Content]]]:
        for kind, pattern in PATTERNS.items():
            if PurePath(name).match(pattern):
                shard = SHARDS[kind](path)
                for number in range(len(shard)):
                    try:
                        frame = shard.read_frame(number)
                    except (FrameError, LmdbError) as error:  # the others may be right
                        yield "", iter([Flaw(str(error).removeprefix(f"{path}, "))])
                    else:
                        yield name_frame(frame), list_contents(frame)

    return read_file
