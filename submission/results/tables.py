"""Write the tables of results and of runs as text, Markdown, JSON or CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from common.command import clean
from common.rounds import label_round
from common.version import VERSION
from compliance.formats.json import json_text
from compliance.formats.markdown import escaped, markdown_text
from compliance.formats.table import Column, TextTable, make_table, plain_text, wrap_notes
from compliance.formats.words import matters, minutes
from compliance.model.judging import NOT_A_RESULT
from compliance.model.layout import STRONG, WEAK
from submission.results.columns import (
    CSV_COLUMNS,
    CSV_NAMES,
    GFLOP,
    HEADINGS,
    ONLY,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SHOWN,
    SHOWN_OF_RUNS,
    pick_columns,
)
from submission.results.csv_files import csv_text
from submission.results.operations import Operations
from submission.results.rows import Difference, Row, mark_benchmark

FILES: Final = {STRONG: "time_to_train.csv", WEAK: "throughput.csv"}
# -- texts -------------------------------------------------------------------------------------------------

TITLES: Final = {
    STRONG: "Time to train{}: TTT is the mean without the fastest and the slowest run",
    WEAK: "Throughput{}: models trained at once, TTTa from the first start to the last stop",
}
EXPLANATION: Final = (
    "units: accelerators, or processors of a system without; epochs: to the target, as logged, * means samples; "
    "RCP: convergence compared with the reference, or its factor on the score if above 1"
)
CLOCKS: Final = (
    "staging: minutes in or out of the time (TTT, TTTa), of TTT the mean without the shortest and the longest: up to "
    "round 2.0 the time contains staging, in 3.0 it need not; compare results by the time with staging"
)
TOKENS: Final = "**: tokens, in place of epochs"
WHOLE: Final = "~: the logs state the whole system; this is its accelerators by the instances at once"
MINI: Final = "(mini): a result on a mini problem, not an MLPerf result"
PLUGIN: Final = "(not MLPerf): a benchmark from outside the suite, not one of MLPerf"
UTILIZATION: Final = (
    "util.: FLOP of training and evaluation by the peak of all units of the system in the format named by the column "
    "peak_format, over the time of all accepted runs (TTT leaves out two), of a throughput result over TTTa; the FLOP "
    "are counted, not measured (docs/guide/analyse.md)"
)
CONVENTION: Final = (
    "FLOP: 1 multiply-add = 2, of convolutions and products alone: as the log states them of its network, else of the "
    "reference model (submission/results/workloads.yaml), while an open result may have trained another"
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

CSV_DIFFERENCES: Final = (
    "organisation benchmark mini division scaling before now unit speedup before_with_staging now_with_staging "
    "before_waived now_waived plugin".split()
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What is shown: results, their changes since the previous round, and runs; in chosen columns, by key, if any.

    not_looked_at: sentences on files, and on logs that were not judged as a result.
    """

    rows: Sequence[Row]
    changes: Sequence[Difference] = ()
    runs: Sequence[Operations] = ()
    columns: Sequence[str] = ()
    not_looked_at: Sequence[str] = ()

    def format_text(self, width: int | None = None) -> str:
        """Return tables and notes in lines of at most `width` characters; None: nothing is cut."""
        remarks = (*_list_remarks(self.rows, self.runs), *self.not_looked_at)
        notes = wrap_notes((*_list_legend(self.rows, self.runs), *remarks), width)
        return "\n\n".join([*(plain_text(table, width) for table in self._make_tables()), notes]) + "\n"

    def format_markdown(self) -> str:
        """Return the same tables and notes as Markdown."""
        notes = (
            *_list_legend(self.rows, self.runs),
            *map(escaped, (*_list_remarks(self.rows, self.runs), *self.not_looked_at)),
        )
        return (
            "\n\n".join(
                [
                    *map(markdown_text, self._make_tables()),
                    "\n".join(f"- {note}" for note in notes),
                ]
            )
            + "\n"
        )

    def format_json(self) -> str:
        """Return all fields as JSON; units are in their names, or in the docstrings of the records."""
        document: dict[str, object] = {
            "schema": 1,
            "version": VERSION,
            "results": [asdict(row) for row in self.rows],
            "differences": [asdict(change) | {"speedup": change.speedup} for change in self.changes],
            "not_looked_at": self.not_looked_at,
        }
        return json_text(document | ({"convention": CONVENTION, "runs": _list_records(self.runs)} if self.runs else {}))

    def format_csv(self) -> dict[str, str]:
        """Return CSV tables by file name: time_to_train.csv, throughput.csv, differences.csv, runs.csv."""
        tables: dict[str, tuple[Sequence[str], list[list[object]]]] = {}
        for scaling, name in FILES.items():
            keys = [key for key in self.columns if key in RESULT_COLUMNS]
            keys = keys or [key for key in CSV_COLUMNS if key not in ONLY[WEAK if scaling == STRONG else STRONG]]
            rows = [row for row in self.rows if row.scaling == scaling]
            lines = [[_csv_value(RESULT_COLUMNS[key], row) for key in keys] for row in rows]
            tables[name] = [CSV_NAMES[scaling].get(key, key) for key in keys], lines
        changes = [[getattr(change, field) for field in CSV_DIFFERENCES] for change in self.changes]
        tables["differences.csv"] = CSV_DIFFERENCES, changes
        records = _list_records(self.runs)
        keys = [key for key in self.columns if key in RUN_COLUMNS] or list(records[0] if records else ())
        tables["runs.csv"] = keys, [[record[key] for key in keys] for record in records]
        return {name: csv_text(head, lines) for name, (head, lines) in tables.items() if lines}

    def _make_tables(self) -> list[TextTable]:
        """Return a table for each round and kind of scaling, one of differences to the previous round, one of runs."""
        tables = []
        for round_, scaling, kind in dict.fromkeys((row.round, row.scaling, row.kind_of_scaling) for row in self.rows):
            rows = [row for row in self.rows if (row.round, row.scaling) == (round_, scaling)]
            picked = pick_columns(RESULT_COLUMNS, self.columns, SHOWN[scaling])
            headed = ((column, HEADINGS[scaling].get(column.key, column[:2])) for column in picked)
            columns = [column._replace(name=name, unit=unit) for column, (name, unit) in headed]
            groups = [f"{_name_benchmark(row)}, {clean(row.division)}" for row in rows]
            title = TITLES[scaling].format(f" ({kind} scaling)" if kind else "")
            table = make_table(f"Round {label_round(round_)}. {title}", columns, rows, groups)
            tables.append(table if self.columns else table.without_empty())
        tables += [_difference_table(self.changes)] if self.changes else []
        return tables + ([_run_table(self.runs, self.columns)] if self.runs else [])


def _csv_value(column: Column[Row], row: Row) -> object:
    """Return the value; several numbers are one text."""
    value = column.value(row)
    return " ".join(map(repr, value)) if isinstance(value, tuple) else value


def _list_records(runs: Sequence[Operations]) -> list[dict[str, object]]:
    return [asdict(run) | {"note": _explain_run(run)} for run in runs]


# -- what is shown -----------------------------------------------------------------------------------------


def _run_table(runs: Sequence[Operations], keys: Sequence[str]) -> TextTable:
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(run.log)) for run in runs])
    log = RUN_COLUMNS["log"]._replace(cell=lambda run: clean(os.path.relpath(run.log, folder)))
    columns = pick_columns(RUN_COLUMNS | {"log": log}, keys, SHOWN_OF_RUNS)
    title = (
        f"FLOPS of runs below {clean(folder)}: floating point operations per second, on the units of the run (of a "
        "throughput result: of one instance)"
    )
    table = make_table(title, columns, runs, [_name_group(run) for run in runs])
    return table if keys else table.without_empty()


def _name_group(run: Operations) -> str:
    """Return the heading above the runs of a benchmark, with the FLOP of a sample if they are known."""
    name = f"{_name_benchmark(run)}, round {label_round(run.round)}"
    if run.training_flop is None or run.forward_flop is None:
        return name
    return f"{name}: {GFLOP(run.training_flop)} GFLOP for a sample trained, {GFLOP(run.forward_flop)} evaluated"


def _explain_run(run: Operations) -> str:
    """Return what must be known to compare the numbers of a run, "" if they need no explanation."""
    return NOTE_ON_GRAPHS if run.benchmark == "oc20" and run.flops is not None else ""


def _list_legend(rows: Sequence[Row], runs: Sequence[Operations]) -> list[str]:
    """Return what the columns and signs of the tables mean; nothing in it is markup."""
    items: list[Row | Operations] = [*rows, *runs]
    applies = {
        EXPLANATION: bool(rows),
        TOKENS: any(row.convergence_unit == "tokens" for row in rows),
        CLOCKS: any(matters(row.staging_minutes) for row in rows),
        WHOLE: any(row.states_whole_system for row in rows),
        UTILIZATION: any(row.operations.utilization for row in rows),
        MINI: any(item.mini for item in items),
        PLUGIN: any(item.plugin for item in items),
    }
    return [text for text, is_needed in applies.items() if is_needed]


def _list_remarks(rows: Sequence[Row], runs: Sequence[Operations]) -> list[str]:
    """Return what is particular about results: own code, missing runs, waivers, bypasses; and how runs are counted."""
    remarks = []
    for row in rows:
        path = "/".join(filter(None, (row.organisation, row.system, row.kind_of_scaling, row.benchmark)))
        name = clean(f"{path} in {row.folder}" if row.folder else path)
        if row.own_code:
            remarks.append(f"not the reference: {name} was computed with {clean(row.own_code)}")
        if row.incomplete:
            remarks.append(f"{row.verdict}: {name} has {row.incomplete}")
        if row.not_judged:
            remarks.append(f"{NOT_A_RESULT}: {name}: {row.not_judged}")
        if row.waiver:
            remarks.append(f"waived: {name} fails the convergence test, which does not count: {clean(row.waiver)}")
        elif row.bypass:
            remarks.append(
                f"bypass: {name} fails the convergence test; the submitter asked for it ({clean(row.bypass)})"
            )
    notes = sorted({note for run in runs if (note := _explain_run(run))})
    return remarks + ([*NOTES_ON_RUNS, *notes] if runs else [])


def _difference_table(changes: Sequence[Difference]) -> TextTable:
    """Return the table of the best scores; where a score lacks its staging, with those that the speed-up compares."""
    apart = any((each.before, each.now) != (each.before_with_staging, each.now_with_staging) for each in changes)
    columns = [
        Column[Difference]("organisation", "", lambda each: clean(each.organisation), numeric=False),
        Column[Difference]("scaling", "", lambda each: each.scaling, numeric=False),
        Column[Difference]("before", "", lambda each: _format_score(each, each.before, each.before_waived)),
        Column[Difference]("now", "", lambda each: _format_score(each, each.now, each.now_waived)),
        Column[Difference]("before+", "staging", lambda each: _format_score(each, each.before_with_staging)),
        Column[Difference]("now+", "staging", lambda each: _format_score(each, each.now_with_staging)),
        Column[Difference](
            "speed-up",
            "",
            lambda each: "–" if each.speedup is None else f"{each.speedup:.2f}×",
        ),
    ]
    columns[4:6] = columns[4:6] if apart else []
    return make_table(
        f"Best passing score, now and in the previous round; speed-up{' (both with staging)' if apart else ''}",
        columns,
        changes,
        [f"{_name_benchmark(each)}, {clean(each.division)}" for each in changes],
    )


def _format_score(change: Difference, score: float | None, waived: bool = False) -> str:
    return "–" if score is None else f"{minutes(score)} {change.unit}{' (waived)' if waived else ''}"


def _name_benchmark(item: Row | Difference | Operations) -> str:
    return clean(mark_benchmark(item.benchmark or "unknown benchmark", item.mini, item.plugin))
