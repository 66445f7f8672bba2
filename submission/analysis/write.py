"""Write an analysis into a folder: the page, the data, and a file for each table and figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.files import whole_file
from compliance.formats.json import finite
from submission.analysis.analysis import Analysis
from submission.analysis.export import csv_files, json_document
from submission.analysis.figures.standalone import standalone
from submission.analysis.page import pictures, render

PAGE: Final = "analysis.html"
DATA: Final = "analysis.json"


def write(found: Analysis, folder: Path) -> list[str]:
    """Write everything into a folder, each file whole or not at all; return their names, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    files = dict(_files(found))
    for name, text in files.items():
        with whole_file(folder / name) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
    return list(files)


def _files(found: Analysis) -> Iterator[tuple[str, str]]:
    shown = list(pictures(found.sets))
    others = {DATA: json.dumps(finite(json_document(found)), indent=1) + "\n", **dict(csv_files(found))}
    others |= {f"{one.name}.svg": standalone(one.wide) for one in shown if one.wide}
    yield PAGE, render(found, shown, list(others))
    yield from others.items()
