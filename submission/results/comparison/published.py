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
    results = [
        result
        for result in read_published()
        if result.row.benchmark == measured.benchmark and result.mean(EPOCH_TIME) and result.units
    ]
    if not results:
        raise UsageError(f"{path}: there are no published results of {measured.benchmark} with the time of an epoch")
    results.sort(key=lambda result: abs(math.log((result.units or 1) / measured.units)))
    samples = REFERENCES[measured.benchmark].dataset.train_samples

    def rate(result: AnalysedSet) -> float:
        """Return the samples per second of a result."""
        return samples[result.row.round][0] / (60 * (result.mean(EPOCH_TIME) or math.inf))

    def unit_rate(result: AnalysedSet) -> float:
        return rate(result) / (result.units or 1)

    columns = (
        Column[AnalysedSet]("round", "", lambda result: clean(result.row.round), numeric=False),
        Column[AnalysedSet]("organisation", "", lambda result: clean(result.row.organisation), numeric=False),
        Column[AnalysedSet]("system", "", lambda result: clean(result.row.system), numeric=False),
        Column[AnalysedSet]("hardware", "", lambda result: clean(result.row.device), numeric=False),
        Column[AnalysedSet]("division", "", lambda result: clean(result.row.division), numeric=False),
        Column[AnalysedSet]("units", "", lambda result: plain(result.units)),
        Column[AnalysedSet]("batch", "", lambda result: plain(result.row.batch_size or 0)),
        Column[AnalysedSet]("rate", "samples/s", lambda result: f"{rate(result):,.0f}"),
        Column[AnalysedSet]("of a unit", "samples/s", lambda result: f"{unit_rate(result):,.3g}"),
        Column[AnalysedSet](
            *("measured", "by a unit's"), lambda result: f"{measured.samples_per_s_per_unit / unit_rate(result):.3g}"
        ),
    )
    title = (
        f"{path.name}, not an MLPerf result: {measured.benchmark}, units {plain(measured.units)}, "
        f"{measured.samples_per_s:,.4g} samples/s, {measured.samples_per_s_per_unit:,.4g} a unit; "
        "published epochs include their evaluation"
    )
    return make_table(clean(title), columns, results[:MOST_PUBLISHED])
