"""The verdict on a machine: each workload of a baseline beside its measurements of now, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common.errors import UsageError
from submission.accept.baseline import Baseline, Job, Series, check_apart, read_jobs
from submission.accept.statistics import FAIL, PASS, UNDECIDED, Comparison, compare_jobs, explain_verdict, judge_jobs

EXIT_STATUS: Final = {PASS: 0, FAIL: 1, UNDECIDED: 3}
FIDELITY_BOUND: Final = 0.01
"""How much further than in the worst measurement of the baseline a loss may be from float32's, relative to that."""


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The verdict on one workload. runs: of each job of the check. fidelity: the largest of the check."""

    name: str
    verdict: str
    reason: str
    comparison: Comparison
    runs: tuple[int, ...]
    fidelity: float | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The verdict on a machine: FAIL if a workload fails, else UNDECIDED if a workload is, else PASS.

    provisional: what the baseline lacks; empty for a complete one. environment: machine and versions of the check.
    """

    verdict: str
    date: str
    threshold: float
    provisional: tuple[str, ...]
    workloads: tuple[WorkloadVerdict, ...]
    environment: Mapping[str, str]


def judge_machine(baseline: Baseline, files: Sequence[Sequence[Path]], threshold: float) -> Acceptance:
    """Return the verdict on measurements, the files of each job of a check.

    Raises UsageError if they are not comparable with the baseline, or lack one of its workloads.
    """
    measured = [workload for job in files for workload in read_jobs(job)]
    for each in measured:
        baseline.check_comparable(each.workload, each.source)
    pairs = [(entry, [each.job for each in measured if each.workload == entry.workload]) for entry in baseline.series]
    if absent := [series.workload.name for series, jobs in pairs if not jobs]:
        raise UsageError(f"no measurement of {' and of '.join(absent)}: the verdict is on all of the baseline")
    for series, jobs in pairs:
        check_apart(f"check of {series.workload.name}", jobs)
    comparisons = [compare_jobs(series.rates, [job.samples_per_s for job in jobs]) for series, jobs in pairs]
    verdicts = judge_jobs(comparisons, threshold)
    workloads = []
    for (series, jobs), comparison, verdict in zip(pairs, comparisons, verdicts, strict=True):
        fidelity = _find_worst(jobs)
        workloads.append(
            WorkloadVerdict(
                name=series.workload.name,
                verdict=verdict,
                reason=explain_verdict(verdict, comparison, len(pairs), threshold),
                comparison=comparison,
                runs=tuple(len(job.samples_per_s) for job in jobs),
                fidelity=fidelity,
                warnings=tuple(_find_warnings(series, jobs, fidelity)),
            )
        )
    return Acceptance(
        verdict=next((verdict for verdict in (FAIL, UNDECIDED) if verdict in verdicts), PASS),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        threshold=threshold,
        provisional=tuple(baseline.incomplete_series),
        workloads=tuple(workloads),
        environment=pairs[0][1][-1].environment,
    )


def _find_worst(jobs: Sequence[Job]) -> float | None:
    return max((value for job in jobs for value in job.fidelity), default=None)


def _find_warnings(series: Series, jobs: Sequence[Job], fidelity: float | None) -> Iterator[str]:
    """Yield what a reader of the verdict should know, and what does not decide it."""
    before = _find_worst(series.jobs)
    if fidelity is not None and before is not None and fidelity > before + FIDELITY_BOUND:
        yield (
            f"the loss is {fidelity:.2%} from float32's, in the baseline {before:.2%} at most: worse by over "
            f"{FIDELITY_BOUND:.0%} of the loss"
        )
    for name, value in jobs[-1].environment.items():
        values = {job.environment.get(name, value) for job in series.jobs}
        if value not in values:
            yield f"{name} is {value}, in the baseline {' or '.join(sorted(values))}"
