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


class ResultsError(ValueError):
    """A file does not have what this command writes."""


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of a file of results; ResultsError if it has another one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; expected results of bench/gpu.py") from error
    if not isinstance(content, dict) or not {"machine", "sections"} <= content.keys():
        raise ResultsError(
            f"{path}: expected results of bench/gpu.py, with `machine` and `sections`; name another folder"
        )
    return content


def read_rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows of all sections of several results."""
    return [row for result in results for section in result["sections"].values() for row in section["rows"]]


def describe_fault(row: Row) -> str:
    """Return why a row has no valid result, "" if it has one."""
    return next((f"{mark.replace('_', ' ')}: {row[mark]}" for mark in MARKS if mark in row), "")
