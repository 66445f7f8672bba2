"""The tables of the analysis: figure 5 of the paper, as text for a terminal and cells for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from common.command import clean
from compliance.formats.words import plain
from compliance.model.layout import WEAK
from submission.analysis.model import AnalysedSet
from submission.text_table import TextTable

OPTIMIZER: Final = ("opt_name",)
LEARNING_RATE: Final = ("opt_base_learning_rate", "opt_lr")
WARM_UP: Final = {
    "opt_learning_rate_warmup_epochs": "epochs",
    "opt_learning_rate_warmup_steps": "steps",
    "scheduler_lr_warmup_steps": "steps",
}
"""Keys of a log for the warm-up, and in what they count it."""

Column = tuple[tuple[str, str], Callable[[AnalysedSet], str]]


def tables(sets: Sequence[AnalysedSet]) -> list[TextTable]:
    """Return the tables of one or more rounds: time to solution, parts of the time, throughput, convergence."""
    shown = [one for one in sets if not one.problem]
    many = len({one.row.round for one in shown}) > 1
    return [_table(title, columns, shown, many) for title, columns in COLUMNS.items()] if shown else []


def _table(title: str, columns: Sequence[Column], sets: Sequence[AnalysedSet], many: bool) -> TextTable:
    first = ((("round", ""), lambda one: one.row.round),) if many else ()
    both = (*first, (("result", ""), short_name), *columns)
    rows = tuple(tuple(cell(one) for _, cell in both) for one in sets)
    groups = tuple(one.marked_benchmark for one in sets)
    numeric = tuple(heading[0] not in TEXT_COLUMNS for heading, _ in both)
    return TextTable(title, tuple(heading for heading, _ in both), rows, numeric, groups).without_empty()


def short_name(one: AnalysedSet) -> str:
    """Return organisation and system, with what tells the result from a closed time to train."""
    row = one.row
    marks = [row.division if row.division == "open" else "", "throughput" if row.scaling == WEAK else ""]
    said = ", ".join(mark for mark in marks if mark)
    return clean(" ".join(part for part in (row.organisation, row.system) if part) or one.folder) + (
        f" ({said})" if said else ""
    )


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with this many significant digits, thousands in full; "" for None."""
    if value is None:
        return ""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:#.{digits}g}"
    return text if "e" in text else text.removesuffix(".")


def percent(value: float | None) -> str:
    """Return a share in per cent, "" for None."""
    return "" if value is None else f"{100 * value:.1f} %"


def _mean(name: str) -> Callable[[AnalysedSet], str]:
    return lambda one: number(one.mean(name))


def _spread(name: str) -> Callable[[AnalysedSet], str]:
    """Return mean and standard deviation, the latter with as many decimals as the mean."""

    def cell(one: AnalysedSet) -> str:
        found = one.statistics.get(name)
        if found is None or found.std is None:
            return number(found.mean if found else None)
        mean = number(found.mean)
        return f"{mean} ± {found.std:.{len(mean.partition('.')[2])}f}"

    return cell


def _share(name: str) -> Callable[[AnalysedSet], str]:
    return lambda one: percent(one.ratios.get(name))


def _ratio(name: str) -> Callable[[AnalysedSet], str]:
    return lambda one: number(one.ratios.get(name), 3)


def _stated(keys: Sequence[str]) -> Callable[[AnalysedSet], str]:
    def cell(one: AnalysedSet) -> str:
        found = next((one.hyperparameters[key] for key in keys if key in one.hyperparameters), None)
        return _value(found)

    return cell


def _value(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else clean(str(value))[:24]


def _warm_up(one: AnalysedSet) -> str:
    found = ((one.hyperparameters.get(key), unit) for key, unit in WARM_UP.items())
    value, unit = next(((value, unit) for value, unit in found if value is not None), (None, ""))
    return "" if value is None else f"{_value(value)} {unit}"


def _per_unit(one: AnalysedSet) -> str:
    rate = one.mean("run_train_throughput")
    return number(rate / one.units if rate and one.units else None)


def _explained(one: AnalysedSet) -> str:
    return percent(one.pca.explained if one.pca else None)


def _correlation(one: AnalysedSet) -> str:
    return "" if one.pca is None or one.pca.correlation is None else f"{one.pca.correlation:+.2f}"


UNITS: Final[Column] = (("units", ""), lambda one: "" if one.units is None else plain(one.units))
BATCH: Final[Column] = (("batch", "size"), lambda one: "" if one.row.batch_size is None else plain(one.row.batch_size))
COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "Time to solution: mean ± standard deviation of the runs that count": (
        UNITS,
        BATCH,
        (("runs", ""), lambda one: f"{sum(run.kept for run in one.runs)}/{len(one.runs)}"),
        (("time", "min"), _spread("run_time")),
        (("epochs", ""), _spread("run_stop_epoch")),
        (("epoch time", "min"), _spread("run_epoch_time")),
        (("budget", "unit h"), _mean("run_compute_budget")),
        (("energy", "kJ"), _mean("run_energy")),
    ),
    "Where the time goes: minutes, and shares of the time of a run": (
        *(
            ((part, "min"), _mean(f"run_{name}_time"))
            for part, name in (("staging", "staging"), ("training", "train"), ("evaluation", "eval"))
        ),
        *(
            ((part, "%"), _share(f"{name}_time/run_time"))
            for part, name in (("staging", "staging"), ("training", "train"), ("evaluation", "eval"), ("rest", "rest"))
        ),
        (("staging", "epochs"), _ratio("staging_time/epoch_time")),
    ),
    "Throughput, harmonic means": (
        UNITS,
        (("epochs", "1/min"), _mean("run_epoch_throughput")),
        (("training", "samples/min"), _mean("run_train_throughput")),
        (("per unit", "samples/min"), _per_unit),
        (("evaluation", "samples/min"), _mean("run_eval_throughput")),
        (("both", "samples/min"), _mean("run_sample_throughput")),
        (("staging", "samples/min"), _mean("run_staging_throughput")),
    ),
    "Convergence: hyperparameters, epochs and steps; variation of epochs and epoch time": (
        (("optimizer", ""), _stated(OPTIMIZER)),
        (("learning", "rate"), _stated(LEARNING_RATE)),
        (("warm-up", ""), _warm_up),
        (("weight", "decay"), _stated(("opt_weight_decay",))),
        (("dropout", ""), _stated(("dropout",))),
        BATCH,
        (("batch", "per unit"), _ratio("batch_size/units")),
        (("epochs", ""), _spread("run_stop_epoch")),
        (("steps", ""), _mean("run_steps")),
        (("samples", ""), _mean("run_stop_samples")),
        (("1st comp.", "variance"), _explained),
        (("correlation", ""), _correlation),
    ),
}
"""The columns of each table by its title."""
TEXT_COLUMNS: Final = ("round", "result", "optimizer", "warm-up")
