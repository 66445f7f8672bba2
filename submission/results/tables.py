"""Write the tables of results and of runs as text, Markdown, JSON or CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from common.command import clean
from common.version import VERSION
from compliance.formats.json import json_text
from compliance.formats.markdown import escaped, markdown_text
from compliance.formats.table import TextTable, csv_text, make_table, plain_text, wrap_notes
from compliance.formats.words import aligned, matters
from compliance.model.layout import STRONG, WEAK
from compliance.model.report import Report
from submission.results.columns import (
    GFLOP,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SHOWN,
    SHOWN_OF_RUNS,
    WEAK_HEADINGS,
    pick_columns,
)
from submission.results.operations import Operations
from submission.results.read_rows import rows
from submission.results.rows import Difference, Row

SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""
# -- texts -------------------------------------------------------------------------------------------------

TITLES: Final = {
    STRONG: "Time to train (strong scaling): TTT is the mean without the fastest and the slowest run",
    WEAK: "Throughput (weak scaling): models trained at once, TTTa from the first start to the last stop",
}
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
TITLE_OF_RUNS: Final = (
    "FLOPS of runs: floating point operations per second, on the units of the run (of a throughput result: of one "
    "instance)"
)
CONVENTION: Final = (
    "FLOP: 1 multiply-add = 2, of convolutions and products alone, counted from the reference model at full size "
    "(submission/results/cost_model/workloads.yaml); an open result may have trained another model"
)
NOTES_ON_RUNS: Final = (
    CONVENTION,
    "training: FLOP of training * samples trained / T_train, the time of epochs without evaluations",
    "sustained: FLOP of training and evaluation / (run_stop - run_start)",
    "valid: VFLOPS = training * (achieved / target)^n, target / achieved where lower is better; as published, a "
    "quality better than the target makes it larger than training",
)
NOTE_ON_GRAPHS: Final = (
    "oc20: FLOP of the published algorithm with its list of triplets; this suite's network makes about a tenth less "
    "(fom.json states those made)"
)

IDENTITY: Final = (
    *("round", "organisation", "division", "availability", "system", "nodes", "processor", "processors"),
    *("accelerator", "accelerators", "framework", "benchmark", "mini", "batch_size"),
)
OUTCOME: Final = (
    *("convergence", "convergence_unit", "rcp", "rcp_factor", "waiver", "bypass", "staging_minutes", "energy_joules"),
    *("runs", "required_runs", "incomplete", "run_minutes", "verdict"),
    *("staging_clock", "time_with_staging_minutes", "time_without_staging_minutes"),
)
FILES: Final = {STRONG: "time_to_train.csv", WEAK: "throughput.csv"}
CSV_COLUMNS: Final = {
    STRONG: {
        **{key: key for key in IDENTITY},
        **{"time_to_train_minutes": "minutes", "normalised_minutes": "normalised", "scaled_minutes": "scaled"},
        **{key: key for key in OUTCOME},
    },
    WEAK: {
        **{key: key for key in (*IDENTITY, "models", "instance_scale")},
        **{"time_to_train_all_minutes": "minutes", "models_per_minute": "models_per_minute"},
        **{"normalised_models_per_minute": "normalised"},
        **{key: key for key in OUTCOME},
    },
}
"""Headings of the CSV file of each kind of scaling, with units, and the keys of the columns."""
CSV_DIFFERENCES: Final = (
    *("organisation", "benchmark", "mini", "division", "scaling", "before", "now", "unit", "speedup"),
    *("before_with_staging", "now_with_staging", "before_waived", "now_waived"),
)


def plain_summary(
    rows: Sequence[Row],
    changes: Sequence[Difference] = (),
    width: int | None = None,
    runs: Sequence[Operations] = (),
    columns: Sequence[str] = (),
) -> str:
    """Return tables and notes in lines of at most `width` characters; None: nothing is cut. columns: by key."""
    notes = wrap_notes((*_legend(rows), *_remarks(rows, runs)), width)
    tables = _tables(rows, changes, runs, columns)
    return "\n\n".join([*(plain_text(table, width) for table in tables), notes]) + "\n"


def markdown_summary(
    rows: Sequence[Row],
    changes: Sequence[Difference] = (),
    runs: Sequence[Operations] = (),
    columns: Sequence[str] = (),
) -> str:
    """Return the same tables and notes as Markdown."""
    lines = "\n".join(f"- {note}" for note in (*_legend(rows), *map(escaped, _remarks(rows, runs))))
    return "\n\n".join([*map(markdown_text, _tables(rows, changes, runs, columns)), lines]) + "\n"


def json_summary(rows: Sequence[Row], changes: Sequence[Difference] = (), runs: Sequence[Operations] = ()) -> str:
    """Return all fields as JSON; units are in their names, or in the docstrings of the records."""
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": VERSION,
        "results": [asdict(row) for row in rows],
        "differences": [asdict(change) | {"speedup": change.speedup} for change in changes],
    }
    return json_text(document | ({"convention": CONVENTION, "runs": _run_records(runs)} if runs else {}))


def csv_summary(
    rows: Sequence[Row],
    changes: Sequence[Difference] = (),
    runs: Sequence[Operations] = (),
    columns: Sequence[str] = (),
) -> dict[str, str]:
    """Return CSV tables by file name: time_to_train.csv, throughput.csv, differences.csv, runs.csv."""
    texts = {}
    for scaling, name in FILES.items():
        keys = {key: key for key in columns if key in RESULT_COLUMNS} or CSV_COLUMNS[scaling]
        rows_of = [row for row in rows if row.scaling == scaling]
        if rows_of:
            texts[name] = csv_text(
                tuple(keys), [[_csv_value(RESULT_COLUMNS[key].value(row)) for key in keys.values()] for row in rows_of]
            )
    if changes:
        cells = [[getattr(change, field) for field in CSV_DIFFERENCES] for change in changes]
        texts["differences.csv"] = csv_text(CSV_DIFFERENCES, cells)
    if runs:
        records = _run_records(runs)
        fields = [key for key in columns if key in RUN_COLUMNS] or list(records[0])
        texts["runs.csv"] = csv_text(fields, [[record[key] for key in fields] for record in records])
    return texts


def _csv_value(value: object) -> object:
    """Return the value; several numbers are one text."""
    return " ".join(map(repr, value)) if isinstance(value, tuple) else value


def _run_records(runs: Sequence[Operations]) -> list[dict[str, object]]:
    return [asdict(run) | {"note": _explain_run(run)} for run in runs]


# -- what is shown -----------------------------------------------------------------------------------------


def _tables(
    rows: Sequence[Row], changes: Sequence[Difference], runs: Sequence[Operations], names: Sequence[str]
) -> list[TextTable]:
    """Return a table for each round and kind of scaling, one of differences to the previous round, one of runs."""
    tables = []
    for round_, scaling in dict.fromkeys((row.round, row.scaling) for row in rows):
        rows_of = [row for row in rows if (row.round, row.scaling) == (round_, scaling)]
        columns = pick_columns(RESULT_COLUMNS, names, SHOWN[scaling])
        if scaling == WEAK:
            headings = ((column, WEAK_HEADINGS.get(column.key)) for column in columns)
            columns = [column._replace(name=head[0], unit=head[1]) if head else column for column, head in headings]
        groups = [f"{_benchmark(row)}, {clean(row.division)}" for row in rows_of]
        table = make_table(f"Round {round_}. {TITLES[scaling]}", columns, rows_of, groups)
        tables.append(table if names else table.without_empty())
    tables += [_difference_table(changes)] if changes else []
    return tables + ([_run_table(runs, names)] if runs else [])


def _run_table(runs: Sequence[Operations], names: Sequence[str]) -> TextTable:
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(run.log)) for run in runs])
    log = RUN_COLUMNS["log"]._replace(cell=lambda run: clean(os.path.relpath(run.log, folder)))
    columns = pick_columns(RUN_COLUMNS | {"log": log}, names, SHOWN_OF_RUNS)
    table = make_table(TITLE_OF_RUNS, columns, runs, [_name_group(run) for run in runs])
    return table if names else table.without_empty()


def _name_group(run: Operations) -> str:
    """Return the heading above the runs of a benchmark, with the FLOP of a sample if they are known."""
    name = f"{clean(run.benchmark) or 'unknown benchmark'}{' (mini)' if run.mini else ''}, round {run.round}"
    if run.training_flop is None or run.forward_flop is None:
        return name
    return f"{name}: {GFLOP(run.training_flop)} GFLOP for a sample trained, {GFLOP(run.forward_flop)} evaluated"


def _explain_run(run: Operations) -> str:
    """Return what must be known to compare the numbers of a run, "" if they need no explanation."""
    return NOTE_ON_GRAPHS if run.benchmark == "oc20" and run.flops is not None else ""


def _legend(rows: Sequence[Row]) -> list[str]:
    """Return what the columns and signs of the tables mean; nothing in it is markup."""
    legend = [EXPLANATION] if rows else []
    legend += [CLOCKS] if any(matters(row.staging_minutes) for row in rows) else []
    legend += [WHOLE] if any(row.states_whole_system for row in rows) else []
    return legend + ([MINI] if any(row.mini for row in rows) else [])


def _remarks(rows: Sequence[Row], runs: Sequence[Operations]) -> list[str]:
    """Return what is particular about results: missing runs, waivers and bypasses; and how runs are counted."""
    remarks = []
    for row in rows:
        name = clean("/".join(filter(None, (row.organisation, row.system, row.scaling, row.benchmark))))
        if row.incomplete:
            remarks.append(f"INCOMPLETE: {name} has {row.incomplete}")
        if row.waiver:
            remarks.append(f"waived: {name} fails the convergence test, which does not count: {clean(row.waiver)}")
        elif row.bypass:
            asked = f"the submitter asked for it ({clean(row.bypass)})"
            remarks.append(f"bypass: {name} fails the convergence test; {asked}")
    notes = sorted({note for run in runs if (note := _explain_run(run))})
    return remarks + ([*NOTES_ON_RUNS, *notes] if runs else [])


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


def table_text(report: Report, width: int | None = None) -> str:
    """Return the tables of a report in lines of at most `width` characters; None: nothing is cut."""
    return plain_summary(rows(report), width=width)
