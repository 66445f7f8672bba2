"""Project results to other numbers of units, and measure by published results how far the method is off.

A projection is not a result and has no score. The time of an epoch follows t = a N^b, with the exponent of the system's
own results if it has several scales, else the median of all published pairs; better than ideal scaling is not
projected. Samples per unit and step stay the same, as far as the batch sizes of published results reach. Epochs follow
the fit of epochs against batch size. The rest of the run, such as staging, keeps its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from submission.analysis.fits.fit import (
    comparable,
    epochs_against_batch,
    scaled_sets,
    scaling_pairs,
    system_family,
)
from submission.analysis.fits.least_squares import NoFitError, power_law
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import EPOCH_TIME, EPOCHS, RUN_TIME
from submission.text_table import TextTable

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
    """Projections, and the error of their method; median_error and worst_error are None without published pairs."""

    projections: tuple[Projection, ...]
    left_out: tuple[LeaveOneOut, ...]
    median_error: float | None
    worst_error: float | None
    median_epoch_time_error: float | None
    said: str


class _Exponent(NamedTuple):
    value: float
    source: str


def projections(sets: Sequence[AnalysedSet], units: Sequence[int]) -> Projections:
    """Return the projection of each time-to-train result to each number of units, and the error of the method.

    Results without epochs, batch size, units or times are left out.
    """
    method = _Method(sets)
    found = [
        projected for one in method.sets for count in units if count != one.units and (projected := method(one, count))
    ]
    errors = [error for first, second in scaling_pairs(sets) if (error := _left_out(sets, first, second))]
    middle = median(error.error for error in errors) if errors else None
    worst = max(errors, key=lambda error: error.error, default=None)
    said = "projections, not results; their error is unknown: expected two systems with results at two scales each"
    if middle is not None and worst is not None:
        said = (
            f"projections, not results: over {len(errors)} published pairs the method is off by {middle:.0%} in the "
            f"median and by {worst.error:.0%} at worst ({worst.second})"
        )
    of_epochs = median(error.epoch_time_error for error in errors) if errors else None
    return Projections(tuple(found), tuple(errors), middle, worst.error if worst else None, of_epochs, said)


def _left_out(sets: Sequence[AnalysedSet], first: AnalysedSet, second: AnalysedSet) -> LeaveOneOut | None:
    """Return how well the second result follows from the first without either in a fit; None if it cannot be said."""
    others = [one for one in sets if one is not first and one is not second]
    projected = _Method(others)(first, second.units or 0)
    published, epoch = second.mean(RUN_TIME), second.mean(EPOCH_TIME)
    if projected is None or not published or not epoch:
        return None
    return LeaveOneOut(
        first.full_name,
        second.full_name,
        projected.minutes,
        published,
        abs(projected.minutes / published - 1),
        abs(projected.epoch_minutes / epoch - 1),
    )


class _Method:
    """The fits over some results, and projections by them."""

    def __init__(self, sets: Sequence[AnalysedSet]) -> None:
        self.sets = scaled_sets(sets)
        self._pairs = scaling_pairs(sets)
        groups = {one.full_name: comparable(one) for one in sets}
        self._fits = {groups[fit.points[0].name]: fit.power for fit in epochs_against_batch(sets) if fit.points}

    def __call__(self, one: AnalysedSet, units: int) -> Projection | None:
        """Return the projection; None if the result or the published ones lack what it needs."""
        size, epochs, epoch, minutes = one.row.batch_size, one.mean(EPOCHS), one.mean(EPOCH_TIME), one.mean(RUN_TIME)
        exponent = self._exponent(one)
        if not (one.units and size and epochs and epoch and minutes) or exponent is None:
            return None
        notes: list[str] = []
        batch = self._batch(one, units, notes)
        fit = self._fits.get(comparable(one))
        if fit is None:
            notes.append("epochs as published: no fit of epochs against batch size")
        elif fit.holds_zero:
            notes.append("epochs by an exponent whose interval holds 0")
        new_epochs = epochs * (batch / size) ** fit.b if fit else epochs
        new_epoch, rest = epoch * (units / one.units) ** exponent.value, max(0.0, minutes - epochs * epoch)
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
            exponent.value,
            exponent.source,
            tuple(notes),
        )

    def _exponent(self, one: AnalysedSet) -> _Exponent | None:
        family = [other for other in self.sets if system_family(other) == system_family(one)]
        try:
            own = power_law([(other.units or 0, other.mean(EPOCH_TIME) or 0) for other in family]).b
        except NoFitError:
            same = [pair for pair in self._pairs if pair.first.row.mini == one.row.mini]
            pooled = [max(IDEAL, pair.exponent) for pair in same]
            return _Exponent(median(pooled), f"median of {len(pooled)} published pairs") if pooled else None
        beyond = f"its system, not {own:.3f}: better than ideal" if own < IDEAL else "its system"
        return _Exponent(max(IDEAL, own), beyond)

    def _batch(self, one: AnalysedSet, units: int, notes: list[str]) -> int:
        """Return the batch size on these units, within those of comparable published results."""
        wanted = (one.row.batch_size or 0) * units / (one.units or units)
        known = [other.row.batch_size for other in (*self.sets, one) if comparable(other) == comparable(one)]
        sizes = [size for size in known if size]
        nearest = min(max(wanted, min(sizes)), max(sizes))
        if nearest != wanted:
            notes.append(f"batch size {nearest:,}, not {wanted:,.0f}: the published ones end there")
        if nearest < units:
            notes.append(f"{units / nearest:.3g} units share each sample")
        return round(nearest)


def projection_table(found: Projections) -> TextTable:
    """Return the projections as a table."""
    headings = (
        ("result", ""),
        ("units", "published"),
        ("units", ""),
        ("batch", "samples"),
        ("time", "min published"),
        ("time", "min projected"),
        ("epochs", ""),
        ("epoch", "min"),
        ("exponent", "of N"),
        ("notes", ""),
    )
    rows = tuple(
        (
            one.name,
            str(one.published_units),
            str(one.units),
            str(one.batch_size),
            f"{one.published_minutes:.2f}",
            f"{one.minutes:.2f}",
            f"{one.epochs:.1f}",
            f"{one.epoch_minutes:.4g}",
            f"{one.exponent:.3f}",
            "; ".join((f"exponent: {one.exponent_of}", *one.notes)),
        )
        for one in found.projections
    )
    return TextTable(found.said, headings, rows, (False, *(True,) * 8, False))
