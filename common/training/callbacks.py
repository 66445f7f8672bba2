"""What a training reports while it runs, and lets change: for files, TensorBoard, trackers and your own code.

Rank 0 gives the records to callbacks, between two steps; what they do takes the time of the training. One that raises
an exception there gets no more calls, after one warning; the training goes on. The files of a run try again. A callback
that takes the network acts on all ranks alike, and its exceptions end the run.

`Progress` shows a run to people: a live line, on a terminal only, and a final line per epoch.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from torch import nn
from torch.optim import Optimizer
from tqdm import tqdm

from common.command import clean
from common.console import format_duration, print_warning
from common.ending import Ending
from common.own_code import Code, describe_source, import_source
from common.ranks.dist import Dist
from common.reference import Target
from common.training.checkpoint import START, Position, is_dense


class Progress:
    """Shows a run. quiet: show nothing, for ranks other than 0.

    label: begins each line of one of several trainings, which have no live line.
    """

    def __init__(self, target: Target, quiet: bool, label: str = "") -> None:
        self.target, self.quiet, self.label = target, quiet, label
        self._bar: Any = None

    def print_line(self, text: str) -> None:
        """Print a line above the live line."""
        if not self.quiet:
            tqdm.write(self.label + text, file=sys.stdout)
            sys.stdout.flush()

    def begin_epoch(self, epoch: int, steps: int, done: int) -> None:
        """Start the live line of an epoch (counted from 1); `done` of its steps were done before."""
        self.close()
        self._bar = tqdm(
            total=steps,
            initial=done,
            desc=f"epoch {epoch}",
            unit="step",
            leave=False,
            disable=True if self.quiet or self.label else None,  # None: shown on a terminal only
        )

    def show_step(self, loss: float | None) -> None:
        """Advance the live line by a step; loss: the latest, None if it is not new."""
        if loss is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
        self._bar.update()

    def show_evaluation(self) -> None:
        """Show on the live line that the network is being evaluated."""
        self._bar.set_description("validation")

    def show_epoch(self, last: Epoch, epochs: int) -> None:
        """Print the line of an epoch, of so many at most; the next one may have started."""
        left = (epochs - last.epoch) * (last.train_s + last.eval_s)
        self.print_line(
            f"epoch {last.epoch:3}/{epochs}  loss {last.loss:.4f}  {self.target.key} {last.quality:.4f}"
            f"  (target {self.target.range_text}{', reached' if self.target.met(last.quality) else ''})"
            f"  {last.samples_per_s:,.1f} samples/s  {format_duration(last.train_s + last.eval_s)}"
            f"  {'ETA <= ' + format_duration(left) if left else 'last epoch'}"
        )

    def close(self) -> None:
        """Remove the live line."""
        if self._bar is not None:
            self._bar.close()


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


LONGEST_REASON: Final = 200


class Callback:
    """Gets the records of a training, and may act on it; derive a class from it, and override what you need.

    name: what messages call it; the name of the class by default. On rank 0 the calls come in this order: `begin` once,
    `step` and `epoch` as the training proceeds, `saving` before each checkpoint, `end` once. A resumed training calls
    `begin` again, in another process, and repeats the steps after its checkpoint.

    A class that overrides one of `ACTIONS` acts: each rank that trains has an object of it, and calls these methods,
    which must do the same on all of them. It is recorded as code that computed.
    """

    name: ClassVar[str] = ""
    stop_reason: str = ""

    def stop(self, reason: str = "") -> None:
        """Ask for the end of the run, which keeps its last checkpoint; some steps may follow, see `step`.

        reason: for the log, which gets a line of at most `LONGEST_REASON` characters.
        """
        self.stop_reason = clean(" ".join(str(reason or "no reason stated").split()))[:LONGEST_REASON]

    # -- on each rank

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Take network and optimizer, before the run, with the weights from which it starts or goes on.

        Change tensors in place only: recorded steps (`train.graph`) find them where they are.
        """

    def after_step(self) -> None:
        """Act after a step, without gradients; on an accelerator the work is put behind that of the step."""

    def evaluating(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which the network is as it is to be evaluated, and saved for use."""
        return contextlib.nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values for a checkpoint, which is made inside of `evaluating`; also after `attach`.

        Values are numbers, text, None, and lists, tuples and dictionaries of values: reading a checkpoint runs no code.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, after `attach`: the network is as it was saved inside of `evaluating`."""

    # -- on rank 0

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


ACTIONS: Final = ("attach", "after_step", "evaluating", "state_dict", "load_state_dict")
"""The methods of a callback that acts."""
PLAIN: Final = (type(None), bool, int, float, str)
"""The types of values that a checkpoint takes, beside tensors and what has values in it."""
CallbackSource = Callback | type[Callback]
"""A callback as a caller passes it: an object, or a class, of which each training makes an object."""


def acts_on_training(source: CallbackSource) -> bool:
    """Tell whether a callback acts on a training."""
    return any(getattr(_class_of(source), name) is not getattr(Callback, name) for name in ACTIONS)


def list_acting(sources: Iterable[CallbackSource]) -> tuple[Code, ...]:
    """Return the sources of the callbacks that act on a training."""
    classes = (_class_of(callback) for callback in sources if acts_on_training(callback))
    return tuple(describe_source("callback", cls.__qualname__, cls) for cls in classes)


def _class_of(source: CallbackSource) -> type[Callback]:
    return source if isinstance(source, type) else type(source)


class Callbacks:
    """All callbacks of a training.

    members: get the records, none on ranks other than 0. acting: those of them, or of rank 0's, that act.
    every_steps: they get the record of each step whose number it divides; 0: none. may_stop: whether any may ask for
    the end of the run, the same on all ranks. stop: who did, and why, once all ranks know.
    """

    def __init__(
        self,
        members: Iterable[Callback] = (),
        every_steps: int = 1,
        acting: Iterable[Callback] = (),
        may_stop: bool = False,
    ) -> None:
        self._members, self.every_steps, self._acting = list(members), every_steps, tuple(acting)
        self._may_stop, self.stop = may_stop, ""

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Give network and optimizer to those that act; ValueError if a checkpoint could not have the state of one."""
        for callback in self._acting:
            callback.attach(model, optimizer)

    def after_step(self) -> None:
        """Let those act that do after a step."""
        if self._acting:
            with torch.no_grad():
                for callback in self._acting:
                    callback.after_step()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have the network as it is to be evaluated and saved."""
        with contextlib.ExitStack() as stack:
            for callback in self._acting:
                stack.enter_context(callback.evaluating())
            yield

    def collect_states(self) -> dict[str, Any]:
        """Return the states of those that have one, by name; ValueError for one that no checkpoint gives back."""
        states = {_get_name(callback): state for callback in self._acting if (state := callback.state_dict())}
        for name, state in states.items():
            _check_state(state, f"callback {name}: state_dict()")
        return states

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Give the states of a checkpoint back; ValueError unless each has its callback."""
        acting = {_get_name(callback): callback for callback in self._acting}
        if missing := sorted(set(states) - set(acting)):
            raise ValueError(f"callback {missing[0]} has a state in it; name it again: --callback FILE.py:{missing[0]}")
        for name, state in states.items():
            acting[name].load_state_dict(state)

    def find_stop(self, ranks: Dist) -> str:
        """Return who asks for the end of the run, and why; "" if nobody. A collective call if any may."""
        if self._may_stop and not self.stop:
            everyone = (*self._members, *self._acting)
            asking = (f"{_get_name(callback)}: {callback.stop_reason}" for callback in everyone if callback.stop_reason)
            self.stop = ranks.find_first(next(asking, None)) or ""
        return self.stop

    @property
    def hear_steps(self) -> bool:
        """Whether any callback gets the records of steps."""
        return bool(self._members) and self.every_steps > 0

    def notify_step(self, step: StepRecord) -> None:
        """Give the record of a step, if `every_steps` divides its number."""
        if step.global_step % self.every_steps == 0:
            self.notify_members(lambda callback: callback.step(step))

    def notify_members(self, call: Callable[[Callback], None]) -> None:
        """Make a call to each callback; one that raises an exception leaves."""
        for callback in tuple(self._members):
            try:
                call(callback)
            except Exception as error:  # whatever a tracker's library or a user's code raises
                self._members.remove(callback)
                print_warning(f"{_get_name(callback)}: {_describe_error(error)}; training goes on without it")


def _get_name(callback: Callback) -> str:
    return callback.name or type(callback).__name__


def _describe_error(error: Exception) -> str:
    """Return an error in a line: of the system its text, of other kinds also the type and the place."""
    if isinstance(error, OSError | ValueError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(frame.filename).name}:{frame.lineno})"


def _check_state(value: Any, path: str) -> None:
    """Raise ValueError for what a checkpoint would not give back, since reading one runs no code. path: in Python."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, nn.Parameter) or not is_dense(value):
            raise ValueError(f"{path} is not a dense torch.Tensor; expected a copy, as clone() makes it")
    elif type(value) in (dict, OrderedDict):
        for key, item in value.items():
            if type(key) not in PLAIN:
                raise ValueError(f"{path} has the key {key!r}; expected text or a number")
            _check_state(item, f"{path}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, item in enumerate(value):
            _check_state(item, f"{path}[{number}]")
    elif type(value) not in PLAIN:
        raise ValueError(
            f"{path} is of type {type(value).__qualname__}; expected tensors, numbers, text, None, or "
            "lists, tuples and dictionaries of them, which are all that a checkpoint gives back"
        )


def load_callback(text: str) -> type[Callback]:
    """Return the class that MODULE:CLASS or FILE.py:CLASS names; importing the module runs its code.

    Raises ValueError, which says what is wrong, unless it is a class derived from Callback.
    """
    source, _, name = text.rpartition(":")
    if not source or not name.isidentifier():
        raise ValueError(f"{text!r}: expected FILE.py:CLASS or MODULE:CLASS, such as mine.py:Printer")
    kind = getattr(import_source(source), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Callback)):
        raise ValueError(f"{text}: expected a class derived from common.api.Callback")
    return kind
