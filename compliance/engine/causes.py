"""Mark the findings that follow from others, so that people read each cause once and before what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from compliance.model.finding import ERROR, WARNING, Finding
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.rules.rule import RULES

COUNTED = (ERROR, WARNING)
Kinds = set[tuple[str, str]]
"""Rule and severity of findings."""


def mark_consequences(report: Report) -> None:
    """Give each finding whose rule `follows` another one that found something in the same log, result or package it.

    An error never follows from a warning: it stays when the warning is heeded.
    """
    for package in report.packages:
        around: dict[int, list[Finding]] = defaultdict(list)
        for finding, concerned in package.match_results(package.findings):
            for results in concerned:
                around[id(results)].append(finding)
        for results in package.sets:
            _mark_result(results, _find_kinds(around[id(results)]))
        _mark(package.findings, _find_kinds(package.deciding()))
    for results in report.sets:
        if results.loose:
            _mark_result(results, set())


def _mark_result(results: ResultSet, around: Kinds) -> None:
    whole = _find_kinds(results.findings) | around
    for run in (*results.runs, *results.pruned):
        _mark(run.findings, whole | _find_kinds(run.findings))
    _mark(results.findings, around | _find_kinds(results.deciding()))


def _find_kinds(findings: Iterable[Finding]) -> Kinds:
    return {(finding.rule, finding.severity) for finding in findings if finding.severity in COUNTED}


def _mark(findings: list[Finding], present: Kinds) -> None:
    """Set the cause of each finding; one that the rule names itself must be there, too: it may have been left out."""
    errors = {rule for rule, severity in present if severity == ERROR}
    causes = {ERROR: errors, WARNING: {rule for rule, _ in present}}
    for at, finding in enumerate(findings):
        rule = RULES.get(finding.rule)
        if rule and finding.severity in COUNTED:
            possible = (finding.cause,) if finding.cause else rule.follows
            cause = next((id_ for id_ in possible if id_ in causes[finding.severity]), "")
            findings[at] = finding._replace(cause=cause)
