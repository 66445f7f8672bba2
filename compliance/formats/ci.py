"""The report as workflow commands of GitHub Actions, which show findings at the lines of the logs.

Escapes: github.com/actions/toolkit, packages/core/src/command.ts. GitHub shows ten annotations per level and
step; the job's log has all of them.

The report as JUnit XML, which test dashboards read.

A suite is a result set, a folder of single logs, or a package; a case is a log or a group of rules about the
suite as a whole; a rule that could not be applied is a skipped case. Warnings and notes, which JUnit does not
have, are the output of their case.

The report as SARIF 2.1.0, the format of code scanning services and editors.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0. A rule that could not be applied is not a result
but a notification of the invocation; an ignored finding is a suppressed result.

"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as Xml

from common.command import clean
from common.reference import ROUNDS
from common.values import group_pairs
from common.version import VERSION
from compliance.formats.findings import (
    Shown,
    all_shown,
    alone,
    describe_limits,
    describe_official,
    describe_unjudged,
    grouped,
    lowered,
    many_rounds,
    result_sets,
    summary,
)
from compliance.formats.style import Style
from compliance.formats.words import locate_docs, relative, set_name, shown_path, write_location
from compliance.model.judging import ERROR, NOTE, SKIPPED, WARNING, Finding, JudgedRun
from compliance.model.report import Report
from compliance.rules.catalog import all_rules, import_all_rules
from compliance.rules.rule import RULES, PackageRule, Rule, SetRule, SubmissionsRule, prefix, rules_of

COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice", SKIPPED: "notice"}


def render_github(report: Report, style: Style) -> str:
    """Return commands, and the verdict in the last line.

    There is one command for equal findings in a file; for notes and skipped rules, one per rule.
    """
    findings = all_shown(report)
    lines = []
    all_findings = [*findings, *lowered(report.set_aside, False)]
    for group in grouped(all_findings, ERROR, WARNING):
        fix = f"\nFix: {group.fix}" if group.fix else ""
        for same in group_pairs(((entry.finding.path, entry.text), entry) for entry in group.entries).values():
            repeated = f" ({len(same)} times in this file)" if len(same) > 1 else ""
            lines.append(_format_command(same[0], same[0].text + repeated + fix, style))
    for group in grouped(all_findings, NOTE, SKIPPED):
        first = group.entries[0]
        label = "not checked: " if group.severity == SKIPPED else ""
        more = f" ({group.extent()})" if len(group.entries) > 1 else ""
        lines.append(_format_command(first, f"{label}{first.text}{more}", style))
    return "\n".join([*lines, *describe_limits(report), summary(report, findings)]) + "\n"


def _format_command(entry: Shown, message: str, style: Style) -> str:
    finding = entry.finding
    title = RULES[finding.rule].title() if finding.rule in RULES else ""
    properties = [("title", f"{finding.rule} {title}".strip())]
    if finding.path and finding.path != "-":
        line = [("line", str(finding.line))] if finding.line > 0 else []
        properties = [("file", clean(relative(finding.path, style))), *line, *properties]
    elif finding.path:
        message = f"{write_location(finding.path, finding.line, style)}: {message}"
    values = ((name, data_text(value).replace(":", "%3A").replace(",", "%2C")) for name, value in properties)
    parameters = ",".join(f"{name}={value}" for name, value in values)
    return f"::{COMMANDS[entry.severity]} {parameters}::{data_text(message)}"


def data_text(text: str) -> str:
    """Return the text as a command's message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def render_junit(report: Report, style: Style) -> str:
    """Return the report as one XML document."""
    import_all_rules()
    tolerated = report.tolerated
    words = (summary(report, all_shown(report)), *describe_limits(report), *describe_unjudged(report))
    root = Xml.Element("testsuites", name="mlperf-hpc-check", verdict="; ".join(words))
    whole, rounds = {results.name for results in result_sets(report)}, many_rounds(report)
    for results in report.sets:
        if results.name in whole or results.findings:
            suite = Xml.SubElement(root, "testsuite", name=set_name(results, style, rounds))
            runs = results.all_runs if results.name in whole else []
            _add_logs(suite, runs, tolerated, style)
            rules = rules_of(SetRule, results.round, results.judged_as, report.profile)
            _add_rules(suite, results.findings, rules, style)
    for folder, runs in group_pairs((os.path.dirname(run.path), run) for run in alone(report)).items():
        suite = Xml.SubElement(root, "testsuite", name=shown_path(folder, style) or "logs")
        _add_logs(suite, runs, tolerated, style)
    for package in report.packages:
        suite = Xml.SubElement(root, "testsuite", name=shown_path(package.root, style))
        _add_rules(suite, package.findings, rules_of(PackageRule, package.round, None, report.profile), style)
    if report.own or len(report.packages) > 1:
        suite = Xml.SubElement(root, "testsuite", name="all together")
        _add_rules(suite, report.own, rules_of(SubmissionsRule, ROUNDS[-1], None, report.profile), style)
    if report.set_aside:
        _add_rules(Xml.SubElement(root, "testsuite", name="set aside"), report.set_aside, (), style)
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
        f"{write_location(finding.path, finding.line, style)}: {entry.severity} {finding.rule}: {entry.text}"
        for entry in findings
        for finding in (entry.finding,)
    )


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "note", SKIPPED: "none"}


def render_sarif(report: Report, style: Style) -> str:
    """Return the report as a SARIF log with one run."""
    aside = report.set_aside
    groups = grouped([*all_shown(report), *lowered(aside, False)])
    shown_findings = [entry for group in groups for entry in group.entries]
    ignored = [(lowered([finding], False)[0], reason) for finding, reason in report.ignored if finding not in aside]
    rule_ids = {id_ for id_, rule in all_rules().items() if report.profile in rule.profiles}
    ids = sorted(rule_ids.union(entry.finding.rule for entry in (*shown_findings, *(entry for entry, _ in ignored))))
    results = [_result_object(entry, ids, style) for entry in shown_findings if entry.severity != SKIPPED]
    unchecked = [
        {
            "level": "note",
            "message": {"text": f"{entry.finding.rule} was not checked: {entry.text}"},
            "associatedRule": {"id": entry.finding.rule},
            "locations": [_location_object(entry.finding.path, 0, style)],
        }
        for entry in shown_findings
        if entry.severity == SKIPPED
    ]
    for entry, reason in ignored:
        suppression = {"kind": "external", "justification": clean(reason)}
        results.append({**_result_object(entry, ids, style), "suppressions": [suppression]})
    run = {
        "tool": {
            "driver": {
                "name": "mlperf-hpc-check",
                "semanticVersion": VERSION,
                "rules": [_rule_object(id_) for id_ in ids],
            }
        },
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unchecked}],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdict": report.verdict,
            "limits": describe_limits(report),
            "official": describe_official(report),
            "notLookedAt": [*(clean(relative(path, style)) for path in report.unread), *describe_unjudged(report)],
        },
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule_object(id_: str) -> dict[str, Any]:
    rule = all_rules().get(id_)
    if rule is None:
        return {"id": id_}
    return {
        "id": id_,
        "name": rule.__name__,
        "shortDescription": {"text": rule.title()},
        "fullDescription": {"text": rule.why or rule.title()},
        "help": {"text": f"{rule.fix}\nSource: {rule.cite}", "markdown": f"{rule.fix}\n\nSource: {rule.cite}"},
        "helpUri": locate_docs(id_),
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result_object(entry: Shown, ids: list[str], style: Style) -> dict[str, Any]:
    finding = entry.finding
    return {
        "ruleId": finding.rule,
        "ruleIndex": ids.index(finding.rule),
        "level": LEVELS[entry.severity],
        "message": {"text": entry.text},
        "properties": {"fix": entry.fix, "cause": finding.cause},
        "locations": [_location_object(finding.path, finding.line, style)],
    }


def _location_object(path: str, line: int, style: Style) -> dict[str, Any]:
    """Return the location; code scanning rejects results without one, so the default is the base folder."""
    path = relative(path, style) or "."
    uri = quote(os.fsencode(path))
    artifact = {"uri": f"file://{uri}"} if os.path.isabs(path) else {"uri": uri, "uriBaseId": "%SRCROOT%"}
    location: dict[str, Any] = {"artifactLocation": artifact if path != "-" else {"uri": "stdin"}}
    if line > 0:
        location["region"] = {"startLine": line}
    return {"physicalLocation": location}
