"""Build the files of a dataset item by item, in parallel; an interrupted build resumes where it stopped.

Several tasks (ranks, jobs of an array) may share a folder: each builds its part of the items and keeps its own record,
and the one that finishes last writes the manifest.

folder/manifest.parts/task-0-of-1.jsonl   first line: what the dataset is; then a line per finished item
folder/manifest.json                      replaces the parts once the dataset is complete
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from common.command import describe_error
from common.console import open_bar, print_error
from common.data.manifest import (
    NAME,
    Manifest,
    ManifestEntry,
    ManifestError,
    check_names,
    describe_file,
    read_manifest,
    verify_files,
    write_manifest,
)
from common.errors import LaunchError, UsageError
from common.files import NO_INODES, follow_no_link, list_data, out_of_inodes
from common.locks import try_lock
from common.processes import ProcessKilledError, in_processes

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
                    + "\nA finished dataset gets no further samples: choose another folder, or use its values."
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
        with suppress(OSError, KeyError):
            return all((self.folder / name).stat().st_size == self.finished[name].bytes for name in names)
        return False

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
        manifest = Manifest(**msgspec.structs.asdict(heading) | {"files": self.finished})
        for folder in {self.folder / PurePosixPath(name).parent for name in self.finished}:
            for leftover in folder.glob("*.tmp"):  # of killed calls
                leftover.unlink(missing_ok=True)
        write_manifest(self.folder / NAME, manifest)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)  # another task may be doing the same
        return manifest

    def _all_headings(self) -> list[Heading]:
        if not self.manifest:
            return self._headings
        return [
            *self._headings,
            Heading(
                self.manifest.benchmark, self.manifest.variant or "", self.manifest.facts, len(self.manifest.files)
            ),
        ]


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
    for text in filter(None, texts):
        with suppress(msgspec.MsgspecError, RecursionError):  # half-written: its files count as not finished
            yield msgspec.json.decode(text, type=_Line)


def _describe_differences(existing: Heading, current: Heading) -> list[str]:
    names = ("benchmark", "variant")
    differences = {name: (getattr(existing, name), getattr(current, name)) for name in names}
    differences |= compare_facts(existing.facts, current.facts)
    return [f"{name}: {old} in the folder, {new} now" for name, (old, new) in differences.items() if old != new]


def compare_facts(
    existing: Mapping[str, Any], current: Mapping[str, Any], above: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return the two values of each fact that differs, such as box.grid."""
    differences: dict[str, tuple[Any, Any]] = {}
    for key in sorted(existing.keys() | current.keys()):
        old, new = existing.get(key), current.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            differences |= compare_facts(old, new, f"{above}{key}.")
        elif old != new:
            differences[above + key] = old, new
    return differences


ERRORS_SHOWN: Final = 20
OUT_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class BuildError(RuntimeError):
    """A dataset cannot be built; the message says why and how to fix it. Finished items are kept."""


class BadItemError(ValueError):
    """An item cannot be built, whatever happens to the others; the message says what is wrong with its source."""


DATASET_ERRORS: Final = (BuildError, ManifestError, LaunchError, OSError)
"""Errors that a command which builds data reports without a traceback."""


@dataclass(frozen=True)
class Item:
    """One independent piece of work: its files, relative to the folder, and its `source`, for the plan's `make`."""

    name: str
    files: tuple[str, ...]
    source: Any


@dataclass(frozen=True)
class DatasetPlan:
    """The content of a dataset that is to be built, and the function that makes its files.

    facts: plain values that identify the dataset; a folder with other facts is refused.
    make: writes the files of an item below a folder; must be picklable. BadItemError and OSError mean a bad item.
    bytes_per_item: approximate disk space of an item. noun: what users call the items.
    begin: puts into the folder what all items need; several tasks may call it at the same time.
    closing: items made from the files of all others, by the task that finishes last.
    """

    benchmark: str
    variant: str
    facts: Mapping[str, Any]
    items: tuple[Item, ...]
    make: Callable[[Item, Path], None]
    bytes_per_item: float
    noun: str = "items"
    begin: Callable[[Path], None] = lambda _: None
    closing: tuple[Item, ...] = ()

    @property
    def files(self) -> set[str]:
        """All files of the dataset; BuildError if two items make the same one, ManifestError for a wrong name."""
        owners: dict[str, str] = {}
        check_names(item.name for item in self.items)
        for item in (*self.items, *self.closing):
            for name in item.files:
                if (other := owners.setdefault(name, item.name)) != item.name:
                    raise BuildError(f"{item.name} and {other} would both become {name}; rename one of them")
        return set(owners)


@dataclass(frozen=True)
class Workers:
    """The processes of this task; several tasks may share the work."""

    processes: int = 1
    task: int = 0
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.processes < 1 or not 0 <= self.task < self.tasks:
            raise UsageError(
                f"task {self.task} of {self.tasks} with {self.processes} worker(s): expected at least one worker and "
                f"a task from 0 to {self.tasks - 1}"
            )


@dataclass
class BuildOutcome:
    """The result of a call.

    generated, reused: items of this task that it finished, and that were finished before. failures: errors of bad
    items by name. unfinished: items of all tasks that are still to be made. manifest: set when all are finished.
    """

    generated: int = 0
    reused: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: int = 0
    manifest: Manifest | None = None
    seconds: float = 0.0


def readable_bytes(amount: float) -> str:
    """Return an amount of bytes in a readable unit: 512 B, 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def build_dataset(plan: DatasetPlan, folder: Path, workers: Workers) -> BuildOutcome:
    """Build this task's items, and write the manifest once the items of all tasks are finished.

    Items that are finished, by record and size, are not made again. A bad item leaves no files and does not stop the
    others. ManifestError if the folder has another dataset; BuildError if the disk is too small or full, or a worker
    was killed. What was finished before an error or an interrupt is kept and recorded.
    """
    start = time.monotonic()
    if not plan.items:
        raise UsageError(f"no {plan.noun} to generate: ask for at least one")
    files = plan.files
    heading = Heading(plan.benchmark, plan.variant, dict(plan.facts), len(files))
    journal = Journal(folder)
    journal.check_heading(heading, {PurePosixPath(name).parts[0] for name in files})
    if strays := sorted(journal.finished.keys() - files):
        raise BuildError(
            f"{folder} has {len(strays):,} finished files that do not belong to this dataset, such as "
            f"{strays[0]}: the input or its split has changed. Restore it, or choose another folder"
        )
    own_items = plan.items[workers.task :: workers.tasks]
    todo = [item for item in own_items if not journal.has_files(item.files)]
    outcome = BuildOutcome(reused=len(own_items) - len(todo))
    if todo:
        for parent in {(folder / name).parent for item in todo for name in item.files}:
            parent.mkdir(parents=True, exist_ok=True)
        _check_space(folder, plan.bytes_per_item * len(todo))
    plan.begin(folder)
    if todo:
        try:
            _build_items(plan, journal, workers, todo, outcome)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            needed = readable_bytes(plan.bytes_per_item * (len(todo) - outcome.generated))
            fix = f"The cause: {NO_INODES}. Then" if out_of_inodes(folder) else f"Free about {needed} and"
            raise BuildError(
                f"{folder}: {os.strerror(error.errno)}; {outcome.generated + outcome.reused:,} of {len(own_items):,} "
                f"{plan.noun} are finished and kept. {fix} run the command again"
            ) from error
        except ProcessKilledError as error:
            raise BuildError(f"{error}; finished {plan.noun} are kept: run the command again to continue") from error
        journal = Journal(folder)
    outcome.unfinished = sum(not journal.finished.keys() >= set(item.files) for item in plan.items)
    if not outcome.unfinished:
        journal = _build_closing(plan, journal, workers)
        outcome.manifest = journal.merge_parts(heading) if (folder / PARTS).exists() else Journal(folder).manifest
    outcome.seconds = time.monotonic() - start
    return outcome


def report_build(outcome: BuildOutcome, plan: DatasetPlan, folder: Path, checksum: bool = False) -> int:
    """Print the outcome and compare the files on disk with the manifest; return the exit code."""
    _print_errors([f"skipped {name}: {error}" for name, error in sorted(outcome.failures.items())])
    print(f"generated {outcome.generated:,} {plan.noun} in {outcome.seconds:.1f} s, reused {outcome.reused:,}")
    manifest = outcome.manifest
    if not manifest:
        others = outcome.unfinished - len(outcome.failures)
        failed = f"{len(outcome.failures):,} failed" if outcome.failures else ""
        pending = f"{others:,} belong to other tasks" if others else ""
        print(f"{folder} is incomplete: {', '.join(filter(None, (failed, pending)))}")
        return 1 if outcome.failures else 0
    problems = verify_files(folder, manifest, checksum)
    if problems:
        _print_errors(problems)
        print(f"{folder}: {len(problems):,} files do not match the manifest: delete them and run the command again")
        return 1
    print_contents(manifest, f"{folder} {'is complete' if outcome.generated else 'was already complete'}")
    return 0


def print_contents(manifest: Manifest, state: str) -> None:
    """Print the state of a dataset, how many files its folders have, and what identifies it."""
    counts = Counter(str(PurePosixPath(name).parent) for name in manifest.files)
    print(f"{state}: " + ", ".join(f"{count:,} files in {name}" for name, count in sorted(counts.items())))
    print(f"{readable_bytes(manifest.total_bytes)}, variant {manifest.variant}, digest {manifest.compute_digest()}")


def _print_errors(errors: Sequence[str]) -> None:
    for error in errors[:ERRORS_SHOWN]:
        print_error(error)
    if len(errors) > ERRORS_SHOWN:
        print_error(f"{len(errors) - ERRORS_SHOWN:,} more errors of this kind")


def _check_space(folder: Path, needed: float) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise BuildError(
            f"{folder}: about {readable_bytes(needed)} needed, {readable_bytes(free)} free; nothing was written. "
            "Free disk space or choose another folder"
        )


def _build_closing(plan: DatasetPlan, journal: Journal, workers: Workers) -> Journal:
    """Build the closing items, again if any other item was built, and return the journal that has them."""
    finished = not (journal.folder / PARTS).exists()
    if not plan.closing or (finished and all(journal.has_files(item.files) for item in plan.closing)):
        return journal
    outcome = BuildOutcome()
    _build_items(plan, journal, Workers(1, workers.task, workers.tasks), plan.closing, outcome)
    if outcome.failures:
        raise BuildError("; ".join(f"{name}: {error}" for name, error in outcome.failures.items()))
    return Journal(journal.folder)


def _build_items(
    plan: DatasetPlan, journal: Journal, workers: Workers, todo: Sequence[Item], outcome: BuildOutcome
) -> None:
    heading = Heading(plan.benchmark, plan.variant, dict(plan.facts), len(plan.files))
    with (
        journal.open_part(heading, workers.task, workers.tasks) as part,
        open_bar(
            total=len(todo),
            unit=f" {plan.noun}",
            desc=str(journal.folder),
            disable=None if workers.task == 0 else True,
            smoothing=0.05,
        ) as bar,
    ):
        for item, result in in_processes(partial(_make_item, plan.make, journal.folder), todo, workers.processes):
            if isinstance(result, str):
                outcome.failures[item.name] = result
            else:
                part.add_files(result)
                outcome.generated += 1
            bar.update()


def _make_item(make: Callable[[Item, Path], None], folder: Path, item: Item) -> dict[str, ManifestEntry] | str:
    """Make an item in a worker process; return the entries of its files, or the error message of a bad item."""
    try:
        make(item, folder)
        return {name: describe_file(folder / name) for name in item.files}
    except (BadItemError, OSError) as error:
        for name in item.files:
            (folder / name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            raise
        return describe_error(error)
