"""Compare a measurement of training steps with published results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from common.command import UsageError, clean
from common.measure.fom import read_measurement
from common.reference import FULL
from compliance.benchmarks import REFERENCES
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from submission.results.fits.projection import read_published
from submission.results.quantities import EPOCH_TIME, AnalysedSet

MOST_PUBLISHED: Final = 8
"""Published results that are shown."""


def compare_with_published(path: Path) -> TextTable:
    """Return a measurement beside the published results whose number of units is nearest; UsageError without any."""
    measured = read_measurement(path)
    if measured.benchmark not in REFERENCES:
        known = ", ".join(REFERENCES)
        raise UsageError(f"{path}: benchmark is {clean(measured.benchmark)!r}; expected one of {known}")
    if measured.network != FULL:
        network = clean(measured.network)
        raise UsageError(f"{path}: the {network} network was measured, published results have the full one")
    published = [result for result in read_published() if result.row.benchmark == measured.benchmark]
    results = [result for result in published if result.mean(EPOCH_TIME) and result.units]
    if not results:
        raise UsageError(f"{path}: there are no published results of {measured.benchmark} with the time of an epoch")
    results.sort(key=lambda result: abs(math.log((result.units or 1) / measured.units)))
    rate = measured.samples_per_s_per_unit
    columns = (
        *map(_name_column, ("round", "organisation", "system", "device", "division")),
        Column[AnalysedSet]("units", "", lambda result: plain(result.units)),
        Column[AnalysedSet]("batch", "", lambda result: plain(result.row.batch_size or 0)),
        Column[AnalysedSet]("rate", "samples/s", lambda result: f"{_rate(result):,.0f}"),
        Column[AnalysedSet]("of a unit", "samples/s", lambda result: f"{_rate(result) / (result.units or 1):,.3g}"),
        Column[AnalysedSet]("measured", "by a unit's", lambda each: f"{rate * (each.units or 1) / _rate(each):.3g}"),
    )
    title = (
        f"{path.name}, not an MLPerf result: {measured.benchmark}, units {plain(measured.units)}, "
        f"{measured.samples_per_s:,.4g} samples/s, {rate:,.4g} a unit; published epochs include their evaluation"
    )
    return make_table(clean(title), columns, results[:MOST_PUBLISHED])


def _name_column(field: str) -> Column[AnalysedSet]:
    return Column(field, "", lambda result: clean(getattr(result.row, field)), numeric=False)


def _rate(result: AnalysedSet) -> float:
    """Return the samples per second of a result that has the time of an epoch."""
    samples = REFERENCES[result.row.benchmark].dataset.train_samples[result.row.round][0]
    return samples / (60 * (result.mean(EPOCH_TIME) or math.inf))
