"""Published results at all scales, for projections of results that have only one: what fits need of them.

The numbers are in published.json, which bench/published_points.py writes from the published logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from submission.analysis.fits.fit import scaled_sets
from submission.analysis.model import AnalysedRun, AnalysedSet, Statistics
from submission.analysis.quantities import EPOCH_TIME, EPOCHS, RUN_TIME
from submission.summary.rows import Row
from submission.web.document import asset

KEPT: Final = (
    *("round", "organisation", "division", "system", "scaling", "benchmark", "processor", "accelerator"),
    *("accelerators", "batch_size"),
)
"""The fields of a row that fits ask for."""
MEANS: Final = (RUN_TIME, EPOCHS, EPOCH_TIME)
OF_RUNS: Final = (RUN_TIME, EPOCH_TIME)
"""The quantities of each run by which resubmissions are known."""


def published() -> list[AnalysedSet]:
    """Return the published results."""
    return [_result(**one) for one in json.loads(asset("submission.analysis.fits", "published.json"))]


def as_text(sets: Iterable[AnalysedSet]) -> str:
    """Return the results that count in fits of time against units as the text of published.json."""
    lines = [json.dumps(_data(one)) for one in scaled_sets(sets).sets]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _data(one: AnalysedSet) -> dict[str, Any]:
    return {
        "row": {name: getattr(one.row, name) for name in KEPT},
        "units": one.units,
        "normalisation": one.normalisation,
        "means": [one.mean(name) for name in MEANS],
        "runs": [[run.values.get(name) for name in OF_RUNS] for run in one.runs],
    }


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
