"""The report as workflow commands of GitHub Actions, which show findings at the lines of the logs.

Escapes: github.com/actions/toolkit, packages/core/src/command.ts. GitHub shows ten annotations per level and
step; the job's log has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.command import clean
from compliance.formats.findings import Group, Shown, all_shown, grouped, summary
from compliance.formats.style import Style
from compliance.formats.words import place, relative
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING
from compliance.rules.rule import RULES

if TYPE_CHECKING:
    from compliance.model.report import Report

COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice", SKIPPED: "notice"}


def render(report: Report, style: Style) -> str:
    """Return commands, and the verdict in the last line.

    There is one command for equal findings in a file; for notes and skipped rules, one per rule.
    """
    found = all_shown(report)
    lines = [
        _command(same[0], same[0].text + _repeated(same) + _fix(group), style)
        for group in grouped(found, ERROR, WARNING)
        for same in _alike(group)
    ]
    lines += _minor(found, style)
    return "\n".join([*lines, summary(report, found)]) + "\n"


def _minor(found: list[Shown], style: Style) -> Iterator[str]:
    """Yield one command for each rule with notes, or not checked, at its first place."""
    for group in grouped(found, NOTE, SKIPPED):
        first = group.shown[0]
        what = "not checked: " if group.severity == SKIPPED else ""
        more = f" ({group.extent()})" if len(group.shown) > 1 else ""
        yield _command(first, f"{what}{first.text}{more}", style)


def _alike(group: Group) -> list[list[Shown]]:
    """Return the findings, grouped by file and text."""
    found: dict[tuple[str, str], list[Shown]] = {}
    for shown in group.shown:
        found.setdefault((shown.finding.path, shown.text), []).append(shown)
    return list(found.values())


def _repeated(same: list[Shown]) -> str:
    return f" ({len(same)} times in this file)" if len(same) > 1 else ""


def _fix(group: Group) -> str:
    rule = RULES.get(group.rule)
    return f"\nFix: {rule.fix}" if rule and rule.fix else ""


def _command(shown: Shown, message: str, style: Style) -> str:
    finding = shown.finding
    title = RULES[finding.rule].title() if finding.rule in RULES else ""
    properties = [("title", f"{finding.rule} {title}".strip())]
    if finding.path and finding.path != "-":
        line = [("line", str(finding.line))] if finding.line > 0 else []
        properties = [("file", clean(relative(finding.path, style))), *line, *properties]
    elif finding.path:
        message = f"{place(finding.path, finding.line, style)}: {message}"
    listed = ",".join(f"{name}={property_text(value)}" for name, value in properties)
    return f"::{COMMANDS[shown.severity]} {listed}::{data_text(message)}"


def data_text(text: str) -> str:
    """Return the text as a command's message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_text(text: str) -> str:
    """Return the text as the value of a command's property."""
    return data_text(text).replace(":", "%3A").replace(",", "%2C")
