r"""A compact format of frames: 5 bytes per edge and 29 per atom, not 40 for each as in published records; no pickles.

    data.0000.bin, ...    head, records, index; all little-endian
    head      32 bytes: b"OC20BIN\0", uint32 version, uint32 CRC-32 of the index, uint64 number of frames, uint64 place
              of the index
    index     uint64 for each record: its start; and one more: the end of the last record
    record    uint32 CRC-32 of what follows, uint32 atoms N, uint32 edges E, int64 sid, int64 fid, float64 energy,
              float32 cell (3, 3), pos (N, 3), force (N, 3); uint16 edges of each centre (N,), int16 source of each edge
              (E,), int8 offsets (E, 3), uint8 numbers (N,), int8 tags (N,), uint8 fixed (N,)

A record is read in one call, while other threads continue: waiting for a page of a mapped file would hold Python's
lock, and a file that shrinks would end the process.
"""

from __future__ import annotations

import os
import struct
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from common.file_kind import COMPACT, explain_file
from common.files import open_whole_file
from common.tree import open_regular
from oc20.data.records import FrameError, check_frame
from oc20.graphs import Frame

PATTERN: Final = "data.*.bin"
MAGIC: Final = b"OC20BIN\0"
VERSION: Final = 1
HEAD: Final = struct.Struct("<8sIIQQ")
CRC: Final = struct.Struct("<I")
SIZES: Final = struct.Struct("<IIqqd")
HOW_TO_FIX: Final = "fetch the file again, or make it again by `python -m oc20.prepare`"


class CompactShard:
    """The frames of a file, for several threads; FrameError if it has another format or is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        weakref.finalize(self, os.close, self._file)
        self._starts = self._read_index()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def read_frame(self, index: int) -> Frame:
        """Return a frame; FrameError with file and index if it is damaged, OSError if it cannot be read."""
        begin, end = self._starts[index : index + 2].tolist()
        data = os.pread(self._file, end - begin, begin)
        try:
            return decode_frame(data)
        except FrameError as error:
            raise FrameError(f"{self.path}, frame {index}: {error}") from error

    def _read_index(self) -> np.ndarray:
        """Return the starts of the records, and the end of the last one."""
        head = os.pread(self._file, HEAD.size, 0)
        magic, version, crc, count, index_start = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        if magic != MAGIC:
            problem = explain_file(self.path, COMPACT) or HOW_TO_FIX
            raise FrameError(f"{self.path} is not a compact file of frames: {problem}")
        if version != VERSION:
            raise FrameError(f"{self.path} has version {version}; expected {VERSION}: make it again by oc20.prepare")
        expected = index_start + 8 * (count + 1)
        if (size := os.fstat(self._file).st_size) != expected:
            raise FrameError(f"{self.path} has {size:,} bytes; expected {expected:,}: {HOW_TO_FIX}")
        index = os.pread(self._file, 8 * (count + 1), index_start)
        if zlib.crc32(index) != crc:
            raise FrameError(f"{self.path}: the index is damaged: {HOW_TO_FIX}")
        return np.frombuffer(index, "<u8").astype(np.int64)


def write_frames(path: Path, frames: Iterable[Frame]) -> int:
    """Write the frames to a file, whole or not at all; return their number. FrameError for an invalid frame."""
    with open_whole_file(path) as file:
        starts = [file.write(bytes(HEAD.size))]
        for frame in frames:
            try:
                record = encode_frame(frame)
            except FrameError as error:
                raise FrameError(f"{path}, frame {len(starts) - 1}: {error}") from error
            starts.append(starts[-1] + file.write(record))
        index = np.array(starts, "<u8").tobytes()
        file.write(index)
        file.seek(0)
        file.write(HEAD.pack(MAGIC, VERSION, zlib.crc32(index), len(starts) - 1, starts[-1]))
    return len(starts) - 1


def encode_frame(frame: Frame) -> bytes:
    """Return the record of a frame; FrameError for an invalid one."""
    check_frame(frame)
    atoms = len(frame.numbers)
    degrees = np.bincount(frame.edges[:, 1], minlength=atoms)
    if degrees.max() > np.iinfo(np.uint16).max:
        raise FrameError(f"an atom has {degrees.max():,} neighbours; expected at most {np.iinfo(np.uint16).max:,}")
    arrays: list[np.ndarray] = [
        frame.cell.astype("<f4"),
        frame.pos.astype("<f4"),
        frame.force.astype("<f4"),
        degrees.astype("<u2"),
        frame.edges[:, 0].astype("<i2"),
        frame.offsets,
        frame.numbers,
        frame.tags,
        frame.fixed,
    ]
    head = SIZES.pack(atoms, len(frame.edges), frame.sid, frame.fid, frame.energy)
    body = head + b"".join(array.tobytes() for array in arrays)
    return CRC.pack(zlib.crc32(body)) + body


def decode_frame(data: bytes) -> Frame:
    """Return the frame of a record, with views of it where types agree; FrameError if it is damaged."""
    body = memoryview(data)[CRC.size :]
    if len(body) < SIZES.size or CRC.unpack_from(data) != (zlib.crc32(body),):
        raise FrameError(f"the checksum is wrong: {HOW_TO_FIX}")
    atoms, edges, sid, fid, energy = SIZES.unpack_from(body)
    at = SIZES.size

    def take_array(dtype: str, *shape: int) -> np.ndarray:
        nonlocal at
        array = np.ndarray(shape, dtype, body, at)
        at += array.nbytes
        return array

    cell, pos, force = take_array("<f4", 3, 3), take_array("<f4", atoms, 3), take_array("<f4", atoms, 3)
    degrees, sources, offsets = take_array("<u2", atoms), take_array("<i2", edges), take_array("i1", edges, 3)
    numbers, tags, fixed = take_array("u1", atoms), take_array("i1", atoms), take_array("?", atoms)
    sources_centres = np.empty((edges, 2), np.int32)
    sources_centres[:, 0] = sources
    sources_centres[:, 1] = np.repeat(np.arange(atoms, dtype=np.int32), degrees)
    return Frame(numbers, pos, cell, tags, fixed, force, energy, sources_centres, offsets, sid, fid)
