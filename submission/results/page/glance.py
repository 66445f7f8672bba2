"""The first section of the page: the best results, and what failed and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from common.command import counted
from compliance.formats.findings import Shown, lowered, shown_of
from compliance.formats.words import aligned, plain
from compliance.model.finding import ERROR, FAIL, INCOMPLETE
from compliance.model.layout import STRONG, WEAK
from compliance.model.report import Report
from compliance.rules.rule import RULES
from submission.results.page.findings import badge
from submission.results.page.html import Html, disclosure, element, escaped, joined, table
from submission.results.page.results_table import ResultLine, model, system
from submission.results.rows import ALL_ORGANISATIONS, Difference, Row, best, differences

MAX_FAILURES: Final = 12
"""Failures that are shown at once; further ones after a click."""
MAX_REASON: Final = 160
"""Characters of the message of an error."""
TOO_MANY_FAILED: Final = "RUN02"
"""The rule that is broken because logs break others, which say more."""
ACROSS: Final = "across"
"""The id of the section with the findings across submissions."""
SCORES: Final = {STRONG: ("Time to train", "min"), WEAK: ("Throughput", "models/min")}
"""The name and the unit of the scores of each scaling."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed, or lacks runs: its verdict, the id of its section, its name and the reason in one line."""

    verdict: str
    section: str
    name: str
    reason: str


def glance(
    lines: Sequence[ResultLine], failed: Sequence[Failure], previous: Sequence[Row] = (), figure: Html | None = None
) -> Html:
    """Return the section. previous: results of the previous round. figure: of all results, above the best ones."""
    return element(
        "section",
        element("h2", "At a glance"),
        figure or "",
        *_best(lines, previous),
        element("h3", "What failed"),
        *_failures(failed),
        id="glance",
    )


# -- the best results --------------------------------------------------------------------------------------


def _best(lines: Sequence[ResultLine], previous: Sequence[Row]) -> Iterator[Html]:
    """Yield a table of the best passing results of each round and scaling; nothing for logs outside of submissions."""
    scored = [line for line in lines if not line.results.loose]
    rounds = dict.fromkeys(line.row.round for line in scored)
    tables = []
    for round_ in rounds:
        inside = [line for line in scored if line.row.round == round_]
        for scaling, (title, unit) in SCORES.items():
            rows = list(_best_rows(inside, scaling, previous))
            caption = f"{title}, round {round_}" if len(rounds) > 1 else title
            caption += "; previous round and speed-up with staging" if previous else ""
            tables += [_table(rows, unit, caption, bool(previous))] if rows else []
    if scored:
        yield element("h3", "Best passing results")
        yield from tables or [element("p", "No result passes.")]


def _best_rows(
    lines: Sequence[ResultLine], scaling: str, previous: Sequence[Row]
) -> Iterator[tuple[ResultLine | None, Difference]]:
    """Yield the best result of each benchmark and division, None without one, and how it differs from the previous."""
    rows = [line.row for line in lines]
    by_row = {id(line.row): line for line in lines}
    found = best(rows)
    for change in differences(previous, rows):
        if change.organisation == ALL_ORGANISATIONS and change.scaling == scaling:
            yield by_row[id(found[change.key])] if change.key in found else None, change


def _table(rows: Sequence[tuple[ResultLine | None, Difference]], unit: str, title: str, compared: bool) -> Html:
    """Return the table, without columns that are empty."""
    heads = ["Benchmark", "System", f"Score, {unit}", "Staging, min", f"With staging, {unit}"]
    heads += [f"Previous round, {unit}", "Speed-up"] if compared else []
    cells: list[tuple[object, ...]] = []
    for line, change in rows:
        # The best score of the previous round has staging as the speed-up has it.
        speedup = f"{change.speedup:.2f}×" if change.speedup else ""
        before = (change.before_with_staging, speedup) if compared else ()
        mini = element("span", "mini", class_="tag") if change.mini else ""
        benchmark = joined([change.benchmark, " ", mini, element("div", change.division, class_="quiet")])
        cells.append((benchmark, _system(line), *_scores(line, change), *before))
    texts = iter(aligned([cell for row in cells for cell in row]))
    lines = [[next(texts) for _ in row] for row in cells]
    columns = dict(zip(heads, zip(*lines, strict=True), strict=True))
    shown = {head: column for head, column in columns.items() if any(column)}
    return table(list(shown), zip(*shown.values(), strict=True), title, 2)


def _system(line: ResultLine | None) -> Html:
    """Return the link to a result, with its organisation and accelerators."""
    if line is None:
        return escaped("no passing result")
    row = line.row
    number = row.accelerators or row.processors
    machine = joined([f"{plain(number)} × " if number else "", model(row)])
    return system(line, row.organisation, machine)


def _scores(line: ResultLine | None, change: Difference) -> tuple[object, ...]:
    if line is None:
        return ("–", "", None)
    waived = element("div", "waived", class_="quiet") if change.now_waived else None
    score: object = change.now if waived is None else joined([*aligned([change.now]), waived])
    return (score, line.row.staging_cells[0], None if line.row.contains_staging else change.now_with_staging)


# -- what failed -------------------------------------------------------------------------------------------


def failures(lines: Sequence[ResultLine], report: Report) -> list[Failure]:
    """Return the results that fail or lack runs, then the errors of whole submissions and across them."""
    found = [_failure(line, shown_of(line.results)) for line in lines]
    whole = [(package_id(at), package.organisation, package.findings) for at, package in enumerate(report.packages, 1)]
    for section, name, findings in (*whole, (ACROSS, "across submissions", report.own)):
        reason = _reason(lowered(findings, False))
        found += [Failure(FAIL, section, name, reason)] if reason else []
    return [one for one in found if one]


def package_id(number: int) -> str:
    """Return the id of the section of a submission, counted from 1."""
    return f"submission-{number}"


def _failure(line: ResultLine, found: Sequence[Shown]) -> Failure | None:
    row = line.row
    if row.verdict not in (FAIL, INCOMPLETE):
        return None
    benchmark = f"{row.benchmark or 'unknown benchmark'}{' throughput' if row.scaling == WEAK else ''}"
    result = " ".join(word for word in (row.division, benchmark, "on", line.system) if word)
    name = f"{row.organisation}: {result}" if row.organisation else result
    reason = _reason(found) or _reason(lowered(line.results.inherited, False)) if row.verdict == FAIL else ""
    missing = f"{line.incomplete}: the others are missing" if line.incomplete else ""
    return Failure(row.verdict, line.name, name, "; ".join(filter(None, (missing, reason))))


def _reason(found: Sequence[Shown]) -> str:
    """Return the first error, its rule, and how many other rules are broken; "" without errors."""
    errors = [shown for shown in found if shown.severity == ERROR]
    if not errors:
        return ""
    first = min(errors, key=lambda shown: shown.finding.rule == TOO_MANY_FAILED)
    rules = {shown.finding.rule for shown in errors}
    rule = RULES.get(first.finding.rule)
    said = textwrap.shorten(first.text, MAX_REASON, placeholder=" …")
    said += f" (rule {first.finding.rule}: {rule.title().rstrip('.')})" if rule else ""
    return said + (f"; {counted(len(rules) - 1, 'more broken rule')}" if len(rules) > 1 else "")


def _failures(failed: Sequence[Failure]) -> Iterator[Html]:
    if not failed:
        yield element("p", "Nothing failed.")
        return
    items = [
        element("li", badge(one.verdict), " ", element("a", one.name, href=f"#{one.section}"), f" – {one.reason}")
        for one in failed
    ]
    yield element("ul", *items[:MAX_FAILURES], class_="failures")
    if items[MAX_FAILURES:]:
        rest = element("ul", *items[MAX_FAILURES:], class_="failures")
        yield disclosure(f"{len(items) - MAX_FAILURES} more", rest)
