"""The report as Markdown for pull-request comments and $GITHUB_STEP_SUMMARY.

Text from logs is in a code span, or if it has signs that could end one, in <code> with these signs as entities: it
cannot be markup, a link or a mention. The length stays below GitHub's limit for a comment (65,536 characters).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from common.command import clean, counted
from common.rounds import find_round
from compliance.formats.findings import (
    Group,
    all_shown,
    alone,
    describe_limits,
    describe_unjudged,
    grouped,
    inputs_by_round,
    result_rows,
    score_tables,
    summary,
)
from compliance.formats.style import Style
from compliance.formats.table import TextTable
from compliance.formats.words import run_text, shown_path, write_location
from compliance.model.judging import ERROR, FAIL, NOTE, PASS, SKIPPED, WARN, WARNING
from compliance.model.report import Report
from compliance.rules.rule import RULES

SIGNS = {"PASS": "✅ PASS", "WARN": "⚠️ WARN", "PARTIAL": "◐ PARTIAL", "INCOMPLETE": "⏳ INCOMPLETE", "FAIL": "❌ FAIL"}
HEADINGS = {ERROR: "error", WARNING: "warning", NOTE: "note", SKIPPED: "not checked"}
MARKUP = re.compile(r"[&<>|`*~\[\]\\@#$]|:(?=\S)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Signs that can be markup; a colon only inside a link or an emoji, an underline only at the ends of a word."""
LINK = re.compile(r"www\.|gh-\d", re.IGNORECASE)
MOST_TEXTS = 20
MOST_LOGS = 100
MOST_CHARACTERS = 60_000


def render(report: Report, style: Style) -> str:
    """Return verdict, results, scores and collapsed findings."""
    findings = all_shown(report)
    foreign = " (not an MLPerf benchmark)" if any(run.plugin for run in report.runs) else ""
    rows = list(map(_table_cells, result_rows(report, style)))
    scores = (
        markdown_text(table._replace(rows=tuple((SIGNS[verdict], *cells) for verdict, *cells in table.rows)))
        for table in score_tables(report)
    )
    blocks = [
        f"## MLPerf HPC check: {SIGNS[report.verdict]}{foreign}",
        summary(report, findings),
        _rounds_line(report, style),
        _findings_table(("verdict", "result", "state", "runs", "score", "convergence"), rows) if rows else "",
        _logs_table(report, style),
        *scores,
    ]
    groups = grouped(findings)
    ending = [f"Ignored: {counted(len(report.ignored), 'finding')}"] if report.ignored else []
    ending += [escaped(limit) for limit in (*describe_limits(report), *describe_unjudged(report))]
    kept = _fit_details([block for block in blocks if block], (_group_details(group, style) for group in groups))
    return "\n\n".join([*kept, *ending]) + "\n"


def _fit_details(blocks: list[str], details: Iterable[str]) -> list[str]:
    """Return the blocks and as many details as fit into a comment; count the rest."""
    parts = [*blocks, *details]
    lengths = accumulate(len(part) + 2 for part in parts)
    kept = [part for part, length in zip(parts, lengths, strict=True) if length < MOST_CHARACTERS]
    if len(kept) < len(parts):
        kept.append(f"{counted(len(parts) - len(kept), 'part')} of the report omitted: too long for a comment.")
    return kept


def escaped(text: object) -> str:
    """Return the text so that Markdown and HTML show it as it is."""
    return MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", clean(text)).replace("www.", "www&#46;")


def code(text: object) -> str:
    """Return text from a log or a path as code, so that it neither mentions users nor links issues."""
    visible = clean(text).strip()
    if not visible:
        return ""
    return f"<code>{escaped(visible)}</code>" if set(visible) & set("&<>|`@\\") else f"`{visible}`"


def readable(text: object) -> str:
    """Return text from a log or a path as it is if no sign in it can be markup or a link, else as code."""
    visible = clean(text).strip()
    return code(visible) if MARKUP.search(visible) or LINK.search(visible) else visible


def _table_cells(row: Iterable[str]) -> list[str]:
    verdict, *cells = row
    return [SIGNS[verdict], *map(readable, cells)]


def markdown_text(table: TextTable) -> str:
    """Return the table as Markdown, with the group as a column; cells that could be markup are code."""
    columns, numeric = [" ".join(filter(None, heading)) for heading in table.headings], table.numeric
    rows = [list(map(readable, row)) for row in table.rows]
    if table.groups:
        columns, numeric = ["benchmark", *columns], (False, *numeric)
        rows = [[readable(group), *row] for group, row in zip(table.groups, rows, strict=True)]
    return f"**{escaped(table.title)}**\n\n{_findings_table(columns, rows, numeric)}"


def _findings_table(columns: Iterable[str], rows: Iterable[Iterable[str]], numeric: Sequence[bool] = ()) -> str:
    titles = [escaped(title) for title in columns]
    rules = ["---:" if right else "---" for right in numeric] or ["---"] * len(titles)
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, rules, *rows))


def _rounds_line(report: Report, style: Style) -> str:
    return "\n".join(
        f"- round {escaped(find_round(round_).title)}"
        + (f" ({code(why)})" if why else "")
        + f", profile {report.profile}, {kind} {code(shown_path(paths[0], style))}"
        + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        for (round_, why, kind), paths in inputs_by_round(report).items()
    )


def _logs_table(report: Report, style: Style) -> str:
    runs = sorted(alone(report), key=lambda run: (FAIL, WARN, PASS).index(run.verdict))
    rows = [
        _table_cells((report.qualify(run.verdict), shown_path(run.path, style), run_text(run)))
        for run in runs[:MOST_LOGS]
    ]
    more = f"\n\nand {counted(len(runs) - MOST_LOGS, 'more log')}" if len(runs) > MOST_LOGS else ""
    return _findings_table(("verdict", "log", "what"), rows) + more if rows else ""


def _group_details(group: Group, style: Style) -> str:
    rule = RULES.get(group.rule)
    head = f"{HEADINGS[group.severity]} <b>{group.rule}</b> {escaped(group.title)} ({group.extent()})"
    lines = [f"<details><summary>{head}</summary>", ""]
    if rule:
        lines += [f"Why: {escaped(rule.why)}  ", f"Fix: {escaped(group.fix.replace(chr(10), ' '))}", ""]
    texts = group.texts()
    for text, findings in list(texts.items())[:MOST_TEXTS]:
        where = write_location(findings[0].path, findings[0].line, style)
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        lines.append(f"- {code(where)}{more}: {code(text)}" if where else f"- {code(text)}")
    if len(texts) > MOST_TEXTS:
        lines.append(f"- and {len(texts) - MOST_TEXTS} other findings")
    return "\n".join([*lines, "", "</details>"])
