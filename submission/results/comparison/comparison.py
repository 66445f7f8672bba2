"""Compare two results, facts and measures side by side; or a measurement with published results of similar scale."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from common.command import UsageError, clean
from common.measure.fom import Measurement, read_measurement
from common.reference import FULL
from common.values import is_number
from compliance.benchmarks import REFERENCES, reference_of
from compliance.formats.table import TextTable
from compliance.formats.words import STAGED, convergence_text, plain
from compliance.logs.run import Run
from compliance.logs.timeline import PARTS
from compliance.model.judged_run import JudgedRun
from compliance.model.score import BOTH, Throughput, TimeToTrain
from submission.results.comparison.sides import ABSENT, Pair, Side, changes, configured, differing, logged, mean
from submission.results.fits.projection import read_published
from submission.results.quantities import EPOCH_TIME, SAMPLES, AnalysedSet, quantities

CURVE_POINTS: Final = 8
TTT, NORMALISED, SCALED = "time to train, min", "normalised by RCP, min", "scaled by scaling.json, min"
TTT_ALL, RATE, NORMALISED_RATE = "first start to last stop, min", "models/min", "normalised by RCP, models/min"
ENERGY, ENERGY_ALL = "energy of a run, kJ", "energy of all models, kJ"
RUN_TIME: Final = "run_start to run_stop, mean, min"
CLOCKED: Final = (TTT, NORMALISED, SCALED, TTT_ALL, RATE, NORMALISED_RATE, ENERGY, ENERGY_ALL, RUN_TIME)
"""Measures that contain the staging of the data if it lies between run_start and run_stop."""


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One fact or measure; ABSENT for a fact that a side does not have, None for a missing measure.

    comparable: the measures of both sides are of one kind; False for times of which only one contains staging.
    """

    what: str
    a: Any
    b: Any
    comparable: bool = True

    @property
    def ratio(self) -> float | None:
        """B / A, if both are numbers that can be compared."""
        numbers = self.comparable and is_number(self.a) and is_number(self.b)
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
    """Two results of one benchmark side by side.

    changes: `key=value` for B to train with A's hyperparameters, quoted for a shell. as_overrides: the keys are
    those of B's configuration, not of its log.
    """

    pair: Pair
    sections: tuple[Section, ...]
    changes: tuple[str, ...]
    as_overrides: bool


def compare(pair: Pair) -> Comparison:
    """Compare two results of a benchmark."""
    a, b = pair.a, pair.b
    of_logs, of_configurations = ((of(a.runs), of(b.runs)) for of in (logged, configured))
    as_overrides = all(of_configurations)
    wanted, present = of_configurations if as_overrides else of_logs
    staged = bool(a.staging_clock or b.staging_clock)
    key = a.reference.target.key if a.reference else "quality"
    sections = (
        _facts("Runs", _about(a), _about(b), everything=True),
        _measures("Score", _score(a, staged), _score(b, staged), () if same_clock(a, b) else CLOCKED),
        _facts("Hyperparameters, as logged", of_logs[0], of_logs[1], everything=True),
        *([_facts("Configuration", *of_configurations)] if as_overrides else []),
        _measures("Convergence", _convergence(a), _convergence(b)),
        Section(f"{key}, mean of the runs that reached the epoch", "measures", tuple(_curves(a, b))),
        _measures("Time", _times(a), _times(b), () if same_clock(a, b) else CLOCKED),
        _facts("System and software", _system(a), _system(b)),
    )
    shown = tuple(section for section in sections if section.lines or section.same)
    return Comparison(pair, shown, tuple(changes(wanted, present)), as_overrides)


def _facts(title: str, a: dict[str, Any], b: dict[str, Any], everything: bool = False) -> Section:
    keys = list(dict.fromkeys((*a, *b)))
    shown = keys if everything else differing(a, b)
    lines = tuple(ComparisonLine(key, a.get(key, ABSENT), b.get(key, ABSENT)) for key in shown)
    return Section(title, "facts", lines, len(keys) - len(shown))


def same_clock(a: Side, b: Side) -> bool:
    """Tell whether the times of both sides contain their staging, or both do not."""
    return BOTH not in (a.staging_clock, b.staging_clock) and len({a.staging_clock, b.staging_clock} - {""}) < 2


def _measures(title: str, a: dict[str, Any], b: dict[str, Any], not_comparable: Sequence[str] = ()) -> Section:
    """Return the section, without measures that neither side has."""
    keys = dict.fromkeys((*a, *b))
    lines = (ComparisonLine(key, a.get(key), b.get(key), key not in not_comparable) for key in keys)
    return Section(title, "measures", tuple(line for line in lines if (line.a, line.b) != (None, None)))


# -- facts -------------------------------------------------------------------------------------------------


def _about(side: Side) -> dict[str, Any]:
    results = side.results
    samples = {run.details.samples_per_epoch for run in side.runs}
    facts = {
        "round": f"v{side.runs[0].round}",
        "division": side.division,
        "problem": side.variant,
        "scaling": side.scaling,
        "samples of an epoch": samples.pop() if len(samples) == 1 else None,
        "runs": len(side.runs),
        "runs that a result needs": side.reference.runs if side.reference else None,
        "failing logs": sum(run.verdict == "FAIL" for run in side.runs),
        "staging": STAGED.get(side.staging_clock),
        "convergence": convergence_text(results) if results else None,
    }
    return {key: value for key, value in facts.items() if value not in (None, "")}


def _system(side: Side) -> dict[str, Any]:
    """Return the system description, and the versions, sources and machine in logs of this suite."""
    run = side.runs[0]
    facts = {"number_of_nodes (log)": run.nodes, "accelerators_per_node (log)": run.accelerators_per_node}
    if side.results and side.results.description:
        facts |= side.results.description.fields
    for key, value in run.details.provenance.items():
        if key not in ("config", "hyperparameters"):
            inner = value.items() if isinstance(value, dict) else [("", value)]
            facts |= {f"{key}.{name}".rstrip("."): item for name, item in inner}
    return {key: value for key, value in facts.items() if value is not None}


# -- measures ----------------------------------------------------------------------------------------------


def _score(side: Side, staged: bool) -> dict[str, Any]:
    score = side.results.score if side.results else None
    if isinstance(score, TimeToTrain):
        return {
            TTT: score.minutes,
            NORMALISED: score.normalized if score.normalization > 1 else None,
            SCALED: score.scaled,
            **(_on_other_clocks("time to train", score) if staged else {}),
            ENERGY: _kilo(score.energy_joules),
        }
    if isinstance(score, Throughput):
        return {
            "models": score.models,
            TTT_ALL: score.minutes,
            **(_on_other_clocks("first start to last stop", score) if staged else {}),
            RATE: score.models_per_minute,
            NORMALISED_RATE: score.normalized_models_per_minute if score.normalization > 1 else None,
            ENERGY_ALL: _kilo(score.energy_joules),
        }
    return {}


def _kilo(joules: float | None) -> float | None:
    return None if joules is None else joules / 1000


def _on_other_clocks(what: str, score: TimeToTrain | Throughput) -> dict[str, Any]:
    return {
        f"{what} with staging, min": score.time_with_staging_minutes,
        f"{what} without staging, min": score.time_without_staging_minutes,
    }


def _convergence(side: Side) -> dict[str, Any]:
    judged = side.results.judged_convergence if side.results else None
    unit = side.unit
    return {
        "runs that converged": sum(run.converged for run in side.runs),
        f"{unit} to target, per run": tuple(map(_converged_after, side.runs)),
        f"{unit} to target, mean": side.mean(_converged_after),
        f"{unit} of the reference (RCP), mean": judged.point.mean if judged and judged.point else None,
        **({"samples to target, mean": side.mean(_if_converged(SAMPLES))} if unit != "samples" else {}),
        "steps to target, mean": side.mean(_if_converged("run_steps")),
    }


def _converged_after(run: Run) -> float | None:
    return _from_one(run, run.convergence) if run.converged and is_number(run.convergence) else None


def _from_one(run: Run, epoch: float) -> float:
    """Return the number of an epoch in a log that counts from 1; some logs count from 0. Samples stay as they are."""
    reference = reference_of(run.benchmark, run.variant)
    counts_epochs = reference is None or reference.epoch_unit == "epochs"
    return epoch + 1 if counts_epochs and run.details.phases.first == 0 else epoch


def _measure(run: JudgedRun, name: str) -> float | None:
    """Return a quantity of a run as the analysis measures it, up to the last evaluation that counts."""
    return quantities(run, reference_of(run.benchmark, run.variant), None).get(name)


def _if_converged(name: str) -> Callable[[JudgedRun], float | None]:
    return lambda run: _measure(run, name) if run.converged else None


def _times(side: Side) -> dict[str, Any]:
    rate = side.mean(_rate)
    return {
        "run_start to run_stop, per run, min": tuple(run.minutes for run in side.runs),
        RUN_TIME: side.mean(lambda run: run.minutes),
        **{f"{part}, mean, min": mean(_minutes(run.details.seconds.get(part)) for run in side.runs) for part in PARTS},
        "time of an epoch, mean, min": side.mean(lambda run: _minutes(mean(run.details.epoch_seconds))),
        "training, samples/s": rate,
        "training, samples/s per accelerator (node)": rate / side.scale if rate is not None and side.scale else None,
    }


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60


def _rate(run: JudgedRun) -> float | None:
    samples, seconds = _measure(run, SAMPLES), run.details.seconds.get("train")
    return samples / seconds if samples is not None and seconds else None


# -- curves ------------------------------------------------------------------------------------------------

Points = list[tuple[float, float]]


def _curves(a: Side, b: Side) -> Iterator[ComparisonLine]:
    """Yield the mean quality of both sides at up to CURVE_POINTS epochs at which A was evaluated and B was training."""
    of_a, of_b = ([curve for curve in map(_curve, side.runs) if curve] for side in (a, b))
    if not of_a or not of_b:
        return
    first = max(min(curve[0][0] for curve in curves) for curves in (of_a, of_b))
    last = min(max(curve[-1][0] for curve in curves) for curves in (of_a, of_b))
    epochs = sorted({epoch for curve in of_a for epoch, _ in curve if first <= epoch <= last})
    if len(epochs) > CURVE_POINTS:  # evenly spaced, with the first and the last
        epochs = [epochs[round(at * (len(epochs) - 1) / (CURVE_POINTS - 1))] for at in range(CURVE_POINTS)]
    for epoch in epochs:
        of_both = [mean(_interpolate(curve, epoch) for curve in curves) for curves in (of_a, of_b)]
        yield ComparisonLine(f"{a.unit.removesuffix('s')} {epoch:,.10g}", of_both[0], of_both[1])


def _curve(run: Run) -> Points:
    """Return (epoch, quality), ascending; the last of several evaluations of an epoch counts."""
    numbered = ((one.epoch, one.value) for one in run.details.evaluations if one.epoch is not None)
    return sorted({float(_from_one(run, epoch)): value for epoch, value in numbered}.items())


def _interpolate(curve: Points, epoch: float) -> float | None:
    """Return the quality at an epoch, interpolated linearly between evaluations; None outside the curve."""
    if not curve[0][0] <= epoch <= curve[-1][0]:
        return None
    after = bisect_left(curve, (epoch,))
    (right, above) = curve[after]
    if right == epoch:
        return above
    (left, below) = curve[after - 1]
    return below + (above - below) * (epoch - left) / (right - left)


# -- published results -------------------------------------------------------------------------------------

MOST_PUBLISHED: Final = 8
"""Published results that are shown."""
PUBLISHED_HEADINGS: Final = (
    *(("round", ""), ("organisation", ""), ("system", ""), ("hardware", ""), ("division", "")),
    *(("units", ""), ("batch", ""), ("rate", "samples/s"), ("of a unit", "samples/s"), ("measured", "by a unit's")),
)
PUBLISHED_NUMERIC: Final = (*(False,) * 5, *(True,) * 5)


def compare_with_published(path: Path) -> TextTable:
    """Return a measurement beside the published results whose number of units is nearest; UsageError without any."""
    found = read_measurement(path)
    if found.benchmark not in REFERENCES:
        raise UsageError(f"{path}: benchmark is {clean(found.benchmark)!r}; expected one of {', '.join(REFERENCES)}")
    if found.network != FULL:
        raise UsageError(
            f"{path}: the {clean(found.network)} network was measured, published results have the full one"
        )
    results = [one for one in read_published() if one.row.benchmark == found.benchmark and one.mean(EPOCH_TIME)]
    if not results:
        raise UsageError(f"{path}: there are no published results of {found.benchmark} with the time of an epoch")
    results.sort(key=lambda one: abs(math.log(one.units / found.units)) if one.units else math.inf)
    title = (
        f"{path.name}, not an MLPerf result: {found.benchmark}, units {plain(found.units)}, "
        f"{found.samples_per_s:,.4g} samples/s, {found.samples_per_s_per_unit:,.4g} a unit; "
        "published epochs include their evaluation"
    )
    rows = tuple(_published_cells(found, one) for one in results[:MOST_PUBLISHED])
    return TextTable(clean(title), PUBLISHED_HEADINGS, rows, PUBLISHED_NUMERIC)


def _published_cells(found: Measurement, one: AnalysedSet) -> tuple[str, ...]:
    samples = REFERENCES[found.benchmark].dataset.train_samples[one.row.round][0]
    rate = samples / (60 * (one.mean(EPOCH_TIME) or math.inf))
    each = rate / one.units if one.units else math.nan
    row = one.row
    return (
        *map(clean, (row.round, row.organisation, row.system, row.accelerator or row.processor, row.division)),
        plain(one.units or 0),
        plain(row.batch_size or 0),
        f"{rate:,.0f}",
        f"{each:,.3g}",
        f"{found.samples_per_s_per_unit / each:.3g}",
    )
