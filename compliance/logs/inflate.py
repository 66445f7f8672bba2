"""Inflate compressed logs, within limits: a small file may contain more text than anybody can read.

Of the published logs, none is compressed, the largest has 0.8 MB, gzip makes them at most 48 times smaller, and the
largest package has 24 MB of them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, Final

from common.tree import Tree, size_text

GZIP: Final = b"\x1f\x8b"
READ_BYTES: Final = 64 << 10
PIECE_BYTES: Final = 1 << 20
MAX_FILE_BYTES: Final = 64 << 20
MAX_PACKAGE_BYTES: Final = 512 << 20
MAX_RATIO: Final = 200
ANY_RATIO_BYTES: Final = 8 << 20
"""Up to this size the ratio does not matter."""
MAX_MEMBERS: Final = 1000


class InflateError(ValueError):
    """A file is beyond one of the limits; the message says which."""


@dataclass(frozen=True, slots=True)
class PlainFiles(Tree):
    """The files of a package whose compressed ones were inflated up to the limit: further ones are not read."""

    def open(self, path: str | os.PathLike[str]) -> BufferedReader:
        """Open a file as `Tree.open` does; InflateError for a compressed one."""
        file = Tree.open(self, path)
        if file.peek(len(GZIP)).startswith(GZIP):
            file.close()
            limit = size_text(MAX_PACKAGE_BYTES)
            raise InflateError(f"is not read: the compressed files before it in the package contain more than {limit}")
        return file


def pieces(stream: BinaryIO) -> tuple[bool, Iterator[bytes]]:
    """Return whether a file is compressed, and its text in pieces; to read them may raise as `inflated` does."""
    block = stream.read(PIECE_BYTES)
    return (True, inflated(block, stream)) if block.startswith(GZIP) else (False, _read_plain(block, stream))


def _read_plain(block: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while block:
        yield block
        block = stream.read(PIECE_BYTES)


def inflated(block: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the contents of a gzip file that starts with this block; skip zeros after a member.

    Raises InflateError beyond the limits, EOFError and zlib.error for a damaged file.
    """
    size, members, packed = 0, 0, len(block)
    while block:
        inflate = zlib.decompressobj(wbits=31)
        members += 1
        if members > MAX_MEMBERS:
            raise InflateError(f"has more than {MAX_MEMBERS:,} gzip members")
        while not inflate.eof:
            piece = inflate.decompress(block, PIECE_BYTES)
            size += len(piece)
            if size > MAX_FILE_BYTES:
                raise InflateError(f"contains more than {size_text(MAX_FILE_BYTES)} of compressed text")
            if size > ANY_RATIO_BYTES and size > MAX_RATIO * packed:
                limit = size_text(ANY_RATIO_BYTES)
                raise InflateError(f"contains more than {limit}, over {MAX_RATIO} times its size")
            yield piece
            block = inflate.unconsumed_tail
            if not block and not inflate.eof:
                block = stream.read(READ_BYTES)
                packed += len(block)
                if not block:
                    raise EOFError("the gzip file is truncated")
        block = inflate.unused_data.lstrip(b"\0")
        while not block:
            read = stream.read(READ_BYTES)
            if not read:
                return
            packed += len(read)
            block = read.lstrip(b"\0")
