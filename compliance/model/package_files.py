"""The contents of a submission folder: every file, folder and link below it; links are not followed.

The code among them says which results were made by this suite.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

from common.version import DISTRIBUTION
from compliance.model.layout import BENCHMARKS, IMPLEMENTATIONS, natural

FILE: Final = "file"
FOLDER: Final = "folder"
LINK: Final = "link"
OTHER: Final = "other"
MOST: Final = 100_000
"""Maximum number of entries listed; published packages have a few hundred."""


class PackageEntry(NamedTuple):
    """One name in a folder.

    path: below the package, with "/" between the parts. kind: file, folder, link, or other (such as a pipe).
    size: bytes of a file, else 0. target: of a link.
    """

    path: str
    kind: str
    size: int = 0
    target: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """The path of the folder that contains it; "" for the package's own."""
        return self.path.rpartition("/")[0]


def contents_of(root: str) -> list[PackageEntry]:
    """Return what is below the folder, in natural order of names; leave out what cannot be read."""
    contents: list[PackageEntry] = []
    folders = [""]
    while folders and len(contents) < MOST:
        entries = _read_entries(root, folders.pop())
        contents += entries
        folders += [entry.path for entry in reversed(entries) if entry.kind == FOLDER]
    return contents


def _read_entries(root: str, folder: str) -> list[PackageEntry]:
    try:
        with os.scandir(os.path.join(root, folder)) as scan:
            items = sorted(scan, key=lambda item: natural(item.name))
            return [_make_entry(item, f"{folder}/{item.name}" if folder else item.name) for item in items]
    except OSError:
        return []


def _make_entry(item: os.DirEntry[str], path: str) -> PackageEntry:
    status = item.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return PackageEntry(path, LINK, target=os.readlink(item.path))
    if stat.S_ISDIR(status.st_mode):
        return PackageEntry(path, FOLDER)
    return PackageEntry(path, FILE, status.st_size) if stat.S_ISREG(status.st_mode) else PackageEntry(path, OTHER)


class SuiteCode:
    """The implementations in a package, by benchmark, and those that are this suite: by name, or by its files."""

    def __init__(self, contents: Iterable[PackageEntry]) -> None:
        paths = (tuple(entry.path.split("/")) for entry in contents if entry.path.startswith(f"{BENCHMARKS}/"))
        self._paths = {path[1:] for path in paths if len(path) > 3}
        self._ends: dict[str, dict[str, set[tuple[str, ...]]]] = {}  # by benchmark and implementation
        for path in self._paths:
            if path[1] == IMPLEMENTATIONS:
                self._ends.setdefault(path[0], {}).setdefault(path[2], set()).add(path[-2:])

    def made(self, benchmark: str, system: str) -> bool:
        """Tell whether a result was made by this suite.

        A file <system>_<implementation>.json says which code made it; without one it is the only code there is.
        """
        names = self._ends.get(benchmark, {}).keys()
        linked = {name for name in names if (benchmark, system, f"{system}_{name}.json") in self._paths}
        made_by = linked or names
        return bool(made_by) and all(self._is_suite(benchmark, name) for name in made_by)

    def _is_suite(self, benchmark: str, name: str) -> bool:
        has_its_name = letters_and_digits(name) == letters_and_digits(DISTRIBUTION)
        return has_its_name or {("common", "provenance.py"), (benchmark, "train.py")} <= self._ends[benchmark][name]


def letters_and_digits(name: str) -> str:
    """Return the letters and digits of a name in lower case: spelled with hyphens or not, it is the same."""
    return "".join(filter(str.isalnum, name.lower()))
