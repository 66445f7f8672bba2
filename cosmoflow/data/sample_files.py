"""The sample files of a universe: sub-volumes, their order and names, in one of three formats.

TFRecord, see tfrecord.py; packed, see packed.py; or two files of numpy: `<stem>_data.npy`, int16 (D, H, W, 4), and
`<stem>_label.npy`, float32 (4,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from common.data.arrays import ArrayError, npy_array, write_npy
from common.errors import UsageError
from common.files import write_whole_file
from common.spatial.grid import Block
from cosmoflow.data import packed, tfrecord
from cosmoflow.data.tfrecord import CHANNELS as CHANNELS
from cosmoflow.data.tfrecord import RecordError, Sample

ENDINGS: Final = {"tfrecord": (".tfrecord",), "npy": ("_data.npy", "_label.npy"), "packed": (".packed",)}
"""Of the files of a sample, by format."""
FORMATS: Final = tuple(ENDINGS)


@dataclass(frozen=True)
class SampleFormat:
    """One file per sample as TFRecord or packed, or two as npy. gzip: for TFRecord only."""

    kind: str = "tfrecord"
    gzip: bool = True

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise UsageError(f"unknown format {self.kind!r}; expected {', '.join(FORMATS)}")
        if self.gzip and self.kind != "tfrecord":
            raise UsageError(f"{self.kind} files cannot be compressed: use --compress none")

    @classmethod
    def from_options(cls, kind: str, compress: str | None) -> SampleFormat:
        """Return the format of two arguments; without `compress` ("gzip" or "none") TFRecords are compressed."""
        return cls(kind, kind == "tfrecord" if compress is None else compress == "gzip")

    @property
    def facts(self) -> dict[str, str]:
        """The facts about the format for a manifest."""
        return {"format": self.kind, "compression": "gzip" if self.gzip else "none"}

    def file_names(self, stem: str) -> tuple[str, ...]:
        """Return the names of the files of one sample."""
        return tuple(stem + ending for ending in ENDINGS[self.kind])

    def write_sample(self, stem: Path, x: np.ndarray, y: np.ndarray) -> None:
        """Write a sample; each file appears whole or not at all, and replaces an old one."""
        first, *others = (stem.with_name(name) for name in self.file_names(stem.name))
        if self.kind == "tfrecord":
            tfrecord.write_sample(first, x, y, compress=self.gzip)
        elif self.kind == "packed":
            write_whole_file(first, packed.encode_sample(x, y))
        else:
            write_npy(first, x)
            write_npy(others[0], y)

    def bytes_of(self, grid: int) -> float:
        """Return the approximate size of a universe of grid³ voxels in bytes."""
        raw_bytes = grid**3 * CHANNELS * 2
        # With one particle per voxel gzip leaves 0.22, with three 0.29; packed are 0.26 with one.
        return raw_bytes * (0.3 if self.gzip or self.kind == "packed" else 1)

    def names_of_universe(self, stem: str, blocks: int) -> tuple[str, ...]:
        """Return the names of all files of a universe that is cut into blocks³ samples."""
        return tuple(name for i in range(blocks**3) for name in self.file_names(f"{stem}_{i:03d}"))

    def write_universe(self, stem: Path, slabs: Iterable[np.ndarray], y: np.ndarray) -> None:
        """Write all samples of a universe, numbered as published: the last axis runs fastest.

        slabs: int16 (n, k·n, k·n, 4), from first to last along the first axis; the samples are cubes (n, n, n, 4).
        """
        i = 0
        for slab in slabs:
            n = len(slab)
            for start1 in range(0, slab.shape[1], n):
                for start2 in range(0, slab.shape[2], n):
                    x = slab[:, start1 : start1 + n, start2 : start2 + n]
                    self.write_sample(stem.with_name(f"{stem.name}_{i:03d}"), np.ascontiguousarray(x), y)
                    i += 1


def read_sample(paths: Sequence[Path], into: Sample, verify: bool = False, block: Block | None = None) -> Sample:
    """`into`, filled with the sample of files in the format that their endings tell, or only with a block of it.

    verify: compare what checksums of its numbers there are. Errors are those of the format's own function.
    """
    if paths[0].name.endswith(ENDINGS["tfrecord"]):
        return tfrecord.read_sample(paths[0], into, verify, block)
    if paths[0].name.endswith(ENDINGS["packed"]):
        return packed.read_sample(paths[0], into, verify)
    read_npy(paths[0], into.x, block)
    read_npy(paths[1], into.y)
    return into


def read_npy(path: Path, into: np.ndarray, block: Block | None = None) -> None:
    """Read the array of a file directly into `into`, or only a block of it.

    RecordError for a damaged file or a type or shape that differs from `into`, or from that of the block's array;
    OSError if it cannot be read.
    """
    try:
        array = npy_array(path)
        expected = block.shape if block else into.shape
        if (array.shape, array.dtype) != (expected, into.dtype):
            is_other_size = array.shape != expected and array.shape[1:] and array.shape[-1:] == expected[-1:]
            fix = f"; set 'data.sample_shape={list(array.shape)}', or name other data" if is_other_size else ""
            raise RecordError(f"{path}: {array.dtype} {array.shape}; expected {into.dtype} {expected}{fix}")
        if block:
            array.read_block(into, block)
        else:
            array.read_values(into)
    except ArrayError as error:
        raise RecordError(str(error)) from error
