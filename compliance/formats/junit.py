"""The report as JUnit XML, which test dashboards read.

A suite is a result set, a folder of single logs, or a package; a case is a log or a group of rules about the
suite as a whole; a rule that could not be applied is a skipped case. Warnings and notes, which JUnit does not
have, are the output of their case.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as Xml

from common.record import group_pairs
from common.reference import ROUNDS
from compliance.formats.findings import (
    Shown,
    all_shown,
    alone,
    describe_limits,
    lowered,
    many_rounds,
    result_sets,
    summary,
)
from compliance.formats.style import Style
from compliance.formats.words import place, set_name, shown_path
from compliance.model.finding import ERROR, SKIPPED, Finding
from compliance.model.judged_run import JudgedRun
from compliance.model.report import Report
from compliance.rules.catalog import import_all_rules
from compliance.rules.rule import PackageRule, Rule, SetRule, SubmissionsRule, prefix, rules_of

COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def render(report: Report, style: Style) -> str:
    """Return the report as one XML document."""
    import_all_rules()
    tolerated = report.tolerated
    words = (summary(report, all_shown(report)), *describe_limits(report))
    root = Xml.Element("testsuites", name="mlperf-hpc-check", verdict="; ".join(words))
    whole, rounds = {results.folder for results in result_sets(report)}, many_rounds(report)
    for results in report.sets:
        if results.folder not in whole and not results.findings:
            continue
        suite = _add_suite(root, set_name(results, style, rounds))
        if results.folder in whole:
            _add_logs(suite, [*results.runs, *results.pruned], tolerated, style)
        rules = rules_of(SetRule, results.round, results.judged_as, report.profile)
        _add_rules(suite, results.findings, rules, style)
    for folder, runs in group_pairs((os.path.dirname(run.path), run) for run in alone(report)).items():
        _add_logs(_add_suite(root, shown_path(folder, style) or "logs"), runs, tolerated, style)
    for package in report.packages:
        rules = rules_of(PackageRule, package.round, None, report.profile)
        _add_rules(_add_suite(root, shown_path(package.root, style)), package.findings, rules, style)
    if report.own or len(report.packages) > 1:
        rules = rules_of(SubmissionsRule, ROUNDS[-1], None, report.profile)
        _add_rules(_add_suite(root, "all together"), report.own, rules, style)
    if report.set_aside:
        _add_rules(_add_suite(root, "set aside"), report.set_aside, (), style)
    return xml_text(root)


def xml_text(root: Xml.Element) -> str:
    """Return suites of cases as a document, in which each states how many cases of each outcome it has."""
    for element in root.iter():
        if element.tag in ("testsuites", "testsuite"):
            for name, tag in COUNTED.items():
                element.set(name, str(sum(1 for _ in element.iter(tag))))
    Xml.indent(root)
    text = Xml.tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_suite(root: Xml.Element, name: str) -> Xml.Element:
    return Xml.SubElement(root, "testsuite", name=name)


def _add_logs(suite: Xml.Element, runs: Sequence[JudgedRun], tolerated: set[str], style: Style) -> None:
    for run in runs:
        _add_case(suite, shown_path(run.path, style), lowered(run.findings, run.path in tolerated), style)


def _add_rules(suite: Xml.Element, findings: list[Finding], rules: tuple[Rule, ...], style: Style) -> None:
    for name in sorted({prefix(rule.id) for rule in rules} | {prefix(finding.rule) for finding in findings}):
        of_family = [finding for finding in findings if prefix(finding.rule) == name]
        _add_case(suite, f"rules {name}", lowered(of_family, False), style)


def _add_case(suite: Xml.Element, name: str, findings: Sequence[Shown], style: Style) -> None:
    """Add a case with what was found, and a skipped case for each rule that was not applied."""
    case = Xml.SubElement(suite, "testcase", classname=suite.get("name", ""), name=name)
    errors = [entry for entry in findings if entry.severity == ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = f"{errors[0].finding.rule}: {errors[0].text}{more}"
        Xml.SubElement(case, "failure", type=errors[0].finding.rule, message=first).text = _finding_lines(errors, style)
    others = [entry for entry in findings if entry.severity not in (ERROR, SKIPPED)]
    if others:
        Xml.SubElement(case, "system-out").text = _finding_lines(others, style)
    for entry in findings:
        if entry.severity == SKIPPED:
            skipped = f"{name}: {entry.finding.rule} not checked"
            left_out = Xml.SubElement(suite, "testcase", classname=suite.get("name", ""), name=skipped)
            Xml.SubElement(left_out, "skipped", message=entry.text)


def _finding_lines(findings: Iterable[Shown], style: Style) -> str:
    return "\n".join(
        f"{place(finding.path, finding.line, style)}: {entry.severity} {finding.rule}: {entry.text}"
        for entry in findings
        for finding in (entry.finding,)
    )
