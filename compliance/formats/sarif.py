"""The report as SARIF 2.1.0, the format of code scanning services and editors.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0. A rule that could not be applied is not a result
but a notification of the invocation; an ignored finding is a suppressed result.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from common.command import clean
from common.version import VERSION
from compliance.formats.findings import Shown, all_shown, describe_limits, describe_official, grouped, lowered
from compliance.formats.style import Style
from compliance.formats.words import docs_place, relative
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING
from compliance.model.report import Report
from compliance.rules.catalog import all_rules

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "note", SKIPPED: "none"}
ROOT = "%SRCROOT%"


def render(report: Report, style: Style) -> str:
    """Return the report as a SARIF log with one run."""
    aside = report.set_aside
    groups = grouped([*all_shown(report), *lowered(aside, False)])
    shown_findings = [entry for group in groups for entry in group.entries]
    ignored = [(lowered([finding], False)[0], reason) for finding, reason in report.ignored if finding not in aside]
    rule_ids = {id_ for id_, rule in all_rules().items() if report.profile in rule.profiles}
    ids = sorted(rule_ids.union(entry.finding.rule for entry in (*shown_findings, *(entry for entry, _ in ignored))))
    results = [_result_object(entry, ids, style) for entry in shown_findings if entry.severity != SKIPPED]
    unchecked = [_notification_object(entry, style) for entry in shown_findings if entry.severity == SKIPPED]
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
        "results": results,
        "properties": {
            "verdict": report.verdict,
            "limits": describe_limits(report),
            "official": describe_official(report),
            "notLookedAt": [clean(relative(path, style)) for path in report.unread],
        },
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
        "helpUri": docs_place(id_),
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


def _notification_object(entry: Shown, style: Style) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": f"{entry.finding.rule} was not checked: {entry.text}"},
        "associatedRule": {"id": entry.finding.rule},
        "locations": [_location_object(entry.finding.path, 0, style)],
    }


def _location_object(path: str, line: int, style: Style) -> dict[str, Any]:
    """Return the location; code scanning rejects results without one, so the default is the base folder."""
    path = relative(path, style) or "."
    uri = quote(os.fsencode(path))
    artifact = {"uri": f"file://{uri}"} if os.path.isabs(path) else {"uri": uri, "uriBaseId": ROOT}
    location: dict[str, Any] = {"artifactLocation": artifact if path != "-" else {"uri": "stdin"}}
    if line > 0:
        location["region"] = {"startLine": line}
    return {"physicalLocation": location}
