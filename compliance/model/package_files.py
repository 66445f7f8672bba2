"""The contents of a submission folder: every file, folder and link below it; links are not followed."""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

from compliance.model.layout import natural

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
