"""The laws of studies, each with 95 % intervals, and the reasons not to fit one.

Laws are fitted to the logarithm of y: repetitions spread by a share of y, not by an amount. Intervals are those of
Student's t: exact for the power law, by the profile of the sum of squares for the others, whose parameters the delta
method gives intervals that are too short. From MANY_SEEDS repetitions of each point on they come from resampled seeds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from common.command import counted
from common.installed import missing_extra
from common.values import group_pairs
from submission.results.fits.least_squares import CONFIDENCE, Interval, NoFitError, fit_line, power_law

BY_MEANS: Final = "Student's t over the means of the points, as these miss the law by more than repetitions differ"
MANY_SEEDS: Final = 20
"""Repetitions of each point from which on seeds are resampled: of fewer, a resampled spread is too small."""
RESAMPLES: Final = 999
LACK_OF_FIT: Final = 4.0
"""Variance of the points around a law, over that of their repetitions, above which the law does not explain the points
to within the repetitions. Chance exceeds it in 1 to 5 % of usual studies (2 to 6 against 8 to 40 degrees of freedom).
The means of the points then count, one each: repetitions of a point tell nothing about its distance from the law."""
SPARE: Final = 2
"""Different points that a law needs beyond its parameters: with fewer, intervals are hardly narrower than exponents."""
MOST_REASONS: Final = 3
"""Why points are left out, in a refusal."""


class Observation(NamedTuple):
    """A measured point. x: the values of the law's variables, in their order."""

    x: tuple[float, ...]
    y: float
    name: str = ""


class Omission(NamedTuple):
    """An observation that does not count."""

    observation: Observation
    reason: str


class Parameter(NamedTuple):
    """An estimate with its interval, which may be open: infinite."""

    name: str
    value: float
    interval: Interval


class Residual(NamedTuple):
    """An observation and what the law says there; relative: (y - fitted) / fitted."""

    observation: Observation
    fitted: float
    relative: float


class Solution(NamedTuple):
    """A law through some points, with intervals for independent errors of equal share.

    values: the parameters. at: returns y at x. band: returns the interval of the law at x.
    """

    values: tuple[float, ...]
    at: Callable[[Sequence[float]], float]
    band: Callable[[Sequence[float]], Interval]
    find_intervals: Callable[[], tuple[Interval, ...]]


@dataclass(frozen=True, slots=True)
class Parabola:
    """The loss over the logarithm of the parameters at one compute, and its minimum: parameters and loss.

    Not the logarithm of the loss: a law of loss gives parabolas of the same shape at each compute, so that their
    minima are off by the same factor.
    """

    compute: float
    minimum: float
    loss: float
    curvature: float

    def at(self, size: float) -> float:
        """Return the loss of a size."""
        return self.loss + self.curvature * math.log(size / self.minimum) ** 2


@dataclass(frozen=True, slots=True)
class Law:
    """A fitted law.

    formula: with values. count: observations that count. points: different x. degrees: of freedom of the intervals.
    method: of the intervals, in words. spread: standard deviation of a repetition around its point, a share of y; None
    without repetitions. parabolas: of "isoflop", whose observations here are their minima.
    """

    name: str
    formula: str
    parameters: tuple[Parameter, ...]
    count: int
    points: int
    degrees: int
    method: str
    spread: float | None
    residuals: tuple[Residual, ...]
    left_out: tuple[Omission, ...]
    parabolas: tuple[Parabola, ...] = ()
    _at: Callable[[Sequence[float]], float] = field(kw_only=True, repr=False, compare=False)
    _band: Callable[[Sequence[float]], Interval] = field(kw_only=True, repr=False, compare=False)

    def at(self, *x: float) -> float:
        """Return y at the values of the variables."""
        return self._at(x)

    def interval(self, *x: float) -> Interval:
        """Return the 95 % interval of the law, not of a further observation."""
        return self._band(x)

    def get(self, name: str) -> Parameter:
        """Return a parameter."""
        return next(each for each in self.parameters if each.name == name)


@dataclass(frozen=True, slots=True)
class Form:
    """What a law says. exponents: the parameters that have to be known for the law to say anything."""

    title: str
    formula: str
    variables: tuple[str, ...]
    parameters: tuple[str, ...]
    exponents: tuple[str, ...]

    @property
    def least(self) -> int:
        """The different points that it needs."""
        return len(self.parameters) + SPARE


ISOFLOP: Final = "isoflop"
LAWS: Final = {
    "power": Form("a power law", "y = {a} x^{b}", ("x",), ("a", "b"), ("b",)),
    "floor": Form("a power law with a floor", "y = {c} + {a} x^{b}", ("x",), ("c", "a", "b"), ("b",)),
    "batch": Form(
        "the law of the critical batch",
        "E = {E0} (1 + B / {Bc})",
        ("B",),
        ("E0", "Bc"),
        ("Bc",),
    ),
    "joint": Form(
        "the law of loss against parameters and samples",
        "loss = {E} + {A} N^-{a} + {B} D^-{b}",
        ("N", "D"),
        ("E", "A", "a", "B", "b"),
        ("a", "b"),
    ),
    ISOFLOP: Form("the law of the best size", "N = {k} C^{a}", ("N", "C"), ("k", "a"), ("a",)),
}
TWO_VARIABLES: Final = frozenset(name for name, form in LAWS.items() if len(form.variables) == 2)
PARABOLA_LEAST: Final = 3 + SPARE


def fit_law(name: str, observations: Iterable[Observation], variables: Sequence[str] = ()) -> Law:
    """Return the law through observations; NoFitError, with the reason, if they do not determine it.

    name: a key of LAWS. variables: their names in messages. Observations that are not above 0 are left out.
    """
    form, kept, left_out = LAWS[name], list[Observation](), list[Omission]()
    for each in observations:
        if all(math.isfinite(value) and value > 0 for value in (*each.x, each.y)):
            kept.append(each)
        else:
            left_out.append(Omission(each, "a logarithm needs numbers above 0"))
    parabolas: tuple[Parabola, ...] = ()
    if name == ISOFLOP:
        parabolas, kept, outside = _find_minima(kept)
        left_out += outside
    points = group_pairs((each.x, math.log(each.y)) for each in kept)
    if len(points) < form.least:
        minima = " with a minimum inside the sizes tried" if name == ISOFLOP else ""
        reasons = "".join(f"; {text}" for text in list(dict.fromkeys(each.reason for each in left_out))[:MOST_REASONS])
        different = counted(len(points), "point")
        if len(variables) == 1:
            different = f"{counted(len(points), 'different value')} of {variables[0]}"
        raise NoFitError(f"no fit: {different}{minima}; {form.title} needs {form.least}{reasons}")
    return _fit_points(name, kept, points, left_out, parabolas)


def _fit_points(
    name: str,
    kept: Sequence[Observation],
    points: dict[tuple[float, ...], list[float]],
    left_out: Sequence[Omission],
    parabolas: tuple[Parabola, ...],
) -> Law:
    form, solve = LAWS[name], _choose_solver(name)
    means = [Observation(x, math.exp(statistics.fmean(logs))) for x, logs in points.items()]
    pure = sum((value - statistics.fmean(logs)) ** 2 for logs in points.values() for value in logs)
    repetitions = len(kept) - len(points)
    solution, degrees, method = solve(kept), len(kept) - len(form.parameters), "Student's t"
    squares = sum(math.log(each.y / solution.at(each.x)) ** 2 for each in kept)
    spare = len(points) - len(form.parameters)
    band, intervals = solution.band, None
    if repetitions and (squares - pure) / spare > LACK_OF_FIT * pure / repetitions:
        solution, degrees, method = solve(means), spare, BY_MEANS
        band = solution.band
    elif min(map(len, points.values())) >= MANY_SEEDS:
        resampled = [solve(drawn) for drawn in _draw_means(points)]
        method = f"{RESAMPLES} resamples of the seeds"
        intervals = tuple(_cut_tails(values) for values in zip(*(each.values for each in resampled), strict=True))

        def band(x: Sequence[float]) -> Interval:
            return _cut_tails([each.at(x) for each in resampled])

    parameters = tuple(map(Parameter, form.parameters, solution.values, intervals or solution.find_intervals()))
    for each in parameters:
        if each.name in form.exponents and (problem := _explain_empty(each)):
            raise NoFitError(f"no fit: {problem} ({counted(len(points), 'point')})")
    formula = form.formula.format_map({each.name: _write_number(each.value) for each in parameters})
    return Law(
        name=name,
        formula=formula.replace("--", ""),  # N^-{a} becomes N^0.3 where a is -0.3
        parameters=parameters,
        count=len(kept),
        points=len(points),
        degrees=degrees,
        method=method,
        spread=math.sqrt(pure / repetitions) if repetitions else None,
        residuals=tuple(Residual(each, y := solution.at(each.x), each.y / y - 1) for each in kept),
        left_out=tuple(left_out),
        parabolas=parabolas,
        _at=solution.at,
        _band=band,
    )


def _write_number(value: float) -> str:
    return f"{value:.4g}".replace("inf", "infinity").replace("-inf", "minus inf")


def _explain_empty(parameter: Parameter) -> str:
    """Return why an interval says nothing: it holds 0, or is wider than the value; "" if it says something."""
    low, high = parameter.interval
    text = f"the 95 % interval of {parameter.name} is {_write_number(low)} to {_write_number(high)}"
    if low <= 0 <= high:
        return f"{text}: not even its sign is known"
    if high - low > abs(parameter.value):
        return f"{text}, wider than its value of {_write_number(parameter.value)}"
    return ""


def _draw_means(points: dict[tuple[float, ...], list[float]]) -> Iterable[list[Observation]]:
    """Yield the means of the points with their seeds drawn again, with replacement; always the same ones.

    A drawn mean is moved away from the mean by sqrt(n / (n - 1)), so that drawn means spread as much as means of new
    seeds.
    """
    generator = random.Random(0)
    means = {x: (statistics.fmean(logs), math.sqrt(len(logs) / (len(logs) - 1))) for x, logs in points.items()}
    for _ in range(RESAMPLES):
        drawn = list[Observation]()
        for x, (mean, factor) in means.items():
            shift = statistics.fmean(generator.choices(points[x], k=len(points[x]))) - mean
            drawn.append(Observation(x, math.exp(mean + factor * shift)))
        yield drawn


def _cut_tails(values: Sequence[float]) -> Interval:
    ascending, tail = sorted(values), round((1 - CONFIDENCE) / 2 * (len(values) + 1))
    return ascending[tail - 1], ascending[-tail]


# -- solvers ---------------------------------------------------------------------------------------------------


def _choose_solver(name: str) -> Callable[[Sequence[Observation]], Solution]:
    if name in ("power", ISOFLOP):
        return _solve_power
    try:
        from submission.results.fits.nonlinear import (
            NonlinearSolution,
        )  # needs the extra `study`
    except ModuleNotFoundError as error:
        raise NoFitError(f"no fit: {missing_extra(error, 'study') or error}") from None

    def solve(observations: Sequence[Observation]) -> Solution:
        fit = NonlinearSolution(
            name,
            LAWS[name].title,
            [each.x for each in observations],
            [each.y for each in observations],
        )
        return Solution(fit.values, fit.at, fit.band, fit.find_intervals)

    return solve


def _solve_power(observations: Sequence[Observation]) -> Solution:
    law = power_law([(each.x[0], each.y) for each in observations])
    intervals = law.a_interval or (0.0, math.inf), law.b_interval or (-math.inf, math.inf)
    return Solution(
        (law.a, law.b),
        lambda x: law.at(x[0]),
        lambda x: law.interval(x[0]) or (0.0, math.inf),
        lambda: intervals,
    )


def _find_minima(observations: Sequence[Observation]) -> tuple[tuple[Parabola, ...], list[Observation], list[Omission]]:
    """Return the parabola of each compute, their minima as observations of N over C, and the minima left out.

    observations: x is (parameters, compute), y the loss.
    """
    parabolas, minima, left_out = list[Parabola](), list[Observation](), list[Omission]()
    for compute in sorted({each.x[1] for each in observations}):
        try:
            parabola = _fit_parabola(compute, [each for each in observations if each.x[1] == compute])
        except NoFitError as error:
            left_out.append(Omission(Observation((compute,), math.nan), str(error)))
        else:
            parabolas.append(parabola)
            minima.append(Observation((compute,), parabola.minimum, f"minimum at {_write_number(compute)}"))
    return tuple(parabolas), minima, left_out


def _fit_parabola(compute: float, observations: Sequence[Observation]) -> Parabola:
    """Return the parabola of a compute; NoFitError if it has no minimum inside the sizes tried."""
    text = f"at a compute of {_write_number(compute)}"
    sizes = len({each.x[0] for each in observations})
    if sizes < PARABOLA_LEAST:
        raise NoFitError(f"{counted(sizes, 'size')} {text}; a parabola needs {PARABOLA_LEAST}")
    logs, losses = [math.log(each.x[0]) for each in observations], [each.y for each in observations]
    middle = statistics.fmean(logs)
    across = [value - middle for value in logs]
    # The squares less their own line: what a line cannot explain has their coefficient.
    line = fit_line([(value, value**2) for value in across])
    bends = [value**2 - line.at(value) for value in across]
    curvature = sum(map(float.__mul__, bends, losses)) / sum(bend**2 for bend in bends)
    if curvature <= 0:
        raise NoFitError(f"the loss has no minimum {text}")
    rest = fit_line([(value, loss - curvature * value**2) for value, loss in zip(across, losses, strict=True)])
    lowest = -rest.slope / (2 * curvature)
    if not min(across) <= lowest <= max(across):
        raise NoFitError(f"the minimum {text} is outside the sizes tried")
    return Parabola(compute, math.exp(lowest + middle), rest.at(lowest) + curvature * lowest**2, curvature)
