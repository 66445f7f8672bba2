"""Count what each rule finds in the published results: how many logs and results, and every warning in words.

    python bench/finding_rates.py                                   checks ../shared/corpus, shows the page
    python bench/finding_rates.py -o docs/reference/finding-rates.md
    python bench/finding_rates.py --corpus FOLDER                   with published_v*.tar.xz, or packages to check
    python bench/finding_rates.py --training -o docs/reference/training-rates.md

A warning must be true, worth a minute of the reader's time, and rare: this page is how we see it. A test compares it
with the checker wherever the published logs are at hand.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from published import TRAINING_ROUND, write_page

from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, NOTE, OFFICIAL, PASSING, STRICT, WARNING, Finding
from compliance.model.report import Report
from compliance.rules.catalog import all_rules
from compliance.rules.rule import OF_TRAINING, LogRule, PackageRule, SubmissionsRule, rules_of

HEAD = """# How often each rule finds something

What the profile strict finds in {results} published results with {logs} logs, counted per rule. Written by
`python bench/finding_rates.py -o docs/reference/finding-rates.md`; do not edit. The results are those of rounds
0.7 to 3.0 whose logs are at hand without code, so rules about `benchmarks/` find nothing, and PKG08, which
says that there is no code, is left out. What several logs of a result share is counted once where the rule reports it
once.
"""

TRAINING_HEAD = """# How often each rule finds something in MLPerf Training

What the profile strict finds in the published logs of round 4.1 of MLPerf Training (`training_v4.1.tar.xz`, all closed,
without code) that the committee's checker accepts: {logs} logs of {results} results of {packages} organisations.
Those of stable_diffusion are not among them: the committee's rule file of that benchmark cannot be read as data, so
this checker does not judge them. Measured on {day} with mlperf-logging 4.1.68. Written by
`python bench/finding_rates.py --training -o docs/reference/training-rates.md`; do not edit.

Each count: the logs in which the rule finds something, and their share of all; the results of a rule about results, or
of one that reports once what several logs of a result share; the packages of a rule about packages.

## Rules that are on

No rule is on by default that errs on more than 0.2 % of accepted logs. What the others find is true, as far as we
looked: logs name home directories (PRV01); two logs of a result are of one run, an error of RUN05, or end with the same
result to the last digit, a warning; a result has the logs of another one (RUN12); one result has a batch size without
reference points, which the committee's own test refuses, too (RCP01); one log of a result fails at the committee's
checker as well (RUN02). RUN20 finds nothing here, and runs of different code in three results of stable_diffusion.
SET20 compares with a table of these very logs; with one made without an organisation, it finds nothing in that one's
logs either, for each of the 17. That packages have no code (PKG08) is so of this corpus only.
"""
TRAINING_OFF = """
## Rules that are not on

What the other rules of the profile strict find if all are switched on. They are made for MLPerf HPC, whose logs have
other records and settings, and most of what they find is no fault in a log of MLPerf Training. Most of those that find
nothing read what these logs do not have: power files, pruned runs, or records of this suite.
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


# -- MLPerf Training -----------------------------------------------------------------------------------------

Place = tuple[str, ...]
"""A path below the folder of the results, in its parts."""
PACKAGE_DEPTH, RESULT_DEPTH, LOG_DEPTH = 2, 5, 6
"""Parts of a path: round, organisation, results, system, benchmark, log."""


def page_of_training(folder: Path) -> str:
    """Return the page about the results of MLPerf Training below a folder."""
    options = Options(round=TRAINING_ROUND, jobs=1)
    official = check_paths([folder], Options(profile=OFFICIAL, round=TRAINING_ROUND))
    logs = [_parts(run.path, folder) for run in official.runs if run.verdict in PASSING]
    accepted = {depth: {log[:depth] for log in logs} for depth in (PACKAGE_DEPTH, RESULT_DEPTH, LOG_DEPTH)}
    packages, results, logs_ = map(len, accepted.values())
    head = TRAINING_HEAD.format(logs=logs_, results=results, packages=packages, day=datetime.now(UTC).date())
    every = {id_: rule for id_, rule in sorted(all_rules().items()) if STRICT in rule.profiles}
    usual = [id_ for id_, rule in every.items() if id_ in OF_TRAINING[STRICT] or issubclass(rule, SubmissionsRule)]
    lines = [head, *_list_counts(usual, check_paths([folder], options), folder, accepted), TRAINING_OFF]
    with patch.dict(OF_TRAINING, {STRICT: [*every]}):
        rules_of.cache_clear()
        report = check_paths([folder], options)
    rules_of.cache_clear()
    lines += _list_counts([id_ for id_ in every if id_ not in usual], report, folder, accepted)
    return "\n".join(lines) + "\n"


def _list_counts(ids: Iterable[str], report: Report, folder: Path, accepted: dict[int, set[Place]]) -> Iterator[str]:
    """Yield the lines of a table: of each rule, in how many accepted logs, results or packages it finds something."""
    found: dict[tuple[str, str], set[Place]] = defaultdict(set)
    for finding in report.findings:
        depth = _find_depth(finding.rule)
        found[finding.rule, finding.severity].add(_parts(finding.path, folder)[:depth])
    yield "| rule | about | errors | warnings | notes | |"
    yield "|---|---|---|---|---|---|"
    for id_ in ids:
        depth = _find_depth(id_)
        about = {PACKAGE_DEPTH: "packages", RESULT_DEPTH: "results", LOG_DEPTH: "logs"}[depth]
        counts = [len(found[id_, severity] & accepted[depth]) for severity in (ERROR, WARNING, NOTE)]
        cells = " | ".join(f"{count} ({count / len(accepted[depth]):.1%})" if count else "" for count in counts)
        yield f"| {id_} | {about} | {cells} | {all_rules()[id_].title()} |"


def _find_depth(id_: str) -> int:
    rule = all_rules()[id_]
    if issubclass(rule, PackageRule):
        return PACKAGE_DEPTH
    return LOG_DEPTH if issubclass(rule, LogRule) and not rule.once else RESULT_DEPTH


def _parts(path: str, folder: Path) -> Place:
    return Path(path).relative_to(folder).parts


if __name__ == "__main__":
    sys.exit(write_page(__doc__, lambda folder: page(check_paths([folder], Options()), folder), None, page_of_training))
