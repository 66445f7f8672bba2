"""The report for programs: one JSON object in ASCII. Its schema is docs/reference/report.schema.json.

`schema` is 2; under that number fields may be added, but not removed or changed in meaning. Numbers are finite:
NaN and infinities of a log become null. Paths are relative to the folder the check was called in.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from common.values import is_number
from common.version import VERSION
from compliance.formats.findings import describe_unjudged
from compliance.formats.style import Style
from compliance.formats.words import locate_docs, relative
from compliance.model.judging import ERROR, OFFICIAL, Finding, JudgedRun
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import Throughput, TimeToTrain
from compliance.model.settings_file import Settings
from compliance.rules.rule import RULES

if TYPE_CHECKING:
    from compliance.rcp.judge import Verdict


def render(report: Report, style: Style) -> str:
    """Return the report as JSON text; equal reports give equal texts."""
    return json_text(document(report, style))


def json_text(content: Any) -> str:
    """Return plain values as the text of a file, in ASCII; what JSON does not have becomes null."""
    return json.dumps(finite(content), indent=1) + "\n"


def document(report: Report, style: Style) -> dict[str, Any]:
    """Return the report as one JSON-like object, with numbers as they are."""
    tolerated = report.tolerated
    official = report if report.profile == OFFICIAL else report.official
    inside = sum(f.severity == ERROR for run in report.runs if run.path in tolerated for f in run.findings)
    return {
        "schema": 2,
        "version": VERSION,
        "profile": report.profile,
        "verdict": report.verdict,
        "mlperf_result": not any(run.mini or run.plugin for run in report.runs),
        "strict_verdict": None if report.profile == OFFICIAL else report.strict_verdict,
        "official_verdict": official.verdict if official else None,
        "select": list(report.select),
        "ignore": dict(report.ignore),
        "settings": _settings_object(report.settings, style),
        "exit_code": report.exit_code,
        "counts": {**report.counts(), "tolerated": inside},
        "rounds": [
            {"path": relative(path, style), "round": round_, "why": why, "kind": kind}
            for path, round_, why, kind in report.rounds
        ],
        "against": [{"path": relative(tree, style), "logs": count} for tree, count in report.against],
        "not_looked_at": [*(relative(path, style) for path in report.unread), *describe_unjudged(report)],
        "own_rules": [{"source": relative(name, style), "ids": ids} for name, ids in report.own_rules.items()],
        "logs": [_log_object(run, report, run.path in tolerated, style) for run in report.runs],
        "sets": [_set_object(results, report, style) for results in report.sets],
        "packages": [
            {
                "path": relative(package.root, style),
                **_attributes(package, "organisation", "round"),
                "verdict": report.qualify(package.verdict),
                "findings": _finding_objects(package.findings, style),
            }
            for package in report.packages
        ],
        "findings": _finding_objects(report.own, style),
        "ignored": [{**_finding_object(finding, style), "reason": reason} for finding, reason in report.ignored],
    }


def _attributes(subject: object, *names: str) -> dict[str, Any]:
    return {name: getattr(subject, name) for name in names}


def _settings_object(settings: Settings, style: Style) -> dict[str, Any] | None:
    if not settings.path:
        return None
    return {
        "path": relative(settings.path, style),
        **_attributes(settings, "named", "not_applied"),
        "set_aside": dict(settings.set_aside),
    }


def _log_object(run: JudgedRun, report: Report, tolerated: bool, style: Style) -> dict[str, Any]:
    return {
        "path": relative(run.path, style),
        **_attributes(run, "round", "benchmark", "division", "mini", "plugin"),
        "verdict": report.qualify(run.verdict),
        "tolerated": tolerated,
        "minutes": run.minutes,
        "staging_minutes": run.staging_ms / 60_000,
        "staging_outside_minutes": run.staging_outside_ms / 60_000,
        "energy_joules": run.energy_joules,
        "convergence": run.convergence if is_number(run.convergence) else None,
        "epochs_trained": run.epochs_trained,
        "converged": run.converged,
        "global_batch_size": run.batch_size if is_number(run.batch_size) else None,
        "error_keys": sorted({f.key for f in run.findings if f.severity == ERROR and f.key}),
        "findings": _finding_objects(run.findings, style),
    }


def _set_object(results: ResultSet, report: Report, style: Style) -> dict[str, Any]:
    own, official = _verdict_object(results.convergence), _verdict_object(results.official_convergence)
    return {
        "name": relative(results.name, style),
        "folder": relative(results.folder, style),
        **_attributes(results, "organisation", "system", "scaling", "benchmark", "division"),
        **_attributes(results, "mini", "plugin", "round", "loose"),
        "verdict": report.verdict_of(results),
        "not_judged": results.not_judged,
        "states": list(results.states),
        "runs": [relative(run.path, style) for run in results.runs],
        "failing": [relative(run.path, style) for run in results.failing],
        "pruned": [relative(run.path, style) for run in results.pruned],
        "required_runs": results.reference.runs if results.reference else None,
        "global_batch_size": results.batch_size if is_number(results.batch_size) else None,
        "waiver": results.waiver,
        "bypasses": [
            {"path": relative(bypass.path, style), "line": bypass.line, "text": bypass.text}
            for bypass in results.bypasses
        ],
        "rcp": {**(own or {}), "official": official} if own or official else None,
        "score": _score_object(results.score),
        "findings": _finding_objects(results.findings, style),
    }


def _verdict_object(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        **_attributes(verdict, "passed", "case", "message", "official_message"),
        "mean": verdict.submission_mean,
        "reference_mean": verdict.point.mean if verdict.point else None,
        "normalization": verdict.normalization,
    }


def _score_object(score: TimeToTrain | Throughput | None) -> dict[str, Any] | None:
    """Return the fields of the score and what is derived from them."""
    if score is None:
        return None
    derived = ("normalized", "scaled", "models_per_minute", "normalized_models_per_minute")
    return {
        "kind": "throughput" if hasattr(score, "models") else "time_to_train",
        **asdict(score),
        **_attributes(score, *(name for name in derived if hasattr(score, name))),
    }


def _finding_objects(findings: list[Finding], style: Style) -> list[dict[str, Any]]:
    return [_finding_object(finding, style) for finding in findings]


def _finding_object(finding: Finding, style: Style) -> dict[str, Any]:
    rule = RULES.get(finding.rule)
    advice = {"why": rule.why, "fix": finding.fix or rule.fix, "docs": locate_docs(finding.rule)} if rule else {}
    return {**finding._asdict(), "path": relative(finding.path, style), **advice}


def finite(value: Any) -> Any:
    """Return the value in a form that every JSON reader accepts: no NaN, huge integer or lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 64 else None  # few JSON readers accept larger ones
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {finite(str(key)): finite(item) for key, item in value.items()}
    assert isinstance(value, list | tuple), type(value)
    return [finite(item) for item in value]
