"""The columns of results and of runs: key, heading, meaning, value and cell, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from common.command import clean
from common.rounds import label_round
from common.values import is_number
from compliance.formats.table import Column, TextTable, plain_text
from compliance.formats.words import plain
from compliance.model.layout import STRONG, WEAK
from submission.results.operations import Operations
from submission.results.quantity_tables import format_number
from submission.results.rows import Row

Item = TypeVar("Item", Row, Operations)


def _make_column(key: str, meaning: str, name: str = "", unit: str = "", **options: Any) -> Column[Any]:
    """Return the column of a value: of the field `key` where `value` is not given.

    show: turns the value into the cell, `_show_value` by default; cell: makes it from the whole item.
    """
    value, show = options.pop("value", attrgetter(key)), options.pop("show", _show_value)
    cell = options.pop("cell", lambda item: show(value(item)))
    return Column(name or key, unit, cell, key=key, meaning=meaning, value=value, **options)


_text: Final = partial(_make_column, numeric=False)


def _make_rate(key: str, meaning: str, name: str, unit: str = "", **options: Any) -> Column[Row]:
    """Return the column of a field of `ResultOperations`."""
    return _make_column(key, meaning, name, unit, value=attrgetter(f"operations.{key}"), **options)


def _show_value(value: Any) -> str | float | None:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, tuple):
        return ", ".join(part if isinstance(part, str) else format_number(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else ""
    return plain(value) if is_number(value) else clean(value)


def _skip_none(show: Callable[[Any], str | float]) -> Callable[[Any], str | float | None]:
    return lambda value: None if value is None else show(value)


GFLOP: Final = _skip_none(lambda flop: format_number(flop / 1e9))
TFLOPS: Final = _skip_none(lambda rate: format_number(rate / 1e12))
PERCENT: Final = _skip_none(lambda share: 100 * share)


def _show_convergence(row: Row) -> str | float | None:
    marks = {"samples": "*", "tokens": "**"}.get(row.convergence_unit)
    return row.convergence if row.convergence is None or marks is None else f"{row.convergence:,.0f}{marks}"


def _show_rcp(row: Row) -> str:
    if row.rcp_factor and row.rcp_factor > 1:
        return f"×{row.rcp_factor:.3f}"
    return row.rcp.partition(":")[0].partition(" ")[0]


def _by_key(*columns: Column[Any]) -> dict[str, Column[Any]]:
    return {column.key: column for column in columns}


CSV_COLUMNS: Final[dict[str, Column[Row]]] = _by_key(
    _text("round", "round of the rules", show=label_round),
    _text("organisation", "who submits"),
    _text("division", "closed or open"),
    _text("availability", "status of the system"),
    _text("system", "name of the system"),
    _make_column("nodes", "nodes of the system"),
    _text("processor", "model of the host processors"),
    _make_column("processors", "host processors of the system"),
    _text("accelerator", "model of the accelerators"),
    _make_column("accelerators", "accelerators (GPUs) of the system"),
    _text("framework", "framework, by the system description"),
    _text("benchmark", "name of the benchmark"),
    _text("mini", "on a mini problem, no MLPerf result"),
    _make_column("batch_size", "global batch size, samples", "batch", "size", show=plain),
    _make_column("models", "models trained at once that count"),
    _make_column(
        "instance_scale",
        "units of a model",
        "per",
        "model",
        cell=lambda row: ("~" if row.states_whole_system else "") + plain(row.instance_scale),
    ),
    _make_column(
        "minutes",
        "time to train; of a throughput result from the first start to the last stop, min",
        "TTT",
        "min",
        show=lambda minutes: "–" if minutes is None else minutes,
    ),
    _make_column("models_per_minute", "throughput, not normalised, models/min", "models", "/min"),
    _make_column("normalised", "time to train, min, or throughput, models/min, by RCP", "norm.", "min"),
    _make_column(
        "scaled",
        "time to train by the committee's factor in scaling.json, min",
        "scaled",
        "min",
    ),
    _make_column(
        "convergence",
        "to the target, as logged, mean without fewest and most; * means samples",
        "epochs",
        cell=_show_convergence,
    ),
    _text("convergence_unit", "what convergence counts: epochs, samples or tokens", "counts"),
    _make_column(
        "rcp",
        "convergence compared with the reference, or its factor if above 1",
        "RCP",
        cell=_show_rcp,
    ),
    _make_column("rcp_factor", "factor of RCP on the score", "RCP", "factor", decimals=3),
    _text("waiver", "why a failed convergence test does not count"),
    _text("bypass", "the line that asks to leave a failed convergence test out"),
    _make_column(
        "staging_minutes",
        "staging in or out of the time, mean without shortest and longest, min",
        "staging",
        "min",
        cell=lambda row: row.staging_cells[0],
    ),
    _make_column(
        "energy_joules",
        "energy of a run, or of all models, kJ",
        "energy",
        "kJ",
        show=_skip_none(lambda joules: joules / 1000),
        decimals=0,
    ),
    _make_column(
        "runs",
        "runs, of those required",
        cell=lambda row: (
            f"{row.runs}/{row.required_runs}"
            if row.required_runs and row.scaling == STRONG and not row.not_judged
            else str(row.runs)
        ),
    ),
    _make_column("required_runs", "runs that a result needs", "required"),
    _text("incomplete", "how many runs are missing"),
    _text("not_judged", "why logs were not judged as a result"),
    _text("folder", "folder of logs outside of submissions, and what tells them from others there", "logs in"),
    _make_column("run_minutes", "times of the runs that count, min", "runs", "min"),
    _text("verdict", "PASS, WARN, INCOMPLETE or FAIL of the result with its logs, NOT JUDGED of logs that are none"),
    _text("staging_clock", "where the staging lies: in the time or out of it", "clock"),
    _make_column(
        "time_with_staging_minutes",
        "the time with all staging, where it lacks some, min",
        "TTT+",
        "staging",
        cell=lambda row: row.staging_cells[1],
    ),
    _make_column("time_without_staging_minutes", "the time without any staging, min", "TTT-", "staging"),
    _text("plugin", "that the benchmark is not one of MLPerf, and its origin"),
)
"""The columns of a CSV file of results, by key; some are of one kind of scaling."""
ONLY: Final = {STRONG: {"scaled"}, WEAK: {"models", "instance_scale", "models_per_minute"}}
CSV_NAMES: Final[dict[str, dict[str, str]]] = {
    STRONG: {
        "minutes": "time_to_train_minutes",
        "normalised": "normalised_minutes",
        "scaled": "scaled_minutes",
    },
    WEAK: {
        "minutes": "time_to_train_all_minutes",
        "normalised": "normalised_models_per_minute",
    },
}
"""Their names in the file where these are not the keys."""
RESULT_COLUMNS: Final = CSV_COLUMNS | _by_key(
    _text(
        "states",
        "what the committee decided or was asked: waived, bypass asked for, pruned",
        "state",
    ),
    _text("scaling", "strong: time to train; weak: throughput"),
    _make_column("units", "accelerators, or processors of a system without", show=plain),
    _make_column("score", "time to train, min, or throughput, models/min; normalised where RCP passed"),
    _make_column("score_with_staging", "the score if all staging were in the time", "score+", "staging"),
    _make_rate(
        "flops",
        "FLOP of training by its time; throughput: sum over instances, TFLOPS",
        "training",
        "TFLOPS",
        show=TFLOPS,
    ),
    _make_rate(
        "sustained_flops",
        "FLOP by the time of the runs; throughput: sum over instances, TFLOPS",
        "sustained",
        "TFLOPS",
        show=TFLOPS,
    ),
    _make_rate(
        "vflops",
        "training FLOPS by the quality that was reached, TFLOPS",
        "valid",
        "TFLOPS",
        show=TFLOPS,
    ),
    _make_rate(
        "utilization",
        "FLOP of all accepted runs by the peak of the system in their time (TTTa), %",
        "util.",
        "%",
        show=PERCENT,
        decimals=1,
    ),
    _make_rate(
        "training_utilization",
        "training FLOPS, of instances at once, by the peak of the system, %",
        "train",
        "util. %",
        show=PERCENT,
        decimals=1,
    ),
    _make_rate("peak_format", "number format of the peak", "peak", "format", numeric=False),
    _make_rate("flop_source", "where the FLOP of a sample are from", "FLOP of", numeric=False),
    _make_rate("reason", "why FLOPS or utilization are missing", "no number because", numeric=False),
)
"""All columns of results by key."""
HEADINGS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    STRONG: {},
    WEAK: {
        "minutes": ("TTTa", "min"),
        "normalised": ("norm.", "/min"),
        "time_with_staging_minutes": ("TTTa+", "staging"),
        "time_without_staging_minutes": ("TTTa-", "staging"),
    },
}
"""The headings that a kind of scaling has for itself."""
RUN_COLUMNS: Final[dict[str, Column[Operations]]] = _by_key(
    _text("verdict", "PASS, WARN or FAIL of the log"),
    _text(
        "result_verdict",
        "PASS, WARN, INCOMPLETE or FAIL of the result with its logs, NOT JUDGED without one",
        "result",
    ),
    _text("log", "file of the run"),
    *(RESULT_COLUMNS[key] for key in ("round", "benchmark", "mini")),
    _text("workload", "name of the network in workloads.yaml"),
    _make_column(
        "training_flop",
        "operations of a sample that is trained, GFLOP",
        "sample",
        "GFLOP",
        show=GFLOP,
    ),
    _make_column(
        "forward_flop",
        "operations of a sample that is evaluated, GFLOP",
        "eval.",
        "GFLOP",
        show=GFLOP,
    ),
    _make_column(
        "samples",
        "samples trained up to the last evaluation",
        "samples",
        "trained",
        show=_skip_none(plain),
    ),
    _make_column("evaluated", "samples of all evaluations", "samples", "eval.", show=_skip_none(plain)),
    _make_column(
        "train_minutes",
        "time of epochs without evaluations, min",
        "T_train",
        "min",
        show=format_number,
    ),
    _make_column("run_minutes", "from run_start to run_stop, min", "run", "min", show=format_number),
    _make_column("flops", "FLOP of training by T_train, TFLOPS", "training", "TFLOPS", show=TFLOPS),
    _make_column(
        "sustained_flops",
        "FLOP by the time of the run, TFLOPS",
        "sustained",
        "TFLOPS",
        show=TFLOPS,
    ),
    _make_column("quality", "of the last evaluation", show=format_number),
    _make_column("target", "quality target", show=_skip_none("{:g}".format)),
    _make_column("n", "exponent of VFLOPS", show=_skip_none("{:g}".format)),
    _make_column(
        "vflops",
        "training FLOPS by the quality that was reached, TFLOPS",
        "valid",
        "TFLOPS",
        show=TFLOPS,
    ),
    _text("reason", "why numbers are missing", "no number because"),
    RESULT_COLUMNS["plugin"],
)
"""The columns of runs by key."""
_LAST = "staging_minutes time_with_staging_minutes convergence rcp utilization energy_joules runs states"
SHOWN: Final = {
    STRONG: f"verdict organisation system folder units batch_size minutes normalised scaled {_LAST}".split(),
    WEAK: "verdict organisation system folder units batch_size models instance_scale minutes models_per_minute "
    f"normalised {_LAST}".split(),
}
"""The columns of a table of results where users name none."""
SHOWN_OF_RUNS: Final = (
    "verdict result_verdict log samples train_minutes flops sustained_flops quality target n vflops reason".split()
)


def find_column(name: str, columns: Mapping[str, Column[Any]]) -> str:
    """Return the key of a column that is named by it or by a heading, in any letter case; the name if there is none."""
    headings = {heading: key for names in (*HEADINGS.values(),) for key, (heading, _) in names.items()}
    headings |= {heading: key for names in CSV_NAMES.values() for key, heading in names.items()}
    for key, column in columns.items():
        headings |= {f"{column.name} {column.unit}": key, column.name: key}
    by_name = {heading.lower(): key for heading, key in headings.items()} | {key.lower(): key for key in columns}
    return by_name.get(name.lower(), name)


def pick_columns(columns: Mapping[str, Column[Item]], keys: Sequence[str], usual: Sequence[str]) -> list[Column[Item]]:
    """Return the columns with these keys, those of `usual` if there are none."""
    return [columns[key] for key in keys if key in columns] or [columns[key] for key in usual]


def list_columns(width: int | None = None) -> str:
    """Return the keys and meanings of all columns."""
    kinds: dict[str, dict[str, Column[Any]]] = {
        "of results": RESULT_COLUMNS,
        "of runs (--runs)": RUN_COLUMNS,
    }
    lines = [(kind, column) for kind, columns in kinds.items() for column in columns.values()]
    rows = tuple((column.key, f"{column.name} {column.unit}", column.meaning) for _, column in lines)
    headings, groups = (("name", ""), ("heading", ""), ("meaning", "")), tuple(kind for kind, _ in lines)
    return plain_text(TextTable("Columns", headings, rows, (False,) * 3, groups), width) + "\n"


def sort_rows(items: Sequence[Item], columns: Mapping[str, Column[Item]], key: str) -> list[Item]:
    """Return rows or runs by a column (`-key`: descending) within their groups; those without a value are last.

    They stay as they are if they have no such column.
    """
    if key.removeprefix("-") not in columns:
        return list(items)
    value = columns[key.removeprefix("-")].value
    filled = [item for item in items if value(item) not in (None, "", ())]
    ordered = sorted(filled, key=value, reverse=key.startswith("-"))
    ordered += [item for item in items if value(item) in (None, "", ())]
    return sorted(ordered, key=lambda item: item.table_order)
