"""Count what each rule finds in the published results: how many logs and results, and every warning in words.

    python bench/finding_rates.py                                   checks ../shared/corpus, shows the page
    python bench/finding_rates.py -o docs/reference/finding-rates.md
    python bench/finding_rates.py --corpus FOLDER                   with published_v*.tar.xz, or packages to check

A warning must be true, worth a minute of the reader's time, and rare: this page is how we see it. A test compares it
with the checker wherever the published logs are at hand.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from published import write_page

from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, NOTE, WARNING, Finding
from compliance.model.report import Report
from compliance.rules.catalog import all_rules

HEAD = """# How often each rule finds something

What the profile strict finds in {results} published results with {logs} logs, counted per rule. Written by
`python bench/finding_rates.py -o docs/reference/finding-rates.md`; do not edit. The results are those of rounds
0.7 to 3.0 whose logs are at hand without code, so rules about `benchmarks/` find nothing, and PKG08, which
says that there is no code, is left out. What several logs of a result share is counted once where the rule reports it
once.
"""


def page(report: Report, folder: Path) -> str:
    """Return the page about the results below a folder."""
    found: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in (finding for finding in report.findings if finding.rule != "PKG08"):
        found[(finding.rule, finding.severity)].append(finding)
    warnings = sum(len(findings) for (_, severity), findings in found.items() if severity == WARNING)
    per_result = warnings / len(report.sets)
    lines = [HEAD.format(results=len(report.sets), logs=len(report.runs)), "| rule | errors | warnings | notes | |"]
    lines.append("|---|---|---|---|---|")
    for rule in sorted({rule for rule, _ in found}):
        counts = " | ".join(_count(found.get((rule, severity), [])) for severity in (ERROR, WARNING, NOTE))
        lines.append(f"| {rule} | {counts} | {all_rules()[rule].title()} |")
    lines += ["", "Each count: findings (results or packages concerned).", "", "## Every warning", ""]
    lines.append(f"{warnings} warnings in {len(report.sets)} results: {per_result:.2f} per result.")
    lines += ["", "| rule | where | warning |", "|---|---|---|", *sorted(_warnings(folder, found))]
    return "\n".join(lines) + "\n"


def _count(findings: list[Finding]) -> str:
    return f"{len(findings)} ({len({_result(finding.path) for finding in findings})})" if findings else ""


def _result(path: str) -> str:
    """Return the folder of the result that a path belongs to; of a package's own file, the package."""
    parts = Path(path).parts
    if "results" not in parts:
        return str(Path(*parts[: parts.index("systems")])) if "systems" in parts else path
    return str(Path(*parts[: parts.index("results") + (3 if "v0.7" in parts else 4)]))


def _warnings(folder: Path, found: dict[tuple[str, str], list[Finding]]) -> Iterator[str]:
    for (rule, severity), findings in found.items():
        for finding in findings if severity == WARNING else ():
            yield f"| {rule} | {Path(finding.path).relative_to(folder)} | {finding.message} |"


if __name__ == "__main__":
    sys.exit(write_page(__doc__, lambda folder: page(check_paths([folder], Options()), folder)))
