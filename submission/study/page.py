"""What a study leaves in its folder: the page, study.json, study.csv and figures; and its table for the terminal.

The page has figures, laws with intervals and residuals, what was left out, every run and its command.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from common.command import clean, counted
from common.files import write_whole_file
from common.tree import ANYWHERE
from common.values import is_number
from compliance.formats.table import Column, make_table, plain_text
from submission.results.csv_files import csv_records
from submission.results.figures.labels import format_amount
from submission.results.fits.laws import LAWS, Law, Omission
from submission.results.page.findings import check_replaceable, write_page
from submission.results.page.html import (
    Html,
    disclosure,
    draw_table,
    element,
    join_parts,
    make_scrollable,
    theme_switch,
)
from submission.results.quantity_tables import format_number
from submission.study.curves import Curve, order_variables
from submission.study.figures import draw_best_sizes, draw_curve, draw_files
from submission.study.records import QUANTITIES, CurveSpec, StudyResult, StudyRun, Value, figure_name, list_figures

HOW_TO_READ: Final = (
    "A mark is the mean of a point's repetitions, the small dots are these. A law is fitted to the logarithms of "
    "all repetitions; its band and intervals hold the truth in 95 of 100 studies if the law is the right one. A "
    "residual is the distance of a run from the law, as a share of the law. No law is fitted through fewer points "
    "than its parameters and two more, or where the interval of its exponent says nothing."
)


def write_study_page(result: StudyResult, curves: Sequence[Curve], path: Path) -> None:
    """Write the page; an earlier one is replaced. curves: those of the result, traced.

    Raises FileExistsError if there is another kind of file, OSError if the page cannot be written.
    """
    links = [element("li", element("a", curve.spec.title, href=f"#{figure_name(curve.spec)}")) for curve in curves]
    links += [element("li", element("a", "Runs", href="#runs"))]
    body = [
        element(
            "header",
            element("div", element("h1", result.title), theme_switch(), class_="title"),
            *_describe_study(result),
            element("nav", element("ul", *links), aria_label="Contents", class_="contents"),
        ),
        element("main", *map(_draw_section, curves), _list_runs(result)),
        element("footer", element("p", HOW_TO_READ)),
    ]
    write_page(path, result.title, body)


def _describe_study(result: StudyResult) -> Iterator[Html]:
    """Yield what the study follows, where it ran and how many runs have a result."""
    complete = sum(not run.problem for run in result.runs)
    yield element(
        "p",
        f"{complete} of {counted(len(result.runs), 'run')} with a result",
        class_="verdict",
    )
    facts = [("Paper", result.paper)] if result.paper else []
    if machine := ", ".join(f"{name} {_format_value(value)}" for name, value in result.machine.items() if value):
        facts.append(("Machine", machine))
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    yield element("dl", *rows, class_="facts")
    for heading, sentences in (
        ("What differs from the paper", result.differences),
        ("Notes", result.notes),
    ):
        if sentences:
            yield element("h4", heading)
            yield element("ul", *(element("li", sentence) for sentence in sentences))


def _format_value(value: object) -> str:
    """Return a value as text, a number that is not whole with four significant digits."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else format_number(value, 4)
    return str(value)


# -- curves -----------------------------------------------------------------------------------------------------


def _draw_section(curve: Curve) -> Html:
    """Return figure, laws, residuals and what was left out."""
    figures = [
        element("figure", make_scrollable(drawing, curve.spec.title), class_="plots")
        for drawing in (draw_curve(curve), draw_best_sizes(curve))
        if drawing
    ]
    if not figures:
        figures.append(element("p", "No run has a point on this curve."))
    laws = element("div", *(_describe_law(curve, *each) for each in curve.laws))
    parts = [
        element("h2", curve.spec.title),
        element("div", *figures, laws, class_="pairs"),
    ]
    if curve.left_out:
        rows = draw_table(("run", "reason"), curve.left_out, "Left out", 2)
        parts.append(disclosure(f"{counted(len(curve.left_out), 'run')} not on this curve", rows))
    return element("section", *parts, id=figure_name(curve.spec))


def _describe_law(curve: Curve, label: str, law: Law | None, problem: str) -> Html:
    heading = element("h4", label) if label else ""
    if law is None:
        return element("div", heading, element("p", problem))
    spec = curve.spec
    variables = zip(LAWS[law.name].variables, order_variables(law.name, spec.x, spec.by), strict=True)
    rows = [(each.name, format_number(each.value), *map(format_number, each.interval)) for each in law.parameters]
    spread = "" if law.spread is None else f"; repetitions spread by {100 * law.spread:.2g} %"
    return element(
        "div",
        heading,
        element(
            "p",
            f"{law.formula}, with {', '.join(f'{name}: {meaning}' for name, meaning in variables)}.",
        ),
        element(
            "p",
            f"{law.count} values at {counted(law.points, 'point')}; interval by {law.method}, {law.degrees} degrees of "
            f"freedom{spread}.",
            class_="quiet",
        ),
        draw_table(("parameter", "value", "from", "to"), rows, "With 95 % intervals"),
        disclosure("Residuals", _list_residuals(law)),
        _list_omissions(law.left_out),
    )


def _list_residuals(law: Law) -> Html:
    rows = [
        (
            observation.name,
            ", ".join(map(format_amount, observation.x)),
            format_number(observation.y),
            format_number(fitted),
            f"{100 * relative:+.2g} %",
        )
        for observation, fitted, relative in law.residuals
    ]
    return draw_table(("run", "at", "value", "law", "residual"), rows, "A residual is a share of the law")


def _list_omissions(omissions: Iterable[Omission]) -> Html:
    items = [element("li", f"{each.observation.name} {each.reason}".strip()) for each in omissions]
    return join_parts([element("p", "Left out of the law:"), element("ul", *items)]) if items else Html("")


# -- runs -------------------------------------------------------------------------------------------------------


def _list_runs(result: StudyResult) -> Html:
    """Return the tables of all runs: what they measured, and their commands."""
    problems = [element("li", f"{run.name}: {run.problem}") for run in result.runs if run.problem]
    rows = [
        (
            element("span", run.name, class_="unbroken"),
            *(
                format_amount(value) if is_number(value) else _format_value(value)
                for value in map(run.values.get, result.axes)
            ),
            *map(_format_value, map(run.quantities.get, result.quantities)),
        )
        for run in result.runs
    ]
    commands = [(run.name, element("code", run.command)) for run in result.runs if run.command]
    return element(
        "section",
        element("h2", "Runs"),
        join_parts([element("p", "Without a result:"), element("ul", *problems)]) if problems else "",
        draw_table(
            ("run", *result.axes, *result.quantities),
            rows,
            "Each run and what it measured",
            1 + len(result.axes),
        ),
        disclosure(
            "The command that makes each run again",
            draw_table(
                ("run", "command"),
                commands,
                f"In {result.cwd}, where the study was started (cwd of study.json). They make the runs in "
                "the folder again, because none replaces another.",
                2,
            ),
        ),
        id="runs",
    )


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
        return Column(name.removeprefix("environment."), unit, lambda run: _format_cell(run.get(name)))

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
    return [
        *([f"after: {paper}"] if paper else []),
        *(f"differs: {text}" for text in differences),
    ]


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


def _format_cell(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else clean(value)
