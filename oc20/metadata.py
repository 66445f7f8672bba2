"""How large the frames of a folder are, in their order: `metadata.npz` beside the files.

    natoms, neighbors      atoms, and edges; int32, as in published files
    triplets, free         triplets, and atoms that are not fixed; int32

Work goes with the triplets, and losses are divided by the free atoms: both are known before a frame is read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from common.files import whole_file
from common.samples import DatasetError
from oc20.graphs import Frame, count_triplets

NAME: Final = "metadata.npz"


class Metadata(NamedTuple):
    """Numbers of atoms, edges, triplets and free atoms of each frame, int32."""

    natoms: np.ndarray
    neighbors: np.ndarray
    triplets: np.ndarray
    free: np.ndarray

    @classmethod
    def of(cls, sizes: Iterable[tuple[int, int, int, int]]) -> Metadata:
        """Return those of frames whose `size` these are."""
        return cls(*np.array(list(sizes), np.int32).reshape(-1, len(cls._fields)).T)

    def first(self, count: int) -> Metadata:
        """Return those of the first so many frames."""
        return Metadata(*(array[:count] for array in self))


def size(frame: Frame) -> tuple[int, int, int, int]:
    """Return the numbers of a frame's atoms, edges, triplets and free atoms."""
    atoms = len(frame.numbers)
    triplets = count_triplets(frame.edges, frame.offsets, atoms)
    return atoms, len(frame.edges), triplets, atoms - int(frame.fixed.sum())


def write(folder: Path, metadata: Metadata) -> None:
    """The folder has them; what was there is replaced."""
    with whole_file(folder / NAME) as part, part.open("wb") as file:
        np.savez(file, **metadata._asdict())


def read(folder: Path, count: int) -> Metadata:
    """Return those of a folder with so many frames. DatasetError if they are missing, incomplete, damaged or others."""
    path = folder / NAME
    mend = f"make it by `python -m oc20.prepare metadata {folder}`"
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in Metadata._fields if key not in file]
            if missing:  # published files lack free, and some triplets
                raise DatasetError(f"{path} has no {' and no '.join(missing)}: {mend}")
            metadata = Metadata(*(file[key] for key in Metadata._fields))
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing, which says how large the frames are: {mend}") from error
    except (zipfile.BadZipFile, EOFError, KeyError) as error:
        raise DatasetError(f"{path} is damaged ({error}): {mend}") from error
    except ValueError as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path} is damaged ({error}): {mend}") from error
    for key, array in metadata._asdict().items():
        if array.shape != (count,) or array.dtype != np.int32:
            raise DatasetError(
                f"{path}: `{key}` is {array.dtype} {array.shape}, but the folder has {count:,} frames: {mend}"
            )
    return metadata
