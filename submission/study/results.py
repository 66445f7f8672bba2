"""What a study leaves in its folder: study.json, study.csv, figures and the page; and its table for the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from common.command import clean
from common.files import write_whole_file
from common.tree import ANYWHERE
from compliance.formats.table import Column, csv_records, make_table, plain_text
from submission.results.fits.laws import Law
from submission.results.page.sheets import check_replaceable
from submission.study.curves import Curve
from submission.study.figures import draw_files, list_figures
from submission.study.page import write_study_page
from submission.study.quantities import QUANTITIES
from submission.study.records import CurveSpec, StudyResult, StudyRun, Value

FORMAT: Final = 1
JSON, CSV, PAGE = "study.json", "study.csv", "study.html"
BEGIN: Final = f'{{\n  "format": {FORMAT},\n  "title": '.encode()
"""The first bytes of a study.json."""
ALWAYS: Final = ("samples_per_s", "minutes", "quality", "loss")
"""Quantities in the table of the terminal beside those of the curves."""


def write_results(folder: Path, result: StudyResult, curves: Sequence[Curve], plan: dict[str, Any]) -> None:
    """Write the files of a study. plan: as its file has it, for the record."""
    meanings = {
        name: {"unit": QUANTITIES[name].unit, "meaning": QUANTITIES[name].meaning} for name in result.quantities
    }
    content = {"format": FORMAT, **asdict(result), "quantities": meanings, "plan": plan}
    content["curves"] = [asdict(curve.spec) | {"fits": _describe_fits(curve)} for curve in curves]
    write_whole_file(folder / JSON, msgspec.json.format(msgspec.json.encode(content, enc_hook=str)) + b"\n")
    rows = [
        {
            "run": run.name,
            **{key: run.values.get(key) for key in result.axes},
            **{name: run.quantities.get(name) for name in result.quantities},
            "problem": run.problem,
            "command": run.command,
        }
        for run in result.runs
    ]
    write_whole_file(folder / CSV, csv_records(rows))
    for name, text in draw_files(curves).items():
        write_whole_file(folder / name, text)
    write_study_page(result, curves, folder / PAGE)


def check_files(folder: Path, curves: Sequence[CurveSpec]) -> None:
    """Raise FileExistsError where `write_results` would replace a file that no study has written."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileExistsError(f"{folder} is no folder; choose another one with -o")
    check_replaceable(folder / PAGE)
    if ANYWHERE.begin(folder / JSON, len(BEGIN)) == BEGIN:  # of an earlier call, as the other files
        return
    for name in (JSON, CSV, *(name for curve in curves for name in list_figures(curve))):
        if os.path.lexists(folder / name):
            raise FileExistsError(f"{folder / name} exists, and no study has written it; choose another folder with -o")


def format_runs(result: StudyResult, width: int | None) -> str:
    """Return the table of the runs: their axes, and what the curves and everybody ask for."""
    curves = [name for curve in result.curves for name in (curve.x, curve.y, curve.by)]
    names = [name for name in dict.fromkeys((*curves, *ALWAYS)) if name in result.quantities]
    axes = [name for name in result.axes if name not in names and "+" not in name]

    def make_column(name: str, unit: str) -> Column[StudyRun]:
        return Column(name.removeprefix("environment."), unit, lambda run: _format(run.get(name)))

    columns: list[Column[StudyRun]] = [Column("run", "", lambda run: clean(run.name), numeric=False)]
    columns += [make_column(name, "") for name in axes]
    columns += [make_column(name, QUANTITIES[name].unit) for name in names]
    if any(run.problem for run in result.runs):
        columns.append(Column("problem", "", lambda run: clean(run.problem), numeric=False))
    return plain_text(make_table(result.title, columns, result.runs), width)


def format_notes(result: StudyResult, curves: Sequence[Curve]) -> Iterator[str]:
    """Yield the lines with the laws, on how the study differs from its paper, and what a reader has to know."""
    for curve in curves:
        for label, law, problem in curve.laws:
            yield f"{curve.spec.title}{f', {label}' if label else ''}: {_format_law(law) if law else problem}"
    yield from describe_origin(result.paper, result.differences)
    yield from (f"note: {text}" for text in result.notes)


def describe_origin(paper: str, differences: Sequence[str]) -> list[str]:
    """Return a line for the paper of a study, and for each difference from it."""
    return [*([f"after: {paper}"] if paper else []), *(f"differs: {text}" for text in differences)]


def _format_law(law: Law) -> str:
    intervals = (f"{each.name} {each.interval[0]:.3g} to {each.interval[1]:.3g}" for each in law.parameters)
    return f"{law.formula} (95 %: {', '.join(intervals)})"


def _describe_fits(curve: Curve) -> list[dict[str, Any]]:
    """Return the record of each fit of a curve. problem: why there is none, "" if there is one."""
    return [
        {
            "line": label,
            "formula": law.formula if law else "",
            "parameters": {
                each.name: {"value": each.value, "interval": each.interval} for each in (law.parameters if law else ())
            },
            "problem": problem,
        }
        for label, law, problem in curve.laws
    ]


def _format(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else clean(value)
