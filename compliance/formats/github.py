"""The report as workflow commands of GitHub Actions, which show findings at the lines of the logs.

Escapes: github.com/actions/toolkit, packages/core/src/command.ts. GitHub shows ten annotations per level and
step; the job's log has all of them.
"""

from __future__ import annotations

from common.command import clean
from common.record import group_pairs
from compliance.formats.findings import Shown, all_shown, describe_limits, grouped, lowered, summary
from compliance.formats.style import Style
from compliance.formats.words import place, relative
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING
from compliance.model.report import Report
from compliance.rules.rule import RULES

COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice", SKIPPED: "notice"}


def render(report: Report, style: Style) -> str:
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
        message = f"{place(finding.path, finding.line, style)}: {message}"
    values = ((name, data_text(value).replace(":", "%3A").replace(",", "%2C")) for name, value in properties)
    parameters = ",".join(f"{name}={value}" for name, value in values)
    return f"::{COMMANDS[entry.severity]} {parameters}::{data_text(message)}"


def data_text(text: str) -> str:
    """Return the text as a command's message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
