"""The report for people at a terminal: a line per result, findings, scores, and finally the verdict."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence

from common.command import as_called, clean, counted, list_some
from common.console import BOLD, CYAN, GREEN, RED, YELLOW, style_text
from common.rounds import find_round
from compliance.formats.findings import (
    Group,
    Shown,
    all_shown,
    alone,
    describe_limits,
    describe_unjudged,
    extent,
    grouped,
    inputs_by_round,
    places,
    result_rows,
    score_tables,
    summary,
)
from compliance.formats.style import Style
from compliance.formats.table import plain_text
from compliance.formats.words import run_text, shown_path, write_location
from compliance.model.judging import ERROR, FAIL, FAIL_ON, INCOMPLETE, NOTE, PARTIAL, PASS, SKIPPED, WARN, WARNING
from compliance.model.report import Report
from compliance.rules.rule import RULES

STYLES = {
    PASS: GREEN,
    FAIL: RED,
    ERROR: RED,
    NOTE: CYAN,
    SKIPPED: CYAN,
    "bold": BOLD,
    **dict.fromkeys((WARN, PARTIAL, INCOMPLETE, WARNING), YELLOW),
}
FEW = 3
"""How many places are listed if the same is found in more."""
COMMAND = r"`[^`]+`|\$ .+|(?:python -m|mlperf-hpc) \S+(?: -\S+(?: [^\s-]\S*)?)*"  # for people to copy


def render(report: Report, style: Style) -> str:
    """Return the report as text; the last line is the verdict."""
    blocks = filter(None, _list_blocks(report, style))
    return "\n\n".join("\n".join(part for line in block for part in _fit_line(line, style)) for block in blocks) + "\n"


def _list_blocks(report: Report, style: Style) -> list[list[str]]:
    """Return the lines of the report, block by block; the lines of a table are one text."""
    findings = all_shown(report)
    results = [(*cells[:4], "; ".join(filter(None, cells[4:]))) for cells in result_rows(report, style)]
    following = [] if style.verbose else [entry for entry in findings if entry.finding.cause]
    causes = [entry for entry in findings if style.verbose or not entry.finding.cause]
    rule = next((group.rule for group in grouped(causes) if group.rule in RULES), "")
    explain = as_called(f"; explain a rule: python -m compliance.check --explain {rule}") if rule else ""
    verdict = _paint_verdict(summary(report, findings), report.verdict, style)
    if style.quiet:
        failing, broken = FAIL_ON[report.fail_on], report.broken_plugins
        entries = [entry for entry in causes if entry.severity in failing or entry.finding in broken]
        return [*(_group_lines(group, style) for group in grouped(entries)), [verdict]]
    ignored = Counter((finding.rule, reason) for finding, reason in report.ignored)
    return [
        _round_lines(report, style),
        _align_columns(results, style),
        _log_lines(report, style),
        *(_group_lines(group, style) for group in grouped(causes, ERROR, WARNING)),
        _following_lines(following),
        *_minor_blocks(findings, style),
        [
            f"Ignored: {counted(number, 'finding')} of {clean(rule)} ({clean(reason) or 'no reason given'})"
            for (rule, reason), number in ignored.items()
        ],
        *(
            [_paint_verdict(table.title, "bold", style), plain_text(table._replace(title=""), style.width)]
            for table in score_tables(report)
        ),
        [verdict + explain],
    ]


def _fit_line(line: str, style: Style) -> list[str]:
    """Return a line as lines of the style's width; tables, whose lines are in one text, have it already."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    fits = style.width is None or len(line) <= style.width or "\n" in line
    return [line] if fits else _wrap_line(line.lstrip(" "), style.width, indent, f"{indent}  ")


def _wrap_line(text: str, width: int | None, indent: str, below: str) -> list[str]:
    """Return a text in lines with these indents, broken between words, but not inside commands."""
    whole = re.sub(COMMAND, lambda match: match[0].replace(" ", "\xa0"), text)  # at which no line is broken
    wrapper = textwrap.TextWrapper(width or 100, indent, below, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\xa0", " ") for line in wrapper.wrap(whole)]


def _paint_verdict(text: str, color: str, style: Style) -> str:
    return style_text(text, STYLES[color]) if style.color else text


def _name_places(places: list[str], style: Style) -> str:
    """Return all places, or the first few and a count of the others."""
    return list_some(places, len(places) if style.verbose else FEW)


def _round_lines(report: Report, style: Style) -> list[str]:
    lines = []
    for (round_, why, kind), paths in inputs_by_round(report).items():
        names = _name_places([shown_path(path, style) for path in paths], style)
        reason = f" ({clean(why)})" if why else ""
        subject = kind if len(paths) == 1 else f"{kind}s"
        lines.append(f"Round {clean(find_round(round_).title)}{reason}, profile {report.profile}, {subject} {names}")
    if any(not package.whole for package in report.packages):
        lines.append("Only this part of the package was judged; check the whole before you submit it")
    lines += [*describe_limits(report), *(describe_unjudged(report) if style.verbose else ())]
    lines += [f"Compared with {counted(count, 'log')} of {shown_path(tree, style)}" for tree, count in report.against]
    return lines + [
        f"Rules besides the suite's: {', '.join(ids)} ({shown_path(source, style)})"
        for source, ids in report.own_rules.items()
    ]


def _align_columns(rows: Sequence[tuple[str, ...]], style: Style) -> list[str]:
    """Return aligned lines; the first column is a verdict."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _paint_verdict(row[0], row[0], style)
        + " " * (widths[0] - len(row[0]))
        + "".join(f"  {cell:<{width}}" for cell, width in zip(row[1:], widths[1:], strict=True) if width).rstrip()
        for row in rows
    ]


def _log_lines(report: Report, style: Style) -> list[str]:
    runs = alone(report)
    passing = sum(run.verdict == PASS for run in runs)
    collapse = passing > 40 and not style.verbose
    foreign = sum(bool(run.only_rule) for run in runs)
    count_foreign = foreign > FEW and not style.verbose
    rows = [
        (report.qualify(run.verdict), shown_path(run.path, style), run_text(run))
        for run in runs
        if not (collapse and run.verdict == PASS) and not (count_foreign and run.only_rule)
    ]
    lines = _align_columns(rows, style)
    if count_foreign:
        lines.append(f"{_paint_verdict(FAIL, FAIL, style)}  {counted(foreign, 'file')} that are no logs of MLPerf HPC")
    if collapse:
        word = report.qualify(PASS)
        lines.append(f"{_paint_verdict(word, word, style)}  {counted(passing, 'log')} (--verbose lists them)")
    return lines


def _group_lines(group: Group, style: Style) -> list[str]:
    """Return what is wrong and where, how to fix it, and which rule says so and why."""
    lines = [_paint_verdict(f"{group.severity} {group.rule}", group.severity, style), *_finding_lines(group, style)]
    rule = RULES.get(group.rule)
    for label, prose in (("fix:  ", group.fix), ("rule: ", group.title), ("why:  ", rule.why if rule else "")):
        indent = f"  {label}"
        for line in prose.split("\n") if prose else ():
            lines += _wrap_line(line, style.width, indent, " " * len(indent))
            indent = " " * len(indent)
    label = _paint_verdict("fix:", "bold", style)
    return [f"  {label}{line[6:]}" if line.startswith("  fix:") else line for line in lines]


def _finding_lines(group: Group, style: Style) -> list[str]:
    lines: list[str] = []
    texts = group.texts()
    for at, (text, findings) in enumerate(texts.items()):
        if at == 10 and not style.verbose:
            lines.append(f"  and {len(texts) - at} other findings of {group.rule} (--verbose lists them)")
            break
        if len(findings) <= FEW:
            locations = [write_location(finding.path, finding.line, style) for finding in findings]
            lines += [f"  {where}: {text}" if where else f"  {text}" for where in locations]
        else:
            lines += [f"  {text}", f"    {extent(findings)}: {_name_places(places(findings, style), style)}"]
    return lines


def _following_lines(following: list[Shown]) -> list[str]:
    if not following:
        return []
    rules = ", ".join(dict.fromkeys(group.rule for group in grouped(following)))
    verb = "follows" if len(following) == 1 else "follow"
    return [f"and {counted(len(following), 'finding')} that {verb} from these ({rules}; --verbose shows all)"]


def _minor_blocks(findings: list[Shown], style: Style) -> list[list[str]]:
    """Return the blocks of notes and skipped rules: one line per rule unless verbose."""
    blocks = []
    for severity, heading in ((NOTE, "Notes"), (SKIPPED, "Not checked")):
        groups = grouped(findings, severity)
        if style.verbose:
            blocks += [_group_lines(group, style) for group in groups]
        elif groups:
            lines = [f"{heading} (--verbose shows all):"]
            for group in groups:
                number = f"{group.extent()}, such as: " if len(group.entries) > 1 else ""
                lines.append(f"  {_paint_verdict(group.rule, severity, style)}  {number}{group.entries[0].text}")
            blocks.append(lines)
    return blocks
