"""What the analysis knows of results: the quantities of each run, and their statistics over the runs that count.

The quantities are those of the framework of the MLPerf HPC paper (arXiv 2110.11466), from the log alone. T_run is the
time from run_start to run_stop, T_staging that of staging, T_epochs that of epochs with their evaluations, T_eval that
of evaluations, T_train = T_epochs - T_eval. E counts the epochs up to the last evaluation at or before run_stop, from 1
whatever the log counts from. N_train and N_eval are the samples of the two sets, B is the global batch size. Times are
in minutes, throughputs per minute.

`NodeData` is the data that a node holds if the nodes share a data set evenly, beside its memory and its disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from common.rounds import HPC
from common.values import is_number
from compliance.model.judging import JudgedRun
from submission.results.rows import Row, mark_benchmark

RUN_TIME: Final = "run_time"
EPOCHS: Final = "run_stop_epoch"
EPOCH_TIME: Final = "run_epoch_time"
TARGET_EPOCH: Final = "run_target_epoch"
SAMPLES: Final = "run_stop_samples"
STAGING: Final = "run_staging_time"
NO_STAGING: Final = "no staging interval is logged"
"""Why a result has no quantity of staging, where its runs log none."""
STAGING_INSIDE: Final = "run_staging_inside_time"
STAGING_RATE: Final = "run_staging_throughput"
LARGEST: Final = 1e15
"""No valid count of epochs, samples or units reaches it; larger ones are not used."""


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """One run. name: of its log. values: its quantities by name; those that the log does not give are missing.

    kept: it counts in the statistics. why_not: why it does not, "" if it does: "fastest", "slowest", or what failed.
    """

    name: str
    values: Mapping[str, float]
    kept: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one quantity over the runs that count. std is that of a sample, None for a single run."""

    mean: float
    std: float | None
    median: float
    min: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class LogPca:
    """Principal components of (log10 epochs, log10 minutes of an epoch) over the runs that count.

    center: means of both. first, second: unit vectors, the one of the larger variance first; the epochs' part of the
    first is >= 0. variances: along them. correlation: of both logarithms, None where one of them does not vary.
    """

    center: tuple[float, float]
    first: tuple[float, float]
    second: tuple[float, float]
    variances: tuple[float, float]
    correlation: float | None

    @property
    def explained(self) -> float | None:
        """The share of the first component in the variance; None without variance."""
        total = sum(self.variances)
        return self.variances[0] / total if total > 0 else None


@dataclass(frozen=True, slots=True)
class AnalysedSet:
    """One result.

    row: its line in the summary: verdict, round, organisation, system, accelerator, benchmark, division, score.
    units: accelerators of a run (of one instance, for throughput), or processors on a system without; None if unknown.
    statistics: of the runs that count, by name of the quantity; a quantity that one of them lacks is missing.
    ratios: by name, such as "train_time/run_time"; each is a ratio of means, None where it is excluded.
    hyperparameters: as logged, where all runs agree.
    excluded: why a quantity is missing, by its name; "normalised": why the result is normalised.
    notes: what a reader must know of the result.
    problem: why the result cannot be analysed at all, else "".
    normalisation: by what epochs and all times but staging were multiplied.
    sharing: how many ranks share each sample, by the logs; 1 where they do not say.
    data: what a node holds of the data set; None if data set, nodes or units are unknown.
    drawn_for: the full names of the results with the same runs that it stands for in a figure, if several.
    """

    row: Row
    folder: str
    units: int | None
    runs: tuple[AnalysedRun, ...] = ()
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    ratios: Mapping[str, float | None] = field(default_factory=dict)
    pca: LogPca | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str = ""
    normalisation: float = 1.0
    sharing: int = 1
    data: NodeData | None = None
    drawn_for: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The organisation, system, scaling and benchmark: unique in a round; of unnamed logs the folder."""
        return self._join_names(self.row.kind_of_scaling)

    @property
    def full_name(self) -> str:
        """The name with the round, as in waiver files: unique in a repository of rounds."""
        return f"{self.row.round}/{self._join_names(self.row.scaling)}"

    def _join_names(self, scaling: str) -> str:
        who = [part for part in (self.row.organisation, self.row.system) if part]
        return "/".join(filter(None, (*(who or [self.folder]), scaling, self.row.benchmark)))

    @property
    def marked_benchmark(self) -> str:
        """The benchmark, with marks if it is a mini problem or not one of MLPerf."""
        return mark_benchmark(self.row.benchmark, self.row.mini, self.row.plugin)

    @property
    def unit(self) -> str:
        """What the units are."""
        return "processors" if self.row.accelerators == 0 else "accelerators"

    def mean(self, name: str) -> float | None:
        """Return the mean of a quantity, None without it."""
        return self.statistics[name].mean if name in self.statistics else None


# -- quantities -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity. harmonic: a throughput, whose mean over runs is harmonic: that of all runs one after the other."""

    name: str
    unit: str
    definition: str
    harmonic: bool = False


QUANTITIES: Final = {
    quantity.name: quantity
    for quantity in (
        Quantity(RUN_TIME, "min", "T_run = run_stop - run_start"),
        Quantity(STAGING, "min", "T_staging = staging_stop - staging_start, in or out of T_run"),
        Quantity(STAGING_INSIDE, "min", "the part of T_staging inside T_run"),
        Quantity(
            "run_epochs_time",
            "min",
            "T_epochs: epochs with their evaluations; the compute time to solution",
        ),
        Quantity("run_train_time", "min", "T_train = T_epochs - T_eval"),
        Quantity("run_eval_time", "min", "T_eval: all evaluations"),
        Quantity("run_rest_time", "min", "T_run - T_epochs - the part of T_staging inside T_run"),
        Quantity(
            EPOCHS,
            "epochs",
            "E: epochs to solution, up to the last evaluation before run_stop",
        ),
        Quantity(
            "run_stop_epoch_num",
            "epochs",
            "E as logged: less by one where the log counts epochs from 0",
        ),
        Quantity(TARGET_EPOCH, "epochs", "epochs up to the first evaluation that meets the target"),
        Quantity(SAMPLES, "samples", "samples to solution: E * N_train, or as logged"),
        Quantity("run_steps", "steps", "training steps to solution: E * N_train / B"),
        Quantity(EPOCH_TIME, "min", "T_epochs / E"),
        Quantity("run_epoch_throughput", "1/min", "E / T_epochs", harmonic=True),
        Quantity("run_train_throughput", "samples/min", "E * N_train / T_train", harmonic=True),
        Quantity(
            "run_eval_throughput",
            "samples/min",
            "evaluations * N_eval / T_eval",
            harmonic=True,
        ),
        Quantity(
            "run_sample_throughput",
            "samples/min",
            "(E * N_train + evaluations * N_eval) / T_epochs",
            True,
        ),
        Quantity(STAGING_RATE, "samples/min", "(N_train + N_eval) / T_staging", harmonic=True),
        Quantity(
            "run_compute_budget",
            "unit h",
            "T_run * units: accelerators, or processors without",
        ),
        Quantity("run_energy", "kJ", "energy of nodes and switches from run_start to run_stop"),
    )
}
"""All quantities by name, in the order in which they are shown."""
RATIOS: Final = {
    "staging_time/run_time": "share of the staging inside T_run",
    "train_time/run_time": "share of training",
    "eval_time/run_time": "share of evaluation",
    "rest_time/run_time": "share of the rest",
    "staging_time/epoch_time": "staging ratio: how many epochs staging takes",
    "batch_size/units": "communication intensity: samples of a step per unit",
}
"""Quantities of a result: ratios of the means of its runs, not means of ratios."""


def list_definitions() -> Iterator[tuple[str, str, str, str]]:
    """Yield name, unit, definition and kind of mean of each quantity and ratio."""
    for each in QUANTITIES.values():
        yield (
            each.name,
            each.unit,
            each.definition,
            "harmonic" if each.harmonic else "arithmetic",
        )
    for name, definition in RATIOS.items():
        yield name, "", definition, "ratio of means"


def measure_run(run: JudgedRun, units: int | None) -> dict[str, float]:
    """Return the quantities of a run by name; those that its log does not give are missing."""
    phases, converged_after, unit = run.details.phases, run.convergence, run.convergence_unit
    staging, inside = run.staging_ms / 60_000, run.staging_inside_ms / 60_000
    epochs_time, evaluation = phases.epoch_seconds / 60, phases.evaluation_seconds / 60
    training = epochs_time - evaluation
    train, evaluation_set = _read_samples(run, "train_samples"), _read_samples(run, "eval_samples")
    epochs = samples = None
    last = _find_share_of_last(run)
    if is_number(converged_after) and converged_after < LARGEST and last is not None:
        later = float(counts_from_zero(run)) - (1 - last)
        epochs = converged_after + later if unit == "epochs" else None
        sequence = _read_samples(run, "max_sequence_length") if unit == "tokens" else 1.0
        samples = _multiply(epochs, train) if unit == "epochs" else _find_rate(float(converged_after), sequence)
    evaluated = evaluated_samples(run)
    values = {
        RUN_TIME: run.minutes,
        STAGING: staging or None,
        STAGING_INSIDE: inside if staging else None,
        "run_epochs_time": epochs_time or None,
        "run_train_time": training or None,
        "run_eval_time": evaluation or None,
        "run_rest_time": None if run.minutes is None else run.minutes - epochs_time - inside,
        EPOCHS: epochs,
        "run_stop_epoch_num": None if epochs is None else float(converged_after),
        TARGET_EPOCH: _target_epoch(run) if unit == "epochs" else None,
        SAMPLES: samples,
        "run_steps": _find_rate(samples, run.batch_size),
        EPOCH_TIME: _find_rate(epochs_time or None, epochs),
        "run_epoch_throughput": _find_rate(epochs, epochs_time),
        "run_train_throughput": _find_rate(samples, training),
        "run_eval_throughput": _find_rate(evaluated, evaluation),
        "run_sample_throughput": _find_rate(None if samples is None else samples + (evaluated or 0), epochs_time),
        STAGING_RATE: _find_rate(
            None if train is None or evaluation_set is None else train + evaluation_set,
            staging,
        ),
        "run_compute_budget": None if run.minutes is None else _multiply(run.minutes / 60, units),
        "run_energy": None if run.energy_joules is None else run.energy_joules / 1000,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def explain_unmeasured(run: JudgedRun) -> str:
    """Return why the times and epochs of a run, whatever its status, are unknown; "" if its log gives them."""
    if run.minutes is None:
        return "run_start or run_stop is missing"
    if run.minutes <= 0:
        return "run_stop is not after run_start"
    if not run.details.evaluations:
        return "no evaluation before run_stop"
    if is_number(run.convergence) and run.convergence + counts_from_zero(run) <= 0:
        return f"the last evaluation has epoch_num {run.convergence:g}"
    # An epoch may begin before the last evaluation of the one before it ends the run.
    if any(not is_number(run.convergence) or number <= run.convergence for number in run.details.phases.unclosed):
        return "an epoch has no stop"
    return ""


def counts_from_zero(run: JudgedRun) -> bool:
    """Tell whether epoch_num is one less than what a run has trained; MLPerf Training logs what it has trained."""
    return run.case.usage == HPC and run.details.phases.first == 0


def evaluated_samples(run: JudgedRun) -> float | None:
    """Return the samples of all evaluations, None if the log does not give them, or may count tokens."""
    samples = None if run.convergence_unit == "tokens" else _read_samples(run, "eval_samples")
    return _multiply(run.details.phases.evaluations, samples)


def _find_share_of_last(run: JudgedRun) -> float | None:
    """Return how much of the epoch that its last evaluation names the run trained; None if it is unknown."""
    train = (run.details.configuration or {}).get("train")
    if not isinstance(train, dict) or all(train.get(name) is None for name in ("steps", "flop")):
        return 1.0
    share = _find_rate(
        _multiply(run.details.last_steps, _read_samples(run, "global_batch_size")),
        _read_samples(run, "train_samples"),
    )
    return None if share is None else min(1.0, share)


def _target_epoch(run: JudgedRun) -> float | None:
    """Return how many epochs the run had trained at the first evaluation that meets the target."""
    reference = run.case.reference
    met = (each for each in run.details.evaluations if reference and reference.target.met(each.value))
    return next((each.epoch + counts_from_zero(run) for each in met if each.epoch is not None), None)


def _read_samples(run: JudgedRun, key: str) -> float | None:
    count = run.details.hyperparameters.get(key)
    return float(count) if count is not None and is_number(count) and 0 < count < LARGEST else None


def _multiply(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _find_rate(amount: float | None, per: Any) -> float | None:
    return amount / per if amount is not None and is_number(per) and 0 < per < LARGEST else None


AMOUNT: Final = re.compile(r"(?:(\d{1,4})\s*[x×*]\s*)?(\d[\d,]{0,12}(?:\.\d{1,6})?)\s*([KMGTP])(i?)B", re.IGNORECASE)
"""An amount of bytes in a system description: "64 GB", "32GiB", "2x 1.92TB"."""
POWERS: Final = {prefix: power for power, prefix in enumerate("KMGTP", 1)}
CACHEABLE: Final = 0.75
"""Assumed share of a node's memory that can cache files; programs and their buffers have the rest."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """The training and validation sets of a result on one of its nodes, in bytes.

    nodes: of a run. raw: as the network reads the samples; stored: as the files hold them. memory, disk: of a node by
    the system description, None where it does not say.
    """

    nodes: float
    raw: float
    stored: float
    memory: float | None
    disk: float | None

    @property
    def held_by(self) -> str:
        """What can hold the stored data: "memory", else "disk", else "neither"; "" if the memory is unknown."""
        if self.memory is None:
            return ""
        if self.stored <= CACHEABLE * self.memory:
            return "memory"
        return "disk" if self.stored <= (self.disk or 0) else "neither"


def parse_bytes(text: object) -> float | None:
    """Return the bytes that a field of a system description states; None without an amount and its unit.

    The first amount counts, as in "144GB /tmp on a 240GB SSD", and the first ones of parts joined by + are added. No
    node has LARGEST: a description that states more means the file system of the whole machine.
    """
    parts = map(AMOUNT.search, text.split("+")) if isinstance(text, str) else ()
    total = 0.0
    for count, number, prefix, binary in (part.groups() for part in parts if part):
        total += int(count or 1) * float(number.replace(",", "")) * (1024 if binary else 1000) ** POWERS[prefix.upper()]
    return total if 0 < total < LARGEST else None
