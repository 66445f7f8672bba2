"""What the tests of training and synthetic data need of a benchmark; tests/<benchmark>/case.py gives it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any


@cache
def bind_command(benchmark, command):
    """Return what has a `main` for the arguments after `python -m BENCHMARK COMMAND`."""
    main = import_module(f"{benchmark}.__main__").main
    return SimpleNamespace(main=lambda argv: main([command, *argv]))


@dataclass(frozen=True)
class Case:
    """A benchmark, a small problem of it, and what is its own in these tests.

    made: arguments for 24 training and 7 validation samples, which no number of ranks and batch size here divides.
    quality: its key in the log. met: a target that any network meets. files: those of the samples.
    shared: overrides that make two ranks equal to one. recorded: that make plain steps compute what recorded ones do to
    the last digit. staged: with staged data. wrong: each with a part of its error.
    full: arguments for two training samples and one for validation of the full size. closed: overrides for these few.
    learned: overrides with which one batch is learned in 100 steps.
    small: arguments for data that are made at once. wrong_options: of synthesize, each with a part of its error.
    other_network: an override with which the network has other weights.
    judged: gives the sum of the qualities of what a Predictor says of a validation sample, and their number.
    """

    name: str
    made: str
    config: str
    quality: str
    met: str
    files: str
    wrong: tuple[tuple[str, str], ...]
    full: str
    small: str
    wrong_options: tuple[tuple[str, str], ...]
    other_network: str
    judged: Callable[[Any, Any, int], tuple[float, int]]
    shared: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()

    @property
    def train(self):
        return import_module(f"{self.name}.train")

    @property
    def evaluate(self):
        return bind_command(self.name, "evaluate")

    @property
    def predict(self):
        return bind_command(self.name, "predict")

    @property
    def synthesize(self):
        return import_module(f"{self.name}.synthesize")
