"""The whole analysis of trees of results: quantities, fits, projections and the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compliance.engine.options import Options
from compliance.model.waivers import meant
from submission.analysis.cost.model import (
    CostedStep,
    CostModel,
    ModelError,
    ceilings_of,
    read_ceilings,
    read_workloads,
)
from submission.analysis.facts import Facts, known_facts, read_facts
from submission.analysis.fits.fit import (
    Fit,
    against_power_cap,
    energy_against_units,
    epoch_time_against_units,
    epochs_against_batch,
)
from submission.analysis.fits.projection import Projections, projections
from submission.analysis.fits.published import published
from submission.analysis.model import AnalysedSet
from submission.analysis.sets import analyse
from submission.summary.rows import NoResultsError, read_logs

LARGE: Final = (10_000, 20_000, 50_000, 100_000)
"""Units for which the cost model is shown."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user gives beside results: files of facts and ceilings, and the units to project to."""

    facts: str | None = None
    ceilings: str | None = None
    project: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of all results.

    costed: least times of a step on many units; no results, as the projections. warnings: what of the user's files has
    no effect.
    """

    sets: list[AnalysedSet]
    fits: list[Fit]
    projected: Projections
    costed: list[CostedStep]
    cost_error: ModelError
    warnings: tuple[str, ...] = ()


def analyse_trees(paths: Sequence[str], options: Options, settings: Settings) -> Analysis:
    """Return the analysis of all results below the paths.

    Raises NoResultsError if there are none, UsageError for a path or a file of the user's that cannot be used.
    """
    own = read_facts(Path(settings.facts)) if settings.facts else Facts()
    facts = known_facts().updated(own)
    ceilings = read_ceilings(Path(settings.ceilings)) if settings.ceilings else read_ceilings()
    model = CostModel(read_workloads(), ceilings)
    report = read_logs(paths, options)
    if not report.runs:
        raise NoResultsError(f"no logs in {', '.join(paths)}: expected submissions, or files result_*.txt")
    sets = analyse(report, facts)
    good = [one for one in sets if not one.problem]
    return Analysis(
        sets,
        list(_fits(good, facts)),
        projections(good, settings.project, published()),
        list(_costed(good, model)),
        model.published_pairs(good),
        (*_unused(own, settings, sets), *(_unknown(good, model, settings))),
    )


def _unused(own: Facts, settings: Settings, sets: Sequence[AnalysedSet]) -> Iterator[str]:
    """Yield what of the user's facts names no result."""
    known = [one.full_name for one in sets]
    for name in own.names():
        if name not in known:
            yield f"{settings.facts}: no result is named {name}{meant(name, known)}"


def _unknown(sets: Sequence[AnalysedSet], model: CostModel, settings: Settings) -> Iterator[str]:
    """Yield the hardware that the user's ceilings do not have."""
    devices = dict.fromkeys(one.row.device for one in sets if not one.row.mini)
    for name in devices if settings.ceilings else ():
        if not ceilings_of(name, model.ceilings):
            yield f"{settings.ceilings}: no entry matches {name!r}; the cost model leaves it out"


def _fits(sets: Sequence[AnalysedSet], facts: Facts) -> Iterator[Fit]:
    yield from epochs_against_batch(sets)
    yield from epoch_time_against_units(sets)
    yield from energy_against_units(sets)
    yield from against_power_cap(sets, facts.power_cap_watts)


def _costed(sets: Sequence[AnalysedSet], model: CostModel) -> Iterator[CostedStep]:
    """Yield the cost on many units of each benchmark and hardware among the results, at their largest batch size."""
    batches: dict[tuple[str, str], int] = {}
    for one in sets:
        known = model.published(one)
        if known is not None:
            key = (known.workload, known.ceilings)
            batches[key] = max(batches.get(key, 0), known.batch_size)
    for (workload, ceilings), batch in sorted(batches.items()):
        yield from model.scale_out(workload, ceilings, LARGE, batch)
