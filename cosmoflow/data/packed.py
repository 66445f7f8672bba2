"""Packed samples: four bits for each count, of which nearly all are below 16, and a list of the others.

    magic       8 bytes    CFPACK and two zeros
    version     uint32     1
    shape       4 uint32   D, H, W, C
    exceptions  uint32     E, the counts that are not from 0 to 15
    labels      4 float32
    digest      32 bytes   SHA-256 of the counts, int16 in C order, followed by the labels
    zero        12 bytes
    crc         uint32     CRC-32C of all other bytes
    words       M uint16   from the lowest bits of word i on: the counts i, M + i, 2 M + i and 3 M + i
    positions   E uint32   of the exceptions among the counts, ascending
    values      E int16

M is a quarter of the counts, rounded up to an even number; all numbers are little-endian. A quarter of the counts is a
shift and a mask of all words, and no number depends on those before it, so that a GPU can decode them in any order
(cosmoflow/unpack.py). A sample of 128³ × 4 has 4.2 MB, and 6 bytes for each exception.
"""

from __future__ import annotations

import hashlib
import os
import struct
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
from crc32c import crc32c

from common.file_kind import HEAD_BYTES, PACKED, explain_kind
from common.tree import open_regular
from cosmoflow.data.tfrecord import AGAIN, RecordError, Sample, WrongSizeError, check_sample

MAGIC: Final = b"CFPACK\0\0"
VERSION: Final = 1
HEAD: Final = struct.Struct("<8s6I16s32s12xI")
COUNT_AT: Final = 28
"""Byte of the number of exceptions."""
LARGEST: Final = 15
"""The largest count in four bits."""
RARE: Final = 32
"""Among so many counts is at most one exception where a device decodes them."""
PORTION: Final = 1 << 17
"""Words that are decoded at once: they and a quarter of their counts fit the cache of a core."""


def count_words(counts: int) -> int:
    """Return how many words so many counts have."""
    return -(-counts // 8) * 2


def file_size(counts: int, exceptions: int) -> int:
    """Return the bytes of a file."""
    return HEAD.size + 2 * count_words(counts) + 6 * exceptions


def file_room(counts: int) -> int:
    """Return the bytes of memory for a file that is to be decoded on a device, a multiple of 16."""
    return -(-file_size(counts, counts // RARE) // 16) * 16


# -- reading -------------------------------------------------------------------------------------------------


def read_sample(path: Path, into: Sample, verify: bool = False) -> Sample:
    """`into`, filled with the sample of a file; its shape is the expected one. verify: compare the digest, too.

    Errors as of `read_file`.
    """
    counts = np.frombuffer(into.x, "<u2")
    words, positions, values, labels, digest = read_file(path, into.x.shape)
    for start in range(0, len(words), PORTION):
        portion = words[start : start + PORTION]
        for quarter in range(4):
            target = counts[quarter * len(words) + start :][: len(portion)]  # the last quarter may be shorter
            np.right_shift(portion[: len(target)], 4 * quarter, out=target)
            np.bitwise_and(target, LARGEST, out=target)
    counts[positions] = values
    into.y[:] = labels
    if verify and _digest(*into) != digest:
        raise RecordError(f"{path}: the counts are not those that were packed: their SHA-256 differs; {AGAIN}")
    return into


def read_file(
    path: Path, shape: tuple[int, ...], memory: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bytes]:
    """Return words, positions, values, labels and digest of a file, checked but not decoded.

    memory: uint8, where to read all of the file to.

    RecordError for a damaged file, another shape, or one that is larger than the memory; OSError if it cannot be read.
    """
    with open(open_regular(path), "rb") as file:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(MAGIC):
            problem = explain_kind(head + file.read(HEAD_BYTES), PACKED)
            raise RecordError(f"{path}, byte 0: {problem or f'expected the head of a packed sample; {AGAIN}'}")
        _, version, *sides, exceptions, labels, digest, crc = HEAD.unpack(head)
        if version != VERSION:
            raise RecordError(f"{path}, byte 8: version {version}; expected {VERSION}: make the file again")
        counts, actual = prod(sides), os.fstat(file.fileno()).st_size
        text = f"{path}, byte {COUNT_AT}: {exceptions:,} exceptions among {counts:,} counts"
        if (size := file_size(counts, exceptions)) != actual or exceptions > counts:
            raise RecordError(f"{text}: {actual:,} bytes; expected {size:,}; {AGAIN}")
        if tuple(sides) != shape:
            advice = f"set 'data.sample_shape={sides}', or name other data"
            raise WrongSizeError(
                f"{path}, byte 12: a sample of {sides}; data.sample_shape is {list(shape)}; {advice}", 2 * counts
            )
        memory = np.empty(size, np.uint8) if memory is None else memory
        if size > len(memory):
            raise RecordError(f"{text} are too many to be decoded on the device; use data.format=npy")
        memory[: HEAD.size] = np.frombuffer(head, np.uint8)
        body = memory[HEAD.size : size]
        file.readinto(body.data)  # of a file that becomes shorter meanwhile, the CRC differs
    if crc32c(body, crc32c(head[:-4])) != crc:
        raise RecordError(f"{path}, byte {HEAD.size - 4}: the CRC is wrong: bytes of the file have changed; {AGAIN}")
    words, positions, values = np.split(body, np.cumsum([2 * count_words(counts), 4 * exceptions]))
    positions = positions.view("<u4")
    if (positions[:-1] >= positions[1:]).any() or positions.max(initial=0) >= counts:
        raise RecordError(f"{text}: their positions do not ascend, up to {counts - 1:,} at most; {AGAIN}")
    return words.view("<u2"), positions, values.view("<u2"), np.frombuffer(labels, "<f4"), digest


# -- writing -------------------------------------------------------------------------------------------------


def encode_sample(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return the file of a sample, int16 (D, H, W, C) and float32 (4,); ValueError for another type or shape."""
    check_sample(x, y)
    counts = np.ascontiguousarray(x, "<i2").reshape(-1).view("<u2")
    positions = np.flatnonzero(counts > LARGEST)  # negative ones are large
    quarters: np.ndarray = np.zeros((4, count_words(counts.size)), "<u2")
    quarters.reshape(-1)[: counts.size] = counts
    quarters.reshape(-1)[positions] = 0
    words = quarters[0] | quarters[1] << 4 | quarters[2] << 8 | quarters[3] << 12
    body: bytes = words.tobytes() + positions.astype("<u4").tobytes() + counts[positions].tobytes()
    head = HEAD.pack(MAGIC, VERSION, *x.shape, len(positions), y.astype("<f4").tobytes(), _digest(x, y), 0)[:-4]
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


def _digest(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return the SHA-256 of a sample, whatever its format."""
    return hashlib.sha256(np.ascontiguousarray(x, "<i2").tobytes() + y.astype("<f4").tobytes()).digest()
