"""Takes personal data out of the copy of a log; what is personal, compliance says."""

from __future__ import annotations

from collections import Counter
from typing import Final

from compliance.logs.personal_data import personal

UNICODE_ESCAPE_BYTES: Final = 5
"""Of `u00e9`, what follows the backslash."""


def redact(text: bytes) -> tuple[bytes, dict[str, int]]:
    """Return the log with `[kind]` in place of each mail address and the like, and how often which kind was there.

    Lines stay lines, and records stay valid JSON: an escape such as `\\n` is taken whole or not at all.
    """
    counts: Counter[str] = Counter()
    while spans := list(personal(text)):  # what is taken out may have hidden more
        pieces: list[bytes] = []
        at = 0
        for begin, end, kind in spans:
            begin, end = _whole_escapes(text, begin, end)
            pieces += (text[at:begin], f"[{kind}]".encode())
            at = end
            counts[kind] += 1
        text = b"".join((*pieces, text[at:]))
    return text, dict(sorted(counts.items()))


def _whole_escapes(text: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the span without the rest of an escape at its beginning, and the beginning of one at its end."""
    if _escapes(text, begin):
        begin += UNICODE_ESCAPE_BYTES if text[begin : begin + 1] == b"u" else 1
    if _escapes(text, end):
        end -= 1
    return begin, end


def _escapes(text: bytes, at: int) -> bool:
    """Tell whether the byte before `at` is a backslash that belongs to what follows."""
    first = at
    while text[first - 1 : first] == b"\\":
        first -= 1
    return (at - first) % 2 == 1
