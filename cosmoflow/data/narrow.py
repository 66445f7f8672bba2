"""Samples with a byte per count, half the size of int16, for disks, memory and the bus to an accelerator; lossless.

    header, 64 bytes:
      magic     8 bytes
      version   uint32
      shape     4 × uint32   D, H, W, C
      labels    4 × float32
      crc       uint32       CRC-32C of the body
      crc       uint32       CRC-32C of the header up to here; then zeros
    body, of the same size in all files of a shape:
      index     int32 (K,)   where the counts outside of 0 to 254 are, ascending
      value     int16 (K,)   what they are
      counts    uint8 (D, H, W, C)   255 for those in the list; then zeros up to a multiple of 8 bytes

K is one in 512 counts. The rest of the list repeats its last entry, or, if there is none, says what the first count
is: all entries are true, so that a device can store them all without looking. All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from common.datasets.build import BadItemError
from common.files import open_regular, write_whole_file
from common.spatial.grid import Block
from cosmoflow.data.tfrecord import AGAIN, LABELS, RecordError, Sample

ENDING: Final = ".narrow"
MAGIC: Final = b"\x93COUNTS\n"
VERSION: Final = 1
LISTED: Final = 255
"""The byte that stands for a count in the list."""
COUNTS_PER_ENTRY: Final = 512
HEADER: Final = struct.Struct("<8sI4I4f")
CRCS: Final = struct.Struct("<II")
HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Body:
    """Where the parts of a body are. shape: of a sample; block: the part of it that the body has, None for all of it.

    The list of a block has as many entries as that of the sample.
    """

    shape: tuple[int, ...]
    block: Block | None = None

    @property
    def sides(self) -> tuple[int, ...]:
        """The shape of the counts."""
        return self.block.sides if self.block else self.shape

    @property
    def counts(self) -> int:
        return prod(self.sides)

    @property
    def entries(self) -> int:
        return 4 * -(-prod(self.shape) // (4 * COUNTS_PER_ENTRY))

    @property
    def list_size(self) -> int:
        """The bytes of the list."""
        return 6 * self.entries

    @property
    def nbytes(self) -> int:
        """The size of a body."""
        return self.list_size + 8 * -(-self.counts // 8)

    def split_parts(self, body: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return views of index, value and counts (all in one dimension) in the bytes of a body."""
        index, value, counts = np.split(body, (4 * self.entries, self.list_size))
        return index.view("<i4"), value.view("<i2"), counts[: self.counts]


# -- reading -------------------------------------------------------------------------------------------------


def read_sample(path: Path, into: Sample, verify_crc: bool = False, block: Block | None = None) -> Sample:
    """`into`, filled with the sample of a file as int16, or with a block of it; otherwise as `read_body`."""
    parts = Body(block.shape if block else into.x.shape, block)
    body: np.ndarray = np.empty(parts.nbytes, np.uint8)
    read_body(path, body, into.y, parts, verify_crc)
    index, value, counts = parts.split_parts(body)
    x = np.frombuffer(into.x, into.x.dtype)
    x[:] = counts
    x[index] = value
    return into


def read_body(path: Path, body: np.ndarray, y: np.ndarray, parts: Body, verify_crc: bool = False) -> None:
    """Read the body of a file, or that of a block of it, uint8 (Body.nbytes,), and its labels, float32 (4,).

    The header and the places of the list are always checked, all bytes on demand; otherwise only the list and the
    counts of the block are read. RecordError for a damaged file, or one of another version or shape; OSError if it
    cannot be read.
    """
    whole, block = Body(parts.shape), parts.block
    with open(open_regular(path), "rb", buffering=0) as file:
        crc, labels = _check_header(path, file.read(HEADER_BYTES), whole.shape)
        size, expected = os.fstat(file.fileno()).st_size, HEADER_BYTES + whole.nbytes
        if size != expected:
            raise RecordError(f"{path}: {size} bytes; expected {expected}; {AGAIN}")
        read = body
        if block is not None:
            read = np.empty(whole.nbytes if verify_crc else whole.list_size, np.uint8)
        _read_into(file, read.data, path)
        if verify_crc and crc32c(read.data) != crc:
            raise RecordError(f"{path}: the CRC of the body is wrong: bytes of the file have changed; {AGAIN}")
        index, value, counts = whole.split_parts(read)
        if index[0] < 0 or index[-1] >= whole.counts or np.any(index[1:] < index[:-1]):
            raise RecordError(f"{path}: the list of large counts is damaged: its places do not ascend; {AGAIN}")
        if block is not None:
            *_, own = parts.split_parts(body)
            for first, target in block.split_runs(own):
                if verify_crc:
                    target[:] = counts[first : first + len(target)]
                else:
                    file.seek(HEADER_BYTES + whole.list_size + first)
                    _read_into(file, target.data, path)
            body[whole.list_size + len(own) :] = 0
            _cut_list(index, value, block, parts.split_parts(body))
    y[:] = labels


def _cut_list(index: np.ndarray, value: np.ndarray, block: Block, own: tuple[np.ndarray, ...]) -> None:
    """Make the list of a block from that of the sample. own: the parts of the block's body, whose counts are there."""
    own_index, own_value, own_counts = own
    d, h, *rest = np.array(np.unravel_index(index, block.shape))
    inside = (block.d[0] <= d) & (d < block.d[1]) & (block.h[0] <= h) & (h < block.h[1])
    places = np.array([d - block.d[0], h - block.h[0], *rest])[:, inside]
    positions = np.ravel_multi_index(tuple(places), block.sides)
    count = int(inside.sum())
    own_index[:count], own_value[:count] = positions, value[inside]
    own_index[count:] = own_index[count - 1] if count else 0
    own_value[count:] = own_value[count - 1] if count else own_counts[0]


def _read_into(file: Any, view: memoryview, path: Path) -> None:
    """Read the next bytes of a file that has them."""
    filled = 0
    while filled < len(view):
        if not (count := file.readinto(view[filled:])):
            raise RecordError(f"{path}: it has become shorter; {AGAIN}")
        filled += count


def _check_header(path: Path, header: bytes, shape: tuple[int, ...]) -> tuple[int, tuple[float, ...]]:
    """Return the CRC of the body and the labels; RecordError unless the header is right."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise RecordError(f"{path}: not a narrow sample (data.format=narrow); {AGAIN}")
    crc_body, crc = CRCS.unpack_from(header, HEADER.size)
    if crc != crc32c(header[: HEADER.size + 4]) or any(header[HEADER.size + CRCS.size :]):
        raise RecordError(f"{path}: the CRC of the header is wrong: bytes of the file have changed; {AGAIN}")
    _, version, *stated_shape, l0, l1, l2, l3 = HEADER.unpack_from(header)
    if version != VERSION:
        raise RecordError(
            f"{path}: version {version} of the narrow format; this suite reads version {VERSION}: make the file again"
        )
    if tuple(stated_shape) != tuple(shape):
        there, wanted = (" × ".join(map(str, sides)) for sides in (stated_shape, shape))
        raise RecordError(f"{path}: a sample of {there}; data.sample_shape is {wanted}: set it to that of the files")
    return crc_body, (l0, l1, l2, l3)


# -- writing -------------------------------------------------------------------------------------------------


def write_sample(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Write a sample; the file appears whole or not at all. x: int16 (D, H, W, C), y: float32 (4,).

    BadItemError if too many counts do not fit a byte.
    """
    try:
        data = encode_sample(x, y)
    except BadItemError as error:
        raise BadItemError(f"{path}: {error}") from None
    write_whole_file(path, data)


def encode_sample(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return the bytes of a file; ValueError if type or shape are wrong, otherwise as `write_sample`."""
    if x.dtype != np.int16 or x.ndim != 4 or y.dtype != np.float32 or y.shape != (LABELS,):
        raise ValueError(f"{x.dtype} {x.shape} and {y.dtype} {y.shape}; expected int16 (D, H, W, C) and float32 (4,)")
    parts, flat = Body(x.shape), x.reshape(-1)
    (large,) = np.nonzero((flat < 0) | (flat >= LISTED))
    if len(large) > parts.entries:
        raise BadItemError(
            f"{len(large):,} counts are outside of 0 to {LISTED - 1}, and a narrow sample has room for "
            f"{parts.entries:,} of them: use --format tfrecord"
        )
    body: np.ndarray = np.zeros(parts.nbytes, np.uint8)
    index, value, counts = parts.split_parts(body)
    counts[:] = flat  # modulo 256
    counts[large] = LISTED
    index[:] = np.pad(large if len(large) else [0], (0, parts.entries - max(1, len(large))), mode="edge")
    value[:] = flat[index]
    header = HEADER.pack(MAGIC, VERSION, *x.shape, *y.tolist()) + struct.pack("<I", crc32c(body.data))
    return (header + struct.pack("<I", crc32c(header))).ljust(HEADER_BYTES, b"\0") + body.tobytes()
