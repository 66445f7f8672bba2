"""The lines of a log around a finding, bounded in number and length, whatever the file holds."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

AROUND: Final = 2
"""So many lines are shown before and after the one that is meant."""
LONGEST: Final = 240
"""Letters of a line that are shown."""
READ_CHARACTERS: Final = 16 << 20
"""What lies deeper in a file is not looked for."""
PIECE: Final = 1 << 16


def excerpt(path: str, line: int) -> list[tuple[int, str]]:
    """Return (line number, text) of the lines around one, cut to a bounded length; [] if they cannot be read.

    Lines are counted as the checker counts them (LF, CRLF and CR end a line; gzip is recognised).
    """
    if path == "-" or line < 1:
        return []
    try:
        with open(path, "rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: BinaryIO = gzip.GzipFile(fileobj=raw) if compressed else raw  # type: ignore[assignment]  # reads bytes
            return [found for found in _first_lines(stream, line + AROUND) if found[0] >= line - AROUND]
    except (OSError, EOFError, zlib.error):
        return []


def _first_lines(stream: BinaryIO, last: int) -> Iterator[tuple[int, str]]:
    """Yield (number, beginning) of the lines up to `last`."""
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=None)
    number, begin, read = 1, "", 0
    while number <= last and read < READ_CHARACTERS and (piece := text.readline(PIECE)):
        read += len(piece)
        begin = begin or piece.rstrip("\n")[: LONGEST + 1]
        if piece.endswith("\n"):
            yield number, _cut(begin)
            number, begin = number + 1, ""
    if begin:
        yield number, _cut(begin)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"
