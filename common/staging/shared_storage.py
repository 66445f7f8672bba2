"""The dataset on shared storage; every read is counted."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.files import open_regular
from common.staging.plan import Piece, SourceFile, StagingError
from common.tree import expect_regular

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_LEAST: Final = 18  # bytes of header and trailer


class SharedStorage:
    """The dataset's folder on shared storage. bytes_read: by this rank."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bytes_read = 0
        self._lock = threading.Lock()

    def read_into(self, piece: Piece, view: memoryview) -> None:
        """Read a piece of a file into `view`. Staging reads shared storage nowhere else."""
        path = self.root / piece.file.name
        try:
            with open(open_regular(path), "rb", buffering=0) as file:
                file.seek(piece.start)
                filled = 0
                while filled < len(view) and (got := file.readinto(view[filled:])):
                    filled += got
        except OSError as error:
            raise StagingError(f"{path}: cannot be read: {error.strerror or error}") from error
        with self._lock:
            self.bytes_read += filled
        if filled < len(view):
            raise StagingError(
                f"{path}: ends after {piece.start + filled:,} of {piece.file.size:,} bytes; fetch it again"
            )

    def look_up(self, file: SourceFile, inflate: bool) -> SourceFile:
        """Return the file with its time of change, and with its raw size if it will be decompressed.

        Raises StagingError if it is missing or has another size. The raw size of a gzip file without one is taken
        from its trailer (RFC 1952, section 2.3.1: ISIZE), which costs 6 bytes of reading.
        """
        path = self.root / file.name
        try:
            status = path.stat()
            expect_regular(str(path), status)
        except OSError as error:
            raise StagingError(f"{path}: {error.strerror}; the list of files to stage has it") from error
        if status.st_size != file.size:
            raise StagingError(f"{path}: {status.st_size:,} bytes, {file.size:,} expected; fetch it again")
        raw_size = file.raw_size if inflate else None
        if inflate and raw_size is None and file.size >= GZIP_LEAST:
            magic, trailer = bytearray(2), bytearray(4)
            self.read_into(Piece(file, 0, 2), memoryview(magic))
            if magic == GZIP_MAGIC:
                self.read_into(Piece(file, file.size - 4, 4), memoryview(trailer))
                raw_size = int.from_bytes(trailer, "little")
        return replace(file, raw_size=raw_size, mtime_ns=status.st_mtime_ns)
