"""The record of an unfinished dataset: which files are finished, over all tasks and interrupted calls.

folder/manifest.parts/task-0-of-1.jsonl   first line: what the dataset is; then a line per finished item
folder/manifest.json                      replaces the parts once the dataset is complete
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from common.datasets.manifest import NAME, Manifest, ManifestEntry, ManifestError, read_manifest, write_manifest
from common.files import follow_no_link, list_data
from common.lock import try_lock

PARTS: Final = "manifest.parts"


class Heading(msgspec.Struct, frozen=True):
    """The identity of a dataset, and the number of files that it will have."""

    benchmark: str
    variant: str
    facts: dict[str, Any]
    files: int


class _Line(msgspec.Struct, omit_defaults=True):
    heading: Heading | None = None
    finished: dict[str, ManifestEntry] = {}


class Journal:
    """The finished files of a folder at the time of reading. manifest: set if the dataset was already complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished: dict[str, ManifestEntry] = {}
        self._headings: list[Heading] = []
        # The parts first: they are removed only after the manifest exists, so that nothing is missed in between.
        for part in sorted((folder / PARTS).glob("*.jsonl")):
            heading = None
            for line in _read_lines(part):
                heading = line.heading or heading
                self.finished |= line.finished
            if heading:
                self._headings.append(heading)
        self.manifest = read_manifest(folder / NAME) if (folder / NAME).exists() else None
        if self.manifest:
            self.finished = self.manifest.files | self.finished  # parts are younger

    def check_heading(self, heading: Heading, folders: set[str]) -> None:
        """Raise ManifestError unless the folder is empty or has a part of the dataset of this heading.

        folders: those that the dataset fills. The number of files may differ, since some may have been added.
        """
        for other in self._all_headings():
            if lines := _describe_differences(other, heading):
                raise ManifestError(
                    f"{self.folder} has another dataset; nothing was changed. It differs in\n  "
                    + "\n  ".join(lines)
                    + "\nChoose another folder, or use the values of the existing dataset."
                )
        if not self._all_headings() and not (self.folder / PARTS).exists():
            for name in sorted(folders):
                if (self.folder / name).is_dir() and list_data(self.folder / name):
                    raise ManifestError(
                        f"{self.folder / name} has files, but no {NAME} describes them; "
                        f"nothing was changed. Choose another folder"
                    )

    def has_files(self, names: tuple[str, ...]) -> bool:
        """Tell whether these files are finished and on disk in full size."""
        return all(name in self.finished and self._file_size(name) == self.finished[name].bytes for name in names)

    def _file_size(self, name: str) -> int | None:
        try:
            return (self.folder / name).stat().st_size
        except OSError:
            return None

    @contextmanager
    def open_part(self, heading: Heading, task: int, tasks: int) -> Iterator[Part]:
        """Open the record of this task for more lines.

        Raises ManifestError if another process has it open, where the file system has locks.
        """
        path = self.folder / PARTS / f"task-{task}-of-{tasks}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", opener=follow_no_link) as file:
            if not try_lock(file):
                raise ManifestError(f"{self.folder} is being filled by another process; wait for it, or stop it")
            part = Part(file)
            part.write_line(_Line(heading))
            yield part

    def merge_parts(self, heading: Heading | None = None) -> Manifest:
        """Write the manifest from all parts, remove the parts, and return the manifest.

        heading: what the dataset is, if the caller knows; otherwise the parts must agree on it. ManifestError if they
        do not, or if files are missing from the record.
        """
        if heading is None:
            if len({msgspec.json.encode(other) for other in self._headings}) != 1:
                raise ManifestError(
                    f"the records in {self.folder / PARTS} belong to different datasets, or there are none; run all "
                    f"tasks again with the same arguments and input: finished files are kept"
                )
            heading = self._headings[0]
        if len(self.finished) != heading.files:
            raise ManifestError(
                f"{self.folder}: {len(self.finished):,} of {heading.files:,} files are finished; "
                f"wait for all tasks, or run them again"
            )
        plain = msgspec.structs.asdict(heading) | {"files": self.finished}
        manifest = Manifest(**plain)
        for folder in {self.folder / PurePosixPath(name).parent for name in self.finished}:
            for leftover in folder.glob("*.tmp"):  # of killed calls
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

    def add_files(self, finished: Mapping[str, ManifestEntry]) -> None:
        """Add files to the record, which has them even if the process is killed next."""
        self.write_line(_Line(finished=dict(finished)))

    def write_line(self, line: _Line) -> None:
        # The leading line break ends a line that a killed call left half-written.
        self._file.write(b"\n" + msgspec.json.encode(line) + b"\n")
        self._file.flush()


def _read_lines(part: Path) -> Iterator[_Line]:
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


def _describe_differences(existing: Heading, current: Heading) -> list[str]:
    pairs = [(name, getattr(existing, name), getattr(current, name)) for name in ("benchmark", "variant")]
    keys = sorted(existing.facts.keys() | current.facts.keys())
    pairs += [(key, existing.facts.get(key), current.facts.get(key)) for key in keys]
    return [f"{name}: {old} in the folder, {new} now" for name, old, new in pairs if old != new]
