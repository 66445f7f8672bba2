"""The results: rows, by section and file; needs no other package, so that the runner starts without any."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
MARKS: Final = ("wrong", "error", "late", "under_way")
"""Keys of a row that has no valid result."""


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=1, default=float) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows of all sections of several results."""
    return [row for result in results for section in result["sections"].values() for row in section["rows"]]


def describe_fault(row: Row) -> str:
    """Return why a row has no valid result, "" if it has one."""
    return next((f"{mark.replace('_', ' ')}: {row[mark]}" for mark in MARKS if mark in row), "")
