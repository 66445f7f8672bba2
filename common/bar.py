"""Show how far long work is: a live line on a terminal, elsewhere a line a minute."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tqdm import tqdm

PAUSE_S: Final = 60.0


class _Lines:
    """A file for a bar without a terminal: each of its pictures becomes a line of standard error."""

    def write(self, text: str) -> None:
        if text := text.strip():
            print(text, file=sys.stderr, flush=True)


def open_bar(iterable: Iterable[Any] | None = None, *, disable: bool | None = None, **options: Any) -> tqdm[Any]:
    """Return a bar of tqdm, with its options; without a terminal it prints a line every PAUSE_S, none if work is short.

    disable: True on ranks and tasks other than the first.
    """
    # It takes longer to import than a small log to check.
    from tqdm import tqdm

    if disable or sys.stderr.isatty():
        return tqdm(iterable, disable=disable, **options)
    name = "{desc}: " if options.get("desc") else ""
    lines = name + "{n_fmt} of {total_fmt}{unit}, {elapsed} so far, about {remaining} left"
    often: dict[str, Any] = {"delay": PAUSE_S, "mininterval": PAUSE_S, "miniters": 1, "smoothing": 0, "leave": False}
    return tqdm(iterable, file=_Lines(), bar_format=lines, **options | often)


def duration(seconds: float) -> str:
    """Return a duration for people: 8.0 s, 1:05, 2:00:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"
