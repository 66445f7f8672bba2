"""Project results to other numbers of units, and measure by published results how far the method is off.

A projection is not a result and has no score. The time of an epoch follows t = a N^b, with the exponent of the system's
own results if it has several scales, else the median of the pairs of round 0.7 (of mini problems: of all pairs), never
better than ideal; and it is at least the bound of the cost model. Samples per unit and step stay the same as far as the
batch sizes of the results reach; units beyond those that can share these samples do not work. Epochs follow the fit of
epochs against batch size. The rest of the run, such as staging, keeps its time. Beyond the largest factor between two
results of a system nothing is known of the exponent: the projection is a range, from ideal scaling to none.

The method was fixed on round 0.7; the results of later rounds only measure its error.

Results that have only one scale are projected by published ones; what fits need of these is in published.json, which
bench/published_points.py writes from the published logs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from common.command import counted
from common.rounds import HPC
from common.values import group_pairs
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from submission.results.cost_model import CostModel
from submission.results.fits.fit import (
    FIRST_ROUND,
    LeftOut,
    comparison_group,
    epochs_against_batch,
    fit_exponent,
    format_percent,
    identify_runs,
    scaled_sets,
    scaling_pairs,
    system_family,
)
from submission.results.fits.least_squares import NoFitError
from submission.results.page.html import read_asset
from submission.results.quantities import EPOCH_TIME, EPOCHS, RUN_TIME, AnalysedRun, AnalysedSet, Statistics
from submission.results.quantity_tables import format_number
from submission.results.rows import Row

IDEAL: Final = -1.0
"""The exponent of ideal scaling."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What a result would be on `units`; times in minutes.

    published_units, published_minutes: of the result, as analysed. units: those that work of the asked_units.
    exponent: b of t = a N^b, and where it is from. notes: where the method had to leave its rule.
    factor: of extrapolation. minutes, epoch_minutes: None for a range, whose ends are in the fields _low and _high;
    these are equal otherwise. spatial: units that share a sample. workload, ceilings: of the bound in the cost model,
    "" if there is none; bound_epoch_minutes: the least time of an epoch.
    """

    name: str
    benchmark: str
    published_units: int
    units: int
    batch_size: int
    published_minutes: float
    minutes: float | None
    epochs: float
    epoch_minutes: float | None
    rest_minutes: float
    exponent: float
    exponent_of: str
    notes: tuple[str, ...]
    asked_units: int
    factor: float
    minutes_low: float
    minutes_high: float
    epoch_minutes_low: float
    epoch_minutes_high: float
    spatial: int
    workload: str
    ceilings: str
    bound_epoch_minutes: float | None
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class PairError:
    """A published result, predicted from the one of the same system with the fewest units, both left out of all fits.

    errors: |predicted / published - 1| of the run, and of the time of an epoch alone. factor: of extrapolation.
    scored: the pair is of a later round than the method.
    """

    first: str
    second: str
    predicted_minutes: float
    published_minutes: float
    error: float
    epoch_time_error: float
    factor: float
    scored: bool


@dataclass(frozen=True, slots=True)
class Projections:
    """Projections, and the error of their method over the scored pairs; None without any.

    largest_factor: between two results of a system; beyond it a projection is a range. not_projected: which results are
    not projected, to which units, with the reason.
    """

    projections: tuple[Projection, ...]
    left_out: tuple[PairError, ...]
    median_error: float | None
    worst_error: float | None
    median_epoch_time_error: float | None
    said: str
    not_projected: tuple[LeftOut, ...] = ()
    largest_factor: float = 1.0


def project_sets(
    sets: Sequence[AnalysedSet], units: Sequence[int], model: CostModel, published: Sequence[AnalysedSet] = ()
) -> Projections:
    """Return the projection of each time-to-train result to each number of units, and the error of the method.

    Results without epochs, batch size, units or times are not projected. published: further results to learn from.
    """
    names = {result.full_name for result in sets}
    suites = {result.row.usage for result in sets}
    others = (result for result in published if result.full_name not in names and result.row.usage in suites)
    every_set = [*sets, *others]
    method, (own, left_out) = _Method(every_set, model), scaled_sets(sets)
    outcomes = [method.project_result(result, count) for result in own for count in units]
    projected = tuple(outcome for outcome in outcomes if isinstance(outcome, Projection))
    missing = dict.fromkeys(outcome for outcome in outcomes if isinstance(outcome, LeftOut))
    missing |= dict.fromkeys(left_out if units else ())
    errors = tuple(_measure_errors(every_set, model))
    scored = [error for error in errors if error.scored]
    sentence = _describe_errors(scored, method.largest_factor, HPC in suites)
    if missing and not projected:
        counts = Counter(result.reason for result in missing)
        sentence = "no projections: " + "; ".join(f"{counted(n, 'result')}: {reason}" for reason, n in counts.items())
    return Projections(
        projected,
        errors,
        median_error=median(error.error for error in scored) if scored else None,
        worst_error=max((error.error for error in scored), default=None),
        median_epoch_time_error=median(error.epoch_time_error for error in scored) if scored else None,
        said=sentence,
        not_projected=tuple(missing),
        largest_factor=method.largest_factor,
    )


def _describe_errors(scored: Sequence[PairError], largest_factor: float, of_hpc: bool) -> str:
    """Return the error of the method by factor of extrapolation, in a sentence."""
    ascending = sorted(scored, key=lambda error: error.factor)
    by_factor = group_pairs((f"{error.factor:.3g}", error.error) for error in ascending)
    parts = [
        f"{format_percent(median(errors))} at {factor} times the units ({counted(len(errors), 'pair')}, at worst "
        f"{format_percent(max(errors))})"
        for factor, errors in by_factor.items()
    ]
    off = f": fixed on round 0.7, the method is off in later rounds by {', '.join(parts)}"
    unknown = "; their error is unknown" + ": no system of a later round than 0.7 has two scales" * of_hpc
    end = f"; beyond {largest_factor:.3g} times, the most between results of a system, a range"
    return f"projections, not results{off if parts else unknown}{end if largest_factor > 1 else ''}"


def _measure_errors(sets: Sequence[AnalysedSet], model: CostModel) -> Iterator[PairError]:
    """Yield how well the second result of each pair follows from the first without either in a fit.

    Resubmissions of both in other rounds are left out, too, and pairs for which that leaves nothing to learn from.
    """
    for first, second in scaling_pairs(sets):
        same = (identify_runs(first), identify_runs(second))
        method = _Method([result for result in sets if identify_runs(result) not in same], model, math.inf)
        projected, minutes = method.project_result(first, second.units or 0), second.mean(RUN_TIME)
        if isinstance(projected, Projection) and minutes:
            yield PairError(
                first=first.full_name,
                second=second.full_name,
                predicted_minutes=projected.minutes_low,
                published_minutes=minutes,
                error=abs(projected.minutes_low / minutes - 1),
                epoch_time_error=abs(projected.epoch_minutes_low / (second.mean(EPOCH_TIME) or math.inf) - 1),
                factor=projected.factor,
                scored=first.row.round != FIRST_ROUND,
            )


def share_samples(units: int, batch: int, most: int) -> tuple[int, int]:
    """Return how many units can work on a batch, and how many share a sample: as few as can be, at most `most`."""
    working, ranks = max((ranks * min(units // ranks, batch), -ranks) for ranks in range(1, most + 1))
    return working, -ranks


class _Method:
    """The fits over some results, and projections by them. largest_factor: of all; of each suite: `_reach`."""

    def __init__(self, sets: Sequence[AnalysedSet], model: CostModel, largest_factor: float | None = None) -> None:
        self.sets, self.model = scaled_sets(sets)[0], model
        self._pairs = scaling_pairs(sets)
        factors = [(first.row.usage, (second.units or 1) / (first.units or 1)) for first, second in self._pairs]
        self._reach = {usage: largest_factor or max(several) for usage, several in group_pairs(factors).items()}
        self.largest_factor = largest_factor or max(self._reach.values(), default=1.0)
        groups = {result.full_name: comparison_group(result) for result in sets}
        self._fits = {groups[fit.points[0].name]: fit.power for fit in epochs_against_batch(sets) if fit.points}

    def project_result(self, result: AnalysedSet, requested: int) -> Projection | LeftOut:
        """Return the projection of a result with units and epoch time, or why there is none."""
        row, name, start, epoch = result.row, result.full_name, result.units or 1, result.mean(EPOCH_TIME) or 0.0
        needed = {
            "batch size": row.batch_size,
            "epochs": result.mean(EPOCHS),
            "run time": result.mean(RUN_TIME),
        }
        if missing := [kind for kind, value in needed.items() if not value]:
            return LeftOut(name, f"its logs give no {' and no '.join(missing)}")
        if (exponent := self._choose_exponent(result)) is None:
            return LeftOut(name, "no exponent: no comparable system has results at two scales")
        size, epochs, minutes = (value or 0.0 for value in needed.values())
        notes: list[str] = []
        batch = self._limit_batch(result, requested, notes)
        workload, ceilings = self.model.find_names(result)
        most = self.model.workloads[workload].most_spatial if workload else result.sharing
        units, spatial = share_samples(requested, batch, most)
        if units < requested:
            limit = f"a batch of {batch:,}, and at most {counted(most, 'unit')} a sample"
            notes.append(f"{units:,} of {requested:,} units can work: {limit}")
        if units == start:
            return LeftOut(
                name,
                "it has these units already" if units == requested else f"{notes[-1]}; it has these",
            )
        if spatial > 1:
            notes.append(f"{spatial} units share each sample")
        fit = self._fits.get(comparison_group(result))
        if fit is None or fit.holds_zero:
            no_fit = "epochs unchanged: no fit of epochs against batch size"
            notes.append("epochs by an exponent whose interval holds 0" if fit else no_fit)
        new_epochs, rest = epochs * (batch / size) ** (fit.b if fit else 0.0), max(0.0, minutes - epochs * epoch)
        factor, sign = max(units / start, start / units), 1 if units > start else -1
        reach = min(factor, self._reach.get(row.usage, self.largest_factor))
        if reach < factor:
            notes.append(f"a range: {factor:.3g} times the units, where results of a system reach {reach:.3g}")
        last_known = epoch * reach ** (sign * exponent[0])
        free = sorted((last_known, last_known * (reach / factor) ** sign))
        bound = self.model.cost_step(workload, ceilings, units, batch, spatial).epoch_seconds / 60 if ceilings else None
        if bound is None or bound > free[0]:
            notes.append("at the bound of the cost model" if bound else "no bound: unknown benchmark or hardware")
        low, high = (max(end, bound or 0.0) for end in free)
        whole_low, whole_high = (new_epochs * end + rest for end in (low, high))
        exact = reach == factor
        return Projection(
            *(name, row.benchmark, start, units, batch, minutes),
            *(whole_low if exact else None, new_epochs, low if exact else None, rest),
            *exponent,
            notes=tuple(notes),
            asked_units=requested,
            factor=factor,
            minutes_low=whole_low,
            minutes_high=whole_high,
            epoch_minutes_low=low,
            epoch_minutes_high=high,
            spatial=spatial,
            workload=workload,
            ceilings=ceilings,
            bound_epoch_minutes=bound,
            plugin=row.plugin,
        )

    def _choose_exponent(self, result: AnalysedSet) -> tuple[float, str] | None:
        """Return the exponent for a result, and where it is from."""
        try:
            own = fit_exponent(other for other in self.sets if system_family(other) == system_family(result))
        except NoFitError:
            mini, kind = result.row.mini, (result.row.mini, result.row.usage)
            pairs = [pair for pair in self._pairs if (pair[0].row.mini, pair[0].row.usage) == kind]
            similar = [pair for pair in pairs if mini or pair[0].row.round == FIRST_ROUND]
            pooled = [max(IDEAL, fit_exponent(pair)) for pair in similar]
            source = f"median of {counted(len(pooled), 'pair')}{'' if mini else ' of round 0.7'}"
            return (median(pooled), source) if pooled else None
        return max(IDEAL, own), f"its system, not {own:.3f}: better than ideal" if own < IDEAL else "its system"

    def _limit_batch(self, result: AnalysedSet, units: int, notes: list[str]) -> int:
        """Return the batch size on these units, within those of comparable results."""
        wanted = (result.row.batch_size or 0) * units / (result.units or units)
        sizes = [
            other.row.batch_size
            for other in (*self.sets, result)
            if other.row.batch_size and comparison_group(other) == comparison_group(result)
        ]
        nearest = min(max(wanted, min(sizes)), max(sizes))
        if nearest != wanted:
            text = plain(wanted) if wanted >= 0.01 else f"{wanted:.1g}"
            notes.append(f"batch size {nearest:,}, not {text}: the results end there")
        return round(nearest)


def projection_table(projected: Projections) -> TextTable:
    """Return the projections as a table."""
    columns = (
        Column[Projection]("result", "", lambda row: row.name, numeric=False),
        Column[Projection]("published", "units", lambda row: plain(row.published_units)),
        Column[Projection]("asked", "units", lambda row: plain(row.asked_units)),
        Column[Projection]("working", "units", lambda row: plain(row.units)),
        Column[Projection]("batch", "samples", lambda row: plain(row.batch_size)),
        Column[Projection]("published", "min", lambda row: f"{row.published_minutes:,.2f}"),
        Column[Projection]("projected", "min", lambda row: _format_range(row, "minutes")),
        Column[Projection]("E", "epochs", lambda row: f"{row.epochs:,.1f}"),
        Column[Projection]("epoch", "min", lambda row: _format_range(row, "epoch_minutes")),
        Column[Projection]("bound", "min", lambda row: format_number(row.bound_epoch_minutes)),
        Column[Projection]("exponent", "", lambda row: f"{row.exponent:.3f}"),
        Column[Projection](
            "notes",
            "",
            lambda row: "; ".join((f"exponent: {row.exponent_of}", *row.notes)),
            False,
        ),
    )
    return make_table(projected.said, columns, projected.projections)


def _format_range(row: Projection, name: str) -> str:
    """Return a time that is a number or a range; "or more" where the bound is above the whole range."""
    low, high = format_number(getattr(row, f"{name}_low")), format_number(getattr(row, f"{name}_high"))
    if row.minutes is not None:
        return low
    return f"{low} or more" if low == high else f"{low} to {high}"


# -- published results -------------------------------------------------------------------------------------

MEANS: Final = (RUN_TIME, EPOCHS, EPOCH_TIME)
OF_RUNS: Final = (RUN_TIME, EPOCH_TIME)
"""The quantities of each run by which resubmissions are known."""


def read_published() -> list[AnalysedSet]:
    """Return the published results."""
    return [_read_result(**entry) for entry in json.loads(read_asset("submission.results.fits", "published.json"))]


def _read_result(
    row: dict[str, Any], units: int, normalisation: float, means: list[float], runs: list[list[float | None]]
) -> AnalysedSet:
    unknown: dict[str, Any] = dict.fromkeys(("verdict", "availability", "framework", "incomplete"), "")
    unknown |= dict.fromkeys(("nodes", "processors", "required_runs"))
    values = [{name: value for name, value in zip(OF_RUNS, run, strict=True) if value is not None} for run in runs]
    return AnalysedSet(
        Row(**unknown, **row, mini=False, runs=len(runs)),
        "",
        units,
        tuple(AnalysedRun(f"run {at}", measured, True) for at, measured in enumerate(values, 1)),
        {name: Statistics(mean, None, mean, mean, mean, 1) for name, mean in zip(MEANS, means, strict=True)},
        normalisation=normalisation,
    )
