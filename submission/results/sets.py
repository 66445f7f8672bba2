"""Analyse the results of a check: the quantities of each run, which runs count, and their statistics.

Facts that logs do not say (staging that copies nothing, normalisation, power caps) are data with a reason, in
facts.yaml and in files of the same form.
"""

from __future__ import annotations

import math
import os
import reprlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from common.command import counted
from common.config import load, quote_value, rebuild
from common.rounds import HPC
from common.values import are_same, identity, is_number, is_stated, shared_value
from compliance.logs.run import NOT_HYPERPARAMETERS
from compliance.model.judging import NOT_A_RESULT, JudgedRun
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import IN, SHORTEST_STAGING
from compliance.model.waivers import FORM, waiver_name
from compliance.rcp.means import olympic_mean
from submission.results.cost_model import read_workloads, workload_of
from submission.results.quantities import (
    EPOCH_TIME,
    EPOCHS,
    LARGEST,
    NO_STAGING,
    QUANTITIES,
    RUN_TIME,
    STAGING,
    STAGING_INSIDE,
    STAGING_RATE,
    TARGET_EPOCH,
    AnalysedRun,
    AnalysedSet,
    LogPca,
    NodeData,
    Statistics,
    explain_unmeasured,
    measure_run,
    parse_bytes,
)
from submission.results.read_rows import every_set, row_of
from submission.results.rows import Row

FILE: Final = Path(__file__).with_name("facts.yaml")
MOST: Final = 1e9
"""Numbers of epochs and watts are below it."""
FASTEST, SLOWEST = "the fastest run", "the slowest run"
NORMALISED: Final = frozenset(
    "run_epochs_time run_train_time run_eval_time run_rest_time run_stop_epoch run_target_epoch "
    "run_stop_samples run_steps".split()
)
"""Quantities that are multiplied where a result is normalised, beside run_time and what follows from it."""
OLYMPIC: Final = 3
"""Fewer runs all count: without the fastest and the slowest nothing would be left."""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """The epochs of reference runs, to whose olympic mean a result is normalised, and why."""

    epochs: tuple[float, ...]
    reason: str

    def __post_init__(self) -> None:
        if len(self.epochs) < 3:
            raise ValueError("epochs: expected those of at least 3 runs: the fewest and the most do not count")
        for epochs in self.epochs:
            _check_positive("epochs", epochs)

    def find_factor(self, epochs: Iterable[float]) -> float:
        """Return by what epochs and times of a result with these epochs are multiplied."""
        own, wanted = olympic_mean(epochs), olympic_mean(self.epochs)
        return wanted / own if own and wanted else 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by the name of the result, as a file states them.

    staging_excluded: why its staging interval means nothing. reference_epochs: the keys of its Normalisation.
    power_cap_watts: of each accelerator.
    """

    staging_excluded: dict[str, str] = field(default_factory=dict)
    reference_epochs: dict[str, dict[str, Any]] = field(default_factory=dict)
    power_cap_watts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for section in fields(self):
            for name in getattr(self, section.name):
                if name.count("/") != FORM.count("/"):
                    raise ValueError(f"{section.name}: {quote_value(name)} names no result; expected {FORM}")
        for name, watts in self.power_cap_watts.items():
            _check_positive(f"power_cap_watts: {name}", watts)

    def list_names(self) -> list[str]:
        """Return the names of all results that facts are about."""
        return list(dict.fromkeys((*self.staging_excluded, *self.reference_epochs, *self.power_cap_watts)))

    def update_facts(self, other: Facts) -> Facts:
        """Return these facts with those of another file, which count where both know a result."""
        return Facts(*(getattr(self, section.name) | getattr(other, section.name) for section in fields(self)))

    def read_normalisation(self, name: str, source: str = "facts") -> Normalisation | None:
        """Return how a result is normalised, None if it is not; UsageError, which names the source, if it is broken."""
        entry = self.reference_epochs.get(name)
        return None if entry is None else rebuild(Normalisation, entry, f"{source}: reference_epochs: {name}")


def read_facts(path: Path = FILE) -> Facts:
    """Return the facts of a file, those of published results by default; UsageError if it is broken."""
    facts = load(Facts, path)
    for name in facts.reference_epochs:
        facts.read_normalisation(name, str(path))
    return facts


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < MOST:
        raise ValueError(f"{name}: expected a number above 0 and below {MOST:.0e}; got {value}")


# -- the analysis ---------------------------------------------------------------------------------------------


def analyse_sets(report: Report, facts: Facts) -> list[AnalysedSet]:
    """Return the analysis of each result of a report with details, in the order of the summary."""
    analysed = [_analyse_set(results, row_of(results, report), facts) for results in every_set(report)]
    return sorted(analysed, key=lambda result: (*result.row.table_order, result.units or 0, result.name))


def _analyse_set(results: ResultSet, row: Row, facts: Facts) -> AnalysedSet:
    units = _find_units(results, row)
    sharing = shared_value((run.details.sharing for run in results.runs), 1)
    empty = AnalysedSet(row, results.folder, units, sharing=sharing, data=_find_node_data(results, row, units))
    if not results.runs:
        return replace(empty, problem="there are no logs of runs; expected files result_*.txt")
    if results.benchmark is None:
        return replace(
            empty,
            problem="the logs name no benchmark of this round; expected submission_benchmark",
        )
    measured = {run.path: measure_run(run, units) for run in results.runs}
    failed = {run.path: reason for run in results.runs if (reason := _explain_failure(run))}
    if results.not_judged:
        runs = [
            AnalysedRun(os.path.relpath(path, results.folder), values, False, failed.get(path, NOT_A_RESULT))
            for path, values in measured.items()
        ]
        return replace(empty, runs=tuple(runs), problem=f"{NOT_A_RESULT}: {results.not_judged}")
    if len(failed) == len(results.runs):
        reasons = ", ".join(dict.fromkeys(failed.values()))
        return replace(
            empty,
            problem=f"{counted(len(failed), 'run')}, none of which can be analysed: {reasons}",
        )
    outcome = _Outcome(empty, results, measured, failed)
    outcome.apply_facts(facts)
    return outcome.summarise_runs()


def _find_units(results: ResultSet, row: Row) -> int | None:
    """Return the accelerators, or processors, of one run."""
    units = results.instance_scale
    if results.scaling != WEAK:
        units = results.system_scale or row.units or shared_value(run.scale for run in results.runs)
    return units if units is not None and 0 < units < LARGEST else None


def _find_node_data(results: ResultSet, row: Row, units: int | None) -> NodeData | None:
    """Return the data of a node that takes part in a run; None for mini problems, and where a number is unknown."""
    name = workload_of(row.benchmark, row.round, read_workloads())
    stated = results.description.fields if results.description else {}
    if row.mini or not (name and row.nodes and units and row.units):
        return None
    work, nodes = read_workloads()[name], row.nodes * units / row.units
    samples = (work.train_samples + work.eval_samples) / nodes
    memory, disk = (parse_bytes(stated.get(f"host_{kind}_capacity")) for kind in ("memory", "storage"))
    return NodeData(nodes, samples * work.input_bytes, samples * work.stored_bytes, memory, disk)


def _explain_failure(run: JudgedRun) -> str:
    """Return why a run has no time to solution, "" if it has one; the paper counts such a run as the slowest."""
    return explain_unmeasured(run) or (
        "" if run.status in ("success", None) else f"run_stop states {reprlib.repr(run.status)}"
    )


@dataclass(slots=True)
class _Outcome:
    """A result on the way to its analysis.

    empty: without what follows from runs. measured: the quantities of each run by its path. failed: why runs have none.
    excluded, notes: see AnalysedSet.
    """

    empty: AnalysedSet
    results: ResultSet
    measured: dict[str, dict[str, float]]
    failed: dict[str, str]
    excluded: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    normalisation: float = 1.0

    def apply_facts(self, facts: Facts) -> None:
        """Leave out staging that copies nothing, and normalise the result, as the facts say."""
        name = waiver_name(self.results)
        longest = max((values.get(STAGING, 0.0) for values in self.measured.values()), default=0.0)
        short = f"the interval of at most {longest * 60:.3g} s copies nothing" if longest < SHORTEST_STAGING else ""
        missing = NO_STAGING if self.results.case.usage == HPC else ""
        if reason := (facts.staging_excluded.get(name) or short) if longest else missing:
            self.excluded[STAGING] = reason
            for values in self.measured.values():
                if "run_rest_time" in values:
                    values["run_rest_time"] += values.get(STAGING_INSIDE, 0.0)
                for key in (STAGING, STAGING_INSIDE, STAGING_RATE):
                    values.pop(key, None)
        if normalisation := facts.read_normalisation(name):
            self._normalise_values(
                normalisation.find_factor([v[EPOCHS] for v in self.measured.values() if EPOCHS in v])
            )
            self.excluded["normalised"] = normalisation.reason

    def _normalise_values(self, factor: float) -> None:
        """Multiply epochs and all times but staging."""
        self.normalisation = factor
        self.notes.append(f"normalised: epochs and times but staging are multiplied by {factor:.4f}")
        for values in self.measured.values():
            for name in NORMALISED & values.keys():
                values[name] *= factor
            if values.get(RUN_TIME):
                before, inside = values[RUN_TIME], values.get(STAGING_INSIDE, 0.0)
                values[RUN_TIME] = inside + (before - inside) * factor
                if "run_compute_budget" in values:
                    values["run_compute_budget"] *= values[RUN_TIME] / before

    def summarise_runs(self) -> AnalysedSet:
        """Return the analysis."""
        runs = tuple(self._choose_runs())
        kept = [run.values for run in runs if run.kept]
        by_quantity = {name: [values[name] for values in kept if name in values] for name in QUANTITIES}
        statistics = {
            name: summarise_values(name, values) for name, values in by_quantity.items() if len(values) == len(kept)
        }
        both = {EPOCHS, EPOCH_TIME} <= statistics.keys()
        pca = log_pca(zip(by_quantity[EPOCHS], by_quantity[EPOCH_TIME], strict=True)) if both else None
        if pca is not None and pca.correlation is None:
            self.excluded["epochs_system_correlation"] = "epochs or epoch times do not vary"
        first, *others = (run.details.hyperparameters for run in self.results.runs)
        keys = (key for key in first if key not in NOT_HYPERPARAMETERS)
        return replace(
            self.empty,
            runs=runs,
            statistics=statistics,
            ratios=self._divide_means(statistics),
            pca=pca,
            hyperparameters={
                key: first[key] for key in keys if all(are_same(run.get(key), first[key]) for run in others)
            },
            excluded=self.excluded,
            notes=(*self.notes, *self._explain_runs(runs)),
            normalisation=self.normalisation,
        )

    def _choose_runs(self) -> Iterator[AnalysedRun]:
        """Yield the runs; of three or more of time to train, neither the fastest nor the slowest counts."""
        ranked = sorted((values[RUN_TIME], path) for path, values in self.measured.items() if path not in self.failed)
        out = dict(self.failed)
        if self.results.scaling != WEAK and len(self.measured) >= OLYMPIC and len(ranked) >= OLYMPIC - 1:
            out[ranked[0][1]] = FASTEST
            out |= {} if self.failed else {ranked[-1][1]: SLOWEST}
        for path, values in self.measured.items():
            yield AnalysedRun(
                os.path.relpath(path, self.results.folder),
                values,
                path not in out,
                out.get(path, ""),
            )

    def _divide_means(self, statistics: Mapping[str, Statistics]) -> dict[str, float | None]:
        """Return the ratios of a result."""

        def ratio(above: str, below: str) -> float | None:
            numerator, divisor = statistics.get(above), statistics.get(below)
            return numerator.mean / divisor.mean if numerator and divisor and divisor.mean else None

        size, units = self.results.batch_size, self.empty.units
        return {
            "staging_time/run_time": ratio(STAGING_INSIDE, RUN_TIME),
            **{f"{part}_time/run_time": ratio(f"run_{part}_time", RUN_TIME) for part in ("train", "eval", "rest")},
            "staging_time/epoch_time": ratio(STAGING, EPOCH_TIME),
            "batch_size/units": size / units if is_number(size) and units else None,
        }

    def _explain_runs(self, runs: Sequence[AnalysedRun]) -> Iterator[str]:
        """Yield what a reader must know: runs left out, epochs after the target, staging out of the clock."""
        for run in runs:
            if run.why_not not in ("", FASTEST, SLOWEST):
                yield f"{run.name} does not count: {run.why_not}"
        if missed := sum(run.path not in self.failed and not run.converged for run in self.results.runs):
            without = "with status success but without the target: counted by time, as in the paper"
            yield f"{counted(missed, 'run')} {without}"
        if later := sum(run.values.get(TARGET_EPOCH, math.inf) < run.values.get(EPOCHS, 0) for run in runs):
            yield f"{counted(later, 'run')} longer than to the target: see {EPOCHS} and {TARGET_EPOCH}"
        if self.results.score is not None and self.results.score.staging_clock not in ("", IN):
            yield "staging lies out of the clock: run_time lacks it"
        if len({identity(run.batch_size) for run in self.results.runs if is_stated(run.batch_size)}) > 1:
            yield "the runs differ in global_batch_size: the result has no batch size"
        if self.empty.sharing > 1:
            yield f"{self.empty.sharing} ranks share each sample, so that a step has fewer samples than units"
        if len(runs) < OLYMPIC:
            yield f"{counted(len(runs), 'run')}: none is left out as the fastest or the slowest"


# -- statistics over the runs of a result that count -----------------------------------------------------------


def summarise_values(name: str, values: Sequence[float]) -> Statistics:
    """Return the statistics of a quantity over at least one run.

    Throughputs are averaged harmonically; their std is 1 / (1/mean - std(1/x)) - mean, as the paper's analysis has it.
    """
    mean, std = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    if QUANTITIES[name].harmonic and min(values) > 0:
        inverse = [1 / value for value in values]
        slowness = statistics.fmean(inverse)
        mean = 1 / slowness
        if std is not None:
            fastest = slowness - statistics.stdev(inverse)
            std = 1 / fastest - mean if fastest > 0 else math.inf
    return Statistics(mean, std, statistics.median(values), min(values), max(values), len(values))


def log_pca(pairs: Iterable[tuple[float, float]]) -> LogPca | None:
    """Return the principal components of (log10 epochs, log10 epoch time); None for fewer than two runs."""
    points = [(math.log10(x), math.log10(y)) for x, y in pairs if x > 0 and y > 0]
    if len(points) < 2:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    center = (statistics.fmean(xs), statistics.fmean(ys))
    xx, yy = statistics.variance(xs), statistics.variance(ys)
    xy = sum((x - center[0]) * (y - center[1]) for x, y in points) / (len(points) - 1)
    # The eigenvectors of [[xx, xy], [xy, yy]] are turned against the axes by this angle.
    angle = math.atan2(2 * xy, xx - yy) / 2
    first = (math.cos(angle), math.sin(angle))
    middle, radius = (xx + yy) / 2, math.hypot((xx - yy) / 2, xy)
    correlation = None if min(xx, yy) <= 1e-30 else xy / math.sqrt(xx * yy)
    return LogPca(
        center,
        first,
        (-first[1], first[0]),
        (middle + radius, max(middle - radius, 0.0)),
        correlation,
    )
