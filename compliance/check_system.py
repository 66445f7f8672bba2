"""Check a system description by itself, without a submission, and whether logs agree with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import structs

from common.record import group_pairs
from common.tree import NAMED
from compliance.engine.checker import apply_rules, check_paths
from compliance.engine.inputs import initial_case
from compliance.engine.log_checker import Options
from compliance.logs.run import Run
from compliance.model.judging import Case, JudgedRun, add_judgement
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
    if not logs:
        return compare_description(path, (), options)
    seen = check_paths(logs, options)
    scalings = {run.path: results.scaling for results in seen.sets for run in (*results.runs, *results.pruned)}
    report = compare_description(path, [(run, scalings.get(run.path, STRONG)) for run in seen.runs], options)
    report.own.extend([] if seen.runs else seen.own)
    return report


def compare_description(path: str, runs: Sequence[tuple[Run, str]], options: Options) -> Report:
    """Return the report on a system description, and on whether runs that were read agree with it.

    runs: each with its scaling, "strong" or "weak".
    """
    case = initial_case(path, options)
    report = options.start_report(rounds=[(path, case.round, case.round_why, "system description")])
    description = read_description(path, NAMED)
    package = Package(path, "", case.round, case.profile, flat=False, descriptions={description.name: description})
    import_all_rules()
    rules = tuple(rule for rule in rules_of(PackageRule, case.round, None, case.profile) if rule.id in ALONE)
    findings = apply_rules(rules, package, report, options)
    for results in _make_results(runs, description, options):
        applicable = rules_of(SetRule, results.round, results.division, options.profile)
        together = tuple(rule for rule in applicable if rule.id in WITH_LOGS)
        findings += apply_rules(together, results, report, options)
    silent = (run.path for run, _ in runs if run.benchmark is None)
    findings += [DescribedSystem().skipped(path, "the log does not name its benchmark") for path in silent]
    report.packages.append(structs.replace(package, findings=findings))
    return report


def _make_results(
    runs: Sequence[tuple[Run, str]], description: SystemDescription, options: Options
) -> Iterator[ResultSet]:
    """Yield the runs as results of the described system, by benchmark and scaling; skip runs without a benchmark."""
    judged = [
        (run if isinstance(run, JudgedRun) else add_judgement(run, initial_case(run.path, options)), scaling)
        for run, scaling in runs
        if run.benchmark is not None
    ]
    groups = group_pairs(((run.round, run.benchmark, scaling), run) for run, scaling in judged)
    for (round_, benchmark, scaling), members in groups.items():
        case = Case(round_, options.profile, description.division, benchmark)
        folder = os.path.dirname(members[0].path)
        yield ResultSet(folder, case, scaling, runs=members, description=description, loose=True)
