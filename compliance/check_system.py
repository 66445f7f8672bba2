"""Check a system description by itself, without a submission, and whether logs agree with it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from common.tree import NAMED
from common.values import group_pairs
from compliance.engine.checker import apply_rules, check_paths
from compliance.engine.inputs import initial_case
from compliance.engine.options import Options
from compliance.model.case import Case
from compliance.model.layout import STRONG
from compliance.model.package import Package
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.system import SystemDescription, read_description
from compliance.rules.catalog import import_all_rules
from compliance.rules.rule import PackageRule, SetRule, rules_of
from compliance.rules.system import DescribedSystem

ALONE = ("PKG04", "PKG05", "PKG06", "PKG07", "PKG20", "PKG21", "PKG35")
"""Rules about a system description by itself."""
WITH_LOGS = ("RUN08", "RUN09", "RUN10")
"""Rules about a system description and the logs of the system."""


def check_description(path: str, logs: Sequence[str], options: Options) -> Report:
    """Return the report on a system description, and on whether the logs agree with it.

    The logs themselves are neither judged nor listed: `check_paths` does that. If they belong to a submission, its own
    descriptions are ignored. Never raises; a file that cannot be read is a finding.
    """
    case = initial_case(path, options)
    report = options.start_report(rounds=[(path, case.round, case.round_why, "system description")])
    description = read_description(path, NAMED)
    package = Package(path, "", case.round, case.profile, flat=False, descriptions={description.name: description})
    import_all_rules()
    rules = tuple(rule for rule in rules_of(PackageRule, case.round, None, case.profile) if rule.id in ALONE)
    findings = apply_rules(rules, package, report, options)
    if logs:
        seen = check_paths(logs, options)
        report.own.extend([] if seen.runs else seen.own)
        for results in _make_results(seen, description):
            applicable = rules_of(SetRule, results.round, results.division, options.profile)
            together = tuple(rule for rule in applicable if rule.id in WITH_LOGS)
            findings += apply_rules(together, results, report, options)
        silent = (run.path for run in seen.runs if run.benchmark is None)
        findings += [DescribedSystem().skipped(path, "the log does not name its benchmark") for path in silent]
    report.packages.append(replace(package, findings=findings))
    return report


def _make_results(seen: Report, description: SystemDescription) -> list[ResultSet]:
    """Return the logs as results of the described system, by benchmark and scaling; skip logs without a benchmark."""
    scalings = {run.path: results.scaling for results in seen.sets for run in (*results.runs, *results.pruned)}
    named = [(run, run.benchmark) for run in seen.runs if run.benchmark is not None]
    groups = group_pairs(((run.round, name, scalings.get(run.path, STRONG)), run) for run, name in named)
    return [
        ResultSet(
            os.path.dirname(runs[0].path),
            Case(round_, seen.profile, description.division, benchmark),
            scaling,
            runs=runs,
            description=description,
            loose=True,
        )
        for (round_, benchmark, scaling), runs in groups.items()
    ]
