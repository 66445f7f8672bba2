"""Read and write the published record format without TensorFlow: a file is one record, which is one sample.

    length    uint64    bytes of the payload
    crc       uint32    masked CRC-32C of the length
    payload   protobuf  Example: x is a list of one string, the voxels; y is a list of four floats
    crc       uint32    masked CRC-32C of the payload

All numbers are little-endian. A file may be gzipped, which its first two bytes show, not its name. Voxels are int16
(D, H, W, C) in C order; at 128³ × 4 they start at byte 40 of a file written here, and the file has 16,777,287 bytes
(specification of the protobuf encoding: protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from common.data.build import BadItemError
from common.file_kind import HEAD_BYTES, TFRECORD, explain_kind
from common.files import write_whole_file
from common.spatial.grid import Block
from common.tree import open_regular
from cosmoflow.simulation import REDSHIFTS

try:
    from isal import igzip, isal_zlib
except ImportError:  # no wheel for this machine: the standard library takes twice as long
    igzip, isal_zlib = gzip, zlib  # type: ignore[misc]  # one module in place of another

GZIP_MAGIC: Final = b"\x1f\x8b"
# isal's stubs call its exception class an exception.
GZIP_ERRORS: Final[tuple[Any, ...]] = (EOFError, gzip.BadGzipFile, zlib.error, isal_zlib.error)
CHANNELS: Final = len(REDSHIFTS)
LABELS: Final = 4
AS_GZIP: Final = 31  # zlib's wbits
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
AGAIN: Final = "copy, fetch or make it again"
_PORTION: Final = 1 << 16  # bytes that are read at once of what is skipped


class RecordError(BadItemError):
    """A file has no usable sample; the message names the file, the byte and what was expected there."""


class WrongSizeError(RecordError):
    """A file has a sample of another size. size: bytes of its voxels."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self.size = size


def find_side(size: int) -> int | None:
    """Return the voxels per side of a cube whose counts have so many bytes; None if no cube has."""
    side = round((size / (2 * CHANNELS)) ** (1 / 3))
    return side if 2 * CHANNELS * side**3 == size else None


class Sample(NamedTuple):
    """One sample. x: int16 (D, H, W, C), particles per voxel. y: float32 (4,), labels in [-1, 1]."""

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Sample:
        """Allocate a sample with voxels of this shape."""
        return cls(np.empty(shape, "<i2"), np.empty(LABELS, "<f4"))


# -- reading -------------------------------------------------------------------------------------------------


def read_sample(path: Path, into: Sample, verify_crc: bool = False, block: Block | None = None) -> Sample:
    """`into`, filled with the sample of a file, or only a block of it: the voxels are read straight to their place.

    The shape of `into` is the expected one, or that of the block. Of files that are not compressed only the block's
    voxels are read, unless the CRC is verified. The CRC of the length is always checked, that of the payload on demand;
    gzip has a checksum of its own. RecordError for a damaged file or another shape; OSError if the file cannot be
    read. Memory does not depend on the numbers in the file.
    """
    with open(open_regular(path), "rb") as file:
        return _read_record(file, str(path), into, verify_crc, block)


def _read_record(file: BinaryIO, name: str, into: Sample, verify_crc: bool, block: Block | None = None) -> Sample:
    packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    with igzip.open(file) if packed else file as stream:
        record = _Record(stream, name, verify_crc, block, seeks=not packed and not verify_crc)
        try:
            record.read_sample(into)
        except GZIP_ERRORS as error:
            reason = "cut off: they end too early" if isinstance(error, EOFError) else f"damaged ({error})"
            raise record.damage_error(f"the gzip data are {reason}") from error
    return into


class _Record:
    """A parser that reads a record from a stream directly into its arrays.

    A message is read up to `end`, the offset of the byte after it. Each length in the file is compared with the
    enclosing message and the available buffer before anything is read. seeks: voxels that are not wanted are skipped in
    the file without being read.
    """

    def __init__(self, file: BinaryIO, name: str, verify_crc: bool, block: Block | None, seeks: bool) -> None:
        self.file, self.name, self.block, self.seeks = file, name, block, seeks
        self.verify_crc, self.crc = verify_crc, 0
        self.offset = 0
        self.keys_read: set[bytes] = set()

    def record_error(self, text: str) -> RecordError:
        return RecordError(f"{self.name}, byte {self.offset}: {text}")

    def damage_error(self, text: str) -> RecordError:
        return self.record_error(f"{text}; {AGAIN}")

    def read_sample(self, into: Sample) -> None:
        head = self.read_bytes(12)
        length, crc = struct.unpack("<QI", head)
        if crc != _mask_crc(crc32c(head[:8])):
            problem = explain_kind(head + self.file.read(HEAD_BYTES), TFRECORD)
            if problem:
                raise self.record_error(problem)
            raise self.damage_error("not a TFRecord: the CRC of its length is wrong")
        self.crc = 0
        end = self.offset + length
        for end_of_features in self.read_messages(end):  # of the Example
            for end_of_entry in self.read_messages(end_of_features):  # of a map, that is a list of entries
                self.read_entry(end_of_entry, into)
        if missing := [key for key in ("x", "y") if key.encode() not in self.keys_read]:
            raise self.record_error(f"the record has no feature {' or '.join(map(repr, missing))}")
        computed = _mask_crc(self.crc)
        if self.read_bytes(4) != struct.pack("<I", computed) and self.verify_crc:
            raise self.damage_error("the CRC of the payload is wrong: bytes of the file have changed")
        if self.file.read(1):
            raise self.record_error("more data after the record; expected one record per file")

    def read_entry(self, end: int, into: Sample) -> None:
        key = b""
        for field in self.read_fields(end):
            if field == (1, _BYTES):
                end_of_key = self.read_limit(end)
                size = end_of_key - self.offset
                key = self.read_bytes(size) if size <= 64 else b""
                self.pass_to(end_of_key)
            elif field == (2, _BYTES) and key == b"x":
                self.read_voxels(self.read_limit(end), into.x)
            elif field == (2, _BYTES) and key == b"y":
                self.read_labels(self.read_limit(end), into.y)
            else:
                self.skip_value(field[1], end)

    def read_voxels(self, end: int, x: np.ndarray) -> None:
        for field in self.read_fields(end):  # Feature
            if field == (2, _BYTES):
                raise self.record_error(
                    "'x' is a list of floats, a format of early 2020; expected int16 voxels as one string"
                )
            end_of_list = self.read_value_limit(field, 1, end)
            for field in self.read_fields(end_of_list):  # BytesList
                end_of_string = self.read_value_limit(field, 1, end_of_list)
                if b"x" in self.keys_read:
                    raise self.record_error("'x' has a second string; expected one, the int16 voxels")
                sides = self.block.shape if self.block else x.shape
                expected = prod(sides) * x.itemsize
                if (size := end_of_string - self.offset) != expected:
                    shape = " × ".join(map(str, sides))
                    wrong = f"'x' has {size} bytes; data.sample_shape is {shape}, that is {expected} bytes"
                    if side := find_side(size):
                        wrong += f"; set 'data.sample_shape={[side, side, side, CHANNELS]}', or name other data"
                    raise WrongSizeError(str(self.record_error(wrong)), size)
                self.fill_block(x, end_of_string)
                self.keys_read.add(b"x")

    def fill_block(self, x: np.ndarray, end: int) -> None:
        """Read the voxels, or those of the block, from a string up to `end`."""
        begin, values = self.offset, np.frombuffer(x, x.dtype)
        for first, part in self.block.split_runs(values) if self.block else [(0, values)]:
            self.jump_to(begin + first * x.itemsize)
            buffer = part.data.cast("B")
            count = self.file.readinto(buffer)  # type: ignore[attr-defined]  # typing.BinaryIO lacks it
            self.count_bytes(buffer[:count], len(buffer))
        self.jump_to(end)

    def jump_to(self, end: int) -> None:
        """Pass over voxels."""
        if self.seeks and end > self.offset:
            self.file.seek(end - self.offset, io.SEEK_CUR)
            self.offset = end
        self.pass_to(end)

    def read_labels(self, end: int, y: np.ndarray) -> None:
        values = b""
        for field in self.read_fields(end):  # Feature
            end_of_list = self.read_value_limit(field, 2, end)
            for field in self.read_fields(end_of_list):  # FloatList: one string of all, or one by one
                is_single = field == (1, _FIXED32)
                size = 4 if is_single else self.read_value_limit(field, 1, end_of_list) - self.offset
                if len(values) + size > y.nbytes:
                    raise self.record_error(f"'y' has more than {LABELS} values")
                values += self.read_bytes(size)
        if len(values) != y.nbytes:
            raise self.record_error(f"'y' has {len(values) // 4} values; expected {LABELS}")
        y[:] = np.frombuffer(values, "<f4")
        self.keys_read.add(b"y")

    # What all messages consist of

    def read_fields(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield number and wire type of each field of a message; the caller reads its value before the next one."""
        while self.offset < end:
            tag = self.read_varint()
            yield tag >> 3, tag & 7
        if self.offset > end:
            raise self.damage_error("a field is longer than the message around it")

    def read_messages(self, end: int) -> Iterator[int]:
        """Yield the end of each message in the first field, which the caller reads; the other fields are skipped."""
        for number, wire in self.read_fields(end):
            if (number, wire) == (1, _BYTES):
                yield self.read_limit(end)
            else:
                self.skip_value(wire, end)

    def read_limit(self, end: int) -> int:
        """Return the end of the string or message that starts here, which must not exceed `end`."""
        length = self.read_varint()
        if self.offset + length > end:
            raise self.damage_error(f"a field of {length} bytes in a message with {max(end - self.offset, 0)} left")
        return self.offset + length

    def read_value_limit(self, field: tuple[int, int], number: int, end: int) -> int:
        """Return the end of the string or message that starts here, which must have this field number."""
        if field != (number, _BYTES):
            raise self.record_error(
                f"field {field[0]} of wire type {field[1]}; expected field {number} of wire type {_BYTES}"
            )
        return self.read_limit(end)

    def skip_value(self, wire: int, end: int) -> None:
        if wire == _VARINT:
            self.read_varint()
        elif wire == _BYTES:
            self.pass_to(self.read_limit(end))
        elif wire in (_FIXED32, _FIXED64):
            self.read_bytes(4 if wire == _FIXED32 else 8)
        else:
            raise self.damage_error(f"not a protobuf message: wire type {wire}")

    def pass_to(self, end: int) -> None:
        while self.offset < end:
            self.read_bytes(min(end - self.offset, _PORTION))

    def read_varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.read_bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.damage_error("not a protobuf message: a number of more than ten bytes")

    def read_bytes(self, size: int) -> bytes:
        """Return the next bytes; for small sizes."""
        data = self.file.read(size)
        self.count_bytes(data, size)
        return data

    def count_bytes(self, data: bytes | memoryview, size: int) -> None:
        self.offset += len(data)
        if len(data) < size:
            raise self.damage_error(
                "the file is empty" if self.offset == 0 else "the file ends in the middle of the record"
            )
        if self.verify_crc:
            self.crc = crc32c(data, self.crc)


# -- writing -------------------------------------------------------------------------------------------------


def write_sample(path: Path, x: np.ndarray, y: np.ndarray, compress: bool = True, level: int = 1) -> None:
    """Write a sample; the file appears whole or not at all. x: int16 (D, H, W, C), y: float32 (4,).

    level: of gzip. Level 1, by ISA-L if installed, compresses a sample of 128³ to 22 %. Level 6, as in the published
    files, gives 18 %, but takes 25 times as long to write and half as long to read. Equal input gives equal bytes with
    the same versions of the libraries.
    """
    data = encode_sample(x, y)
    if compress:
        data = (isal_zlib if level == 1 else zlib).compress(data, level, AS_GZIP)
    write_whole_file(path, data)


def encode_sample(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return the uncompressed record of a sample; ValueError if type or shape are wrong."""
    check_sample(x, y)
    strings = _encode_message(1, [np.ascontiguousarray(x, "<i2").data.cast("B")])
    floats = _encode_message(1, [y.astype("<f4").tobytes()])
    features = _encode_feature(b"x", _encode_message(1, strings)) + _encode_feature(b"y", _encode_message(2, floats))
    payload = _encode_message(1, features)
    crc = 0
    for part in payload:
        crc = crc32c(part, crc)
    length = struct.pack("<Q", sum(map(len, payload)))
    return b"".join([length, struct.pack("<I", _mask_crc(crc32c(length))), *payload, struct.pack("<I", _mask_crc(crc))])


def check_sample(x: np.ndarray, y: np.ndarray) -> None:
    """Raise ValueError if type or shape of a sample are wrong."""
    if x.dtype != np.int16 or x.ndim != 4:
        raise ValueError(f"x is {x.dtype} {x.shape}; expected int16 (D, H, W, C)")
    if y.dtype != np.float32 or y.shape != (LABELS,):
        raise ValueError(f"y is {y.dtype} {y.shape}; expected float32 ({LABELS},)")


def _encode_feature(key: bytes, kind: list[bytes | memoryview]) -> list[bytes | memoryview]:
    return _encode_message(1, _encode_message(1, [key]) + _encode_message(2, kind))


def _encode_message(number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return a string or message with its field number: tag, length, contents."""
    head = bytearray([number << 3 | _BYTES])
    length = sum(map(len, parts))
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return [bytes(head), *parts]


def _mask_crc(crc: int) -> int:
    """Return a CRC as TFRecord stores it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
