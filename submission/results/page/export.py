"""Write an analysis into a folder: analysis.json, CSV with one table per file, and each figure as SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from common.files import write_whole_file
from common.tree import ANYWHERE
from common.version import VERSION
from compliance.formats.json import json_text
from submission.results.analysis import Analysis
from submission.results.csv_files import csv_records, csv_text
from submission.results.figures.scaling import fit_name
from submission.results.fits.fit import Fit
from submission.results.page.analysis import draw_fits, list_pictures
from submission.results.page.html import Html, read_asset
from submission.results.quantities import QUANTITIES, RATIOS, AnalysedSet, list_definitions

DATA: Final = "analysis.json"
NAME: Final = re.compile(r"[a-z][\w-]*\.(html|json|csv|svg)")
"""The form of the names of files that this command writes."""
MOST_BYTES: Final = 1 << 28
BUDGET: Final = "run_compute_budget"
IDENTITY: Final = (
    "round organisation system folder scaling benchmark division mini verdict availability nodes accelerator "
    "accelerators processor framework batch_size plugin".split()
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
RULE: Final = re.compile(r"^svg[ .][^{]*\{[^}]*\}", re.MULTILINE)
TITLE_HEIGHT: Final = 54
"""Height of the two lines of the title above a drawing, in a file."""
PAIR: Final = re.compile(r"light-dark\(([^,]*), ([^)]*)\)")


def write_analysis(analysis: Analysis, folder: Path) -> list[str]:
    """Write everything into a folder, each file whole or not at all; return their names, the data first.

    Files of an earlier analysis in the folder that this one does not have are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    former, files = _read_file_names(folder), _render_files(analysis)
    for name, text in files.items():
        write_whole_file(folder / name, text, errors="backslashreplace")
    for name in former - files.keys():
        (folder / name).unlink(missing_ok=True)
    return list(files)


def holds_analysis(folder: Path) -> bool:
    """Return whether a folder holds the data of an analysis."""
    return bool(_read_file_names(folder))


def _read_file_names(folder: Path) -> set[str]:
    """Return the names of the files that the analysis in a folder has written, as its data list them."""
    try:
        names = json.loads(ANYWHERE.read(folder / DATA, MOST_BYTES))["files"]
        return {name for name in names if NAME.fullmatch(name)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _render_files(analysis: Analysis) -> dict[str, str]:
    others = dict(_write_csv(analysis)) | {
        f"{picture.name}.svg": render_standalone(picture.drawing)
        for picture in list_pictures(analysis.sets)
        if picture.drawing
    }
    others |= {f"{fit_name(fit)}.svg": render_standalone(drawing) for fit, drawing in draw_fits(analysis) if drawing}
    return {DATA: json_text(_describe_analysis(analysis) | {"files": [DATA, *others]})} | others


# -- data --------------------------------------------------------------------------------------------------


def flatten_quantities(result: AnalysedSet) -> dict[str, float | None]:
    """Return all quantities of a result by the names of the paper's analysis, such as run_time.mean; None: not known.

    run_compute_budget is its mean; ratios and principal components have one value.
    """
    values: dict[str, float | None] = {
        f"{name}.{kind}": getattr(result.statistics.get(name), kind, None)
        for name in QUANTITIES
        for kind in ("mean", "std", "median", "min", "max")
    }
    values[BUDGET] = values[f"{BUDGET}.mean"]
    components: Sequence[float | None] = [None] * len(PCA)
    if pca := result.pca:
        rest = None if pca.explained is None else 1 - pca.explained
        components = (pca.correlation, pca.explained, rest, *pca.first, *pca.second)
    return values | {name: result.ratios.get(name) for name in RATIOS} | dict(zip(PCA, components, strict=True))


def _describe_analysis(analysis: Analysis) -> dict[str, Any]:
    """Return the contents of analysis.json."""
    results = [
        {"name": result.name}
        | _identify_result(result)
        | {
            "problem": result.problem,
            "quantities": flatten_quantities(result),
            "data": _data_record(result),
        }
        | {key: getattr(result, key) for key in ("hyperparameters", "excluded", "notes")}
        | {"runs": [asdict(run) for run in result.runs]}
        for result in analysis.sets
    ]
    return {
        "schema": 1,
        "version": VERSION,
        "results": results,
        "fits": [asdict(fit) for fit in analysis.fits],
        "projections": {"kind": "projection, no result", **asdict(analysis.projected)},
        "cost_model": {
            "kind": "least time of a step by the ceilings of the hardware, no result",
            "error": asdict(analysis.cost_error) | {"said": analysis.cost_error.text},
            "steps": [asdict(step) for step in analysis.costed],
        },
    }


def _identify_result(result: AnalysedSet) -> dict[str, Any]:
    return {name: getattr(result.row, name) for name in IDENTITY} | {
        "units": result.units,
        "unit": result.unit,
    }


def _data_record(result: AnalysedSet) -> dict[str, Any]:
    """Return what a node holds of the data set, in bytes, beside its memory and disk; None where it is unknown."""
    data = result.data
    return {
        "run_nodes": data.nodes if data else None,
        **{f"node_{name}_bytes": getattr(data, name, None) for name in ("raw", "stored", "memory", "disk")},
        "data_held_by": data.held_by if data else "",
    }


def _write_csv(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield file name and CSV of the results, their runs, what the columns mean, and what follows from them."""
    sets = analysis.sets
    if sets:
        records = [
            _identify_result(each) | flatten_quantities(each) | {"problem": each.problem} | _data_record(each)
            for each in sets
        ]
        yield "results.csv", csv_records(records)
    head = ("round", "name", "run", "counts", "why_not", *QUANTITIES, "plugin")
    runs = [
        (
            each.row.round,
            each.name,
            run.name,
            run.kept,
            run.why_not,
            *map(run.values.get, QUANTITIES),
            each.row.plugin,
        )
        for each in sets
        for run in each.runs
    ]
    yield "runs.csv", csv_text(head, runs)
    stated = dict.fromkeys(key for each in sets for key in each.hyperparameters)
    rows = [(each.row.round, each.name, *map(each.hyperparameters.get, stated)) for each in sets]
    yield "hyperparameters.csv", csv_text(("round", "name", *stated), rows)
    meanings = [
        *list_definitions(),
        *((name, "", definition, "") for name, definition in PCA.items()),
    ]
    yield "quantities.csv", csv_text(("name", "unit", "definition", "mean"), meanings)
    points = [_point_record(fit, point.name, x=point.x, y=point.y) for fit in analysis.fits for point in fit.points]
    points += [_point_record(fit, other.name, reason=other.reason) for fit in analysis.fits for other in fit.left_out]
    derived = {
        "fits.csv": [_fit_record(fit) for fit in analysis.fits],
        "fit_points.csv": points,
        "efficiencies.csv": [asdict(efficiency) for fit in analysis.fits for efficiency in fit.efficiencies],
        "projections.csv": [asdict(projection) for projection in analysis.projected.projections],
        "projection_errors.csv": [asdict(error) for error in analysis.projected.left_out],
        "cost_model.csv": [asdict(step) for step in analysis.costed],
        "cost_model_errors.csv": [asdict(pair) for pair in analysis.cost_error.pairs],
    }
    yield from ((name, csv_records(records)) for name, records in derived.items() if records)


def _fit_record(fit: Fit) -> dict[str, Any]:
    power, critical = (asdict(estimate) if estimate else {} for estimate in (fit.power, fit.critical))
    record = {
        "fit": fit.title,
        "model": fit.model,
        "x": fit.x.name,
        "y": fit.y.name,
        "points": len(fit.points),
    }
    for name in ("a", "b"):
        low, high = power.get(f"{name}_interval") or (None, None)
        record |= {name: power.get(name), f"{name}_low": low, f"{name}_high": high}
    return record | {
        "r_squared": power.get("r_squared"),
        "e0": critical.get("e0"),
        "critical_batch_size": critical.get("bc"),
        "said": fit.said,
    }


def _point_record(fit: Fit, name: str, **values: object) -> dict[str, Any]:
    record = {"fit": fit.title, "model": fit.model, "y_name": fit.y.name, "name": name}
    return record | {"counts": "reason" not in values, "x": None, "y": None, "reason": ""} | values


# -- drawings ----------------------------------------------------------------------------------------------


def render_standalone(svg: Html) -> str:
    """Return the text of an SVG file: the title, the drawing, and the rules of page.css for it, light and dark."""
    style = read_asset("submission.results.page", "page.css")
    variables = dict(re.findall(r"(--\w+): (light-dark\([^)]*\));", style))
    # Only the page filters results.
    head, _, body = re.sub(r' data-result="[^"]*"', "", svg).partition(">")
    # On the page the title stands above the figure.
    lines = re.findall(r"<title[^>]*>([^<]*)</title>", body)[0].split(": ", 1)
    texts = zip(("heading", "name"), (-34, -14), lines, strict=False)
    body = "".join(f'<text class="{name}" x="8" y="{y}">{line}</text>' for name, y, line in texts) + body
    used = set(re.findall(r"[\w-]+", " ".join(re.findall(r'class="([^"]*)"', head + body))))
    rules = [
        re.sub(r"var\((--\w+)\)", lambda match: variables[match[1]], rule)
        for rule in RULE.findall(style)
        if set(re.findall(r"\.([\w-]+)", rule.partition("{")[0])) <= used
    ]
    rules.append(f"svg {{ background: {variables['--card']}; }}")
    light = "\n".join(PAIR.sub(r"\1", rule) for rule in rules)
    dark = "\n".join(PAIR.sub(r"\2", rule) for rule in rules if "light-dark" in rule)
    sheet = f"<style>{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}</style>"
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', head)[0]
    total = f"{float(height) + TITLE_HEIGHT:g}"
    head = head.replace(f'"0 0 {width} {height}"', f'"0 -{TITLE_HEIGHT} {width} {total}"')
    return f'{head} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}">{sheet}{body}\n'
