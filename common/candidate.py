"""Faster paths that no device has timed: all are off, and only bench/gpu.py and the tests switch them on.

A device decides: what is worth its lines becomes the only path, the rest goes (docs/performance/gpu.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_BY_NAME: dict[str, Candidate] = {}


class Candidate:
    """A path that computes what another one does, and should be faster. enabled: whether it is taken."""

    def __init__(self, name: str) -> None:
        self.name, self.enabled = name, False
        _BY_NAME[name] = self


@contextlib.contextmanager
def try_candidates(*names: str) -> Iterator[None]:
    """Switch candidates on, by name; their modules are imported before. KeyError for a name that there is not."""
    chosen = [_BY_NAME[name] for name in names]
    for candidate in chosen:
        candidate.enabled = True
    try:
        yield
    finally:
        for candidate in chosen:
            candidate.enabled = False
