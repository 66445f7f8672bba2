"""Read LMDB files without the library: from any thread and process, and without a crash if a file is damaged.

The library maps a file into memory, so that a truncated or damaged file ends the process by a signal; it also opens a
file only once per process. Here each page is read and checked. The format:

    pages of equal size: two meta pages about the whole file (the newer one counts), those of a B-tree from keys to
    values, and runs of pages, each with a value that is too long for the tree.

Source: the structures in LMDB's mdb.c, format 1. `records.write_frames` makes such files, with the library.
"""

from __future__ import annotations

import os
import struct
import weakref
from pathlib import Path
from typing import Final, NamedTuple

from common.data.build import BadItemError
from common.file_kind import LMDB, explain_file
from common.tree import open_regular

MAGIC: Final = 0xBEEFC0DE
VERSION: Final = 1
BRANCH, LEAF, LONG = 1, 2, 4
"""Kinds of pages: branches and leaves of the tree, and the first of a run with a long value."""
ELSEWHERE: Final = 1
"""Flag of a node whose value is in a separate run of pages."""
DEPTH: Final = 32
PAGE: Final = struct.Struct("<QHHHH")
"""Number of the page, unused, kind, end of the list of nodes, start of the nodes."""
NODE: Final = struct.Struct("<HHHH")
"""Length of the value, or number of the page below, in two parts; flags, or its third part; length of the key."""
TREE: Final = struct.Struct("<IHHQQQQQ")
"""Page size, flags, depth; pages at branches, at leaves and in runs; entries, number of the root's page."""
META_BYTES: Final = PAGE.size + 24 + 2 * TREE.size + 16


class LmdbError(BadItemError):
    """A file is not an LMDB file, or is damaged; the message says which and how to fix it."""


class Meta(NamedTuple):
    """The meta page of a file."""

    page_bytes: int
    depth: int
    root: int
    entries: int
    last_page: int
    transaction: int


class LmdbFile:
    """The values of an LMDB file (one file, not a folder) by key; closed when it is no longer referenced.

    LmdbError if it is not an LMDB file or is truncated; OSError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        weakref.finalize(self, os.close, self._file)
        first = self._read_meta(0)
        self._meta_now = max(first, self._read_meta(first.page_bytes), key=lambda meta: meta.transaction)
        size, expected = os.fstat(self._file).st_size, (self._meta_now.last_page + 1) * first.page_bytes
        if size < expected:  # all pages exist in a file to which only new keys were added, as here
            raise LmdbError(f"{path} ends after {size:,} of {expected:,} bytes; fetch it again, or make it again")

    @property
    def entries(self) -> int:
        """The number of keys, as the file states it."""
        return self._meta_now.entries

    def read_value(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it is missing; LmdbError if the file is damaged on the way to it."""
        return self._read_entry(key)[1]

    def read_first(self) -> tuple[bytes, bytes | None]:
        """Return the first key and its value, None if the file has no keys; LmdbError as in `read_value`."""
        return self._read_entry(None)

    def _read_entry(self, wanted: bytes | None) -> tuple[bytes, bytes | None]:
        number, depth, key = self._meta_now.root, self._meta_now.depth, wanted or b""
        if depth == 0:
            return b"", None
        try:
            for level in range(depth):
                page = self._read_page(number, LEAF if level + 1 == depth else BRANCH)
                node, found_key = _search_page(page, key, implicit_first=level + 1 < depth)
                if level + 1 < depth:
                    low, high, top, _ = NODE.unpack_from(page, node)
                    number = low | high << 16 | top << 32
            return found_key, self._read_node(page, node) if wanted in (None, found_key) else None
        except (struct.error, IndexError) as error:
            raise self._damage_error(number) from error

    def _read_node(self, page: bytes, node: int) -> bytes:
        low, high, flags, key_bytes = NODE.unpack_from(page, node)
        length, begin = low | high << 16, node + NODE.size + key_bytes
        if flags & ~ELSEWHERE:
            raise LmdbError(f"{self.path} has nodes other than values: expected one value for each key")
        if not flags:
            if begin + length > len(page):
                raise IndexError(begin)
            return page[begin : begin + length]
        (number,) = struct.unpack_from("<Q", page, begin)
        self._read_page(number, LONG)
        return self._read_bytes(number * self._meta_now.page_bytes + PAGE.size, length)

    def _read_page(self, number: int, kind: int) -> bytes:
        """Return a page of the tree, or the head of a run."""
        size = self._meta_now.page_bytes
        page = self._read_bytes(number * size, PAGE.size if kind == LONG else size)
        stored_number, _, flags, *_ = PAGE.unpack_from(page)
        if stored_number != number or not flags & kind:
            raise self._damage_error(number)
        return page

    def _read_bytes(self, start: int, length: int) -> bytes:
        end = (self._meta_now.last_page + 1) * self._meta_now.page_bytes
        data = os.pread(self._file, length, start) if start + length <= end else b""
        if len(data) < length:
            raise self._damage_error(start // self._meta_now.page_bytes)
        return data

    def _damage_error(self, page: int) -> LmdbError:
        return LmdbError(f"{self.path} is damaged at page {page}; fetch it again, or make it again")

    def _read_meta(self, start: int) -> Meta:
        data = os.pread(self._file, META_BYTES, start)
        if len(data) < META_BYTES:
            raise LmdbError(f"{self.path} ends after {start + len(data):,} bytes; fetch it again, or make it again")
        magic, version = struct.unpack_from("<II", data, PAGE.size)
        if magic != MAGIC:
            problem = explain_file(self.path, LMDB) or f"magic number {magic:#x}; expected {MAGIC:#x}"
            raise LmdbError(f"{self.path} is not an LMDB file, or is damaged: {problem}")
        page_bytes, *_ = TREE.unpack_from(data, PAGE.size + 24)
        _, _, depth, _, _, _, entries, root = TREE.unpack_from(data, PAGE.size + 24 + TREE.size)
        last_page, transaction = struct.unpack_from("<QQ", data, PAGE.size + 24 + 2 * TREE.size)
        if version != VERSION or not 256 <= page_bytes <= 65536 or depth > DEPTH:
            raise LmdbError(
                f"{self.path}: format {version}, pages of {page_bytes} bytes, {depth} levels; expected format "
                f"{VERSION}: write it again with LMDB 0.9, or fetch it again"
            )
        return Meta(page_bytes, depth, root, entries, last_page, transaction)


def _search_page(page: bytes, key: bytes, implicit_first: bool) -> tuple[int, bytes]:
    """Return the offset and the key of the last node of a page whose key is not above `key`.

    implicit_first: the first node is below all keys, as in branches. IndexError if there is no node.
    """
    *_, end, _ = PAGE.unpack_from(page)
    nodes = struct.unpack_from(f"<{(end - PAGE.size) // 2}H", page, PAGE.size)

    def key_of(node: int) -> bytes:
        begin = node + NODE.size
        return page[begin : begin + NODE.unpack_from(page, node)[3]]

    low, high = 0, len(nodes)
    while high - low > 1:
        middle = (low + high) // 2
        if key_of(nodes[middle]) <= key:
            low = middle
        else:
            high = middle
    return nodes[low], b"" if implicit_first else key_of(nodes[low])
