"""The files that say how a run went: a row per epoch in history.csv, a line per step and epoch in metrics.jsonl."""

from __future__ import annotations

import csv
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, TextIO

from common.ending import Ending
from common.files import follow_no_link, naming, open_whole_file
from common.mllog import set_aside
from common.record import METRICS
from common.styles import print_warning
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.checkpoint import Position

HISTORY: Final = "history.csv"


class RunFile(Callback):
    """A file of a run that an error of the file system, which may pass, does not end.

    What could not be written comes with what is written next; there is one warning. guard: raises if another training
    owns the folder now.
    """

    def __init__(self, guard: Callable[[], None]) -> None:
        self._guard, self._failed = guard, False

    @contextmanager
    def _retried_later(self) -> Iterator[None]:
        """Show the first error of the system in any `with`, and go on."""
        self._guard()
        try:
            yield
        except OSError as error:
            if not self._failed:
                print_warning(f"{self.name}: {error}; training goes on, and tries again")
            self._failed = True


class History(RunFile):
    """Writes the table of epochs: as a whole first, and where the file is not as it was left; else the last row."""

    name = HISTORY

    def begin(self, run: RunStart) -> None:
        self._path, self._epochs = run.folder / HISTORY, list(run.history)
        self._written, self._bytes = len(run.history), -1

    def epoch(self, epoch: Epoch) -> None:
        self._epochs.append(epoch)
        self._write_rows()

    def end(self, ending: Ending) -> None:
        if self._written < len(self._epochs):
            self._write_rows()

    def _write_rows(self) -> None:
        with self._retried_later():
            if self._path.exists() and self._path.stat().st_size == self._bytes:
                with (
                    naming(self._path),
                    open(self._path, "a", encoding="utf-8", newline="", opener=follow_no_link) as file,
                ):
                    self._table_of(file).writerows(map(asdict, self._epochs[self._written :]))
            else:
                with open_whole_file(self._path, "w") as file:
                    table = self._table_of(file)
                    table.writeheader()
                    table.writerows(map(asdict, self._epochs))
            self._written, self._bytes = len(self._epochs), self._path.stat().st_size

    def _table_of(self, file: TextIO) -> csv.DictWriter[str]:
        return csv.DictWriter(file, [field.name for field in fields(Epoch)])


class Metrics(RunFile):
    """Writes a line for each step and each epoch: JSON, with null for what is not a finite number.

    A resumed run removes the lines of what it will do again; a new one keeps an earlier file under another name.
    """

    name = METRICS

    def __init__(self, guard: Callable[[], None]) -> None:
        super().__init__(guard)
        self._lines: deque[str] = deque(maxlen=100_000)  # that cannot be written; the oldest are lost first
        self._wrote_at = time.monotonic()
        self._unprepared: RunStart | None = None
        self._bytes = 0

    def begin(self, run: RunStart) -> None:
        self._path, self._unprepared = run.folder / METRICS, run
        with self._retried_later():
            self._prepare_file()

    def step(self, step: StepRecord) -> None:
        self._lines.append(_format_line("step", step))
        if time.monotonic() - self._wrote_at > 1:  # s, for which lines are kept in memory
            self._write_lines()

    def epoch(self, epoch: Epoch) -> None:
        self._lines.append(_format_line("epoch", epoch))
        self._write_lines()

    def saving(self) -> None:
        self._write_lines()

    def end(self, ending: Ending) -> None:
        self._write_lines()

    def _prepare_file(self) -> None:
        """Keep what an earlier start has written of what is not done again; only the first call does it."""
        run = self._unprepared
        if run is None:
            return
        if not run.resumed:
            set_aside(self._path)
        elif self._path.exists():
            # Damaged lines, as of a killed run, go too.
            with open_whole_file(self._path, "w") as new, self._path.open(encoding="utf-8") as old:
                new.writelines(line for line in old if _is_before(line, run.position, len(run.history)))
        self._bytes = self._path.stat().st_size if self._path.exists() else 0
        self._unprepared = None

    def _write_lines(self) -> None:
        self._wrote_at = time.monotonic()
        if not self._lines:
            return
        with self._retried_later():
            self._prepare_file()
            text = "".join(self._lines).encode()
            with naming(self._path), open(self._path, "ab", opener=follow_no_link) as file:
                self._bytes = min(self._bytes, file.tell())
                file.truncate(self._bytes)  # without the part of a write that failed
                file.write(text)
            self._bytes += len(text)
            self._lines.clear()


def _format_line(kind: str, record: StepRecord | Epoch) -> str:
    numbers = {name: value if math.isfinite(value) else None for name, value in asdict(record).items()}
    return json.dumps({"kind": kind, **numbers}) + "\n"


def _is_before(line: str, position: Position, epochs: int) -> bool:
    """Tell whether a line is of a step up to a position, or of one of the first epochs."""
    try:
        record: Any = json.loads(line)
        if record["kind"] == "epoch":
            return bool(record["epoch"] <= epochs)
        return bool((record["epoch"] - 1, record["step"]) <= (position.epoch, position.step))
    except (ValueError, TypeError, LookupError):
        return False


def read_history(folder: Path) -> list[Epoch]:
    """Return the epochs of a run, by the table in its folder; none if it has no table yet."""
    path = folder / HISTORY
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())  # a row may just be being written
    names = [field.name for field in fields(Epoch) if field.name != "epoch"]
    return [Epoch(int(row["epoch"]), **{name: float(row[name]) for name in names if name in row}) for row in rows]
