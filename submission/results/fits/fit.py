"""Fits over results: epochs against batch size, time and energy against units and power caps.

Which results count is part of a fit: each fit lists its points, and those left out with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from compliance.model.layout import STRONG
from submission.results.fits.least_squares import CriticalBatch, NoFitError, PowerLaw, critical_batch, power_law
from submission.results.quantities import EPOCH_TIME, EPOCHS, RUN_TIME, SAMPLES, AnalysedSet

FIRST_ROUND: Final = "0.7"
"""Its rules and its reference of CosmoFlow differ from those of all later rounds."""
Value = Callable[[AnalysedSet], float | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a fit relates: a name, such as "epochs", and its unit."""

    name: str
    unit: str


BATCH: Final = Axis("batch", "samples")
UNITS: Final = Axis("units", "accelerators or processors")
POWER_CAP: Final = Axis("power cap", "W")
ENERGY: Final = Axis("energy", "kJ")
LOOSEST: Final = 10.0
"""A curve whose 95 % interval is wider than this factor says nothing of what grows or falls."""
SEVERAL: Final = {BATCH: "batch sizes", UNITS: "numbers of units", POWER_CAP: "power caps"}


@dataclass(frozen=True, slots=True)
class Point:
    """A result in a fit."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A result that does not count in a fit."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Throughput per unit at `second_units`, relative to that at `first_units`."""

    first: str
    second: str
    first_units: int
    second_units: int
    efficiency: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A model through results.

    model: its formula. power, critical: the estimates; None with a `problem`, or where the model is not used.
    efficiencies: of a fit against units, relative to the smallest number of them. said: the outcome in a sentence.
    """

    title: str
    benchmark: str
    rounds: tuple[str, ...]
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    left_out: tuple[LeftOut, ...]
    model: str
    power: PowerLaw | None
    critical: CriticalBatch | None
    said: str
    problem: str = ""
    efficiencies: tuple[Efficiency, ...] = ()

    @property
    def is_law(self) -> bool:
        """Whether the power law may be drawn and named: see `determines`."""
        return self.power is not None and determines(self.power, self.points)


def determines(power: PowerLaw, points: Sequence[Point]) -> bool:
    """Return whether three points or more give the curve, within their range, to less than a factor of LOOSEST."""
    intervals = [power.interval(point.x) for point in points]
    return all(interval is not None and interval[1] < LOOSEST * interval[0] for interval in intervals)


class _Question(NamedTuple):
    """What a fit asks of results. why_not: why a result does not count, "" if it does."""

    model: str
    x: Axis
    x_of: Value
    y: Axis
    y_of: Value
    why_not: Callable[[AnalysedSet], str]


# -- which results count -----------------------------------------------------------------------------------


def _choose_sets(sets: Iterable[AnalysedSet], question: _Question) -> tuple[list[AnalysedSet], tuple[LeftOut, ...]]:
    """Return the results that count, and the others with the reason; of identical ones the first counts."""
    kept: list[AnalysedSet] = []
    left_out: list[LeftOut] = []
    seen: dict[tuple[object, ...], str] = {}
    for one in sorted(sets, key=lambda one: (one.row.round, one.full_name)):
        reason = one.problem or question.why_not(one)
        for axis, value in ((question.x, question.x_of(one)), (question.y, question.y_of(one))):
            reason = reason or ("" if value else f"its logs and system description give no {axis.name}")
        if not reason and (same := seen.get(contents(one))):
            reason = "given twice" if same == one.full_name else f"the same runs as {same}"
        if reason:
            left_out.append(LeftOut(one.full_name, reason))
        else:
            seen[contents(one)] = one.full_name
            kept.append(one)
    return kept, tuple(left_out)


def contents(one: AnalysedSet) -> tuple[object, ...]:
    """Return what identical resubmissions have in common, whatever the spelling of their names."""
    runs = sorted((run.values.get(RUN_TIME, 0.0), run.values.get(EPOCH_TIME, 0.0)) for run in one.runs)
    return (one.row.benchmark, *(runs if any(map(any, runs)) else [one.full_name]))


def _not_strong(one: AnalysedSet) -> str:
    return "" if one.row.scaling == STRONG else "a throughput result"


def _not_closed(one: AnalysedSet) -> str:
    division = "closed" if one.row.mini else one.row.division
    reason = f"{division} division, not closed" if division else "no division stated"
    return _not_strong(one) or ("" if division == "closed" else reason)


def comparable(one: AnalysedSet) -> tuple[str, bool, bool]:
    """Return what results share whose epochs can be compared: benchmark, mini or not, later than round 0.7 or not."""
    return one.row.benchmark, one.row.mini, one.row.round != FIRST_ROUND


def system_family(one: AnalysedSet) -> tuple[str, ...]:
    """Return what the results of one system at several scales share.

    That is round, benchmark, accelerator (else processor), and the first word of the system's name, which ends at "_"
    or "-": "fugaku" of fugaku_512xA64FX. Organisations may differ: RIKEN and Fujitsu share Fugaku.
    """
    row = one.row
    word = re.split(r"[_-]", row.system.lower(), maxsplit=1)[0]
    return row.round, row.benchmark, "mini" if row.mini else "", row.device.lower(), word


def _by(key: Callable[[AnalysedSet], tuple[object, ...]], sets: Iterable[AnalysedSet]) -> list[list[AnalysedSet]]:
    """Return the results that share a key together, in the order of keys and names."""
    groups: dict[tuple[object, ...], list[AnalysedSet]] = {}
    for one in sorted(sets, key=lambda one: (tuple(map(str, key(one))), one.full_name)):
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def fit_exponent(sets: Iterable[AnalysedSet]) -> float:
    """Return the b of t = a N^b through results; NoFitError as `power_law`."""
    return power_law([(one.units or 0, one.mean(EPOCH_TIME) or 0) for one in sets]).b


def scaled_sets(sets: Iterable[AnalysedSet]) -> tuple[list[AnalysedSet], tuple[LeftOut, ...]]:
    """Return the results that count in fits of the time of an epoch against units, and the others."""
    return _choose_sets(sets, _TIME_BY_UNITS)


def scaling_pairs(sets: Iterable[AnalysedSet]) -> list[tuple[AnalysedSet, AnalysedSet]]:
    """Return the smallest result of a system beside each larger one; a pair that is resubmitted counts once."""
    pairs: dict[tuple[object, ...], tuple[AnalysedSet, AnalysedSet]] = {}
    for family in _by(system_family, sets):
        chosen = sorted(scaled_sets(family)[0], key=lambda one: (one.units or 0, one.full_name))
        for one in chosen[1:]:
            if one.units != chosen[0].units:
                pairs.setdefault((contents(chosen[0]), contents(one)), (chosen[0], one))
    return list(pairs.values())


# -- the fits ----------------------------------------------------------------------------------------------


def _energy(one: AnalysedSet) -> float | None:
    return None if one.row.energy_joules is None else one.row.energy_joules / 1000


def _measure_as_run(name: str) -> Value:
    """Return the mean as the runs were, without normalisation."""
    return lambda one: (one.mean(name) or 0.0) / one.normalisation


_UNITS: Final[Value] = attrgetter("units")
_TIME_BY_UNITS: Final = _Question(
    "t = alpha N^-beta", UNITS, _UNITS, Axis("epoch time", "min"), lambda one: one.mean(EPOCH_TIME), _not_strong
)
_ENERGY_BY_UNITS: Final = _Question("energy = a N^b", UNITS, _UNITS, ENERGY, _energy, _not_strong)


def epochs_against_batch(sets: Iterable[AnalysedSet]) -> list[Fit]:
    """Return E = a B^b and E = E0 (1 + B / Bc) of each benchmark, of round 0.7 apart from later ones.

    The time-to-train results count that are closed by their system description, or by their logs where there is none.
    Openfold counts samples, not epochs.
    """
    fits = []
    for group in _by(comparable, sets):
        name = SAMPLES if all(one.mean(EPOCHS) is None for one in group) else EPOCHS
        word = "samples" if name == SAMPLES else "epochs"
        batch: Value = attrgetter("row.batch_size")
        question = _Question("E = a B^b", BATCH, batch, Axis(word, word), _measure_as_run(name), _not_closed)
        fits.append(_fit(group, question))
    return fits


def epoch_time_against_units(sets: Iterable[AnalysedSet]) -> list[Fit]:
    """Return t = alpha N^-beta of the time of an epoch, for each system with results at two scales or more."""
    return _varied(_fit(family, _TIME_BY_UNITS) for family in _by(system_family, sets))


def energy_against_units(sets: Iterable[AnalysedSet]) -> list[Fit]:
    """Return the energy to solution over the units, for each system measured at two scales or more."""
    return _varied(_fit(family, _ENERGY_BY_UNITS) for family in _by(system_family, sets))


def against_power_cap(sets: Iterable[AnalysedSet], watts: Mapping[str, float]) -> list[Fit]:
    """Return run time and energy over the power cap, y = alpha P^-gamma, for each system at one scale and batch size.

    watts: the cap of a unit, by full name of the result.
    """

    def cap(one: AnalysedSet) -> float | None:
        return watts.get(one.full_name)

    model = "y = alpha P^-gamma"
    time = _Question(model, POWER_CAP, cap, Axis("run time", "min"), lambda one: one.mean(RUN_TIME), _not_strong)
    energy = _Question(model, POWER_CAP, cap, ENERGY, _energy, _not_strong)
    groups = _by(lambda one: (*system_family(one), one.units, one.row.batch_size), sets)
    return _varied(_fit(group, question) for group in groups for question in (time, energy))


def _varied(fits: Iterable[Fit]) -> list[Fit]:
    """Return the fits whose points have at least two different x: most systems are measured once."""
    return [fit for fit in fits if len({point.x for point in fit.points}) > 1]


def _fit(sets: Sequence[AnalysedSet], question: _Question) -> Fit:
    """Return the fit through the results that count."""
    kept, left_out = _choose_sets(sets, question)
    points = tuple(
        Point(one.full_name, *map(float, (question.x_of(one) or 0, question.y_of(one) or 0))) for one in kept
    )
    rounds = tuple(sorted({one.row.round for one in kept or sets}))
    place = _place(kept or sets, rounds, question)
    values = [(point.x, point.y) for point in points]
    power, critical, problem = None, None, ""
    try:
        power = power_law(values)
        critical = critical_batch(values, question.y.name) if question.x == BATCH else None
    except NoFitError as error:
        varied = len({x for x, _ in values}) > 1
        problem = str(error) if varied else f"no fit: it needs results at two {SEVERAL[question.x]} or more"
    said = _said(power, points, question) if power else problem
    if question.x == BATCH and any(one.normalisation != 1 for one in kept):
        said += f"; {question.y.name} as run, before normalisation"
    return Fit(
        title=f"{question.y.name} against {question.x.name}: {place}",
        benchmark=sets[0].row.benchmark,
        rounds=rounds,
        x=question.x,
        y=question.y,
        points=points,
        left_out=left_out,
        model=question.model,
        power=power,
        critical=critical,
        said=f"{place}: {said}",
        problem=problem,
        efficiencies=_efficiencies(points) if question is _TIME_BY_UNITS else (),
    )


def _place(sets: Sequence[AnalysedSet], rounds: Sequence[str], question: _Question) -> str:
    """Return which results a fit is about: benchmark, system and units where they are the same, rounds."""
    said = sets[0].marked_benchmark
    if question.x != BATCH:
        name = sets[0].row.system
        prefix = os.path.commonprefix([one.row.system.lower() for one in sets])  # noqa: RUF071  (names, no paths)
        said += " on " + (re.sub(r"[_-][nN]?\d*$", "", name[: len(prefix)]) or name)
    if question.x == POWER_CAP:
        said += f", {sets[0].units} {sets[0].unit}"
    return f"{said}, round {rounds[0]}" if len(rounds) == 1 else f"{said}, rounds {rounds[0]} to {rounds[-1]}"


def _efficiencies(points: Sequence[Point]) -> tuple[Efficiency, ...]:
    """Return the efficiency of each point relative to the one with the fewest units."""
    first, *others = sorted(points, key=lambda point: (point.x, point.name)) or [Point("", 0, 0)]
    return tuple(
        Efficiency(first.name, one.name, int(first.x), int(one.x), first.x * first.y / (one.x * one.y))
        for one in others
        if one.x > first.x
    )


def percent(share: float) -> str:
    """Return a share in whole per cent: "18 %"."""
    return f"{100 * share:.0f} %"


def _said(power: PowerLaw, points: Sequence[Point], question: _Question) -> str:
    """Return the outcome of a power law in words."""
    if power.b_interval is None:
        return f"{power.count} results are too few for a law; the line through them has the exponent {power.b:.3f}"
    low, high = power.b_interval
    interval = f"95 % interval {low:.3f} to {high:.3f}, {power.count} results"
    if not determines(power, points):
        return f"no law: the exponent is {power.b:.3f} ({interval})"
    grows, y = power.b >= 0, question.y.name
    verb = ("grow" if grows else "fall") + ("" if y.endswith("s") else "s")
    said = f"{y} {verb} as {question.x.name}^{power.b:.3f} ({interval})"
    return f"{said}; the interval holds 0: no {'growth' if grows else 'fall'} is shown" if power.holds_zero else said
