"""Compare a measurement of training steps with the published results of similar scale."""

from __future__ import annotations

import math
from pathlib import Path

from common.command import UsageError, clean
from common.measure.fom import Measurement, read_measurement
from common.reference import FULL
from compliance.benchmarks import REFERENCES
from compliance.formats.words import plain
from submission.analysis.fits.projection import read_published
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import EPOCH_TIME
from submission.text_table import TextTable

MOST = 8
"""Published results that are shown."""
HEADINGS = (
    *(("round", ""), ("organisation", ""), ("system", ""), ("hardware", ""), ("division", "")),
    *(("units", ""), ("batch", ""), ("rate", "samples/s"), ("of a unit", "samples/s"), ("measured", "by a unit's")),
)
NUMERIC = (*(False,) * 5, *(True,) * 5)


def compared(path: Path) -> TextTable:
    """Return a measurement beside the published results whose number of units is nearest; UsageError without any."""
    found = read_measurement(path)
    if found.benchmark not in REFERENCES:
        raise UsageError(f"{path}: benchmark is {clean(found.benchmark)!r}; expected one of {', '.join(REFERENCES)}")
    if found.network != FULL:
        raise UsageError(
            f"{path}: the {clean(found.network)} network was measured, published results have the full one"
        )
    results = [one for one in read_published() if one.row.benchmark == found.benchmark and one.mean(EPOCH_TIME)]
    if not results:
        raise UsageError(f"{path}: there are no published results of {found.benchmark} with the time of an epoch")
    nearest = sorted(results, key=lambda one: abs(math.log(one.units / found.units)) if one.units else math.inf)[:MOST]
    title = (
        f"{path.name}, not an MLPerf result: {found.benchmark}, units {plain(found.units)}, "
        f"{found.samples_per_s:,.4g} samples/s, {found.samples_per_s_per_unit:,.4g} a unit; "
        "published epochs include their evaluation"
    )
    return TextTable(clean(title), HEADINGS, tuple(_row(found, one) for one in nearest), NUMERIC)


def _row(found: Measurement, one: AnalysedSet) -> tuple[str, ...]:
    samples = REFERENCES[found.benchmark].dataset.train_samples[one.row.round][0]
    rate = samples / (60 * (one.mean(EPOCH_TIME) or math.inf))
    each = rate / one.units if one.units else math.nan
    row = one.row
    return (
        *map(clean, (row.round, row.organisation, row.system, row.accelerator or row.processor, row.division)),
        plain(one.units or 0),
        plain(row.batch_size or 0),
        f"{rate:,.0f}",
        f"{each:,.3g}",
        f"{found.samples_per_s_per_unit / each:.3g}",
    )
