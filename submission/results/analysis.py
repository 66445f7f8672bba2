"""The whole analysis of results: quantities, fits, projections and the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command import suggest_name
from common.measure.devices import ceilings_of, read_ceilings
from common.values import group_pairs
from compliance.model.report import Report
from submission.results.cost_model import CostedStep, CostModel, ModelError, read_workloads
from submission.results.fits import fit
from submission.results.fits.projection import Projections, project_sets, read_published
from submission.results.quantities import AnalysedSet
from submission.results.sets import Facts, analyse_sets, read_facts


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of all results.

    costed: least times of a step on many units and of each projection; no results. warnings: what of the user's files
    has no effect.
    """

    sets: list[AnalysedSet]
    fits: list[fit.Fit]
    projected: Projections
    costed: list[CostedStep]
    cost_error: ModelError
    warnings: tuple[str, ...] = ()


def analyse_report(
    report: Report, facts_file: str | None = None, ceilings_file: str | None = None, units: Sequence[int] = ()
) -> Analysis:
    """Return the analysis of all results of a report with details.

    facts_file, ceilings_file: of the user's, if any; UsageError if they cannot be used. units: to project results to.
    """
    own = read_facts(Path(facts_file)) if facts_file else Facts()
    facts = read_facts().update_facts(own)
    model = CostModel(
        read_workloads(),
        read_ceilings(Path(ceilings_file)) if ceilings_file else read_ceilings(),
    )
    sets = analyse_sets(report, facts)
    good, names = [result for result in sets if not result.problem], [result.full_name for result in sets]
    unused = (name for name in own.list_names() if name not in names)
    warnings = [f"{facts_file}: no result is named {name}{suggest_name(name, names)}" for name in unused]
    if ceilings_file:
        devices = dict.fromkeys(result.row.device for result in good if not result.row.mini)
        unknown = (device for device in devices if not ceilings_of(device, model.ceilings))
        warnings += [
            f"{ceilings_file}: no entry matches {device!r}; the cost model leaves it out" for device in unknown
        ]
    fits = [
        *fit.epochs_against_batch(good),
        *fit.against_units(good),
        *fit.against_power_cap(good, facts.power_cap_watts),
    ]
    projected = project_sets(good, units, model, read_published())
    bounded = (each for each in projected.projections if each.ceilings)
    bounds = (model.cost_step(p.workload, p.ceilings, p.units, p.batch_size, p.spatial) for p in bounded)
    costed = list(dict.fromkeys((*_cost_many_units(good, model), *bounds)))
    return Analysis(sets, fits, projected, costed, model.published_pairs(good), tuple(warnings))


def _cost_many_units(sets: Sequence[AnalysedSet], model: CostModel) -> Iterator[CostedStep]:
    """Yield the cost on many units of each benchmark and hardware among the results, at their largest batch size."""
    steps = filter(None, map(model.cost_result, sets))
    batches = group_pairs(((step.workload, step.ceilings), step.batch_size) for step in steps)
    for (workload, ceilings), sizes in sorted(batches.items()):
        yield from model.scale_out(workload, ceilings, (10_000, 20_000, 50_000, 100_000), max(sizes))
