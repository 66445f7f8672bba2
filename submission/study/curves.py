"""The curves of a study: its runs as points with repetitions, and the laws through them or why there is none."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from common.values import group_pairs, is_number
from submission.results.figures.labels import format_amount
from submission.results.fits.laws import TWO_VARIABLES, Law, Observation, fit_law
from submission.results.fits.least_squares import NoFitError
from submission.study.records import CurveSpec, StudyResult, StudyRun, Value

Variable = TypeVar("Variable")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The repetitions of a point: x, a number or the place of its name in `Curve.names`, and y of each run."""

    xs: tuple[float, ...]
    by: Value
    ys: tuple[float, ...]
    runs: tuple[str, ...]

    @property
    def x(self) -> float:
        return statistics.fmean(self.xs)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.ys)


@dataclass(frozen=True, slots=True)
class CurveLine:
    """The points with one value of what separates lines, in the order of x. problem: why there is no law."""

    label: str
    by: Value
    points: tuple[CurvePoint, ...]
    law: Law | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a figure shows. names: of the places of x, where x has words. law, problem: of a law of all lines together.

    left_out: run and reason.
    """

    spec: CurveSpec
    lines: tuple[CurveLine, ...]
    names: tuple[str, ...] = ()
    law: Law | None = None
    problem: str = ""
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def laws(self) -> tuple[tuple[str, Law | None, str], ...]:
        """Label, law and problem of each fit that was asked for."""
        if not self.spec.law:
            return ()
        if self.spec.law in TWO_VARIABLES or self.problem:
            return (("", self.law, self.problem),)
        return tuple((line.label, line.law, line.problem) for line in self.lines)


def trace_curves(result: StudyResult) -> list[Curve]:
    """Return the curves of a study with their fits."""
    return [trace_curve(result.runs, spec) for spec in result.curves]


def trace_curve(runs: Sequence[StudyRun], spec: CurveSpec) -> Curve:
    """Return the curve; a law of two variables is of all lines together, of the others each line has its own."""
    reasons = [(run, _explain_unfit(run, spec)) for run in runs]
    kept = [run for run, reason in reasons if not reason]
    names: tuple[str, ...] = ()
    if not all(is_number(run.get(spec.x)) for run in kept):
        names = tuple(dict.fromkeys(str(run.get(spec.x)) for run in kept))
    groups = group_pairs((tuple(sorted(run.values.items())), run) for run in kept)
    points = sorted(
        (_gather_point(group, spec, names) for group in groups.values()),
        key=lambda point: point.x,
    )
    values = list(dict.fromkeys(run.get(spec.by) if spec.by else None for run in kept))
    if all(map(is_number, values)):
        values.sort()
    lines = [
        CurveLine(name_value(spec.by, by) if spec.by else "", by, tuple(point for point in points if point.by == by))
        for by in values
    ]
    law, problem = None, "" if kept else f"no fit: no run has {spec.x} and {spec.y}"
    if names and spec.law:
        problem = f"no fit: {spec.x} has names, and a law needs numbers"
    elif spec.law in TWO_VARIABLES and kept:
        law, problem = _fit_points(spec, points)
    elif spec.law:
        lines = [CurveLine(line.label, line.by, line.points, *_fit_points(spec, line.points)) for line in lines]
    left_out = tuple((run.name, reason) for run, reason in reasons if reason)
    return Curve(spec, tuple(lines), names, law, problem, left_out)


def order_variables(law: str, x: Variable, by: Variable) -> tuple[Variable, ...]:
    """Return what the variables of a law are, in its order."""
    return {"joint": (by, x), "isoflop": (x, by)}.get(law, (x,))


def _explain_unfit(run: StudyRun, spec: CurveSpec) -> str:
    """Return why a run is not on a curve; "" if it is."""
    if run.problem:
        return run.problem
    for name, is_log in ((spec.x, spec.log_x), (spec.y, spec.log_y)):
        value = run.get(name)
        if value is None:
            return f"it has no {name}"
        if is_number(value) and is_log and value <= 0:
            return f"{name} is {value:g}, which a logarithmic axis cannot show"
    if spec.by not in {"", *run.values, *run.quantities}:
        return f"it has no {spec.by}"
    return "" if is_number(run.get(spec.y)) else f"{spec.y} is no number"


def _gather_point(runs: Sequence[StudyRun], spec: CurveSpec, names: Sequence[str]) -> CurvePoint:
    values = [(run.get(spec.x), run.get(spec.y)) for run in runs]
    places = [names.index(str(x)) if names else x for x, _ in values]
    xs = tuple(float(x) for x in places if is_number(x))
    ys = tuple(float(y) for _, y in values if is_number(y))
    return CurvePoint(xs, runs[0].get(spec.by) if spec.by else None, ys, tuple(run.name for run in runs))


def name_value(name: str, value: Value) -> str:
    """Return a value as a label has it: a word alone, others with the last part of their name, such as conv_size 16."""
    if isinstance(value, str):
        return value
    return f"{name.rpartition('.')[2]} {format_amount(value) if is_number(value) else value}"


def _fit_points(spec: CurveSpec, points: Sequence[CurvePoint]) -> tuple[Law | None, str]:
    """Return the law through all repetitions of points; None and the reason if there is none."""
    observations = [
        Observation(
            order_variables(spec.law, point.x, float(point.by) if is_number(point.by) else math.nan),
            y,
            name,
        )
        for point in points
        for y, name in zip(point.ys, point.runs, strict=True)
    ]
    try:
        return fit_law(spec.law, observations, order_variables(spec.law, spec.x, spec.by)), ""
    except NoFitError as error:
        return None, str(error)
