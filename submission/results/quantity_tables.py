"""The tables of the analysis: figure 5 of the paper, as text for a terminal and cells for the page.

The paper counts and averages otherwise than the score; its quantities have names of their own: T_run, E.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from common.command import clean
from common.rounds import label_round
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from compliance.model.judging import FAIL, INCOMPLETE
from compliance.model.layout import WEAK
from submission.results.quantities import LARGEST, AnalysedSet

WARM_UP: Final = {
    "opt_learning_rate_warmup_epochs": "epochs",
    "opt_learning_rate_warmup_steps": "steps",
    "scheduler_lr_warmup_steps": "steps",
}
"""Keys of a log for the warm-up, and in what they count it."""

Cell = Callable[[AnalysedSet], str]


def make_tables(sets: Sequence[AnalysedSet]) -> list[TextTable]:
    """Return the tables of one or more rounds: time to solution, parts of the time, throughput, convergence."""
    good = [result for result in sets if not result.problem]
    many = len({result.row.round for result in good}) > 1
    names: list[Column[AnalysedSet]] = []
    names += [Column("round", "", lambda result: label_round(result.row.round), numeric=False)] if many else []
    names += [Column("result", "", short_name, numeric=False)]
    groups = [result.marked_benchmark for result in good]
    tables = (make_table(title, (*names, *columns), good, groups) for title, columns in COLUMNS.items() if good)
    return [table.without_empty() for table in tables]


def short_name(result: AnalysedSet) -> str:
    """Return organisation and system, with what tells the result from a valid, closed time to train."""
    row = result.row
    marks = {
        "open": row.division == "open",
        "throughput": row.scaling == WEAK,
        row.verdict: row.verdict in (FAIL, INCOMPLETE),
        "waived": row.waiver,
        "bypass asked for": row.bypass and not row.waiver,
    }
    words = ", ".join(mark for mark, applies in marks.items() if applies)
    name = clean(f"{row.organisation} {row.system}".strip() or result.folder)
    return f"{name} ({words})" if words else name


def format_number(value: float | None, digits: int = 4) -> str:
    """Return a number with this many significant digits, thousands in full; "" for None."""
    if value is None:
        return ""
    if LARGEST > abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:#.{digits}g}"
    return text if "e" in text else text.removesuffix(".")


def format_share(value: float | None) -> str:
    """Return a share in per cent, "" for None."""
    return "" if value is None else f"{100 * value:.1f} %"


def _show_mean(name: str) -> Cell:
    return lambda result: format_number(result.mean(name))


def _show_spread(name: str) -> Cell:
    """Return mean and standard deviation, the latter with as many decimals as the mean."""

    def format_spread(result: AnalysedSet) -> str:
        statistics, mean = result.statistics.get(name), format_number(result.mean(name))
        if statistics is None or statistics.std is None:
            return mean
        return f"{mean} ± {statistics.std:.{len(mean.partition('.')[2])}f}"

    return format_spread


def _show_share(name: str) -> Cell:
    return lambda result: format_share(result.ratios.get(name))


def _show_ratio(name: str) -> Cell:
    return lambda result: format_number(result.ratios.get(name), 3)


def _show_stated(*keys: str) -> Cell:
    """Return the first of the hyperparameters that is logged; a warm-up with its unit."""

    def format_value(result: AnalysedSet) -> str:
        key = next((key for key in keys if result.hyperparameters.get(key) is not None), "")
        value = result.hyperparameters.get(key, "")
        text = f"{value:.4g}" if isinstance(value, float) else clean(str(value))[:24]
        return f"{text} {WARM_UP[key]}" if key in WARM_UP else text

    return format_value


def _per_unit(result: AnalysedSet) -> str:
    rate = result.mean("run_train_throughput")
    return format_number(rate / result.units if rate and result.units else None)


PARTS: Final = {
    "staging": "staging",
    "training": "train",
    "evaluation": "eval",
    "rest": "rest",
}
"""The part of the time of a run, and its name in a quantity."""
UNITS: Final = Column[AnalysedSet]("units", "", lambda result: result.units and plain(result.units))
BATCH: Final = Column[AnalysedSet]("batch", "size", lambda result: (size := result.row.batch_size) and plain(size))
EPOCHS: Final = Column("E", "epochs", _show_spread("run_stop_epoch"))
COLUMNS: Final[dict[str, tuple[Column[AnalysedSet], ...]]] = {
    "Time to solution: mean ± standard deviation of the runs that count by time": (
        UNITS,
        BATCH,
        Column[AnalysedSet]("runs", "", lambda result: f"{sum(r.kept for r in result.runs)}/{len(result.runs)}"),
        Column("T_run", "min", _show_spread("run_time")),
        EPOCHS,
        Column("epoch time", "min", _show_spread("run_epoch_time")),
        Column("budget", "unit h", _show_mean("run_compute_budget")),
        Column("energy", "kJ", _show_mean("run_energy")),
    ),
    "Where the time goes: means of the runs that count by time, and their shares of T_run": (
        *(Column(f"T_{name}", "min", _show_mean(f"run_{name}_time")) for part, name in PARTS.items() if part != "rest"),
        *(Column(part, "%", _show_share(f"{name}_time/run_time")) for part, name in PARTS.items()),
        Column("staging", "epochs", _show_ratio("staging_time/epoch_time")),
    ),
    "Throughput, harmonic means": (
        UNITS,
        Column("E", "1/min", _show_mean("run_epoch_throughput")),
        Column("training", "samples/min", _show_mean("run_train_throughput")),
        Column("per unit", "samples/min", _per_unit),
        Column("evaluation", "samples/min", _show_mean("run_eval_throughput")),
        Column("both", "samples/min", _show_mean("run_sample_throughput")),
        Column("staging", "samples/min", _show_mean("run_staging_throughput")),
    ),
    "Convergence: hyperparameters, E and steps; variation of E and epoch time": (
        Column("optimizer", "", _show_stated("opt_name"), numeric=False),
        Column("learning", "rate", _show_stated("opt_base_learning_rate", "opt_lr")),
        Column("warm-up", "", _show_stated(*WARM_UP), numeric=False),
        Column("weight", "decay", _show_stated("opt_weight_decay")),
        Column("dropout", "", _show_stated("dropout")),
        BATCH,
        Column("batch", "per unit", _show_ratio("batch_size/units")),
        EPOCHS,
        Column("steps", "", _show_mean("run_steps")),
        Column("samples", "", _show_mean("run_stop_samples")),
        Column(
            "1st comp.",
            "variance",
            lambda result: format_share(result.pca.explained if result.pca else None),
        ),
        Column(
            "correlation",
            "",
            lambda result: "" if not result.pca or result.pca.correlation is None else f"{result.pca.correlation:+.2f}",
        ),
    ),
}
"""The columns of each table by its title."""
