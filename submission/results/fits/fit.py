"""Fits over results: epochs against batch size, time and energy against units and power caps.

Which results count is part of a fit: each fit lists its points, and those left out with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Final, NamedTuple

from common.rounds import label_round
from common.values import group_pairs
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

    @property
    def symbol(self) -> str:
        """The name in formulas: E for epochs, because the score counts epochs otherwise."""
        return "E" if self.name == "epochs" else self.name


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
        """Whether the power law may be drawn and named: see `is_determined`."""
        return self.power is not None and is_determined(self.power, self.points)


def is_determined(power: PowerLaw, points: Sequence[Point]) -> bool:
    """Return whether points at three x or more give the curve, within their range, to less than a factor of LOOSEST."""
    if len({point.x for point in points}) < 3:
        return False
    intervals = [power.interval(point.x) for point in points]
    return all(interval is not None and interval[1] < LOOSEST * interval[0] for interval in intervals)


# -- which results count -----------------------------------------------------------------------------------


def _explain_weak(result: AnalysedSet) -> str:
    return "" if result.row.scaling == STRONG else "a throughput result"


def _explain_open(result: AnalysedSet) -> str:
    division = "closed" if result.row.mini else result.row.division
    reason = f"{division} division, not closed" if division else "no division stated"
    return _explain_weak(result) or ("" if division == "closed" else reason)


class _Question(NamedTuple):
    """What a fit asks of results. explain_unfit: returns why a result does not count, "" if it does."""

    model: str
    x: Axis
    x_of: Value
    y: Axis
    y_of: Value
    explain_unfit: Callable[[AnalysedSet], str] = _explain_weak


def _choose_sets(sets: Iterable[AnalysedSet], question: _Question) -> tuple[list[AnalysedSet], tuple[LeftOut, ...]]:
    """Return the results that count, and the others with the reason; of identical ones the first counts."""
    kept: dict[tuple[object, ...], AnalysedSet] = {}
    left_out: list[LeftOut] = []
    for result in sorted(sets, key=lambda result: (result.row.round, result.full_name)):
        reason = result.problem or question.explain_unfit(result)
        for axis, value in (
            (question.x, question.x_of(result)),
            (question.y, question.y_of(result)),
        ):
            reason = reason or ("" if value else f"its logs and system description give no {axis.name}")
        if not reason and (same := kept.get(identify_runs(result))):
            reason = "given twice" if same.full_name == result.full_name else f"the same runs as {same.full_name}"
        if reason:
            left_out.append(LeftOut(result.full_name, reason))
        else:
            kept[identify_runs(result)] = result
    return list(kept.values()), tuple(left_out)


def identify_runs(result: AnalysedSet) -> tuple[object, ...]:
    """Return what identical resubmissions have in common, whatever the spelling of their names."""
    runs = sorted((run.values.get(RUN_TIME, 0.0), run.values.get(EPOCH_TIME, 0.0)) for run in result.runs)
    return (result.row.benchmark, *(runs if any(map(any, runs)) else [result.full_name]))


def comparison_group(result: AnalysedSet) -> tuple[str, bool, bool]:
    """Return what results share whose epochs can be compared: benchmark, mini or not, later than round 0.7 or not."""
    return result.row.benchmark, result.row.mini, result.row.round != FIRST_ROUND


def system_family(result: AnalysedSet) -> tuple[str, ...]:
    """Return what the results of one system at several scales share.

    That is round, benchmark, accelerator (else processor), and the first word of the system's name, which ends at "_"
    or "-": "fugaku" of fugaku_512xA64FX. Organisations may differ: RIKEN and Fujitsu share Fugaku.
    """
    row = result.row
    word = re.split(r"[_-]", row.system.lower(), maxsplit=1)[0]
    return row.round, row.benchmark, "mini" if row.mini else "", row.device.lower(), word


def _group_results(
    sets: Iterable[AnalysedSet], key: Callable[[AnalysedSet], tuple[object, ...]]
) -> list[list[AnalysedSet]]:
    """Return the results that share a key together, in the order of keys and names."""
    ordered = sorted(sets, key=lambda result: (tuple(map(str, key(result))), result.full_name))
    return list(group_pairs((key(result), result) for result in ordered).values())


def fit_exponent(sets: Iterable[AnalysedSet]) -> float:
    """Return the b of t = a N^b through results; NoFitError as `power_law`."""
    return power_law([(result.units or 0, result.mean(EPOCH_TIME) or 0) for result in sets]).b


def scaled_sets(sets: Iterable[AnalysedSet]) -> tuple[list[AnalysedSet], tuple[LeftOut, ...]]:
    """Return the results that count in fits of the time of an epoch against units, and the others."""
    return _choose_sets(sets, _TIME_BY_UNITS)


def scaling_pairs(sets: Iterable[AnalysedSet]) -> list[tuple[AnalysedSet, AnalysedSet]]:
    """Return the smallest result of a system beside each larger one; a pair that is resubmitted counts once."""
    pairs: dict[tuple[object, ...], tuple[AnalysedSet, AnalysedSet]] = {}
    for family in _group_results(sets, system_family):
        chosen = sorted(scaled_sets(family)[0], key=lambda result: (result.units or 0, result.full_name))
        for larger in chosen[1:]:
            if larger.units != chosen[0].units:
                pairs.setdefault((identify_runs(chosen[0]), identify_runs(larger)), (chosen[0], larger))
    return list(pairs.values())


# -- the fits ----------------------------------------------------------------------------------------------


def _measure_energy(result: AnalysedSet) -> float | None:
    return None if result.row.energy_joules is None else result.row.energy_joules / 1000


def _measure_as_run(name: str) -> Value:
    """Return the mean as the runs were, without normalisation."""
    return lambda result: (result.mean(name) or 0.0) / result.normalisation


_UNITS: Final[Value] = attrgetter("units")
_TIME_BY_UNITS: Final = _Question(
    "t = alpha N^-beta",
    UNITS,
    _UNITS,
    Axis("epoch time", "min"),
    methodcaller("mean", EPOCH_TIME),
)
_ENERGY_BY_UNITS: Final = _Question("energy = a N^b", UNITS, _UNITS, ENERGY, _measure_energy)


def epochs_against_batch(sets: Iterable[AnalysedSet]) -> list[Fit]:
    """Return E = a B^b and E = E0 (1 + B / Bc) of each benchmark, of round 0.7 apart from later ones.

    The time-to-train results count that are closed by their system description, or by their logs where there is none.
    Openfold counts samples, not epochs.
    """
    fits = []
    batch: Value = attrgetter("row.batch_size")
    for group in _group_results(sets, comparison_group):
        counts_samples = all(result.mean(EPOCHS) is None for result in group)
        name, word = (SAMPLES, "samples") if counts_samples else (EPOCHS, "epochs")
        question = _Question("E = a B^b", BATCH, batch, Axis(word, word), _measure_as_run(name), _explain_open)
        fits.append(_fit_results(group, question))
    return fits


def against_units(sets: Iterable[AnalysedSet]) -> list[Fit]:
    """Return t = alpha N^-beta of the time of an epoch, then the energy to solution over the units.

    Each is of the systems with results at two scales or more.
    """
    families = _group_results(sets, system_family)
    return _keep_varied(
        _fit_results(family, question) for question in (_TIME_BY_UNITS, _ENERGY_BY_UNITS) for family in families
    )


def against_power_cap(sets: Iterable[AnalysedSet], watts: Mapping[str, float]) -> list[Fit]:
    """Return run time and energy over the power cap, y = alpha P^-gamma, for each system at one scale and batch size.

    watts: the cap of a unit, by full name of the result.
    """

    def cap(result: AnalysedSet) -> float | None:
        return watts.get(result.full_name)

    model = "y = alpha P^-gamma"
    time = _Question(model, POWER_CAP, cap, Axis("run time", "min"), methodcaller("mean", RUN_TIME))
    energy = _Question(model, POWER_CAP, cap, ENERGY, _measure_energy)
    groups = _group_results(sets, lambda result: (*system_family(result), result.units, result.row.batch_size))
    return _keep_varied(_fit_results(group, question) for group in groups for question in (time, energy))


def _keep_varied(fits: Iterable[Fit]) -> list[Fit]:
    """Return the fits whose points have at least two different x: most systems are measured once."""
    return [fit for fit in fits if len({point.x for point in fit.points}) > 1]


def _fit_results(sets: Sequence[AnalysedSet], question: _Question) -> Fit:
    """Return the fit through the results that count."""
    kept, left_out = _choose_sets(sets, question)
    values = [(float(question.x_of(result) or 0), float(question.y_of(result) or 0)) for result in kept]
    points = tuple(Point(result.full_name, x, y) for result, (x, y) in zip(kept, values, strict=True))
    rounds = tuple(sorted({result.row.round for result in kept or sets}))
    subject = _name_subject(kept or sets, rounds, question)
    power, critical, problem = None, None, ""
    try:
        power = power_law(values)
        critical = critical_batch(values, question.y.name) if question.x == BATCH else None
    except NoFitError as error:
        varied = len({x for x, _ in values}) > 1
        problem = str(error) if varied else f"no fit: it needs results at two {SEVERAL[question.x]} or more"
    sentence = _describe_law(power, points, question) if power else problem
    if question.x == BATCH and any(result.normalisation != 1 for result in kept):
        sentence += f"; {question.y.name} as run, before normalisation"
    return Fit(
        title=f"{question.y.name} against {question.x.name}: {subject}",
        benchmark=sets[0].row.benchmark,
        rounds=rounds,
        x=question.x,
        y=question.y,
        points=points,
        left_out=left_out,
        model=question.model,
        power=power,
        critical=critical,
        said=f"{subject}: {sentence}",
        problem=problem,
        efficiencies=_measure_efficiencies(points) if question is _TIME_BY_UNITS else (),
    )


def _name_subject(sets: Sequence[AnalysedSet], rounds: Sequence[str], question: _Question) -> str:
    """Return which results a fit is about: benchmark, system and units where they are the same, rounds."""
    subject = sets[0].marked_benchmark
    if question.x != BATCH:
        name = sets[0].row.system
        prefix = os.path.commonprefix([result.row.system.lower() for result in sets])  # noqa: RUF071  (no paths)
        subject += " on " + (re.sub(r"[_-][nN]?\d*$", "", name[: len(prefix)]) or name)
    if question.x == POWER_CAP:
        subject += f", {sets[0].units} {sets[0].unit}"
    first, last = label_round(rounds[0]), label_round(rounds[-1])
    return f"{subject}, round {first}" if len(rounds) == 1 else f"{subject}, rounds {first} to {last}"


def _measure_efficiencies(points: Sequence[Point]) -> tuple[Efficiency, ...]:
    """Return the efficiency of each point relative to the one with the fewest units."""
    first, *others = sorted(points, key=lambda point: (point.x, point.name)) or [Point("", 0, 0)]
    return tuple(
        Efficiency(
            first.name,
            other.name,
            int(first.x),
            int(other.x),
            first.x * first.y / (other.x * other.y),
        )
        for other in others
        if other.x > first.x
    )


def format_percent(share: float) -> str:
    """Return a share in whole per cent: "18 %"."""
    return f"{100 * share:.0f} %"


def _describe_law(power: PowerLaw, points: Sequence[Point], question: _Question) -> str:
    """Return the outcome of a power law in words."""
    if power.b_interval is None:
        return f"{power.count} results are too few for a law; the line through them has the exponent {power.b:.3f}"
    low, high = power.b_interval
    interval = f"95 % interval {low:.3f} to {high:.3f}, {power.count} results"
    if not is_determined(power, points):
        return f"no law: the exponent is {power.b:.3f} ({interval})"
    grows, y = power.b >= 0, question.y.symbol
    verb = ("grow" if grows else "fall") + ("" if y.endswith("s") else "s")
    law = f"{y} {verb} as {question.x.name}^{power.b:.3f} ({interval})"
    return f"{law}; the interval holds 0: no {'growth' if grows else 'fall'} is shown" if power.holds_zero else law
