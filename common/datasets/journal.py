"""The record of a dataset in the making: which of its files are finished, over all tasks and all interrupted calls.

folder/manifest.parts/task-0-of-1.jsonl   first line: what the dataset is; then a line per finished item
folder/manifest.json                      of a dataset that is complete; then there are no parts
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from common.datasets.manifest import NAME, Entry, Manifest, read_manifest, write_manifest

PARTS: Final = "manifest.parts"


class JournalError(ValueError):
    """A folder cannot take this dataset, or its record is not complete; the message says why and how to go on."""


class Heading(msgspec.Struct, frozen=True):
    """What a dataset is, and how many files it will have."""

    benchmark: str
    variant: str
    facts: dict[str, Any]
    files: int


class _Line(msgspec.Struct, omit_defaults=True):
    heading: Heading | None = None
    finished: dict[str, Entry] = {}


class Journal:
    """What is finished in a folder at the time of reading. manifest: of a dataset that was complete before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished: dict[str, Entry] = {}
        self._headings: list[Heading] = []
        # The parts first: they go only after the manifest is there, so that nothing is missed in between.
        for part in sorted((folder / PARTS).glob("*.jsonl")):
            heading = None
            for line in _lines(part):
                heading = line.heading or heading
                self.finished |= line.finished
            if heading:
                self._headings.append(heading)
        self.manifest = read_manifest(folder / NAME) if (folder / NAME).exists() else None
        if self.manifest:
            self.finished = self.manifest.files | self.finished  # parts are younger

    def admit(self, heading: Heading, folders: set[str]) -> None:
        """The folder is empty or holds a part of this dataset; otherwise JournalError says what it holds.

        folders: those that the dataset fills. The number of files may differ: more may have been added.
        """
        for other in self._all_headings():
            if lines := _differences(other, heading):
                raise JournalError(
                    f"{self.folder} holds another dataset; nothing was changed. It differs in\n  "
                    + "\n  ".join(lines)
                    + "\nName another folder, or call with the values that are there."
                )
        if not self._all_headings() and not (self.folder / PARTS).exists():
            for name in sorted(folders):
                if (self.folder / name).is_dir() and any((self.folder / name).iterdir()):
                    raise JournalError(
                        f"{self.folder / name} holds files, but there is no {NAME} that says what they are; "
                        f"nothing was changed. Name another folder"
                    )

    def has(self, names: tuple[str, ...]) -> bool:
        """Whether these files are finished and on disk in full size."""
        return all(name in self.finished and self._size(name) == self.finished[name].bytes for name in names)

    def _size(self, name: str) -> int | None:
        try:
            return (self.folder / name).stat().st_size
        except OSError:
            return None

    @contextmanager
    def part(self, heading: Heading, task: int, tasks: int) -> Iterator[Part]:
        """The record that this task writes, open for more lines."""
        path = self.folder / PARTS / f"task-{task}-of-{tasks}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            part = Part(file)
            part.write(_Line(heading))
            yield part

    def complete(self, heading: Heading | None = None) -> Manifest:
        """The manifest is written from all parts, and the parts are gone.

        heading: what the dataset is, where the caller knows; otherwise the parts must agree on it. JournalError when
        they do not, and while files are missing from the record.
        """
        if heading is None:
            if len({msgspec.json.encode(other) for other in self._headings}) != 1:
                raise JournalError(
                    f"the records in {self.folder / PARTS} are of different plans, or there are none; start all tasks "
                    f"again with the same arguments and the same input: what is finished is kept"
                )
            heading = self._headings[0]
        if len(self.finished) != heading.files:
            raise JournalError(
                f"{self.folder}: {len(self.finished):,} of {heading.files:,} files are finished; "
                f"let all tasks finish, or start them again"
            )
        plain = msgspec.structs.asdict(heading) | {"files": self.finished}
        manifest = Manifest(**plain)
        for folder in {self.folder / PurePosixPath(name).parent for name in self.finished}:
            for leftover in folder.glob("*.tmp"):  # of calls that were killed
                leftover.unlink(missing_ok=True)
        write_manifest(self.folder / NAME, manifest)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)  # another task may be doing the same
        return manifest

    def _all_headings(self) -> list[Heading]:
        if not self.manifest:
            return self._headings
        facts = (self.manifest.benchmark, self.manifest.variant or "", self.manifest.facts)
        return [*self._headings, Heading(*facts, files=len(self.manifest.files))]


class Part:
    """The record of one task, opened for appending."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def add(self, finished: Mapping[str, Entry]) -> None:
        """The record has these files, even if the process is killed next."""
        self.write(_Line(finished=dict(finished)))

    def write(self, line: _Line) -> None:
        # The line break in front ends a line that a killed call left half-written.
        self._file.write(b"\n" + msgspec.json.encode(line) + b"\n")
        self._file.flush()


def _lines(part: Path) -> Iterator[_Line]:
    try:
        texts = part.read_bytes().splitlines()
    except FileNotFoundError:  # just now merged into the manifest by another task
        return
    for text in texts:
        if text:
            try:
                yield msgspec.json.decode(text, type=_Line)
            except msgspec.MsgspecError:
                continue  # half-written: its files count as not finished


def _differences(there: Heading, here: Heading) -> list[str]:
    pairs = [(name, getattr(there, name), getattr(here, name)) for name in ("benchmark", "variant")]
    keys = sorted(there.facts.keys() | here.facts.keys())
    pairs += [(key, there.facts.get(key), here.facts.get(key)) for key in keys]
    return [f"{name}: {old} there, {new} here" for name, old, new in pairs if old != new]
