"""The tables of the analysis: figure 5 of the paper, as text for a terminal and cells for the page.

The paper counts and averages otherwise than the score; its quantities have names of their own: T_run, E.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from common.command import clean
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from compliance.model.finding import FAIL, INCOMPLETE
from compliance.model.layout import WEAK
from submission.results.quantities import LARGEST, AnalysedSet

WARM_UP: Final = {
    "opt_learning_rate_warmup_epochs": "epochs",
    "opt_learning_rate_warmup_steps": "steps",
    "scheduler_lr_warmup_steps": "steps",
}
"""Keys of a log for the warm-up, and in what they count it."""

Cell = Callable[[AnalysedSet], str]


def tables(sets: Sequence[AnalysedSet]) -> list[TextTable]:
    """Return the tables of one or more rounds: time to solution, parts of the time, throughput, convergence."""
    shown = [one for one in sets if not one.problem]
    many = len({one.row.round for one in shown}) > 1
    names = [Column[AnalysedSet]("round", "", lambda one: one.row.round, numeric=False)] if many else []
    names += [Column("result", "", short_name, numeric=False)]
    groups = [one.marked_benchmark for one in shown]
    made = (make_table(title, (*names, *columns), shown, groups) for title, columns in COLUMNS.items() if shown)
    return [table.without_empty() for table in made]


def short_name(one: AnalysedSet) -> str:
    """Return organisation and system, with what tells the result from a valid, closed time to train."""
    row = one.row
    marks = [*(["open"] if row.division == "open" else []), *(["throughput"] if row.scaling == WEAK else [])]
    marks += [row.verdict] if row.verdict in (FAIL, INCOMPLETE) else []
    marks += ["waived"] if row.waiver else ["bypass asked for"] if row.bypass else []
    name = clean(" ".join(part for part in (row.organisation, row.system) if part) or one.folder)
    return f"{name} ({', '.join(marks)})" if marks else name


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with this many significant digits, thousands in full; "" for None."""
    if value is None:
        return ""
    if LARGEST > abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:#.{digits}g}"
    return text if "e" in text else text.removesuffix(".")


def percent(value: float | None) -> str:
    """Return a share in per cent, "" for None."""
    return "" if value is None else f"{100 * value:.1f} %"


def _mean(name: str) -> Cell:
    return lambda one: number(one.mean(name))


def _spread(name: str) -> Cell:
    """Return mean and standard deviation, the latter with as many decimals as the mean."""

    def cell(one: AnalysedSet) -> str:
        found = one.statistics.get(name)
        if found is None or found.std is None:
            return number(found.mean if found else None)
        mean = number(found.mean)
        return f"{mean} ± {found.std:.{len(mean.partition('.')[2])}f}"

    return cell


def _share(name: str) -> Cell:
    return lambda one: percent(one.ratios.get(name))


def _ratio(name: str) -> Cell:
    return lambda one: number(one.ratios.get(name), 3)


def _stated(*keys: str) -> Cell:
    """Return the first of the hyperparameters that is logged."""
    return lambda one: _value(next((one.hyperparameters[key] for key in keys if key in one.hyperparameters), None))


def _value(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else clean(str(value))[:24]


def _warm_up(one: AnalysedSet) -> str:
    found = ((one.hyperparameters.get(key), unit) for key, unit in WARM_UP.items())
    value, unit = next(((value, unit) for value, unit in found if value is not None), (None, ""))
    return "" if value is None else f"{_value(value)} {unit}"


def _per_unit(one: AnalysedSet) -> str:
    rate = one.mean("run_train_throughput")
    return number(rate / one.units if rate and one.units else None)


PARTS: Final = {"staging": "staging", "training": "train", "evaluation": "eval", "rest": "rest"}
"""The part of the time of a run, and its name in a quantity."""
UNITS: Final = Column[AnalysedSet]("units", "", lambda one: "" if one.units is None else plain(one.units))
BATCH: Final = Column[AnalysedSet](
    "batch", "size", lambda one: "" if one.row.batch_size is None else plain(one.row.batch_size)
)
RUNS: Final = Column[AnalysedSet]("runs", "", lambda one: f"{sum(run.kept for run in one.runs)}/{len(one.runs)}")
EPOCHS: Final = Column("E", "epochs", _spread("run_stop_epoch"))
COLUMNS: Final[dict[str, tuple[Column[AnalysedSet], ...]]] = {
    "Time to solution: mean ± standard deviation of the runs that count by time": (
        UNITS,
        BATCH,
        RUNS,
        Column("T_run", "min", _spread("run_time")),
        EPOCHS,
        Column("epoch time", "min", _spread("run_epoch_time")),
        Column("budget", "unit h", _mean("run_compute_budget")),
        Column("energy", "kJ", _mean("run_energy")),
    ),
    "Where the time goes: means of the runs that count by time, and their shares of T_run": (
        *(Column(f"T_{name}", "min", _mean(f"run_{name}_time")) for part, name in PARTS.items() if part != "rest"),
        *(Column(part, "%", _share(f"{name}_time/run_time")) for part, name in PARTS.items()),
        Column("staging", "epochs", _ratio("staging_time/epoch_time")),
    ),
    "Throughput, harmonic means": (
        UNITS,
        Column("E", "1/min", _mean("run_epoch_throughput")),
        Column("training", "samples/min", _mean("run_train_throughput")),
        Column("per unit", "samples/min", _per_unit),
        Column("evaluation", "samples/min", _mean("run_eval_throughput")),
        Column("both", "samples/min", _mean("run_sample_throughput")),
        Column("staging", "samples/min", _mean("run_staging_throughput")),
    ),
    "Convergence: hyperparameters, E and steps; variation of E and epoch time": (
        Column("optimizer", "", _stated("opt_name"), numeric=False),
        Column("learning", "rate", _stated("opt_base_learning_rate", "opt_lr")),
        Column("warm-up", "", _warm_up, numeric=False),
        Column("weight", "decay", _stated("opt_weight_decay")),
        Column("dropout", "", _stated("dropout")),
        BATCH,
        Column("batch", "per unit", _ratio("batch_size/units")),
        EPOCHS,
        Column("steps", "", _mean("run_steps")),
        Column("samples", "", _mean("run_stop_samples")),
        Column("1st comp.", "variance", lambda one: percent(one.pca.explained if one.pca else None)),
        Column(
            *("correlation", ""),
            lambda one: f"{one.pca.correlation:+.2f}" if one.pca and one.pca.correlation is not None else "",
        ),
    ),
}
"""The columns of each table by its title."""
