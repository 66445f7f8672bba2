"""The contract of CosmoFlow's numbers: counts of particles, little-endian, and labels in [-1, 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from common.data.arrays import npy_array
from common.data.values import Bounds, Content, Flaw, Identity, Values
from cosmoflow.data import packed, tfrecord
from cosmoflow.data.sample_files import CHANNELS, ENDINGS, read_npy
from cosmoflow.data.tfrecord import Sample, WrongSizeError, find_side

COUNTS: Final = Bounds(
    valid=(0, 2**15 - 1),
    likely=(0, 2**15 - 1),
    advice="particles per voxel; an overflow of int16 leaves negative numbers: convert the universe again",
    varies=True,
)
LABELS: Final = Bounds(
    valid=(-1.01, 1.01),
    likely=(-1.0001, 1.0001),  # rounded
    advice="labels are scaled to the ranges of the parameters, as `unitPar` of the raw universes: convert them again",
    is_truth=True,
)


def list_contents(x: np.ndarray, y: np.ndarray) -> Iterator[Content]:
    """Yield the contents of a sample."""
    yield from list_counts(x)
    yield Values("labels", y, LABELS)


def list_counts(x: np.ndarray) -> Iterator[Content]:
    """Yield the contents of the voxels, int16 (D, H, W, C).

    Of the right byte order almost all counts are below 256; of the wrong one these are multiples of 256.
    """
    occupied = np.count_nonzero(x)
    if not occupied:
        yield Flaw("all counts are 0; expected particles: fetch or convert the sample again, or leave it out")
    elif 2 * np.count_nonzero(x & 255) < occupied:
        index = [int(number) for number in np.unravel_index(int(np.argmax(x != 0)), x.shape)]
        yield Flaw(
            f"counts{index} is {x[tuple(index)]}, and most are multiples of 256: the byte order is wrong; write them "
            "again as little-endian int16"
        )
    else:
        yield Values("counts", x, COUNTS)


def read_contents(_: Path) -> Callable[[str, Path, str], Iterator[tuple[str, Iterator[Content]]]]:
    """Return what yields the samples of a file of a dataset, given its name, where to read it, and its SHA-256."""
    shapes = [(1, 1, 1, CHANNELS)]

    def read_record(name: str, path: Path) -> Sample:
        is_packed = name.endswith(ENDINGS["packed"])
        read = partial(packed.read_sample, verify=True) if is_packed else tfrecord.read_sample
        try:
            return read(path, Sample.empty(shapes[-1]))
        except WrongSizeError as error:  # the next file will have this size, too
            side = find_side(error.size)
            if side is None or side > 512:  # a universe has 512 voxels per side
                raise
            shapes.append((side, side, side, CHANNELS))
            return read(path, Sample.empty(shapes[-1]))

    def read_file(name: str, path: Path, checksum: str) -> Iterator[tuple[str, Iterator[Content]]]:
        data_ending, label_ending = ENDINGS["npy"]
        if name.endswith(ENDINGS["tfrecord"] + ENDINGS["packed"]):
            yield "", iter([Identity(checksum), *list_contents(*read_record(name, path))])
        elif name.endswith((data_ending, label_ending)):
            is_data = name.endswith(data_ending)
            array: np.ndarray = np.empty(npy_array(path).shape, "<i2" if is_data else "<f4")
            read_npy(path, array)
            yield "", iter([Identity(checksum), *list_counts(array)] if is_data else [Values("labels", array, LABELS)])

    return read_file
