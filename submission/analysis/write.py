"""Write an analysis into a folder: the page, the data, and a file for each table and figure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.files import write_whole_file
from common.tree import ANYWHERE
from compliance.formats.json import finite
from submission.analysis.analysis import Analysis
from submission.analysis.export import csv_files, json_document
from submission.analysis.figures.standalone import standalone
from submission.analysis.page import GENERATOR, fit_drawings, pictures, render

PAGE: Final = "analysis.html"
DATA: Final = "analysis.json"
NAME: Final = re.compile(r"[a-z][\w-]*\.(html|json|csv|svg)")
"""The form of the names of files that this command writes."""
MOST_BYTES: Final = 1 << 28


def write(found: Analysis, folder: Path) -> list[str]:
    """Write everything into a folder, each file whole or not at all; return their names, the page first.

    Files of an earlier analysis in the folder that this one does not have are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    former, files = _listed(folder), dict(_files(found))
    for name, text in files.items():
        write_whole_file(folder / name, text, errors="backslashreplace")
    for name in former - files.keys():
        (folder / name).unlink(missing_ok=True)
    return list(files)


def holds_analysis(folder: Path) -> bool:
    """Return whether the page in a folder is one of this command."""
    return GENERATOR.encode() in ANYWHERE.begin(folder / PAGE, 1024)


def _listed(folder: Path) -> set[str]:
    """Return the names of the files that the analysis in a folder has written, as its data list them."""
    try:
        names = json.loads(ANYWHERE.read(folder / DATA, MOST_BYTES))["files"]
        return {name for name in names if NAME.fullmatch(name)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _files(found: Analysis) -> Iterator[tuple[str, str]]:
    shown = list(pictures(found.sets))
    others = dict(csv_files(found)) | {f"{one.name}.svg": standalone(one.wide) for one in shown if one.wide}
    others |= {f"fit-{at}.svg": standalone(svg) for at, svg in enumerate(fit_drawings(found), 1) if svg}
    data = json_document(found) | {"files": [PAGE, DATA, *others]}
    others = {DATA: json.dumps(finite(data), indent=1) + "\n", **others}
    yield PAGE, render(found, shown, list(others))
    yield from others.items()
