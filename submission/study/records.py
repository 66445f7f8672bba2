"""What a study has measured and how it is to be drawn: what collects, fits and draws passes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from submission.study.quantities import QUANTITIES

Value = str | float | int | bool | None
"""Of an axis."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a study.

    values: of each axis; runs that agree in all of them are repetitions of one point, so the seed is none of them.
    quantities: what the run measured, by name (such as "samples_per_s" or "loss"), and what it counts (such as
    "parameters" or "flop"). command: makes the run again. problem: why it has no result, "" if it has one.
    """

    name: str
    values: dict[str, Value]
    quantities: dict[str, float] = field(default_factory=dict)
    command: str = ""
    problem: str = ""

    def get(self, name: str) -> Value:
        """Return a quantity, else the value of an axis; None if the run has neither."""
        return self.quantities.get(name, self.values.get(name))


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """A curve over the runs of a study, and the law to fit to it.

    x, y: names of a quantity or axis with numbers. by: what separates the lines of one figure, a quantity or axis; ""
    for one line. law: a key of `submission.results.fits.laws.LAWS`, "" for none. Of the law "joint", x is the number of
    samples and `by` that of parameters; of "isoflop", x is the number of parameters and `by` the compute.
    log_x, log_y: whether an axis is logarithmic. x_label, y_label: with units, such as "training time (s)"; "" for the
    names. ideal: the exponent of perfect scaling, y ~ x^ideal from the first point on; None draws no such line.
    """

    title: str
    x: str
    y: str
    by: str = ""
    law: str = ""
    log_x: bool = True
    log_y: bool = True
    x_label: str = ""
    y_label: str = ""
    ideal: float | None = None


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A study: its runs, and the curves to draw.

    paper: the source of the study, "" for none. differences: in which points it differs from the paper. machine: facts
    on where it ran, by name. notes: what a reader has to know, a sentence each. cwd: where it was started, to which the
    commands of the runs are relative.
    """

    title: str
    paper: str = ""
    differences: tuple[str, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)
    runs: tuple[StudyRun, ...] = ()
    curves: tuple[CurveSpec, ...] = ()
    notes: tuple[str, ...] = ()
    cwd: str = ""

    @property
    def axes(self) -> list[str]:
        """The axes of the runs, in order."""
        return list(dict.fromkeys(key for run in self.runs for key in run.values))

    @property
    def quantities(self) -> list[str]:
        """The quantities that some run has, in the order of `QUANTITIES`."""
        return [name for name in QUANTITIES if any(name in run.quantities for run in self.runs)]
