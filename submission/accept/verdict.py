"""The verdict on a machine: each workload of a baseline beside its measurements of now, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from common.errors import UsageError
from common.measure.fom import ERRORS
from submission.accept.baseline import JOBS, Baseline, Job, Series, check_apart, read_jobs
from submission.accept.statistics import FAIL, PASS, UNDECIDED, Comparison, compare_jobs, explain_verdict, judge_jobs

EXIT_STATUS: Final = {PASS: 0, FAIL: 1, UNDECIDED: 3}


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The verdict on one workload. runs: of each job of the check. fidelity: the median of loss_errors."""

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


def judge_machine(baseline: Baseline, files: Sequence[Sequence[Path]], threshold: float, is_own: bool) -> Acceptance:
    """Return the verdict on measurements, the files of each job of a check. is_own: see `read_jobs`.

    Raises UsageError if they are not comparable with the baseline, or lack one of its workloads.
    """
    measured = [workload for job in files for workload in read_jobs(job, is_own)]
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
        reason = explain_verdict(verdict, comparison, len(pairs), threshold)
        if verdict == UNDECIDED and len(series.jobs) < JOBS:
            reason = f"complete the baseline first, which has {len(series.jobs)} of {JOBS} jobs; as it is, {reason}"
        workloads.append(
            WorkloadVerdict(
                name=series.workload.name,
                verdict=verdict,
                reason=reason,
                comparison=comparison,
                runs=tuple(len(job.samples_per_s) for job in jobs),
                fidelity=median(losses) if (losses := _list_errors(jobs, "loss_errors")) else None,
                warnings=tuple(_find_warnings(series, jobs)),
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


def _list_errors(jobs: Sequence[Job], name: str) -> list[float]:
    """Return the errors of all seeds in jobs; [] where none were measured."""
    return [value for job in jobs for value in job.errors.get(name, ())]


def _find_warnings(series: Series, jobs: Sequence[Job]) -> Iterator[str]:
    """Yield what a reader of the verdict should know, and what does not decide it."""
    unknown = []
    for name, noun in ERRORS.items():
        errors, former = _list_errors(jobs, name), _list_errors(series.jobs, name)
        if errors and not former:
            unknown.append(noun)
        elif errors and median(errors) > max(former):
            yield (
                f"{noun} are {median(errors):.2%} from float32's, the median over seeds: in the baseline no seed is "
                f"further off than {max(former):.2%}"
            )
    if unknown:
        nouns = ", ".join(unknown)
        yield f"the baseline does not say how far {nouns} are from float32's: record it again with --fidelity"
    for name in dict.fromkeys(name for job in jobs for name in job.environment):
        now, before = (
            {job.environment[name] for job in side if name in job.environment} for side in (jobs, series.jobs)
        )
        if before and now - before:
            yield f"{name} is {' or '.join(sorted(now))}, in the baseline {' or '.join(sorted(before))}"
