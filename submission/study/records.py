"""What a study can measure, the only list of it; and what it has measured: what collects, fits and draws passes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from common.measure.fom import Measurement, TrainedEnsemble, TrainedRun
from submission.results.page.html import make_slug


class Quantity(NamedTuple):
    """What a study can measure. unit: "" for plain numbers. field: of fom.json, "" for one of the same name."""

    unit: str
    meaning: str
    field: str = ""
    scale: float = 1.0


QUANTITIES: Final[Mapping[str, Quantity]] = {
    "units": Quantity(
        "ranks", "ranks that train at a time: on GPUs or other accelerators, one each, or processes on CPUs"
    ),
    "batch": Quantity("samples", "samples of a step, over all units"),
    "samples_per_s": Quantity("samples/s", "throughput: training speed of all units, without evaluations"),
    "step_ms": Quantity("ms", "median time of a measured step", "median_step_ms"),
    "epoch_s": Quantity("s", "mean time of an epoch, without its evaluation"),
    "minutes": Quantity("min", "time from run_start to run_stop; of a job, from the first to the last"),
    "steps": Quantity("", "steps of the optimizer that were made"),
    "epochs": Quantity("", "epochs that were trained"),
    "models_per_min": Quantity("models/min", "networks trained per minute by a job"),
    "models": Quantity("", "networks that a job has trained"),
    "flop_per_s": Quantity("FLOP/s", "operations of all units, a multiply-add as two"),
    "vflop_per_s": Quantity("FLOP/s", "valid FLOP/s: times (achieved / target quality)^n"),
    "efficiency": Quantity("", "FLOP/s (or samples/s) per unit, by that of the point with the fewest units"),
    "flop": Quantity("FLOP", "operations that the training has spent"),
    "utilization": Quantity(
        "",
        "FLOP/s by the peak of the units, where it is known; of a training from run_start to run_stop, evaluations too",
    ),
    "quality": Quantity(
        "", "error or accuracy of the last evaluation, as the benchmark defines it; of a job, the mean"
    ),
    "best_quality": Quantity("", "of the best evaluation"),
    "ensemble_quality": Quantity("", "of the networks of a point together, by the evaluate command"),
    "loss": Quantity("", "training loss of the last epoch"),
    "fidelity": Quantity(
        "",
        "distance of the loss from float32's by its fall, the median over seeds",
        "loss_errors",
    ),
    "parameters": Quantity("", "numbers that the network learns"),
    "train_samples": Quantity("samples", "training samples"),
    "energy_j": Quantity("J", "energy of all nodes, where a meter was read"),
    "samples_per_j": Quantity("samples/J", "samples trained by the energy"),
    "power_limit_w": Quantity("W", "power limit of a device, where it tells"),
    "clock_mhz": Quantity("MHz", "clock of a device when the run ended, where it tells"),
    "memory_gb": Quantity("GB", "the most memory that a rank used", "memory_bytes", 1e-9),
    "wait_share": Quantity("", "share of a step in which a rank waited for data"),
    "communicating_ms": Quantity("ms", "time of a step in which a rank only communicated"),
    "bytes_reduced": Quantity("B", "gradients that a rank sends in a step", "bytes_reduced_per_step"),
    "spread": Quantity("", "standard deviation of the steps or epochs, by the median"),
}
"""By name: what axes of curves, columns of tables, and the records of study.json can be."""


def has_quantity(kind: str, name: str) -> bool:
    """Tell whether runs of a kind, "training" or "measurement", can have a quantity."""
    records = {"training": (TrainedRun, TrainedEnsemble), "measurement": (Measurement,)}
    key = QUANTITIES[name].field or name
    kinds = [
        each for each, types in records.items() if any(key == field.name for type_ in types for field in fields(type_))
    ]
    return kind in kinds or (not kinds and (kind == "training" or name in ("efficiency",)))


def describe_quantities() -> str:
    """Return a line for each quantity."""
    width = max(map(len, QUANTITIES))
    return "\n".join(
        f"  {name:<{width}}  {quantity.meaning}{f' ({quantity.unit})' if quantity.unit else ''}"
        for name, quantity in QUANTITIES.items()
    )


Value = str | float | int | bool | None
"""Of an axis."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a study.

    values: of each axis; runs that agree in all of them are repetitions of one point, so the seed is none of them.
    quantities: what the run measured, by name (such as "samples_per_s" or "loss"), and what it counts (such as
    "parameters" or "flop"). command: makes the run again. problem: why it has no result, "" if it has one.
    """

    name: str
    values: dict[str, Value]
    quantities: dict[str, float] = field(default_factory=dict)
    command: str = ""
    problem: str = ""

    def get(self, name: str) -> Value:
        """Return a quantity, else the value of an axis; None if the run has neither."""
        return self.quantities.get(name, self.values.get(name))


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """A curve over the runs of a study, and the law to fit to it.

    x, y: names of a quantity or axis with numbers. by: what separates the lines of one figure, a quantity or axis; ""
    for one line. law: a key of `submission.results.fits.laws.LAWS`, "" for none. Of the law "joint", x is the number of
    samples and `by` that of parameters; of "isoflop", x is the number of parameters and `by` the compute.
    log_x, log_y: whether an axis is logarithmic. x_label, y_label: with units, such as "training time (s)"; "" for the
    names. ideal: the exponent of perfect scaling, y ~ x^ideal from the first point on; None draws no such line.
    """

    title: str
    x: str
    y: str
    by: str = ""
    law: str = ""
    log_x: bool = True
    log_y: bool = True
    x_label: str = ""
    y_label: str = ""
    ideal: float | None = None


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A study: its runs, and the curves to draw.

    paper: the source of the study, "" for none. differences: in which points it differs from the paper. machine: facts
    on where it ran, by name. notes: what a reader has to know, a sentence each. cwd: where it was started, to which the
    commands of the runs are relative.
    """

    title: str
    paper: str = ""
    differences: tuple[str, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)
    runs: tuple[StudyRun, ...] = ()
    curves: tuple[CurveSpec, ...] = ()
    notes: tuple[str, ...] = ()
    cwd: str = ""

    @property
    def axes(self) -> list[str]:
        """The axes of the runs, in order."""
        return list(dict.fromkeys(key for run in self.runs for key in run.values))

    @property
    def quantities(self) -> list[str]:
        """The quantities that some run has, in the order of `QUANTITIES`."""
        return [name for name in QUANTITIES if any(name in run.quantities for run in self.runs)]


def figure_name(spec: CurveSpec) -> str:
    """Return the name of the file of a figure."""
    return make_slug(f"curve {spec.title}")


def list_figures(spec: CurveSpec) -> list[str]:
    """Return the names of the files that `draw_files` can make of a curve."""
    return [f"{figure_name(spec)}{end}.svg" for end in ("", "-best")[: 1 + (spec.law == "isoflop")]]
