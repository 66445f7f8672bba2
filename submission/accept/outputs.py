"""The verdict on a machine, each workload of a baseline beside its measurements of now; and what it is written as.

That is a table, JSON, JUnit XML, a line of a history, or an archive with all that the verdict rests on.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final
from xml.etree import ElementTree as Xml

from common.command import clean
from common.errors import UsageError
from common.files import follow_no_link, read_end, whole_file
from common.measure.fom import ERRORS
from common.tree import ANYWHERE
from compliance.formats.ci import xml_text
from compliance.formats.json import json_text
from compliance.formats.table import Column, make_table, plain_text, wrap_notes
from submission.accept.baseline import JOBS, MAX_BYTES, Baseline, Job, Series, check_apart, read_jobs
from submission.accept.statistics import FAIL, PASS, UNDECIDED, Comparison, compare_jobs, explain_verdict, judge_jobs
from submission.runs.plan import RECORD
from submission.runs.processes import OUTPUT
from submission.system.describe import describe_system, render_description

KIND: Final = "acceptance"
COLUMNS: Final[tuple[Column[WorkloadVerdict], ...]] = (
    Column("benchmark", "", lambda row: clean(row.name), numeric=False),
    Column(
        "baseline",
        "samples/s",
        lambda row: f"{row.comparison.mean_rate / row.comparison.ratio:.5g}",
    ),
    Column("now", "samples/s", lambda row: f"{row.comparison.mean_rate:.5g}"),
    Column("speed by", "baseline", lambda row: f"{row.comparison.ratio:.1%}"),
    Column("p", "", lambda row: f"{row.comparison.p:.2g}"),
    Column("spread", "in a job", lambda row: f"{row.comparison.within:.1%}"),
    Column("spread", "in a job now", lambda row: _format_share(row.comparison.check_within)),
    Column(
        "spread",
        "of jobs",
        lambda row: _format_share(row.comparison.between if row.comparison.jobs != (1, 1) else None),
    ),
    Column("runs", "", lambda row: "+".join(map(str, row.runs))),
    Column("fidelity", "", lambda row: "" if row.fidelity is None else f"{row.fidelity:.2%}"),
    Column("verdict", "", lambda row: row.verdict, numeric=False),
)


def render_table(acceptance: Acceptance, width: int | None) -> str:
    """Return the verdict as text: a table, then what explains it, then the verdict on the machine."""
    table = make_table("", COLUMNS, acceptance.workloads).without_empty()
    notes = [f"{row.name}: {row.verdict}: {row.reason}" for row in acceptance.workloads]
    notes += [f"warning: {row.name}: {warning}" for row in acceptance.workloads for warning in row.warnings]
    notes += [f"provisional: {lack}" for lack in acceptance.provisional]
    last = acceptance.verdict + " (PROVISIONAL: the baseline is not complete)" * bool(acceptance.provisional)
    return "\n".join([plain_text(table, width).strip("\n"), wrap_notes(map(clean, notes), width), last])


def describe_acceptance(acceptance: Acceptance) -> dict[str, Any]:
    """Return the verdict as plain values, for JSON."""
    return {"format": 1, "kind": KIND, **asdict(acceptance)}


def render_junit(acceptance: Acceptance) -> str:
    """Return the verdict as JUnit XML: FAIL is a failure, UNDECIDED an error, so that neither passes unseen."""
    name = "mlperf-hpc-accept" + " (provisional)" * bool(acceptance.provisional)
    suite = Xml.Element("testsuite", name=name, timestamp=acceptance.date)
    for row in acceptance.workloads:
        case = Xml.SubElement(suite, "testcase", classname="accept", name=row.name)
        if row.verdict in (FAIL, UNDECIDED):
            Xml.SubElement(case, "failure" if row.verdict == FAIL else "error", type=row.verdict, message=row.reason)
        Xml.SubElement(case, "system-out").text = "\n".join([row.reason, *row.warnings, *acceptance.provisional])
    return xml_text(suite)


def append_history(acceptance: Acceptance, path: Path) -> None:
    """Append the verdict to a file of JSON lines; what a killed process has left of a line stays alone on its own."""
    end = read_end(path)
    with open(path, "a", encoding="utf-8", opener=follow_no_link) as file:
        file.write("\n" * (end[-1:] not in (b"", b"\n")) + json.dumps(describe_acceptance(acceptance)) + "\n")


def check_history(path: Path) -> None:
    """Raise UsageError if verdicts must not be appended to a file: its last whole line is none."""
    lines = read_end(path).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")] or lines
    try:
        is_history = not lines or json.loads(whole[-1])["kind"] == KIND
    except (ValueError, TypeError, KeyError, RecursionError):
        is_history = False
    if not is_history:
        raise UsageError(f"--history {path}: its last line is no verdict of this command; name another file")


def _format_share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def write_archive(acceptance: Acceptance, baseline: Baseline, jobs: Sequence[Sequence[Path]], path: Path) -> None:
    """Write a .tar.gz of verdict, baseline, system description, and the figures, plans and outputs of all runs.

    Its manifest.json has the SHA-256 of every other file.
    """
    contents = {
        "verdict.json": json_text(describe_acceptance(acceptance)).encode(),
        "baseline.json": baseline.encode(),
        "system.json": render_description(describe_system({}).fields).encode(),
    }
    for number, figures in enumerate(jobs):
        for run, figure in enumerate(figures):
            for file in (figure, figure.with_name(RECORD), figure.with_name(OUTPUT)):
                if file.is_file():
                    contents[f"job_{number}/run_{run}/{file.name}"] = ANYWHERE.read(file, MAX_BYTES)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents["manifest.json"] = json_text({"sha256": digests}).encode()
    root = path.name.removesuffix(".tar.gz")
    with whole_file(path) as part, tarfile.open(part, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size, member.mtime = len(content), time.time()
            archive.addfile(member, io.BytesIO(content))


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
