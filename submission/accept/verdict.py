"""The verdict on a machine: each workload of a baseline beside its measurements of now, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common.errors import UsageError
from submission.accept.baseline import Baseline, Job, Series, Workload
from submission.accept.statistics import (
    ALPHA,
    FAIL,
    PASS,
    POWER,
    UNDECIDED,
    Comparison,
    advise_sizes,
    compare_jobs,
    judge_comparisons,
    loss_to_find,
)

EXIT_STATUS: Final = {PASS: 0, FAIL: 1, UNDECIDED: 3}
FIDELITY_BOUND: Final = 0.01
"""How much further than in the worst measurement of the baseline a loss may be from float32's, relative to that."""
CheckJob = Mapping[Workload, tuple[Job, Sequence[Path]]]
"""The measurements of a job and their files."""


@dataclass(frozen=True, slots=True)
class BenchmarkVerdict:
    """The verdict on one workload.

    samples_per_s: mean of its jobs, of a job the geometric mean. ratio: by the baseline. p: of the one-sided
    test. within, between: spread of the baseline's runs in a job,
    and of the effects of jobs. runs: of each job of the check. fidelity: the largest of the check and of the baseline.
    """

    name: str
    verdict: str
    reason: str
    samples_per_s: float
    ratio: float
    p: float
    within: float
    between: float
    baseline_jobs: int
    runs: tuple[int, ...]
    fidelity: float | None
    baseline_fidelity: float | None
    warnings: tuple[str, ...]

    @property
    def baseline_samples_per_s(self) -> float:
        """The speed that `ratio` is relative to."""
        return self.samples_per_s / self.ratio


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The verdict on a machine. provisional: what the baseline lacks; empty for a complete one."""

    verdict: str
    date: str
    threshold: float
    provisional: tuple[str, ...]
    benchmarks: tuple[BenchmarkVerdict, ...]
    machine: Mapping[str, str]
    versions: Mapping[str, str]


def judge_machine(baseline: Baseline, checks: Sequence[CheckJob], threshold: float) -> Acceptance:
    """Return the verdict on the jobs of a check; UsageError if they are not comparable with the baseline, or not whole.

    FAIL if a workload fails; else UNDECIDED if a workload is; else PASS.
    """
    found: dict[int, list[Job]] = {}
    for check in checks:
        for workload, (job, files) in check.items():
            found.setdefault(baseline.series.index(baseline.find_series(workload, files[0])), []).append(job)
    absent = [series.workload.name for at, series in enumerate(baseline.series) if at not in found]
    if absent:
        raise UsageError(f"no measurement of {' and of '.join(absent)}: the verdict is on all of the baseline")
    pairs = [(series, found[at]) for at, series in enumerate(baseline.series)]
    comparisons = [compare_jobs(series.rates, [job.samples_per_s for job in jobs]) for series, jobs in pairs]
    level = ALPHA / len(pairs)
    verdicts = judge_comparisons(comparisons, threshold)
    results = []
    for (series, jobs), comparison, verdict in zip(pairs, comparisons, verdicts, strict=True):
        if verdict == FAIL:
            reason = f"{1 - comparison.ratio:.1%} slower than the baseline, p {comparison.p:.2g}"
        elif verdict == UNDECIDED:
            reason = advise_sizes(comparison, level, threshold)
        else:
            reason = f"a loss of {loss_to_find(threshold):.0%} would have been found with {POWER:.0%} power"
        results.append(_describe_workload(series, jobs, comparison, verdict, reason))
    latest = max((job for _, jobs in pairs for job in jobs), key=lambda job: job.begin)
    return Acceptance(
        verdict=next((verdict for verdict in (FAIL, UNDECIDED) if verdict in verdicts), PASS),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        threshold=threshold,
        provisional=tuple(baseline.lacks),
        benchmarks=tuple(results),
        machine=latest.machine,
        versions=latest.versions,
    )


def _describe_workload(
    series: Series, jobs: Sequence[Job], comparison: Comparison, verdict: str, reason: str
) -> BenchmarkVerdict:
    worst, before = (max((v for job in side for v in job.fidelity), default=None) for side in (jobs, series.jobs))
    return BenchmarkVerdict(
        name=series.workload.name,
        verdict=verdict,
        reason=reason,
        samples_per_s=comparison.mean_rate,
        ratio=comparison.ratio,
        p=comparison.p,
        within=comparison.within,
        between=comparison.between,
        baseline_jobs=len(series.jobs),
        runs=tuple(len(job.samples_per_s) for job in jobs),
        fidelity=worst,
        baseline_fidelity=before,
        warnings=tuple(_find_warnings(series, jobs, worst, before)),
    )


def _find_warnings(series: Series, jobs: Sequence[Job], worst: float | None, before: float | None) -> list[str]:
    """Return what a reader of the verdict should know, and what does not decide it."""
    warnings = []
    if worst is not None and before is not None and worst > before + FIDELITY_BOUND:
        warnings.append(
            f"the loss is {worst:.2%} from float32's, in the baseline {before:.2%} at most: worse by over "
            f"{FIDELITY_BOUND:.0%} of the loss"
        )
    now, then = (_collect_facts(side) for side in (jobs, series.jobs))
    warnings += [
        f"{name} is {' or '.join(sorted(values))}, in the baseline {' or '.join(sorted(then[name]))}"
        for name, values in now.items()
        if name in then and values - then[name]
    ]
    return warnings


def _collect_facts(jobs: Sequence[Job]) -> dict[str, set[str]]:
    """Return the values that jobs have of each fact on machine and versions."""
    facts: dict[str, set[str]] = {}
    for job in jobs:
        for name, value in {**job.machine, **job.versions}.items():
            facts.setdefault(name, set()).add(value)
    return facts
