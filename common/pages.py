"""The pages of the documentation, which messages name and `mlperf-hpc help PAGE` shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from common.benchmarks import ROOT
from common.version import DISTRIBUTION

FOLDERS: Final = (ROOT, Path(sys.prefix, "share", DISTRIBUTION))
"""What the names of pages are relative to: a checkout, or where pip puts the pages."""


def find_page(name: str) -> Path | None:
    """Return the file of a page such as docs/guide/check.md; None if there is none."""
    return next((path for folder in FOLDERS if (path := folder / name).is_file()), None)


def list_pages() -> list[str]:
    """Return the names of the pages in docs/."""
    return [path.relative_to(folder).as_posix() for folder in FOLDERS for path in sorted(folder.glob("docs/**/*.md"))]
