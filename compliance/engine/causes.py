"""Mark the findings that follow from others, so that people read each cause once and before what follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from compliance.model.finding import ERROR, WARNING, Finding
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.rules.rule import RULES

COUNTED = (ERROR, WARNING)


def mark_consequences(report: Report) -> None:
    """Give each finding whose rule `follows` another one that found something in the same log, result or package it."""
    for package in report.packages:
        for results in package.sets:
            _mark_result(results, _find_rules(f for f in package.findings if package.concerns(f.path, results)))
        of_results = (finding for results in package.sets for finding in results.deciding())
        _mark(package.findings, _find_rules(package.findings) | _find_rules(of_results))
    for results in report.sets:
        if results.loose:
            _mark_result(results, set())


def _mark_result(results: ResultSet, around: set[str]) -> None:
    whole = _find_rules(results.findings) | around
    in_logs: set[str] = set()
    for run in (*results.runs, *results.pruned):
        here = _find_rules(run.findings)
        in_logs |= here
        _mark(run.findings, whole | here)
    _mark(results.findings, whole | in_logs)


def _find_rules(findings: Iterable[Finding]) -> set[str]:
    return {finding.rule for finding in findings if finding.severity in COUNTED}


def _mark(findings: list[Finding], present: set[str]) -> None:
    for at, finding in enumerate(findings):
        rule = RULES.get(finding.rule)
        if rule and finding.severity in COUNTED and not finding.cause:
            cause = next((id_ for id_ in rule.follows if id_ in present), "")
            findings[at] = finding._replace(cause=cause)
