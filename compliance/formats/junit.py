"""The report as JUnit XML, which test dashboards read.

A suite is a result set, a folder of single logs, or a package; a case is a log or a group of rules about the
suite as a whole; a rule that could not be applied is a skipped case. Warnings and notes, which JUnit does not
have, are the output of their case.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

from compliance.formats.findings import Shown, alone, lowered, many_rounds, result_sets
from compliance.formats.style import Style
from compliance.formats.words import place, set_name, shown_path
from compliance.model.finding import ERROR, SKIPPED, Finding
from compliance.rules.catalog import all_rules
from compliance.rules.families import prefix
from compliance.rules.rule import PackageRule, Rule, SetRule, SubmissionsRule

if TYPE_CHECKING:
    from compliance.model.judged_run import JudgedRun
    from compliance.model.report import Report

NUMBERED = ("tests", "failures", "errors", "skipped")


def render(report: Report, style: Style) -> str:
    """Return the report as one XML document."""
    tolerated = report.tolerated
    root = Xml.Element("testsuites", name="mlperf-hpc-check")
    whole, rounds = {results.folder for results in result_sets(report)}, many_rounds(report)
    for results in report.sets:
        if results.folder not in whole and not results.findings:
            continue
        suite = _suite(root, set_name(results, style, rounds))
        if results.folder in whole:
            _logs(suite, [*results.runs, *results.pruned], tolerated, style)
        rules = _groups(SetRule, results.round, results.judged_as, report.profile)
        _rules(suite, results.findings, rules, style)
    folders: dict[str, list[JudgedRun]] = {}
    for run in alone(report):
        folders.setdefault(os.path.dirname(run.path), []).append(run)
    for folder, runs in folders.items():
        _logs(_suite(root, shown_path(folder, style) or "logs"), runs, tolerated, style)
    for package in report.packages:
        rules = _groups(PackageRule, package.round, None, report.profile)
        _rules(_suite(root, shown_path(package.root, style)), package.findings, rules, style)
    if report.own or len(report.packages) > 1:
        _rules(
            _suite(root, "all together"),
            report.own,
            _groups(SubmissionsRule, "", None, report.profile),
            style,
        )
    _count(root)
    Xml.indent(root)
    text = Xml.tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(root: Xml.Element, name: str) -> Xml.Element:
    return Xml.SubElement(root, "testsuite", name=name)


def _groups(kind: type[Rule], round_: str, division: str | None, profile: str) -> set[str]:
    """Return the prefixes (such as `RUN`) of the rules of a kind that were applied; round "" means any."""
    return {
        prefix(id_)
        for id_, rule in all_rules().items()
        if issubclass(rule, kind)
        and profile in rule.profiles
        and (not round_ or (round_ in rule.rounds and division in rule.divisions))
    }


def _logs(suite: Xml.Element, runs: Sequence[JudgedRun], tolerated: set[str], style: Style) -> None:
    for run in runs:
        _case(suite, shown_path(run.path, style), lowered(run.findings, run.path in tolerated), style)


def _rules(suite: Xml.Element, findings: list[Finding], prefixes: set[str], style: Style) -> None:
    for name in sorted(prefixes | {prefix(finding.rule) for finding in findings}):
        found = [finding for finding in findings if prefix(finding.rule) == name]
        _case(suite, f"rules {name}", lowered(found, False), style)


def _case(suite: Xml.Element, name: str, found: Sequence[Shown], style: Style) -> None:
    """Add a case with what was found, and a skipped case for each rule that was not applied."""
    case = Xml.SubElement(suite, "testcase", classname=suite.get("name", ""), name=name)
    errors = [shown for shown in found if shown.severity == ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = f"{errors[0].finding.rule}: {errors[0].text}{more}"
        Xml.SubElement(case, "failure", type=errors[0].finding.rule, message=first).text = _lines(errors, style)
    others = [shown for shown in found if shown.severity not in (ERROR, SKIPPED)]
    if others:
        Xml.SubElement(case, "system-out").text = _lines(others, style)
    for shown in found:
        if shown.severity == SKIPPED:
            skipped = f"{name}: {shown.finding.rule} not checked"
            left_out = Xml.SubElement(suite, "testcase", classname=suite.get("name", ""), name=skipped)
            Xml.SubElement(left_out, "skipped", message=shown.text)


def _lines(found: Iterable[Shown], style: Style) -> str:
    return "\n".join(
        f"{place(finding.path, finding.line, style)}: {shown.severity} {finding.rule}: {shown.text}"
        for shown in found
        for finding in (shown.finding,)
    )


def _count(root: Xml.Element) -> None:
    """Write the number of cases of each outcome into each suite and into the root."""
    for element in (root, *root):
        found = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
        for name in NUMBERED:
            element.set(name, str(sum(1 for _ in element.iter(found[name]))))
