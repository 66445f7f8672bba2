"""The report as SARIF 2.1.0, the format of code scanning services and editors.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0. A rule that could not be applied is not a result
but a notification of the invocation; an ignored finding is a suppressed result.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from common.command import clean
from common.version import VERSION
from compliance.formats.findings import Shown, all_shown, grouped, lowered
from compliance.formats.style import Style
from compliance.formats.words import relative
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING
from compliance.rules.catalog import all_rules

if TYPE_CHECKING:
    from compliance.model.report import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "note", SKIPPED: "none"}
ROOT = "%SRCROOT%"


def render(report: Report, style: Style) -> str:
    """Return the report as a SARIF log with one run."""
    found = [shown for group in grouped(all_shown(report)) for shown in group.shown]
    ignored = [(lowered([finding], False)[0], reason) for finding, reason in report.ignored]
    known = {id_ for id_, rule in all_rules().items() if report.profile in rule.profiles}
    ids = sorted(known.union(shown.finding.rule for shown in (*found, *(shown for shown, _ in ignored))))
    results = [_result(shown, ids, style) for shown in found if shown.severity != SKIPPED]
    for shown, reason in ignored:
        suppression = {"kind": "external", "justification": clean(reason)}
        results.append({**_result(shown, ids, style), "suppressions": [suppression]})
    run = {
        "tool": {
            "driver": {
                "name": "mlperf-hpc-check",
                "semanticVersion": VERSION,
                "rules": [_rule(id_) for id_ in ids],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    _notification(shown, style) for shown in found if shown.severity == SKIPPED
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(id_: str) -> dict[str, Any]:
    rule = all_rules().get(id_)
    if rule is None:
        return {"id": id_}
    return {
        "id": id_,
        "name": rule.__name__,
        "shortDescription": {"text": rule.title()},
        "fullDescription": {"text": rule.why or rule.title()},
        "help": {
            "text": f"{rule.fix}\nSource: {rule.cite}",
            "markdown": f"{rule.fix}\n\nSource: {rule.cite}",
        },
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(shown: Shown, ids: list[str], style: Style) -> dict[str, Any]:
    finding = shown.finding
    return {
        "ruleId": finding.rule,
        "ruleIndex": ids.index(finding.rule),
        "level": LEVELS[shown.severity],
        "message": {"text": shown.text},
        "locations": [_location(finding.path, finding.line, style)],
    }


def _notification(shown: Shown, style: Style) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": f"{shown.finding.rule} was not checked: {shown.text}"},
        "associatedRule": {"id": shown.finding.rule},
        "locations": [_location(shown.finding.path, 0, style)],
    }


def _location(path: str, line: int, style: Style) -> dict[str, Any]:
    """Return the location; code scanning rejects results without one, so the default is the base folder."""
    place: dict[str, Any] = {"artifactLocation": _artifact(relative(path, style) or ".")}
    if line > 0:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def _artifact(path: str) -> dict[str, str]:
    if path == "-":
        return {"uri": "stdin"}
    uri = quote(os.fsencode(path))
    return {"uri": f"file://{uri}"} if os.path.isabs(path) else {"uri": uri, "uriBaseId": ROOT}
