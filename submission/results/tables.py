"""Write the tables of a round as plain text, Markdown, JSON or CSV; the last two contain all fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from common.command import clean
from common.version import VERSION
from compliance.formats.json import json_text
from compliance.formats.markdown import escaped, markdown_text
from compliance.formats.table import TextTable, csv_text, plain_text, wrap_notes
from compliance.formats.words import aligned, matters, plain
from compliance.model.layout import STRONG, WEAK
from compliance.model.report import Report
from submission.results.rows import Difference, Row, rows

SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""

TITLES: Final = {
    STRONG: "Time to train (strong scaling): TTT is the mean without the fastest and the slowest run",
    WEAK: "Throughput (weak scaling): models trained at once, TTTa from the first start to the last stop",
}
NAMES: Final = (("verdict", ""), ("organisation", ""), ("system", ""))
SIZE: Final = (("units", ""), ("batch", "size"))
SCORES: Final = {
    STRONG: (("TTT", "min"), ("norm.", "min"), ("scaled", "min")),
    WEAK: (("models", ""), ("per", "model"), ("TTTa", "min"), ("models", "/min"), ("norm.", "/min")),
}
WITH_STAGING: Final = {STRONG: ("TTT+", "staging"), WEAK: ("TTTa+", "staging")}
"""Heading of the time with staging, where the score lacks it."""
ENDING: Final = (("epochs", ""), ("RCP", ""), ("energy", "kJ"), ("runs", ""))
EXPLANATION: Final = (
    "units: accelerators, or processors of a system without; epochs: to the target, as logged, * means samples; "
    "RCP: convergence compared with the reference, or its factor on the score if above 1"
)
CLOCKS: Final = (
    "staging: minutes that lie in or out of the time (TTT, TTTa): up to round 2.0 the time contains staging, in 3.0 it "
    "need not; compare results by the time with staging"
)
WHOLE: Final = "~: the logs state the whole system; this is its accelerators by the instances at once"
MINI: Final = "(mini): a result on a mini problem, not an MLPerf result"

RESULT_COLUMNS: Final = (
    *("round", "organisation", "division", "availability", "system", "nodes", "processor", "processors"),
    *("accelerator", "accelerators", "framework", "benchmark", "mini", "batch_size"),
)
RUN_COLUMNS: Final = (
    *("convergence", "convergence_unit", "rcp", "rcp_factor", "waiver", "bypass", "staging_minutes", "energy_joules"),
    *("runs", "required_runs", "incomplete", "run_minutes", "verdict"),
    *("staging_clock", "time_with_staging_minutes", "time_without_staging_minutes"),
)
CSV_COLUMNS: Final = {
    STRONG: {
        **{name: name for name in RESULT_COLUMNS},
        **{"time_to_train_minutes": "minutes", "normalised_minutes": "normalised", "scaled_minutes": "scaled"},
        **{name: name for name in RUN_COLUMNS},
    },
    WEAK: {
        **{name: name for name in (*RESULT_COLUMNS, "models", "instance_scale")},
        **{"time_to_train_all_minutes": "minutes", "models_per_minute": "models_per_minute"},
        **{"normalised_models_per_minute": "normalised"},
        **{name: name for name in RUN_COLUMNS},
    },
}
"""Headings of the CSV file of each kind of scaling, with units, and the fields of a row."""
CSV_DIFFERENCES: Final = (
    *("organisation", "benchmark", "mini", "division", "scaling", "before", "now", "unit", "speedup"),
    *("before_with_staging", "now_with_staging", "before_waived", "now_waived"),
)


def plain_summary(rows: Sequence[Row], changes: Sequence[Difference] = (), width: int | None = None) -> str:
    """Return the tables and notes of a round in lines of at most `width` characters; None: nothing is cut."""
    notes = wrap_notes((*_legend(rows), *_remarks(rows)), width)
    return "\n\n".join([*(plain_text(table, width) for table in _tables(rows, changes)), notes]) + "\n"


def markdown_summary(rows: Sequence[Row], changes: Sequence[Difference] = ()) -> str:
    """Return the same tables and notes as Markdown."""
    lines = "\n".join(f"- {note}" for note in (*_legend(rows), *map(escaped, _remarks(rows))))
    return "\n\n".join([*map(markdown_text, _tables(rows, changes)), lines]) + "\n"


def json_summary(rows: Sequence[Row], changes: Sequence[Difference] = ()) -> str:
    """Return all fields of the rows as JSON; units are in their names, or in the docstrings of Row and Difference."""
    results = [asdict(row) for row in rows]
    differences = [asdict(change) | {"speedup": change.speedup} for change in changes]
    return json_text({"schema": SCHEMA, "version": VERSION, "results": results, "differences": differences})


def csv_summary(rows: Sequence[Row], changes: Sequence[Difference] = ()) -> dict[str, str]:
    """Return CSV tables by file name: time_to_train.csv, throughput.csv, differences.csv."""
    texts = {}
    for scaling, name in ((STRONG, "time_to_train.csv"), (WEAK, "throughput.csv")):
        columns = CSV_COLUMNS[scaling]
        found = [[_csv_value(row, field) for field in columns.values()] for row in rows if row.scaling == scaling]
        if found:
            texts[name] = csv_text(tuple(columns), found)
    if changes:
        cells = [[_csv_value(change, field) for field in CSV_DIFFERENCES] for change in changes]
        texts["differences.csv"] = csv_text(CSV_DIFFERENCES, cells)
    return texts


# -- what is shown -----------------------------------------------------------------------------------------


def _tables(rows: Sequence[Row], changes: Sequence[Difference]) -> list[TextTable]:
    """Return a table for each round and kind of scaling, and one of the differences to the previous round."""
    tables = []
    for round_, scaling in dict.fromkeys((row.round, row.scaling) for row in rows):
        found = [row for row in rows if (row.round, row.scaling) == (round_, scaling)]
        headings = (*NAMES, *SIZE, *SCORES[scaling], ("staging", "min"), WITH_STAGING[scaling], *ENDING)
        rows_ = [(*_leading_cells(row), *row.staging_cells, *_ending(row)) for row in found]
        columns = [
            aligned(column, 0 if name == "energy" else 2)
            for (name, _), column in zip(headings, zip(*rows_, strict=True), strict=True)
        ]
        cells = tuple(zip(*columns, strict=True))
        numeric = tuple(heading not in NAMES for heading in headings)
        groups = tuple(f"{_benchmark(row)}, {clean(row.division)}" for row in found)
        tables.append(TextTable(f"Round {round_}. {TITLES[scaling]}", headings, cells, numeric, groups).without_empty())
    return tables + ([_difference_table(changes)] if changes else [])


def _legend(rows: Sequence[Row]) -> list[str]:
    """Return what the columns and signs of the tables mean; nothing in it is markup."""
    found = [EXPLANATION]
    found += [CLOCKS] if any(matters(row.staging_minutes) for row in rows) else []
    found += [WHOLE] if any(row.states_whole_system for row in rows) else []
    found += [MINI] if any(row.mini for row in rows) else []
    return found


def _remarks(rows: Sequence[Row]) -> list[str]:
    """Return what is particular about single results: missing runs, waivers and bypasses."""
    found = []
    for row in rows:
        name = clean("/".join(filter(None, (row.organisation, row.system, row.scaling, row.benchmark))))
        if row.incomplete:
            found.append(f"INCOMPLETE: {name} has {row.incomplete}")
        if row.waiver:
            found.append(f"waived: {name} fails the convergence test, which does not count: {clean(row.waiver)}")
        elif row.bypass:
            found.append(f"bypass: {name} fails the convergence test; the submitter asked for it ({clean(row.bypass)})")
    return found


def _csv_value(row: Row | Difference, field: str) -> object:
    value = getattr(row, field)
    return " ".join(map(repr, value)) if isinstance(value, tuple) else value


def _difference_table(changes: Sequence[Difference]) -> TextTable:
    """Return the table of the best scores; where a score lacks its staging, with those that the speed-up compares."""
    apart = any((one.before, one.now) != (one.before_with_staging, one.now_with_staging) for one in changes)
    cells = tuple(
        (
            clean(change.organisation),
            change.scaling,
            *(scores if apart else scores[:2]),
            "–" if change.speedup is None else f"{change.speedup:.2f}×",
        )
        for change, scores in zip(changes, _compared_scores(changes), strict=True)
    )
    names = ("organisation", "scaling", "before", "now", *(("before+", "now+") if apart else ()), "speed-up")
    headings = tuple((name, "staging" if name.endswith("+") else "") for name in names)
    numeric = tuple(at > 1 for at in range(len(names)))
    groups = tuple(f"{_benchmark(change)}, {clean(change.division)}" for change in changes)
    title = f"Best passing score, now and in the previous round; speed-up{' (both with staging)' if apart else ''}"
    return TextTable(title, headings, cells, numeric, groups)


def _compared_scores(changes: Sequence[Difference]) -> list[tuple[str, ...]]:
    """Return the scores before and now, and both with staging, with equal decimals for each unit."""
    values = [(one.before, one.now, one.before_with_staging, one.now_with_staging) for one in changes]
    by_unit: dict[str, list[float | None]] = {}
    for one, scores in zip(changes, values, strict=True):
        by_unit.setdefault(one.unit, []).extend(scores)
    numbers = {unit: iter(aligned(scores)) for unit, scores in by_unit.items()}
    return [
        tuple(
            f"{number} {one.unit}{' (waived)' if waived else ''}" if (number := next(numbers[one.unit])) else "–"
            for waived in (one.before_waived, one.now_waived, False, False)
        )
        for one in changes
    ]


def _benchmark(shown: Row | Difference) -> str:
    return clean(shown.benchmark) + (" (mini)" if shown.mini else "")


def _leading_cells(row: Row) -> tuple[str | float | None, ...]:
    """Return the cells of NAMES, SIZE and SCORES."""
    units = plain(row.accelerators or row.processors)
    names = row.verdict, clean(row.organisation), clean(row.system), units, plain(row.batch_size)
    time = "–" if row.minutes is None else row.minutes
    if row.scaling == WEAK:
        instance = ("~" if row.states_whole_system else "") + plain(row.instance_scale)
        return (*names, plain(row.models), instance, time, row.models_per_minute, row.normalised)
    return (*names, time, row.normalised, row.scaled)


def _ending(row: Row) -> tuple[str | float | None, ...]:
    star = "" if row.convergence_unit == "epochs" else "*"
    state = row.rcp.partition(":")[0].partition(" ")[0]
    return (
        f"{row.convergence:,.0f}{star}" if row.convergence is not None and star else row.convergence,
        f"×{row.rcp_factor:.3f}" if row.rcp_factor and row.rcp_factor > 1 else state,
        None if row.energy_joules is None else row.energy_joules / 1000,
        f"{row.runs}/{row.required_runs}" if row.required_runs and row.scaling == STRONG else str(row.runs),
    )


def table_text(report: Report, width: int | None = None) -> str:
    """Return the tables of a report in lines of at most `width` characters; None: nothing is cut."""
    return plain_summary(rows(report), width=width)
