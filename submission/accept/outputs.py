"""What a verdict is written as: a table, JSON, JUnit XML, a line of a history, an archive with all that it rests on."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as Xml

from common.command import clean
from common.errors import UsageError
from common.files import follow_no_link, read_end, whole_file
from common.tree import ANYWHERE
from compliance.formats.json import json_text
from compliance.formats.junit import xml_text
from compliance.formats.table import Column, make_table, plain_text, wrap_notes
from submission.accept.baseline import MAX_BYTES, Baseline
from submission.accept.statistics import FAIL, UNDECIDED
from submission.accept.verdict import Acceptance, WorkloadVerdict
from submission.runs.plan import RECORD
from submission.runs.processes import OUTPUT
from submission.system.describe import describe_system, render_description

FORMAT: Final = 1
"""Version of the JSON; it grows when a key changes its meaning or goes."""
KIND: Final = "acceptance"
MANIFEST: Final = "manifest.json"
COLUMNS: Final[tuple[Column[WorkloadVerdict], ...]] = (
    Column("benchmark", "", lambda row: clean(row.name), numeric=False),
    Column("baseline", "samples/s", lambda row: f"{row.comparison.mean_rate / row.comparison.ratio:.5g}"),
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
    return {"format": FORMAT, "kind": KIND, **asdict(acceptance)}


def render_junit(acceptance: Acceptance) -> str:
    """Return the verdict as JUnit XML: FAIL is a failure, UNDECIDED an error, so that neither passes unseen."""
    name = "mlperf-hpc-accept" + " (provisional)" * bool(acceptance.provisional)
    suite = Xml.Element("testsuite", name=name, timestamp=acceptance.date)
    for row in acceptance.workloads:
        case = Xml.SubElement(suite, "testcase", classname="accept", name=row.name)
        if row.verdict in (FAIL, UNDECIDED):
            tag = "failure" if row.verdict == FAIL else "error"
            Xml.SubElement(case, tag, type=row.verdict, message=row.reason)
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
    contents[MANIFEST] = json_text({"sha256": digests}).encode()
    root = path.name.removesuffix(".tar.gz")
    with whole_file(path) as part, tarfile.open(part, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size, member.mtime = len(content), time.time()
            archive.addfile(member, io.BytesIO(content))
