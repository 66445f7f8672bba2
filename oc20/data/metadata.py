"""The sizes of the frames of a folder, in order: `metadata.npz` beside the files.

    natoms, neighbors      atoms, and edges; int32, as in published files
    triplets, free         triplets, and atoms that are not fixed; int32

The work is proportional to the triplets, and losses are divided by the free atoms: both must be known in advance.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from common.data.split import DatasetError
from common.files import open_whole_file
from common.tree import open_regular
from oc20.graphs import Frame, count_triplets

NAME: Final = "metadata.npz"


class Metadata(NamedTuple):
    """Numbers of atoms, edges, triplets and free atoms of each frame, int32."""

    natoms: np.ndarray
    neighbors: np.ndarray
    triplets: np.ndarray
    free: np.ndarray

    @classmethod
    def from_sizes(cls, sizes: Iterable[tuple[int, ...]]) -> Metadata:
        """Return the metadata of frames with these sizes."""
        return cls(*np.array(list(sizes), np.int32).reshape(-1, len(cls._fields)).T)

    def take_first(self, count: int) -> Metadata:
        """Return the metadata of the first `count` frames."""
        return Metadata(*(array[:count] for array in self))


def count_parts(frame: Frame) -> tuple[int, ...]:
    """Return the numbers of a frame's atoms, edges, triplets and free atoms."""
    atoms = len(frame.numbers)
    triplets = count_triplets(frame.edges, frame.offsets, atoms)
    return atoms, len(frame.edges), triplets, atoms - int(frame.fixed.sum())


def write_metadata(path: Path, metadata: Metadata) -> None:
    """Write metadata to a file; an old one is replaced."""
    with open_whole_file(path) as file:
        np.savez(file, **metadata._asdict())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name; DatasetError if it is damaged, FileNotFoundError if it does not exist.

    Published files lack `free`, and some `triplets`.
    """
    try:
        with open(open_regular(path), "rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: file[key] for key in Metadata._fields if key in file}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is damaged ({error}): delete it, and {_how_to_fix(path)}") from error


def read_metadata(path: Path, count: int) -> Metadata:
    """Return the metadata of a folder with `count` frames; DatasetError if it is missing, incomplete or wrong."""
    try:
        arrays = read_arrays(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} with the sizes of the frames is missing: {_how_to_fix(path)}") from error
    if missing := [key for key in Metadata._fields if key not in arrays]:
        raise DatasetError(f"{path} has no {' or '.join(missing)}: {_how_to_fix(path)}")
    for key, array in arrays.items():
        if array.shape != (count,) or array.dtype != np.int32:
            raise DatasetError(
                f"{path}: `{key}` is {array.dtype} {array.shape}, but the folder has {count:,} frames: delete it, and "
                f"{_how_to_fix(path)}"
            )
    return Metadata(**arrays)


def _how_to_fix(path: Path) -> str:
    return f"make it by `python -m oc20.prepare metadata {path.parent.parent}`"
