"""Write an analysis as data: analysis.json, and CSV with one table per file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from common.version import VERSION
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import QUANTITIES, RATIOS
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
    "epochs_component_1": "part of the epochs in the first component, a unit vector",
    "epoch_time_component_1": "part of the epoch time in it",
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
    explained = pca.explained if pca else None
    values = (
        (pca.correlation, explained, None if explained is None else 1 - explained, *pca.first)
        if pca
        else [None] * len(PCA)
    )
    return found | {name: analysed.ratios.get(name) for name in RATIOS} | dict(zip(PCA, values, strict=True))


def document(sets: Sequence[AnalysedSet], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of analysis.json. parts: fits, projections and the like, by name."""
    return {"schema": SCHEMA, "version": VERSION, "results": [_result(one) for one in sets], **parts}


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


def tables(sets: Sequence[AnalysedSet]) -> Iterator[tuple[str, str]]:
    """Yield file name and CSV of the results, their runs, and what the columns mean."""
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
    meanings = [(q.name, q.unit, q.definition, "harmonic" if q.harmonic else "arithmetic") for q in QUANTITIES.values()]
    meanings += [(name, "", definition, "ratio of means") for name, definition in RATIOS.items()]
    meanings += [(name, "", definition, "") for name, definition in PCA.items()]
    yield "quantities.csv", csv_text(("name", "unit", "definition", "mean"), meanings)


def _plain(value: Any) -> Any:
    """Return a value for a cell: numbers and text as they are, lists and objects as JSON."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)
