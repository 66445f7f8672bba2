"""Write an analysis as data: analysis.json, and CSV with one table per file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from common.version import VERSION
from submission.analysis.analysis import Analysis
from submission.analysis.fits.fit import Fit
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import QUANTITIES, RATIOS, definitions
from submission.text_table import csv_text

SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""
STATISTICS: Final = ("mean", "std", "median", "min", "max")
BUDGET: Final = "run_compute_budget"
IDENTITY: Final = (
    *("round", "organisation", "system", "scaling", "benchmark", "division", "mini", "verdict", "availability"),
    *("nodes", "accelerator", "accelerators", "processor", "framework", "batch_size"),
)
"""The fields of a row of the summary that say which result it is."""
PCA: Final = {
    "epochs_system_correlation": "correlation of log10 epochs and log10 epoch time",
    "explained_variance_ratio_1": "share of the first principal component in their variance",
    "explained_variance_ratio_2": "share of the second",
    "epochs_component_1": "part of the epochs in the first component, a unit vector; >= 0",
    "system_component_1": "part of the epoch time in it",
    "epochs_component_2": "part of the epochs in the second component",
    "system_component_2": "part of the epoch time in it",
}


def flat(analysed: AnalysedSet) -> dict[str, float | None]:
    """Return all quantities of a result by the names of the paper's analysis, such as run_time.mean; None: not known.

    run_compute_budget is its mean; ratios and principal components have one value.
    """
    found: dict[str, float | None] = {}
    for name in QUANTITIES:
        statistics = analysed.statistics.get(name)
        found |= {f"{name}.{kind}": getattr(statistics, kind) if statistics else None for kind in STATISTICS}
    found[BUDGET] = found[f"{BUDGET}.mean"]
    pca = analysed.pca
    values: Sequence[float | None] = [None] * len(PCA)
    if pca is not None:
        explained = pca.explained
        values = (pca.correlation, explained, None if explained is None else 1 - explained, *pca.first, *pca.second)
    return found | {name: analysed.ratios.get(name) for name in RATIOS} | dict(zip(PCA, values, strict=True))


def json_document(found: Analysis) -> dict[str, Any]:
    """Return the contents of analysis.json."""
    return {"schema": SCHEMA, "version": VERSION, "results": [_result(one) for one in found.sets], **_derived(found)}


def _result(analysed: AnalysedSet) -> dict[str, Any]:
    return {
        "name": analysed.name,
        **_identity(analysed),
        "problem": analysed.problem,
        "quantities": flat(analysed),
        "hyperparameters": dict(analysed.hyperparameters),
        "excluded": dict(analysed.excluded),
        "notes": list(analysed.notes),
        "runs": [asdict(run) for run in analysed.runs],
    }


def _identity(analysed: AnalysedSet) -> dict[str, Any]:
    row = {name: getattr(analysed.row, name) for name in IDENTITY}
    return row | {"units": analysed.units, "unit": analysed.unit}


def csv_files(found: Analysis) -> Iterator[tuple[str, str]]:
    """Yield file name and CSV of the results, their runs, what the columns mean, and what follows from them."""
    sets = found.sets
    results = [_identity(one) | flat(one) | {"problem": one.problem} for one in sets]
    if results:
        yield "results.csv", csv_text(tuple(results[0]), [list(row.values()) for row in results])
    head = ("round", "name", "run", "counts", "why_not", *QUANTITIES)
    lines = [
        (one.row.round, one.name, run.name, run.kept, run.why_not, *(run.values.get(name) for name in QUANTITIES))
        for one in sets
        for run in one.runs
    ]
    yield "runs.csv", csv_text(head, lines)
    stated = dict.fromkeys(key for one in sets for key in one.hyperparameters)
    rows = [(one.row.round, one.name, *(_plain(one.hyperparameters.get(key)) for key in stated)) for one in sets]
    yield "hyperparameters.csv", csv_text(("round", "name", *stated), rows)
    meanings = [*definitions(), *((name, "", definition, "") for name, definition in PCA.items())]
    yield "quantities.csv", csv_text(("name", "unit", "definition", "mean"), meanings)
    yield from _derived_files(found)


def _plain(value: Any) -> Any:
    """Return a value for a cell: numbers and text as they are, lists and objects as JSON."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)


# -- fits, projections, cost model -------------------------------------------------------------------------


def _derived(found: Analysis) -> dict[str, Any]:
    """Return what follows from the results, for analysis.json: fits, projections, the cost model, and their errors."""
    return {
        "fits": [asdict(fit) for fit in found.fits],
        "projections": {"kind": "projection, no result", **asdict(found.projected)},
        "cost_model": {
            "kind": "least time of a step by the ceilings of the hardware, no result",
            "error": asdict(found.cost_error) | {"said": found.cost_error.said},
            "steps": [asdict(step) for step in found.costed],
        },
    }


def _derived_files(found: Analysis) -> Iterator[tuple[str, str]]:
    """Yield file name and CSV of the fits, their points, efficiencies, projections and the cost model."""
    yield from _table("fits.csv", [_fit_row(fit) for fit in found.fits])
    points = [_point_row(fit, one.name, x=one.x, y=one.y) for fit in found.fits for one in fit.points]
    points += [_point_row(fit, one.name, reason=one.reason) for fit in found.fits for one in fit.left_out]
    yield from _table("fit_points.csv", points)
    yield from _table("efficiencies.csv", [asdict(one) for fit in found.fits for one in fit.efficiencies])
    yield from _table("projections.csv", [asdict(one) for one in found.projected.projections])
    yield from _table("projection_errors.csv", [asdict(one) for one in found.projected.left_out])
    yield from _table("cost_model.csv", [asdict(one) for one in found.costed])
    yield from _table("cost_model_errors.csv", [asdict(one) for one in found.cost_error.pairs])


def _fit_row(fit: Fit) -> dict[str, Any]:
    power, critical = fit.power, fit.critical
    a, b = (power.a_interval, power.b_interval) if power else (None, None)
    return {
        "fit": fit.title,
        "model": fit.model,
        "x": fit.x.name,
        "y": fit.y.name,
        "points": len(fit.points),
        "a": power.a if power else None,
        **dict(zip(("a_low", "a_high"), a or (None, None), strict=True)),
        "b": power.b if power else None,
        **dict(zip(("b_low", "b_high"), b or (None, None), strict=True)),
        "r_squared": power.r_squared if power else None,
        "e0": critical.e0 if critical else None,
        "critical_batch_size": critical.bc if critical else None,
        "said": fit.said,
    }


def _point_row(fit: Fit, name: str, x: float | None = None, y: float | None = None, reason: str = "") -> dict[str, Any]:
    row = {"fit": fit.title, "model": fit.model, "y_name": fit.y.name, "name": name}
    return row | {"counts": not reason, "x": x, "y": y, "reason": reason}


def _table(name: str, rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the file, if it has rows."""
    if rows:
        yield name, csv_text(tuple(rows[0]), [list(map(_plain, row.values())) for row in rows])
