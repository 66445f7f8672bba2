"""Training from Python and in notebooks: the functions `run` and `load` of a benchmark's `train` module.

from cosmoflow import train

run = train.run("mini", "train.epochs=2", output_dir="runs/first")
[epoch.quality for epoch in run.history]
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from common.config import ConfigError, Override, rebuild
from common.ending import TARGET_MET, Ending, read_ending
from common.files import CHECKPOINTS, LOG_NAME, instance_folder
from common.locks import InUseError
from common.precision import Precision
from common.ranks.connect import connect
from common.record import read_value
from common.reference import Target
from common.settings.run import RunConfig
from common.stop import STOP, StopAsked
from common.training import checkpoint
from common.training.benchmark import Benchmark, Problem, check_network_code
from common.training.callbacks import CallbackSource, Epoch
from common.training.job import configure_training, train
from common.training.run import TRAINING_ERRORS, Start
from common.training.tracking import HISTORY, read_history

__all__ = ["BusyError", "Run"]

STOPPED_TEXT: Final = "the training is stopped; continue it with resume=True"
_ACTIVE: Final = threading.Lock()
"""Held while this process trains: two trainings would share torch's random numbers and the stop signals."""


class BusyError(RuntimeError):
    """Another training is active, in this process or in the folder; the message names it."""


@dataclass(frozen=True)
class Run:
    """A training that was run. folder: of its files; config: its configuration. More are found in the folder."""

    benchmark: Benchmark = field(repr=False)
    config: RunConfig = field(repr=False)
    folder: Path

    @property
    def log(self) -> Path:
        """The result log."""
        return self.folder / LOG_NAME

    @property
    def history_csv(self) -> Path:
        """The table of `history`."""
        return self.folder / HISTORY

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return checkpoint.list_checkpoints(self.folder / CHECKPOINTS)

    @property
    def history(self) -> list[Epoch]:
        """The record of each epoch."""
        return read_history(self.folder)

    @property
    def ending(self) -> Ending | None:
        """How the run ended; None if it is active, or was killed."""
        return read_ending(self.folder)

    @property
    def target_met(self) -> bool:
        """Whether the quality met the target."""
        ending = self.ending
        return ending is not None and ending.how == TARGET_MET

    @cached_property
    def target(self) -> Target:
        """The target of the quality; it is that of the data, which are looked up."""
        return self._build_problem().reference.target.choose(self.config.train.target)

    def network(self, source: Path | None = None) -> nn.Module:
        """Return the network of the newest checkpoint, or of the one in `source`, in evaluation mode."""
        return self._load_problem(source).model

    def predictions(
        self, samples: int = 64, split: str = "validation", source: Path | None = None
    ) -> list[tuple[Any, Tensor]]:
        """Return batches of the first samples of a split, each with what the network predicts for it.

        Batches and predictions are those of the benchmark: `SampleProblem.prepared` and `SampleProblem.predictions`.
        """
        problem = self._load_problem(source)
        data = problem.sets[split]
        parts = problem.eval_parts(np.arange(min(samples, len(data))))
        autocast = Precision(self.config.precision, problem.dist.device).autocast()
        with torch.inference_mode(), problem.evaluating(), autocast, closing(problem.read(data, parts)) as batches:
            return [(batch, problem.predictions(problem.model, batch)) for batch in map(problem.prepared, batches)]

    def _load_problem(self, source: Path | None) -> Problem:
        """Return the problem with the network of a checkpoint."""
        loaded = checkpoint.load(source or self.folder, self.benchmark.name)
        loaded.warn()
        problem = self._build_problem()
        problem.model.load_state_dict(loaded.content["state"]["model"])
        problem.model.eval()
        return problem

    def _build_problem(self) -> Problem:
        config = replace(self.config, dist=replace(self.config.dist, spatial=1))
        problem: Problem | None = None
        message = "stopped while the data were looked up"
        with _signals_passed_on(message), connect(config.dist, TRAINING_ERRORS) as dist:
            problem = self.benchmark.build_problem(config, dist, read_value(self.log, "seed") or 0)
        if problem is None:
            raise KeyboardInterrupt(message)
        return problem


class Trainer:
    """The training of a benchmark; its methods are functions of the benchmark's `train` module."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark

    def run(
        self,
        config: str | Path,
        *overrides: Override,
        resume: bool | str | Path = False,
        quiet: bool = False,
        callbacks: Sequence[CallbackSource] = (),
        **keys: Any,
    ) -> Run:
        """Train until the target is met or all epochs are done, and return the run.

        config: the name of a configuration, such as "mini", or a YAML file.
        overrides: "section.key=value" as on the command line, or {"section.key": value}.
        keys: those at the top of the configuration, such as output_dir, and whole sections.
        resume: True begins the run in output_dir, or continues it, or returns it if it has ended; the folder of a run,
            or a checkpoint, is continued.
        quiet: print only warnings and errors.
        callbacks: classes derived from `common.api.Callback`, or objects of them.

        Raises ConfigError for a wrong configuration, BusyError if another training is active, FloatingPointError if
        the loss is not a number, and ValueError or OSError that says what to fix. A stop signal, such as the stop
        button of a notebook, saves the run and is then passed on: it ends as KeyboardInterrupt, and `resume=True`
        continues it. Only the main thread gets signals.
        """
        resolved = configure_training(self.benchmark, str(config), [*overrides, keys])
        if resolved.instances.count > 1:
            raise ConfigError(
                f"instances.count is {resolved.instances.count}, but `run` trains one network: leave it out, and train "
                f"several by the command `python -m {self.benchmark.name}.train`"
            )
        path = None if isinstance(resume, bool) else str(resume)
        start = Start(path, resume is True, callbacks=tuple(callbacks), overrides=(*overrides, keys))
        with _exclusive_training(), _signals_passed_on(), _output_hidden(quiet):
            train(self.benchmark, resolved, start)
        number = resolved.instances.first
        folder = resolved.output_dir if number is None else instance_folder(resolved.output_dir, number)
        return Run(self.benchmark, resolved, folder)

    def load(self, source: str | Path, *overrides: Override) -> Run:
        """Return a run that was trained before. source: its folder, or one of its checkpoints.

        overrides: such as data.data_dir, of which a checkpoint keeps only the last part if it is absolute. Raises
        CheckpointError if there is no checkpoint.
        """
        loaded = checkpoint.load(Path(source), self.benchmark.name)
        config = rebuild(self.benchmark.config, loaded.config, f"the configuration in {loaded.path}", overrides)
        check_network_code(loaded.own_code, self.benchmark, config, loaded.path)
        folder = Path(source) if Path(source).is_dir() else Path(source).parent.parent
        return Run(self.benchmark, config, folder)


class _Stream(io.TextIOBase):
    """A standard stream that is no terminal for the thread that makes it; kept: it passes on that thread's text."""

    def __init__(self, stream: Any, kept: bool) -> None:
        self._stream, self._kept, self._thread = stream, kept, threading.get_ident()

    def write(self, text: str) -> int:
        if self._kept or threading.get_ident() != self._thread:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return threading.get_ident() != self._thread and bool(self._stream.isatty())


@contextlib.contextmanager
def _output_hidden(quiet: bool) -> Iterator[None]:
    """Print nothing on standard output and show no progress bars, if it is to be quiet; other threads may."""
    if not quiet:
        yield
        return
    out, err = _Stream(sys.stdout, kept=False), _Stream(sys.stderr, kept=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


@contextlib.contextmanager
def _exclusive_training() -> Iterator[None]:
    """Be the only training of this process; BusyError if there is one."""
    if not _ACTIVE.acquire(blocking=False):
        raise BusyError("another training is active in this process: wait for it, or train in a process of its own")
    try:
        yield
    except InUseError as error:
        raise BusyError(str(error)) from None
    finally:
        _ACTIVE.release()


@contextlib.contextmanager
def _signals_passed_on(message: str = STOPPED_TEXT) -> Iterator[None]:
    """Stop the work at a signal, and then do what the process does at that signal, such as KeyboardInterrupt."""
    with STOP.listening():
        with contextlib.suppress(StopAsked):
            yield
        number = STOP.number
    if number:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(message) from None
