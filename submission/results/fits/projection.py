"""Project results to other numbers of units, and measure by published results how far the method is off.

A projection is not a result and has no score. The time of an epoch follows t = a N^b, with the exponent of the system's
own results if it has several scales, else the median of all pairs; better than ideal scaling is not projected.
Samples per unit and step stay the same, as far as the batch sizes of the results reach. Epochs follow
the fit of epochs against batch size. The rest of the run, such as staging, keeps its time.

Results that have only one scale are projected by published ones; what fits need of these is in published.json, which
bench/published_points.py writes from the published logs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from common.command import counted
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from submission.results.fits.fit import (
    LeftOut,
    comparable,
    contents,
    epochs_against_batch,
    fit_exponent,
    percent,
    scaled_sets,
    scaling_pairs,
    system_family,
)
from submission.results.fits.least_squares import NoFitError
from submission.results.page.html import asset
from submission.results.quantities import EPOCH_TIME, EPOCHS, RUN_TIME, AnalysedRun, AnalysedSet, Statistics
from submission.results.quantity_tables import number
from submission.results.rows import Row

IDEAL: Final = -1.0
"""The exponent of ideal scaling."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What a result would be on `units`; times in minutes.

    published_units, published_minutes: of the result, as analysed. exponent: b of t = a N^b, and where it is from.
    notes: where the method had to leave its rule.
    """

    name: str
    benchmark: str
    published_units: int
    units: int
    batch_size: int
    published_minutes: float
    minutes: float
    epochs: float
    epoch_minutes: float
    rest_minutes: float
    exponent: float
    exponent_of: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """A published result, predicted from the one of the same system with the fewest units, both left out of all fits.

    errors: |predicted / published - 1| of the run, and of the time of an epoch alone.
    """

    first: str
    second: str
    predicted_minutes: float
    published_minutes: float
    error: float
    epoch_time_error: float


@dataclass(frozen=True, slots=True)
class Projections:
    """Projections, and the error of their method; median_error and worst_error are None without pairs.

    not_projected: the results without a projection, if any was asked for, with the reason.
    """

    projections: tuple[Projection, ...]
    left_out: tuple[LeaveOneOut, ...]
    median_error: float | None
    worst_error: float | None
    median_epoch_time_error: float | None
    said: str
    not_projected: tuple[LeftOut, ...] = ()


def projections(
    sets: Sequence[AnalysedSet], units: Sequence[int], published: Sequence[AnalysedSet] = ()
) -> Projections:
    """Return the projection of each time-to-train result to each number of units, and the error of the method.

    Results without epochs, batch size, units or times are not projected. published: further results to learn from.
    """
    names = {one.full_name for one in sets}
    known = [*sets, *(one for one in published if one.full_name not in names)]
    method, (own, left_out) = _Method(known), scaled_sets(sets)
    found = [projected for one in own for count in units if count != one.units and (projected := method(one, count))]
    names = {one.name for one in found}
    missing = [
        LeftOut(one.full_name, method.why_not(one) or "it has these units already")
        for one in own
        if one.full_name not in names
    ]
    missing = [*missing, *left_out] if units else []
    pairs = scaling_pairs(known)
    errors = [error for first, second in pairs if (error := _left_out(known, first, second))]
    middle = median(error.error for error in errors) if errors else None
    worst = max(errors, key=lambda error: error.error, default=None)
    if missing and not found:
        said = f"no projections: {_reasons(missing)}"
    elif middle is not None and worst is not None:
        said = (
            f"projections, not results: over {counted(len(errors), 'pair')} of results"
            f"{', published ones included,' if len(known) > len(sets) else ''} the method is off by "
            f"{percent(middle)} in the median and by {percent(worst.error)} at worst ({worst.second})"
        )
    else:
        said = f"projections, not results; their error is unknown: {_unpredicted(pairs)}"
    of_epochs = median(error.epoch_time_error for error in errors) if errors else None
    worst_error = worst.error if worst else None
    return Projections(tuple(found), tuple(errors), middle, worst_error, of_epochs, said, tuple(missing))


def _reasons(missing: Sequence[LeftOut]) -> str:
    """Return why results are not projected, each reason once."""
    counts = Counter(one.reason for one in missing)
    if len(missing) == 1:
        return f"{missing[0].name}: {missing[0].reason}"
    return "; ".join(f"{counted(count, 'result')}: {reason}" for reason, count in counts.items())


def _unpredicted(pairs: Sequence[tuple[AnalysedSet, AnalysedSet]]) -> str:
    """Return why the larger result of no pair can be predicted."""
    if not pairs:
        return "no system has results at two scales"
    if len(pairs) == 1:
        return "the only pair of results cannot be predicted: no other is left to fit"
    return f"none of {len(pairs)} pairs of results can be predicted from the others"


def _left_out(sets: Sequence[AnalysedSet], first: AnalysedSet, second: AnalysedSet) -> LeaveOneOut | None:
    """Return how well the second result follows from the first without either in a fit; None if it cannot be said.

    Resubmissions of both in other rounds are left out, too.
    """
    same = (contents(first), contents(second))
    others = [one for one in sets if contents(one) not in same]
    projected = _Method(others)(first, second.units or 0)
    published, epoch = second.mean(RUN_TIME), second.mean(EPOCH_TIME)
    if projected is None or not published or not epoch:
        return None
    errors = abs(projected.minutes / published - 1), abs(projected.epoch_minutes / epoch - 1)
    return LeaveOneOut(first.full_name, second.full_name, projected.minutes, published, *errors)


class _Method:
    """The fits over some results, and projections by them."""

    def __init__(self, sets: Sequence[AnalysedSet]) -> None:
        self.sets = scaled_sets(sets)[0]
        self._pairs = scaling_pairs(sets)
        groups = {one.full_name: comparable(one) for one in sets}
        self._fits = {groups[fit.points[0].name]: fit.power for fit in epochs_against_batch(sets) if fit.points}

    def __call__(self, one: AnalysedSet, units: int) -> Projection | None:
        """Return the projection; None if the result or the others lack what it needs."""
        size, epochs, epoch, minutes = one.row.batch_size, one.mean(EPOCHS), one.mean(EPOCH_TIME), one.mean(RUN_TIME)
        exponent = self._exponent(one)
        if not (one.units and size and epochs and epoch and minutes) or exponent is None:
            return None
        notes: list[str] = []
        batch = self._batch(one, units, notes)
        fit = self._fits.get(comparable(one))
        if fit is None:
            notes.append("epochs unchanged: no fit of epochs against batch size")
        elif fit.holds_zero:
            notes.append("epochs by an exponent whose interval holds 0")
        new_epochs = epochs * (batch / size) ** fit.b if fit else epochs
        new_epoch, rest = epoch * (units / one.units) ** exponent[0], max(0.0, minutes - epochs * epoch)
        return Projection(
            one.full_name,
            one.row.benchmark,
            one.units,
            units,
            batch,
            minutes,
            new_epochs * new_epoch + rest,
            new_epochs,
            new_epoch,
            rest,
            *exponent,
            tuple(notes),
        )

    def why_not(self, one: AnalysedSet) -> str:
        """Return why a result cannot be projected, "" if it can."""
        needed = {"batch size": one.row.batch_size, "epochs": one.mean(EPOCHS), "run time": one.mean(RUN_TIME)}
        missing = [name for name, value in needed.items() if not value]
        if missing:
            return f"its logs give no {' and no '.join(missing)}"
        return "" if self._exponent(one) else "no exponent: no comparable system has results at two scales"

    def _exponent(self, one: AnalysedSet) -> tuple[float, str] | None:
        """Return the exponent for a result, and where it is from."""
        family = [other for other in self.sets if system_family(other) == system_family(one)]
        try:
            own = fit_exponent(family)
        except NoFitError:
            pooled = [max(IDEAL, fit_exponent(pair)) for pair in self._pairs if pair[0].row.mini == one.row.mini]
            return (median(pooled), f"median of {counted(len(pooled), 'pair')}") if pooled else None
        beyond = f"its system, not {own:.3f}: better than ideal" if own < IDEAL else "its system"
        return max(IDEAL, own), beyond

    def _batch(self, one: AnalysedSet, units: int, notes: list[str]) -> int:
        """Return the batch size on these units, within those of comparable results."""
        wanted = (one.row.batch_size or 0) * units / (one.units or units)
        known = [other.row.batch_size for other in (*self.sets, one) if comparable(other) == comparable(one)]
        sizes = [size for size in known if size]
        nearest = min(max(wanted, min(sizes)), max(sizes))
        if nearest != wanted:
            shown = plain(wanted) if wanted >= 0.01 else f"{wanted:.1g}"
            notes.append(f"batch size {nearest:,}, not {shown}: the results end there")
        if nearest < units:
            notes.append(f"{units / nearest:.3g} units share each sample")
        return round(nearest)


def projection_table(found: Projections) -> TextTable:
    """Return the projections as a table."""
    columns = (
        Column[Projection]("result", "", lambda row: row.name, numeric=False),
        Column[Projection]("published", "units", lambda row: plain(row.published_units)),
        Column[Projection]("units", "", lambda row: plain(row.units)),
        Column[Projection]("batch", "samples", lambda row: plain(row.batch_size)),
        Column[Projection]("published", "min", lambda row: f"{row.published_minutes:,.2f}"),
        Column[Projection]("projected", "min", lambda row: f"{row.minutes:,.2f}"),
        Column[Projection]("epochs", "", lambda row: f"{row.epochs:,.1f}"),
        Column[Projection]("epoch", "min", lambda row: number(row.epoch_minutes)),
        Column[Projection]("exponent", "", lambda row: f"{row.exponent:.3f}"),
        Column[Projection]("notes", "", lambda row: "; ".join((f"exponent: {row.exponent_of}", *row.notes)), False),
    )
    return make_table(found.said, columns, found.projections)


# -- published results -------------------------------------------------------------------------------------

MEANS: Final = (RUN_TIME, EPOCHS, EPOCH_TIME)
OF_RUNS: Final = (RUN_TIME, EPOCH_TIME)
"""The quantities of each run by which resubmissions are known."""


def read_published() -> list[AnalysedSet]:
    """Return the published results."""
    return [_result(**one) for one in json.loads(asset("submission.results.fits", "published.json"))]


def _result(
    row: dict[str, Any],
    units: int,
    normalisation: float,
    means: Sequence[float],
    runs: Sequence[Sequence[float | None]],
) -> AnalysedSet:
    unknown: dict[str, Any] = dict.fromkeys(("verdict", "availability", "framework", "incomplete"), "")
    unknown |= dict.fromkeys(("nodes", "processors", "required_runs"))
    found = [{name: value for name, value in zip(OF_RUNS, values, strict=True) if value is not None} for values in runs]
    return AnalysedSet(
        Row(**unknown, **row, mini=False, runs=len(runs)),
        "",
        units,
        tuple(AnalysedRun(f"run {at}", values, True) for at, values in enumerate(found, 1)),
        {name: Statistics(mean, None, mean, mean, mean, 1) for name, mean in zip(MEANS, means, strict=True)},
        normalisation=normalisation,
    )
