"""Report the progress of a run: a live line and a final line per epoch, a table of all epochs, and TensorBoard.

Only rank 0 reports. The live line appears on a terminal only.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from tqdm import tqdm

from common.files import naming, whole_file
from common.reference import Target

BOARD: Final = "tensorboard"
HISTORY: Final = "history.csv"
"""The table of epochs of a run, in its folder."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The record of an epoch, counted from 1.

    wait_s: the part of train_s in which rank 0 waited for data.
    """

    epoch: int
    loss: float
    quality: float
    learning_rate: float
    samples_per_s: float
    train_s: float
    wait_s: float
    eval_s: float


def read_history(folder: Path) -> list[Epoch]:
    """Return the epochs of a run, by the table in its folder; none if it has no table yet."""
    path = folder / HISTORY
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Epoch(int(row.pop("epoch")), **{one.name: float(row[one.name]) for one in fields(Epoch) if one.name in row})
        for row in rows
    ]


def duration(seconds: float) -> str:
    """Return a duration for people: 8.0 s, 1:05, 2:00:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"


class Progress:
    """Shows and records a run: `folder` gets history.csv and, if TensorBoard is installed, its event files.

    quiet: show and write nothing, for ranks other than 0. label: begins each line of one of several trainings, which
    have no live line.
    """

    def __init__(self, folder: Path, target: Target, epochs: int, quiet: bool, label: str = "") -> None:
        self.folder, self.target, self.epochs, self.quiet, self.label = folder, target, epochs, quiet, label
        self._bar: Any = None
        self._board: Any = None
        if not quiet and importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # an optional package

            with naming(folder / BOARD):
                self._board = SummaryWriter(str(folder / BOARD))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_bar()
        if self._board is not None:
            with naming(self.folder / BOARD):
                self._board.close()

    def say(self, text: str) -> None:
        """Print a line above the live line."""
        if not self.quiet:
            tqdm.write(self.label + text, file=sys.stdout)
            sys.stdout.flush()

    def epoch_begins(self, epoch: int, steps: int, done: int) -> None:
        """Start the live line of an epoch (counted from 1); `done` of its steps were done before."""
        self._close_bar()
        hidden = True if self.quiet or self.label else None  # None: shown on a terminal only
        self._bar = tqdm(total=steps, initial=done, desc=f"epoch {epoch}", unit="step", leave=False, disable=hidden)

    def step_done(self, loss: float | None) -> None:
        """Advance the live line by a step; loss: the latest, None if it is not new."""
        if loss is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
        self._bar.update()

    def evaluation_begins(self) -> None:
        """Show on the live line that the network is being evaluated."""
        self._bar.set_description("validation")

    def epoch_done(self, history: list[Epoch]) -> None:
        """Print the line of the latest epoch and write the table of all; the next epoch may have started."""
        if self.quiet:
            return
        last = history[-1]
        left = (self.epochs - last.epoch) * (last.train_s + last.eval_s)
        goal = f"target {self.target.range_text}"
        self.say(
            f"epoch {last.epoch:3}/{self.epochs}  loss {last.loss:.4f}  {self.target.key} {last.quality:.4f}"
            f"  ({goal}{', reached' if self.target.met(last.quality) else ''})"
            f"  {last.samples_per_s:,.1f} samples/s  {duration(last.train_s + last.eval_s)}"
            f"  {'ETA <= ' + duration(left) if left else 'last epoch'}"
        )
        self._write_table(history)
        if self._board is not None:
            with naming(self.folder / BOARD):
                for name, value in asdict(last).items():
                    if name != "epoch":
                        self._board.add_scalar(name, value, last.epoch)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _write_table(self, history: list[Epoch]) -> None:
        with whole_file(self.folder / HISTORY) as part, part.open("w", newline="") as file:
            table = csv.DictWriter(file, [field.name for field in fields(Epoch)])
            table.writeheader()
            table.writerows(asdict(epoch) for epoch in history)
