"""The contents of a submission folder, and what files among them say of its results.

Every file, folder and link below the folder; links are not followed. The code says which results were made by this
suite. scaling.json has the committee's factor on a score; it is read and shown, never written.

Parameter files have lines that ask the official package checker to leave a check out; they are read, never run. The
official tool obeys `rcp-bypass` and `seed-checker-bypass` in the folders of a system and of a result, if it is the last
line and has no line ending. Published files hold `rcp_bypass` at the top of the organisation's folder, where a script
of the round passes each line to the tool as an option.
"""

from __future__ import annotations

import codecs
import json
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from common.tree import ANYWHERE, Tree
from common.values import group_pairs, is_number
from common.version import DISTRIBUTION
from compliance.model.layout import (
    BENCHMARKS,
    IMPLEMENTATIONS,
    PARAMETERS_FILE,
    list_entries,
    write_slashes,
)
from compliance.model.system import read_description

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
    def is_file(self) -> bool:
        """Whether it is a file: no folder, link or the like."""
        return self.kind == FILE

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
        with suppress(OSError):
            folder = folders.pop()
            below = list_entries(posixpath.join(root, folder))
            entries = [_make_entry(path, posixpath.join(folder, path.rpartition("/")[2])) for path in below]
            contents += entries
            folders += [entry.path for entry in reversed(entries) if entry.kind == FOLDER]
    return contents


def _make_entry(full_path: str, path: str) -> PackageEntry:
    status = os.lstat(full_path)
    if stat.S_ISLNK(status.st_mode):
        return PackageEntry(path, LINK, target=write_slashes(os.readlink(full_path)))
    if stat.S_ISDIR(status.st_mode):
        return PackageEntry(path, FOLDER)
    return PackageEntry(path, FILE, status.st_size) if stat.S_ISREG(status.st_mode) else PackageEntry(path, OTHER)


class Code:
    """The folder benchmarks/ of a package.

    folders: by benchmark, the names of the folders beside implementations/.
    """

    def __init__(self, root: str = "", contents: Iterable[PackageEntry] = ()) -> None:
        self.root = root
        code = [(entry, entry.path.split("/")[1:]) for entry in contents if entry.path.split("/")[0] == BENCHMARKS]
        self.exists = bool(code)
        folders = [parts for entry, parts in code if entry.kind == FOLDER]
        beside = (parts for parts in folders if len(parts) == 2 and parts[1] != IMPLEMENTATIONS)
        systems = group_pairs((benchmark, system) for benchmark, system in beside)
        self.folders = {parts[0]: systems.get(parts[0], []) for parts in folders if len(parts) == 1}
        inside = [(entry, parts) for entry, parts in code if len(parts) > 2 and parts[1] == IMPLEMENTATIONS]
        self._ends = group_pairs(((parts[0], parts[2]), tuple(parts[-2:])) for _, parts in inside)
        self._files = group_pairs(
            ((parts[0], parts[2]), entry.name)
            for entry, parts in inside
            if len(parts) > 3 and entry.kind != FOLDER and (entry.size or not entry.is_file)
        )

    def list_implementations(self, benchmark: str) -> dict[str, list[str]]:
        """Return the names of the files in each implementation that has any with contents."""
        return {name: files for (owner, name), files in self._files.items() if owner == benchmark}

    def path(self, benchmark: str, *parts: str) -> str:
        """Return the path of something below benchmarks/<benchmark>/."""
        return posixpath.join(self.root, BENCHMARKS, benchmark, *parts)

    def links(self, benchmark: str, system: str) -> dict[str, str]:
        """Return the files <system>_<implementation>.json of a system, by the implementation in their names."""
        begin = self.path(benchmark, system, f"{system}_")
        return {
            path.removeprefix(begin).removesuffix(".json"): path
            for path in sorted(list_entries(self.path(benchmark, system)))
            if path.startswith(begin) and path.endswith(".json")
        }

    def find_linked(self, benchmark: str, system: str) -> list[str]:
        """Return the implementations that may have made a result: those with a link, else all."""
        names = [name for owner, name in self._ends if owner == benchmark]
        links = self.links(benchmark, system) if names else {}
        return [name for name in names if name in links] or names

    def is_of_suite(self, benchmark: str, system: str) -> bool:
        """Tell whether a result was made by this suite: the code has its name, or its files.

        A file <system>_<implementation>.json says which code made it; without one it is the only code there is.
        """
        files = {("common", "provenance.py"), (benchmark, "train.py")}
        of_suite = [
            letters_and_digits(name) == letters_and_digits(DISTRIBUTION) or files.issubset(self._ends[benchmark, name])
            for name in self.find_linked(benchmark, system)
        ]
        return bool(of_suite) and all(of_suite)


def letters_and_digits(name: str) -> str:
    """Return the letters and digits of a name in lower case: spelled with hyphens or not, it is the same."""
    return "".join(filter(str.isalnum, name.lower()))


# -- parameter files ---------------------------------------------------------------------------------------

RCP_BYPASS: Final = "rcp-bypass"
SEED_BYPASS: Final = "seed-checker-bypass"


class Bypass(NamedTuple):
    """A line that asks to leave a check out. folder, name: of the file, both relative to the organisation's folder."""

    path: str
    line: int
    text: str
    folder: str
    name: str

    def concerns_convergence(self, folder: str) -> bool:
        """Tell whether the line means the convergence test of a folder, relative to the organisation's, below it."""
        inside = posixpath.join(folder, "").startswith(posixpath.join(self.folder, ""))
        return inside and "rcp" in _ascii_letters(self.text)

    def __str__(self) -> str:
        return f"{self.name} line {self.line}: {self.text}"


class ParameterFile(NamedTuple):
    """A parameter file. obeyed: what the official tool would leave out if it read the file."""

    folder: str
    exact: bool
    asked: tuple[Bypass, ...]
    obeyed: frozenset[str]


def read_parameters(root: str, contents: list[PackageEntry], tree: Tree = ANYWHERE) -> list[ParameterFile]:
    """Return all parameter files in an organisation's folder, in whatever letter case and place."""
    wanted = _ascii_letters(PARAMETERS_FILE)
    candidates = (entry for entry in contents if entry.kind in (FILE, LINK) and "hecker" in entry.name.lower())
    return [_read_file(root, entry, tree) for entry in candidates if _ascii_letters(entry.name).startswith(wanted)]


def _read_file(root: str, entry: PackageEntry, tree: Tree) -> ParameterFile:
    path = posixpath.join(root, entry.path)
    data = tree.begin(path, 64 << 10)  # nothing of what is not a readable regular file
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    lines = re.split("\r\n?|\n", data.decode("utf-16" if wide else "utf-8", "replace"))
    bypasses = tuple(
        Bypass(path, number, line.strip(), entry.folder, entry.path)
        for number, line in enumerate(lines, 1)
        if "bypass" in _ascii_letters(line) and not line.lstrip().startswith("#")
    )
    return ParameterFile(
        entry.folder,
        entry.name == PARAMETERS_FILE,
        bypasses,
        obeyed=frozenset(lines[-1:]) & {RCP_BYPASS, SEED_BYPASS},
    )


def _ascii_letters(text: str) -> str:
    """Return the ASCII letters of a text, in lower case: equal for rcp_bypass, --RCP-BYPASS and 'rcp bypass'."""
    return re.sub("[^a-z]+", "", unicodedata.normalize("NFKC", text).casefold())


# -- scaling.json ------------------------------------------------------------------------------------------


class Scaling(NamedTuple):
    """What a scaling.json says. problem: why the factor is not used, "" if it is, with its fix; line: where it is."""

    path: str
    factor: float | None = None
    problem: str = ""
    line: int = 0
    fix: str = ""


def read_scaling(path: str, strict: bool, tree: Tree = ANYWHERE) -> Scaling | None:
    """Return what the file says, None if there is none; never raises.

    tree: the package that the file belongs to. strict: a factor below 1, which would improve the score, is a problem;
    the official tool multiplies by any number.
    """
    if not path:
        return None
    document = read_description(path, tree)
    if document.problem:
        return Scaling(path, None, document.problem, document.line, document.fix)
    if "scaling_factor" not in document.fields:
        return Scaling(path, None, "has no member scaling_factor")
    factor = document.fields["scaling_factor"]
    if not is_number(factor):
        simple = factor is None or isinstance(factor, str | bool | float)
        stated = json.dumps(factor)[:60] if simple else f"of JSON type {type(factor).__name__}"
        return Scaling(path, None, f"says scaling_factor {stated}, not a finite number")
    if strict and factor < 1:
        return Scaling(path, None, f"says scaling_factor {factor:g}, which would improve the score; it is not used")
    return Scaling(path, float(factor))
