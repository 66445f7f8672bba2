"""The files that say how a run went: a row per epoch in history.csv, a line per step and epoch in metrics.jsonl."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from common.ending import Ending
from common.files import follow_no_link, naming, open_whole_file
from common.mllog import set_aside
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.checkpoint import Position

HISTORY: Final = "history.csv"
METRICS: Final = "metrics.jsonl"
WRITE_S: Final = 1.0
"""How long lines are kept in memory while steps are made."""


class History(Callback):
    """Writes the table of epochs, as a whole after each. guard: raises if another training owns the folder now."""

    name = HISTORY

    def __init__(self, guard: Callable[[], None]) -> None:
        self._guard = guard

    def begin(self, run: RunStart) -> None:
        self._path, self._epochs = run.folder / HISTORY, list(run.history)

    def epoch(self, epoch: Epoch) -> None:
        self._epochs.append(epoch)
        self._guard()
        with open_whole_file(self._path, "w", newline="") as file:
            table = csv.DictWriter(file, [field.name for field in fields(Epoch)])
            table.writeheader()
            table.writerows(map(asdict, self._epochs))


class Metrics(Callback):
    """Writes a line for each step and each epoch: JSON, in which null stands for what is not a finite number.

    A resumed run removes the lines of what it will do again; a new one keeps an earlier file under another name.
    guard: raises if another training owns the folder now.
    """

    name = METRICS

    def __init__(self, guard: Callable[[], None]) -> None:
        self._guard = guard
        self._lines: list[str] = []
        self._wrote_at = time.monotonic()

    def begin(self, run: RunStart) -> None:
        self._path = run.folder / METRICS
        if not run.resumed:
            set_aside(self._path)
        elif self._path.exists():
            # Damaged lines, as of a killed run, go too.
            with open_whole_file(self._path, "w") as new, self._path.open() as old:
                new.writelines(line for line in old if _is_before(line, run.position, len(run.history)))

    def step(self, step: StepRecord) -> None:
        self._lines.append(_format_line("step", step))
        if time.monotonic() - self._wrote_at > WRITE_S:
            self._write_lines()

    def epoch(self, epoch: Epoch) -> None:
        self._lines.append(_format_line("epoch", epoch))
        self._write_lines()

    def saving(self) -> None:
        self._write_lines()

    def end(self, ending: Ending) -> None:
        self._write_lines()

    def _write_lines(self) -> None:
        self._guard()
        with naming(self._path), open(self._path, "a", opener=follow_no_link) as file:
            file.writelines(self._lines)
        self._lines.clear()
        self._wrote_at = time.monotonic()


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
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [field.name for field in fields(Epoch) if field.name != "epoch"]
    return [Epoch(int(row["epoch"]), **{name: float(row[name]) for name in names if name in row}) for row in rows]
