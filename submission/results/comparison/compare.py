"""Compare two results, facts and measures side by side, or a measurement of training steps with published results."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from common.command import UsageError, clean, list_some
from common.measure.fom import read_measurement
from common.reference import FULL
from common.rounds import HPC, label_round
from common.values import is_number, shared_value
from compliance.benchmarks import REFERENCES
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import STAGED, convergence_text, plain
from compliance.logs.run import Run
from compliance.logs.timeline import PARTS
from compliance.model.judging import ERROR, NOT_A_RESULT, JudgedRun
from compliance.model.layout import STRONG
from compliance.model.score import BOTH
from submission.results.comparison.sides import (
    ABSENT,
    Side,
    average_finite,
    list_differing,
    read_configured,
    read_logged,
)
from submission.results.fits.projection import read_published
from submission.results.quantities import EPOCH_TIME, SAMPLES, AnalysedSet, counts_from_zero, measure_run

CURVE_POINTS: Final = 8
RUN_TIME: Final = "run_start to run_stop, mean, min"
CLOCKS, COUNTS = "clocks differ", "counted from 0 and 1"
"""Why measures have no ratio: the times of one side contain staging, or its logs count epochs from 0."""


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One fact or measure; ABSENT for a fact that a side does not have, None for a missing measure.

    unlike: why the measures of both sides cannot be compared, "" if they can.
    """

    what: str
    a: Any
    b: Any
    unlike: str = ""

    @property
    def ratio(self) -> float | None:
        """B / A, if both are numbers that can be compared."""
        numbers = not self.unlike and is_number(self.a) and is_number(self.b)
        return self.b / self.a if numbers and self.a else None


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one kind: "facts" are equal or differ, "measures" have a ratio. same: number of omitted equal facts."""

    title: str
    kind: Literal["facts", "measures"]
    lines: tuple[ComparisonLine, ...]
    same: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results of one benchmark side by side."""

    a: Side
    b: Side
    sections: tuple[Section, ...]

    @property
    def benchmark(self) -> str:
        """The benchmark of both."""
        return self.a.results.benchmark or ""


def compare_sides(a: Side, b: Side) -> Comparison:
    """Compare two results of a benchmark."""
    mine, theirs = read_configured(a.runs), read_configured(b.runs)
    staging = {a.staging_clock, b.staging_clock} - {""}
    clocks = CLOCKS if BOTH in staging or len(staging) > 1 else ""
    counts = COUNTS if len({_first_epoch(run) for run in (*a.runs, *b.runs)}) > 1 else ""
    sections = (
        _list_facts("Runs", _describe_side(a), _describe_side(b), everything=True),
        _list_measures(
            "Score",
            _measure_score(a, bool(staging)),
            _measure_score(b, bool(staging)),
            lambda key: "" if key == "models" or " staging, " in key else clocks,
        ),
        _list_facts(
            "Hyperparameters, as logged",
            read_logged(a.runs),
            read_logged(b.runs),
            everything=True,
        ),
        *([_list_facts("Configuration", mine, theirs)] if mine and theirs else []),
        _list_measures(
            "Convergence, means as in the score",
            _measure_convergence(a),
            _measure_convergence(b),
            lambda key: counts if key.startswith("epochs to target") else "",
        ),
        _compare_curves(a, b),
        _list_measures(
            "Time, means of all runs",
            _measure_times(a),
            _measure_times(b),
            lambda key: clocks if key == RUN_TIME else "",
        ),
        _list_facts("System and software", _describe_system(a), _describe_system(b)),
    )
    return Comparison(a, b, tuple(section for section in sections if section.lines or section.same))


def _list_facts(title: str, a: dict[str, Any], b: dict[str, Any], everything: bool = False) -> Section:
    keys = list(dict.fromkeys((*a, *b)))
    chosen = keys if everything else list_differing(a, b)
    lines = tuple(ComparisonLine(key, a.get(key, ABSENT), b.get(key, ABSENT)) for key in chosen)
    return Section(title, "facts", lines, len(keys) - len(chosen))


def _list_measures(title: str, a: dict[str, Any], b: dict[str, Any], unlike: Callable[[str], str]) -> Section:
    """Return the section, without measures that neither side has; unlike: why a measure has no ratio, or ""."""
    lines = (ComparisonLine(key, a.get(key), b.get(key), unlike(key)) for key in dict.fromkeys((*a, *b)))
    return Section(title, "measures", tuple(line for line in lines if (line.a, line.b) != (None, None)))


# -- facts -------------------------------------------------------------------------------------------------


def _describe_side(side: Side) -> dict[str, Any]:
    results, reference = side.results, side.results.reference
    facts = {
        "verdict": _describe_verdict(side),
        NOT_A_RESULT: results.not_judged,
        "round": f"v{label_round(results.round)}",
        "division": results.division,
        "problem": results.variant,
        "scaling": results.scaling if results.case.usage == HPC else "",
        "samples of an epoch": shared_value(run.details.samples_per_epoch for run in side.runs),
        "runs": len(side.runs),
        "runs that a result needs": reference.runs if reference else None,
        "failing logs": len(results.failing),
        "staging": STAGED.get(side.staging_clock),
        "convergence": convergence_text(results),
    }
    return {key: value for key, value in facts.items() if value not in (None, "")}


def _describe_verdict(side: Side) -> str:
    """Return the verdict and the rules that fail."""
    errors = (finding for finding in side.results.decisive_findings() if finding.severity == ERROR)
    rules = list_some(list(dict.fromkeys(finding.rule for finding in errors if not finding.cause)))
    return f"{side.row.verdict} ({rules})" if rules else side.row.verdict


def _describe_system(side: Side) -> dict[str, Any]:
    """Return the system description, and the versions, sources and machine in logs of this suite."""
    run = side.runs[0]
    facts = {
        "number_of_nodes (log)": run.nodes,
        "accelerators_per_node (log)": run.accelerators_per_node,
    }
    if side.results.description:
        facts |= side.results.description.fields
    for key, value in run.details.provenance.items():
        if key not in ("config", "hyperparameters"):
            inner = value.items() if isinstance(value, dict) else [("", value)]
            facts |= {f"{key}.{name}".rstrip("."): item for name, item in inner}
    return {key: value for key, value in facts.items() if value is not None}


# -- measures ----------------------------------------------------------------------------------------------


def _measure_score(side: Side, staged: bool) -> dict[str, Any]:
    """Return what the summary says of the score; nothing for logs outside of results."""
    row, strong = side.row, side.results.scaling == STRONG
    time, unit = ("time to train", "min") if strong else ("first start to last stop", "models/min")
    return {
        "models": row.models,
        f"{time}, min": row.minutes,
        f"{time} with staging, min": row.time_with_staging_minutes if staged else None,
        f"{time} without staging, min": row.time_without_staging_minutes if staged else None,
        "models/min": row.models_per_minute,
        f"normalised by RCP, {unit}": row.normalised if row.rcp_factor and row.rcp_factor > 1 else None,
        "scaled by scaling.json, min": row.scaled,
        f"energy of {'a run' if strong else 'all models'}, kJ": row.energy_joules and row.energy_joules / 1000,
    }


def _measure_convergence(side: Side) -> dict[str, Any]:
    """Return how runs converged: epochs as logged, as in the check; samples and steps by epochs from 1."""
    judged, unit, in_score = side.results.judged_convergence, side.row.convergence_unit, side.row.convergence
    return {
        "runs that converged": sum(run.converged for run in side.runs),
        f"{unit} to target, per run": tuple(map(_converged_after, side.runs)),
        f"{unit} to target, mean": side.score_mean(_converged_after) if in_score is None else in_score,
        f"{unit} of the reference (RCP), mean": judged.point.mean if judged and judged.point else None,
        **({"samples to target, mean": side.score_mean(_make_measure(SAMPLES))} if unit != "samples" else {}),
        "steps to target, mean": side.score_mean(_make_measure("run_steps")),
    }


def _converged_after(run: Run) -> float | None:
    return run.convergence if run.converged and is_number(run.convergence) else None


def _make_measure(name: str) -> Callable[[JudgedRun], float | None]:
    """Return what gives a quantity of a run as the analysis measures it, up to the last evaluation that counts."""
    return lambda run: measure_run(run, None).get(name)


def _measure_times(side: Side) -> dict[str, Any]:
    rate, scale, staging = side.mean(_measure_rate), side.results.instance_scale, side.row.staging_minutes
    if staging is None:
        staging = side.score_mean(lambda run: _convert_seconds(run.details.seconds.get("staging")))
    parts = {
        part: average_finite(_convert_seconds(run.details.seconds.get(part)) for run in side.runs) for part in PARTS
    }
    return {
        "run_start to run_stop, per run, min": tuple(run.minutes for run in side.runs),
        RUN_TIME: side.mean(lambda run: run.minutes),
        **{f"{part}, mean, min": minutes for part, minutes in parts.items() if part != "staging"},
        "staging, mean as in the score, min": staging,
        "time of an epoch, mean, min": side.mean(
            lambda run: _convert_seconds(average_finite(run.details.epoch_seconds))
        ),
        "training, samples/s": rate,
        "training, samples/s per accelerator (node)": rate / scale if rate is not None and scale else None,
    }


def _convert_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60


def _measure_rate(run: JudgedRun) -> float | None:
    samples, seconds = _make_measure(SAMPLES)(run), run.details.seconds.get("train")
    return samples / seconds if samples is not None and seconds else None


# -- curves ------------------------------------------------------------------------------------------------

Points = list[tuple[float, float]]


def _compare_curves(a: Side, b: Side) -> Section:
    """Return the mean quality of both at up to CURVE_POINTS epochs at which A was evaluated and B was training."""
    unit, reference = a.row.convergence_unit.removesuffix("s"), a.results.reference
    title = f"{reference.target.key if reference else 'quality'}, mean of the runs that reached the {unit}"
    of_a, of_b = (list(filter(None, map(_trace_curve, side.runs))) for side in (a, b))
    if not of_a or not of_b:
        return Section(title, "measures", ())
    first = max(min(curve[0][0] for curve in curves) for curves in (of_a, of_b))
    last = min(max(curve[-1][0] for curve in curves) for curves in (of_a, of_b))
    every = sorted({epoch for curve in of_a for epoch, _ in curve if first <= epoch <= last})
    epochs = every
    if len(every) > CURVE_POINTS:  # evenly spaced, with the first and the last
        epochs = [every[round(at * (len(every) - 1) / (CURVE_POINTS - 1))] for at in range(CURVE_POINTS)]
        title += f" ({CURVE_POINTS} of {len(every)} evaluations)"
    lines = []
    for epoch in epochs:
        a_mean, b_mean = (
            average_finite(_interpolate_quality(curve, epoch) for curve in curves) for curves in (of_a, of_b)
        )
        lines.append(ComparisonLine(f"{unit} {epoch:,.10g}", a_mean, b_mean))
    return Section(title, "measures", tuple(lines))


def _first_epoch(run: JudgedRun) -> int:
    """Return from what number a log counts epochs: 0 or 1; that of samples is 1."""
    return 0 if run.convergence_unit == "epochs" and counts_from_zero(run) else 1


def _trace_curve(run: JudgedRun) -> Points:
    """Return (epoch from 1, quality), ascending; the last of several evaluations of an epoch counts."""
    before = 1 - _first_epoch(run)
    numbered = ((each.epoch, each.value) for each in run.details.evaluations if each.epoch is not None)
    return sorted({float(epoch + before): value for epoch, value in numbered}.items())


def _interpolate_quality(curve: Points, epoch: float) -> float | None:
    """Return the quality at an epoch, interpolated linearly between evaluations; None outside the curve."""
    if not curve[0][0] <= epoch <= curve[-1][0]:
        return None
    after = bisect_left(curve, (epoch,))
    (right, above) = curve[after]
    if right == epoch:
        return above
    (left, below) = curve[after - 1]
    return below + (above - below) * (epoch - left) / (right - left)


def compare_with_published(path: Path) -> TextTable:
    """Return a measurement beside the published results whose number of units is nearest; UsageError without any."""
    measured = read_measurement(path)
    if measured.benchmark not in REFERENCES:
        raise UsageError(f"{path}: benchmark is {clean(measured.benchmark)!r}; expected one of {', '.join(REFERENCES)}")
    if measured.network != FULL:
        raise UsageError(
            f"{path}: the {clean(measured.network)} network was measured, published results have the full one"
        )
    results = [
        result
        for result in read_published()
        if result.row.benchmark == measured.benchmark and result.mean(EPOCH_TIME) and result.units
    ]
    if not results:
        raise UsageError(f"{path}: there are no published results of {measured.benchmark} with the time of an epoch")
    results.sort(key=lambda result: abs(math.log((result.units or 1) / measured.units)))
    rate = measured.samples_per_s_per_unit
    columns = (
        *map(_name_column, ("round", "organisation", "system", "device", "division")),
        Column[AnalysedSet]("units", "", lambda result: plain(result.units)),
        Column[AnalysedSet]("batch", "", lambda result: plain(result.row.batch_size or 0)),
        Column[AnalysedSet]("rate", "samples/s", lambda result: f"{_published_rate(result):,.0f}"),
        Column[AnalysedSet](
            "of a unit",
            "samples/s",
            lambda result: f"{_published_rate(result) / (result.units or 1):,.3g}",
        ),
        Column[AnalysedSet](
            "measured",
            "by a unit's",
            lambda each: f"{rate * (each.units or 1) / _published_rate(each):.3g}",
        ),
    )
    title = (
        f"{path.name}, not an MLPerf result: {measured.benchmark}, units {plain(measured.units)}, "
        f"{measured.samples_per_s:,.4g} samples/s, {rate:,.4g} a unit; published epochs include their evaluation"
    )
    return make_table(clean(title), columns, results[:8])


def _name_column(field: str) -> Column[AnalysedSet]:
    return Column(field, "", lambda result: clean(getattr(result.row, field)), numeric=False)


def _published_rate(result: AnalysedSet) -> float:
    """Return the samples per second of a result that has the time of an epoch."""
    samples = REFERENCES[result.row.benchmark].dataset.train_samples[result.row.round][0]
    return samples / (60 * (result.mean(EPOCH_TIME) or math.inf))
