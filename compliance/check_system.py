"""Check a system description by itself, without a submission, and whether logs agree with it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence

from common.tree import NAMED
from compliance.engine.checker import apply_rules, check_paths
from compliance.engine.inputs import choose_round
from compliance.engine.options import Options
from compliance.logs.run import Run
from compliance.model.layout import STRONG
from compliance.model.package import Package
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.system import SystemDescription, read_description
from compliance.rules.package import Described, DescriptionFields, DescriptionTypes, DescriptionValues, OneMeaning
from compliance.rules.rule import PackageRule, SetRule, rules_of
from compliance.rules.system import (
    DescribedSystem,
    FitsSystem,
    NoPlaceholderInDescription,
    RightFolder,
    SystemType,
)

ALONE = (
    Described,
    OneMeaning,
    DescriptionFields,
    DescriptionTypes,
    DescriptionValues,
    NoPlaceholderInDescription,
    SystemType,
)
WITH_LOGS = (RightFolder, DescribedSystem, FitsSystem)


def check_description(path: str, logs: Sequence[str], options: Options) -> Report:
    """Return the report on a system description, and on whether the logs agree with it.

    The logs themselves are neither judged nor listed: `check_paths` does that. If they belong to a submission, its own
    descriptions are ignored. Never raises; a file that cannot be read is a finding.
    """
    report = Report(options.profile)
    round_, why = choose_round(path, False, options)
    report.rounds.append((path, round_, why))
    description = read_description(path, NAMED)
    package = Package(path, "", round_, options.profile, flat=False)
    package.descriptions[description.name] = description
    report.packages.append(package)
    rules = tuple(rule for rule in rules_of(PackageRule, round_, None, options.profile) if isinstance(rule, ALONE))
    package.findings += apply_rules(rules, package, report, options)
    if logs:
        seen = check_paths(logs, options)
        report.own += [] if seen.runs else seen.own
        for results in _results(seen, description):
            found = rules_of(SetRule, results.round, results.division, options.profile)
            together = tuple(rule for rule in found if isinstance(rule, WITH_LOGS))
            package.findings += apply_rules(together, results, report, options)
        silent = (run.path for run in seen.runs if run.benchmark is None)
        package.findings += [DescribedSystem().skipped(path, "the log does not name its benchmark") for path in silent]
    return report


def _results(seen: Report, description: SystemDescription) -> list[ResultSet]:
    """Return the logs as results of the described system, by benchmark and scaling; skip logs without a benchmark."""
    scalings = {run.path: results.scaling for results in seen.sets for run in (*results.runs, *results.pruned)}
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in seen.runs:
        if run.benchmark is not None:
            groups[run.round, run.benchmark, scalings.get(run.path, STRONG)].append(run)
    return [
        ResultSet(
            os.path.dirname(runs[0].path),
            round_,
            seen.profile,
            scaling,
            benchmark=benchmark,
            division=description.division,
            runs=runs,
            description=description,
            loose=True,
        )
        for (round_, benchmark, scaling), runs in groups.items()
    ]
