"""Frames in little space: 5 bytes per edge and 29 per atom, where published records take 40 for each; no pickles.

    data.0000.bin, ...    head, records, index; all little-endian
    head      32 bytes: b"OC20BIN\\0", uint32 version, uint32 CRC-32 of the index, uint64 number of frames, uint64 place
              of the index
    index     uint64 for each record, where it begins, and one more for where the last one ends
    record    uint32 CRC-32 of what follows, uint32 atoms N, uint32 edges E, int64 sid, int64 fid, float64 energy,
              float32 cell (3, 3), pos (N, 3), force (N, 3); uint16 edges of each centre (N,), int16 source of each edge
              (E,), int8 offsets (E, 3), uint8 numbers (N,), int8 tags (N,), uint8 fixed (N,)

A record is read in one call at its place, beside which other threads work: pages of a mapped file would be waited for
with Python's lock held, and a file that shrinks would end the process.
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

from common.files import whole_file
from oc20.data.records import RecordError, check
from oc20.graphs import Frame

ENDING: Final = ".bin"
MAGIC: Final = b"OC20BIN\0"
VERSION: Final = 1
HEAD: Final = struct.Struct("<8sIIQQ")
CRC: Final = struct.Struct("<I")
SIZES: Final = struct.Struct("<IIqqd")
MEND: Final = "fetch the file again, or make it anew by `python -m oc20.prepare`"


class Shard:
    """The frames of a file; may be read by several threads. RecordError if it is none of this format, or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self._file)
        try:
            self._places = self._index()
        except BaseException:
            self._close()
            raise

    def __len__(self) -> int:
        return len(self._places) - 1

    def read(self, index: int) -> Frame:
        """Return a frame. RecordError with file and number if it is damaged, OSError if it cannot be read."""
        begin, end = self._places[index : index + 2].tolist()
        data = os.pread(self._file, end - begin, begin)
        try:
            return decode(data)
        except RecordError as error:
            raise RecordError(f"{self.path}, frame {index}: {error}") from error

    def _index(self) -> np.ndarray:
        """Return where the records begin and the last one ends."""
        head = os.pread(self._file, HEAD.size, 0)
        magic, version, crc, count, place = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        if magic != MAGIC:
            raise RecordError(f"{self.path} does not begin as a file of frames does: {MEND}")
        if version != VERSION:
            raise RecordError(f"{self.path} has version {version}; expected {VERSION}: make it anew by oc20.prepare")
        size, expected = os.fstat(self._file).st_size, place + 8 * (count + 1)
        if size != expected:
            raise RecordError(f"{self.path} has {size:,} bytes; expected {expected:,}: {MEND}")
        index = os.pread(self._file, 8 * (count + 1), place)
        if zlib.crc32(index) != crc:
            raise RecordError(f"{self.path}: the index is damaged: {MEND}")
        places: np.ndarray = np.frombuffer(index, "<u8").astype(np.int64)
        return places


def write(path: Path, frames: Iterable[Frame]) -> int:
    """The file holds the frames, and appears when it is whole; returns how many. RecordError for an impossible one."""
    with whole_file(path) as part, part.open("wb") as file:
        places = [file.write(bytes(HEAD.size))]
        for frame in frames:
            try:
                record = encode(frame)
            except RecordError as error:
                raise RecordError(f"{path}, frame {len(places) - 1}: {error}") from error
            places.append(places[-1] + file.write(record))
        index = np.array(places, "<u8").tobytes()
        file.write(index)
        file.seek(0)
        file.write(HEAD.pack(MAGIC, VERSION, zlib.crc32(index), len(places) - 1, places[-1]))
    return len(places) - 1


def encode(frame: Frame) -> bytes:
    """Return the record of a frame. RecordError for an impossible one."""
    check(frame)
    atoms = len(frame.numbers)
    degrees = np.bincount(frame.edges[:, 1], minlength=atoms)
    if degrees.max() > np.iinfo(np.uint16).max:
        raise RecordError(f"an atom has {degrees.max():,} neighbours; expected at most {np.iinfo(np.uint16).max:,}")
    parts = (
        SIZES.pack(atoms, len(frame.edges), frame.sid, frame.fid, frame.energy),
        *(array.astype("<f4").tobytes() for array in (frame.cell, frame.pos, frame.force)),
        degrees.astype("<u2").tobytes(),
        frame.edges[:, 0].astype("<i2").tobytes(),
        *(array.tobytes() for array in (frame.offsets, frame.numbers, frame.tags, frame.fixed)),
    )
    body = b"".join(parts)
    return CRC.pack(zlib.crc32(body)) + body


def decode(data: bytes) -> Frame:
    """Return the frame of a record; arrays that are as in the record are views of it. RecordError if it is damaged."""
    body = memoryview(data)[CRC.size :]
    if len(body) < SIZES.size or CRC.unpack_from(data) != (zlib.crc32(body),):
        raise RecordError(f"the checksum is wrong: {MEND}")
    atoms, edges, sid, fid, energy = SIZES.unpack_from(body)
    at = SIZES.size

    def take(dtype: str, *shape: int) -> np.ndarray:
        nonlocal at
        array = np.ndarray(shape, dtype, body, at)
        at += array.nbytes
        return array

    cell, pos, force = take("<f4", 3, 3), take("<f4", atoms, 3), take("<f4", atoms, 3)
    degrees, sources, offsets = take("<u2", atoms), take("<i2", edges), take("i1", edges, 3)
    numbers, tags, fixed = take("u1", atoms), take("i1", atoms), take("?", atoms)
    sources_centres: np.ndarray = np.empty((edges, 2), np.int32)
    sources_centres[:, 0] = sources
    sources_centres[:, 1] = np.repeat(np.arange(atoms, dtype=np.int32), degrees)
    return Frame(numbers, pos, cell, tags, fixed, force, energy, sources_centres, offsets, sid, fid)
