"""What a training reports while it runs: the one way out, for files, TensorBoard, trackers and your own code.

Rank 0 calls them, between two steps; the other ranks call none. What a callback does takes the time of the training.
One that raises an exception gets no more calls, after one warning; the training goes on. The files of a run try again.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from common.ending import Ending
from common.reference import Target
from common.training.checkpoint import START, Position

__all__ = ["Callback", "Epoch", "RunStart", "StepRecord"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of an optimizer step. epoch and step count from 1, step within the epoch.

    global_step: counts from 1 over all epochs. loss: the mean over the step, without regularisation. gradient_norm: the
    Euclidean norm of the gradient that the optimizer gets. samples_per_s: over the steps whose losses became known
    together: one on a CPU, otherwise ten. wait_s: seconds that rank 0 waited for data.
    """

    epoch: int
    step: int
    global_step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    samples_per_s: float
    wait_s: float


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


@dataclass(frozen=True, slots=True)
class RunStart:
    """What is known when a training begins, or goes on from a checkpoint.

    folder: that of the run. config: as in the log, with the last part of absolute paths only. position: where it goes
    on; of a new run the start. global_step: the steps done. history: the epochs that were evaluated.
    """

    benchmark: str
    folder: Path
    config: Mapping[str, Any]
    seed: int
    target: Target
    position: Position
    global_step: int
    history: Sequence[Epoch]

    @property
    def resumed(self) -> bool:
        """Whether the training goes on from a checkpoint."""
        return self.position != START


class Callback:
    """Gets the records of a training; derive a class from it, and override what you need.

    name: what a warning calls it; the name of the class by default. The calls come in this order: `begin` once, `step`
    and `epoch` as the training proceeds, `saving` before each checkpoint, `end` once. A resumed training calls `begin`
    again, in another process, and repeats the steps after its checkpoint.
    """

    name: ClassVar[str] = ""

    def begin(self, run: RunStart) -> None:
        """Prepare, before the clock of the run starts."""

    def step(self, step: StepRecord) -> None:
        """Take the record of a step; with several ranks or on an accelerator it comes up to 20 steps later."""

    def epoch(self, epoch: Epoch) -> None:
        """Take the record of an epoch that was evaluated; with train.eval_ranks the next one has started."""

    def saving(self) -> None:
        """Bring all records to disk: a checkpoint is written next, from which the training may go on."""

    def end(self, ending: Ending) -> None:
        """Finish, after the clock of the run has stopped: it is over, stopped, or failed."""


class Callbacks:
    """All callbacks of a training, none on ranks other than 0.

    every_steps: they get the record of each step whose number it divides; 0: none.
    """

    def __init__(self, members: Iterable[Callback] = (), every_steps: int = 1) -> None:
        self._members, self.every_steps = list(members), every_steps

    @property
    def hear_steps(self) -> bool:
        """Whether any callback gets the records of steps."""
        return bool(self._members) and self.every_steps > 0

    def notify_step(self, step: StepRecord) -> None:
        """Give the record of a step, if `every_steps` divides its number."""
        if step.global_step % self.every_steps == 0:
            self.notify(lambda callback: callback.step(step))

    def notify(self, call: Callable[[Callback], None]) -> None:
        """Make a call to each callback; one that raises an exception leaves."""
        for callback in tuple(self._members):
            try:
                call(callback)
            except Exception as error:  # whatever a tracker's library or a user's code raises
                self._members.remove(callback)
                reason = f"{callback.name or type(callback).__name__}: {_describe_error(error)}"
                print(f"warning: {reason}; training goes on without it", file=sys.stderr, flush=True)


def _describe_error(error: Exception) -> str:
    """Return an error in a line: of the system its text, of other kinds also the type and the place."""
    if isinstance(error, OSError | ValueError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"


def load_callback(text: str) -> type[Callback]:
    """Return the class that MODULE:CLASS names; importing the module runs its code.

    Raises ValueError, which says what is wrong, unless it is a class derived from Callback.
    """
    module, _, name = text.partition(":")
    if not name or not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ValueError(f"{text!r}: expected MODULE:CLASS, such as mine:Printer for the class Printer of mine.py")
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{text}: there is no module {module}; Python looks in $PYTHONPATH, too") from None
        raise ValueError(f"{text}: {module} cannot be imported: {_describe_error(error)}") from error
    if not (isinstance(kind, type) and issubclass(kind, Callback)):
        raise ValueError(f"{text}: expected a class derived from {Callback.__module__}.Callback")
    return kind
