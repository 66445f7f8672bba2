"""Find the pages of the documentation, and other files beside the packages: of a checkout, or of the wheel."""

from __future__ import annotations

import posixpath
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from common.benchmarks import PACKAGES, ROOT
from common.version import DISTRIBUTION

SHARED_FOLDER: Final = f"share/{DISTRIBUTION}/"
"""The folder of these files in an environment with the wheel; setup.cfg lists them."""
SECTIONS: Final = ("", "docs/", "docs/guide/", "docs/reference/", "docs/performance/", "docs/performance/records/")
"""What a short name of a page may leave out, in this order."""


def list_shared_files() -> dict[str, Path]:
    """Return the files that the wheel put beside the packages, by their names in a checkout; none for another copy."""
    try:
        wheel = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return {}
    if Path(str(wheel.locate_file(""))).resolve() != ROOT.resolve():
        return {}
    files = (file for file in wheel.files or () if SHARED_FOLDER in file.as_posix())
    return {file.as_posix().partition(SHARED_FOLDER)[2]: Path(str(wheel.locate_file(file))) for file in files}


def list_pages() -> dict[str, Path]:
    """Return the pages by name, such as docs/guide/check.md or cosmoflow/README.md."""
    readmes = {f"{name}/README.md": ROOT / name / "README.md" for name in PACKAGES}
    if (ROOT / "setup.cfg").is_file():
        paths = (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
        files = {path.relative_to(ROOT).as_posix(): path for path in paths}
    else:
        files = list_shared_files()
    return {name: path for name, path in files.items() if re.fullmatch(r"(docs/.*|README)\.md", name)} | readmes


def find_page(name: str) -> Path | None:
    """Return the page of a name: docs/guide/check.md, with or without an anchor, guide/check, check or cosmoflow."""
    pages = list_pages()
    name = posixpath.normpath(name.partition("#")[0]).removesuffix(".md")
    names = (f"{section}{name}{end}.md" for section in SECTIONS for end in ("", "/README"))
    return next((pages[page] for page in names if page in pages), None)
