"""Makes the files of a dataset, item by item, in parallel; what was interrupted continues where it stopped.

Several tasks (ranks, jobs of an array) may share a folder: each makes its part of the items and keeps its own record,
and the one that finishes last writes the manifest.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tqdm import tqdm

from common.command import UsageError
from common.datasets.journal import PARTS, Heading, Journal, JournalError
from common.datasets.manifest import Entry, Manifest, ManifestError, describe_file, verify_files
from common.distributed.launch import LaunchError
from common.processes import ProcessKilledError, in_processes

MOST_TOLD: Final = 20  # errors of one kind on the screen
OUT_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class ProductionError(RuntimeError):
    """The work cannot start or go on; the message says why and how to fix it. Finished items are kept."""


class BadItemError(ValueError):
    """An item cannot be made, whatever the others do; the message says what is wrong with its source."""


USER_ERRORS: Final = (ProductionError, JournalError, ManifestError, LaunchError, OSError)
"""What a command that produces data tells its user without a traceback."""


@dataclass(frozen=True)
class Item:
    """One independent piece of work and the files that it makes, relative to the folder; `source` is for the maker."""

    name: str
    files: tuple[str, ...]
    source: Any


@dataclass(frozen=True)
class Plan:
    """A dataset to be.

    facts: plain values, what makes it this dataset and no other; a folder with other facts is refused.
    make: writes the files of an item below a folder; must be picklable. BadItemError and OSError mean a bad item.
    bytes_per_item: about how much disk space an item takes. noun: what users call the items.
    begin: what all items need is in the folder after this call, which several tasks may make at the same time.
    closing: items made from all others' files, by the task that finishes last.
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
        """All files of the dataset; ProductionError when two items make the same one."""
        owners: dict[str, str] = {}
        for item in (*self.items, *self.closing):
            for name in item.files:
                if (other := owners.setdefault(name, item.name)) != item.name:
                    raise ProductionError(f"{item.name} and {other} would both become {name}; rename one of them")
        return set(owners)


@dataclass(frozen=True)
class Crew:
    """Who does the work: this task of several, with this many processes."""

    workers: int = 1
    task: int = 0
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or not 0 <= self.task < self.tasks:
            raise UsageError(
                f"need at least one worker and a task from 0 to number of tasks - 1, not task {self.task} of "
                f"{self.tasks} with {self.workers} workers"
            )


@dataclass
class Outcome:
    """What a call did.

    made, found: items of this task that it finished, and that were finished before. failures: errors of bad items by
    name. unfinished: items of all tasks that are still to be made. manifest: there when all are finished.
    """

    made: int = 0
    found: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: int = 0
    manifest: Manifest | None = None
    seconds: float = 0.0


def readable_bytes(amount: float) -> str:
    """An amount of bytes as a person says it: 512 B, 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def produce(plan: Plan, folder: Path, crew: Crew) -> Outcome:
    """This task's items are on disk, those of other tasks untouched; the manifest is there when nothing is left.

    Items that are finished, by record and size, are not made again. A bad item leaves no files and does not keep the
    others from being made. JournalError when the folder holds another dataset; ProductionError when the disk is too
    small or full, or a worker was killed. What was finished before an error or an interrupt is kept and recorded.
    """
    begun = time.monotonic()
    if not plan.items:
        raise UsageError(f"no {plan.noun} to make: ask for at least one")
    files = plan.files
    heading = Heading(plan.benchmark, plan.variant, dict(plan.facts), len(files))
    journal = Journal(folder)
    journal.admit(heading, {PurePosixPath(name).parts[0] for name in files})
    _refuse_strays(journal, files)
    mine = plan.items[crew.task :: crew.tasks]
    todo = [item for item in mine if not journal.has(item.files)]
    outcome = Outcome(found=len(mine) - len(todo))
    if todo:
        for place in {(folder / name).parent for item in todo for name in item.files}:
            place.mkdir(parents=True, exist_ok=True)
        _check_space(folder, plan.bytes_per_item * len(todo))
    plan.begin(folder)
    if todo:
        try:
            _work(plan, journal, crew, todo, outcome)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            raise ProductionError(
                f"{folder}: {os.strerror(error.errno)}; {outcome.made + outcome.found:,} of {len(mine):,} are finished "
                f"and kept. Make room for about {readable_bytes(plan.bytes_per_item * (len(todo) - outcome.made))} "
                f"and give the same command again"
            ) from error
        except ProcessKilledError as error:
            raise ProductionError(
                f"{error}; what is finished is kept, and the same command goes on from there"
            ) from error
        journal = Journal(folder)
    outcome.unfinished = sum(not journal.finished.keys() >= set(item.files) for item in plan.items)
    if not outcome.unfinished:
        journal = _close(plan, journal, crew)
        outcome.manifest = journal.complete(heading) if (folder / PARTS).exists() else Journal(folder).manifest
    outcome.seconds = time.monotonic() - begun
    return outcome


def report(outcome: Outcome, plan: Plan, folder: Path, checksum: bool = False) -> int:
    """What was made is told, and the files on disk have been compared with the manifest; returns the exit code."""
    _tell([f"{name} was left out: {error}" for name, error in sorted(outcome.failures.items())])
    print(f"made {outcome.made:,} {plan.noun} in {outcome.seconds:.1f} s; {outcome.found:,} were there before")
    manifest = outcome.manifest
    if not manifest:
        others = outcome.unfinished - len(outcome.failures)
        bad = f"{len(outcome.failures):,} could not be used" if outcome.failures else ""
        left = f"{others:,} are left to other tasks" if others else ""
        print(f"{folder} is not complete: {', '.join(filter(None, (bad, left)))}")
        return 1 if outcome.failures else 0
    problems = verify_files(folder, manifest, checksum)
    if problems:
        _tell(problems)
        print(f"{folder}: {len(problems):,} files are not as they should be: delete them and give the command again")
        return 1
    counts = Counter(str(PurePosixPath(name).parent) for name in manifest.files)
    state = "is complete" if outcome.made else "was already complete"
    print(f"{folder} {state}: " + ", ".join(f"{count:,} files in {name}" for name, count in sorted(counts.items())))
    print(f"{readable_bytes(manifest.total_bytes)}, variant {manifest.variant}, digest {manifest.digest()}")
    return 0


def _tell(errors: Sequence[str]) -> None:
    for error in errors[:MOST_TOLD]:
        print(f"error: {error}", file=sys.stderr)
    if len(errors) > MOST_TOLD:
        print(f"error: and {len(errors) - MOST_TOLD:,} more like these", file=sys.stderr)


def _refuse_strays(journal: Journal, files: set[str]) -> None:
    if strays := sorted(journal.finished.keys() - files):
        raise ProductionError(
            f"{journal.folder} has {len(strays):,} finished files that this call would not make, such as {strays[0]}: "
            "the input or its split has changed. Restore it, or name another folder"
        )


def _check_space(folder: Path, needed: float) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ProductionError(
            f"{folder}: about {readable_bytes(needed)} are needed and {readable_bytes(free)} are free; nothing was made"
        )


def _close(plan: Plan, journal: Journal, crew: Crew) -> Journal:
    """The closing items are made, anew where anything else was, and in the journal that is returned."""
    finished = not (journal.folder / PARTS).exists()
    if not plan.closing or (finished and all(journal.has(item.files) for item in plan.closing)):
        return journal
    outcome = Outcome()
    _work(plan, journal, Crew(1, crew.task, crew.tasks), plan.closing, outcome)
    if outcome.failures:
        raise ProductionError("; ".join(f"{name}: {error}" for name, error in outcome.failures.items()))
    return Journal(journal.folder)


def _work(plan: Plan, journal: Journal, crew: Crew, todo: Sequence[Item], outcome: Outcome) -> None:
    heading = Heading(plan.benchmark, plan.variant, dict(plan.facts), len(plan.files))
    quiet = None if crew.task == 0 else True
    with (
        journal.part(heading, crew.task, crew.tasks) as part,
        tqdm(total=len(todo), unit=f" {plan.noun}", desc=str(journal.folder), disable=quiet, smoothing=0.05) as bar,
    ):
        for item, result in in_processes(_Making(plan.make, journal.folder), todo, crew.workers):
            if isinstance(result, str):
                outcome.failures[item.name] = result
            else:
                part.add(result)
                outcome.made += 1
            bar.update()


@dataclass(frozen=True)
class _Making:
    """What a process does with an item: its files are there and described; the text of the error for a bad item."""

    make: Callable[[Item, Path], None]
    folder: Path

    def __call__(self, item: Item) -> dict[str, Entry] | str:
        try:
            self.make(item, self.folder)
            return {name: describe_file(self.folder / name) for name in item.files}
        except (BadItemError, OSError) as error:
            for name in item.files:
                (self.folder / name).unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
                raise
            return str(error)
