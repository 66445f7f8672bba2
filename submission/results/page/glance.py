"""What the page begins with: what failed and why, the best results, and the tables of results.

page.js can sort and filter these tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.command import clean, counted, list_some
from common.rounds import label_round
from common.values import group_pairs
from compliance.formats.findings import Shown, lowered
from compliance.formats.table import shortened
from compliance.formats.words import aligned, plain
from compliance.model.judging import ERROR, FAIL, INCOMPLETE
from compliance.model.layout import STRONG, WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.rules.rule import RULES
from submission.results.columns import HEADINGS, RESULT_COLUMNS, SHOWN
from submission.results.page.findings import Site, draw_badge, finding_id, shown_of
from submission.results.page.html import Html, disclosure, draw_table, element, escape_text, join_parts, table_of_kinds
from submission.results.quantities import AnalysedSet
from submission.results.rows import ALL_ORGANISATIONS, Difference, Row, compare_rounds, find_best

FILTERS: Final = ("round", "benchmark", "division", "organisation", "verdict")


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A result on the page: the id of its section, its result set, and its row of the summary.

    is_result: whether it is one, not logs that were judged one by one, which no table shows.
    """

    name: str
    results: ResultSet
    row: Row
    is_result: bool = True

    @property
    def key(self) -> str:
        """The name of the result in the analysis, which marks it in figures."""
        return AnalysedSet(self.row, self.results.folder, None).full_name

    @property
    def system(self) -> str:
        """The name of the result inside its organisation."""
        return self.row.system or self.results.folder_benchmark or "logs"

    def sort_key(self) -> tuple[str, str, str, str, float]:
        """Return the key for sorting: by round, scaling, benchmark and division, best score first."""
        score = float("inf") if self.row.score is None else self.row.score
        is_more_better = self.row.scaling == WEAK and self.row.score is not None
        return (*self.row.table_order, -score if is_more_better else score)


def list_attributes(line: ResultLine) -> dict[str, str]:
    """Return the attributes of a row by which page.js filters, and of `data-result` all else that it is about."""
    row = line.row
    words = (
        row.organisation,
        line.system,
        row.benchmark,
        row.division,
        row.accelerator,
        row.processor,
        row.framework,
    )
    choices = {f"data_{name}": str(getattr(row, name)) for name in FILTERS}
    return {"data_result": line.key, "data_text": " ".join(words).lower(), **choices}


def filter_form(lines: Sequence[ResultLine]) -> Html:
    """Return the controls of the filter, hidden until page.js runs; nothing for a single result."""
    if len(lines) < 2:
        return Html("")
    search = element("input", type="search", name="text", placeholder="system, accelerator, framework …")
    fields = [element("label", "Find ", search)]
    for name in FILTERS:
        values = sorted({str(getattr(line.row, name)) for line in lines})
        if len(values) > 1:
            options = [element("option", label_round(value) or "unknown", value=value) for value in values]
            choice = element("select", element("option", "all", value="*"), *options, name=name)
            fields.append(element("label", f"{name.capitalize()} ", choice))
    count = element("output", f"{len(lines)} of {len(lines)} results", aria_live="polite")
    return element("form", *fields, count, id="filter", class_="filter", hidden=True)


def draw_tables(lines: Sequence[ResultLine], site: Site) -> list[Html]:
    """Return the non-empty tables of time to train and throughput."""
    # Round and organisation are in the header of the page if all results share them.
    same = {name for name in ("Round", "Organisation") if len({getattr(line.row, name.lower()) for line in lines}) == 1}
    sorted_lines = sorted(lines, key=ResultLine.sort_key)
    by_scaling = {scaling: [line for line in sorted_lines if line.row.scaling == scaling] for scaling in SCORES}
    return [_draw_results(scaling, several, site, same) for scaling, several in by_scaling.items() if several]


def _list_names(line: ResultLine, site: Site) -> dict[str, object]:
    """Return the cells of a result before its numbers, by heading."""
    row = line.row
    states = (element("div", state, class_="quiet") for state in line.results.states)
    return {
        "Verdict": join_parts([draw_badge(row.verdict), *states]),
        "Round": label_round(row.round),
        "Benchmark": join_parts([row.benchmark, draw_tags(row)]),
        "Division": row.division,
        "Organisation": break_name(row.organisation),
        "System": link_system(line, site, draw_model(row), _with_title(short_framework(row.framework), row.framework)),
    }


def _draw_results(scaling: str, lines: Sequence[ResultLine], site: Site, same: set[str]) -> Html:
    """Return the table of results of a scaling, without empty columns and those named in `same`."""
    names = [_list_names(line, site) for line in lines]
    columns: list[tuple[object, str, Sequence[object]]] = [
        (name, "text long" if name == "System" else "text", [cells[name] for cells in names])
        for name in names[0]
        if name not in same
    ]
    for key in SHOWN[scaling]:
        if key not in (
            "verdict",
            "organisation",
            "system",
            "states",
        ):  # these are among the names
            column = RESULT_COLUMNS[key]
            heading = " ".join(filter(None, HEADINGS[scaling].get(key, (column.name, column.unit))))
            head = element("span", heading, title=column.meaning)
            cells = aligned([_draw_cell(line, key) for line in lines], column.decimals)
            columns.append((head, "text long rcp" if key == "rcp" else "number", cells))
    heads, kinds, filled = zip(*(column for column in columns if any(column[2])), strict=True)
    rows = zip(zip(*filled, strict=True), map(list_attributes, lines), strict=True)
    return table_of_kinds(heads, kinds, rows, SCORES[scaling][0], "results")


def _draw_cell(line: ResultLine, key: str) -> object:
    if key == "runs" and line.row.incomplete:
        return element("strong", line.row.incomplete, class_="label-word")
    return line.row.rcp if key == "rcp" else RESULT_COLUMNS[key].cell(line.row)


def link_system(line: ResultLine, site: Site, *words: object) -> Html:
    """Return the link to the section of a result, and below it the words that are not empty."""
    link = element("a", break_name(line.system), href=site.find_address(line.name))
    parts = [word for word in words if word]
    return join_parts([link, element("div", join_parts(parts, ", "), class_="quiet") if parts else ""])


def draw_tags(item: Row | Difference) -> Html:
    """Return the marks of what is no MLPerf result: of a mini problem, and of a benchmark from outside the suite."""
    words = {"mini": item.mini, "not MLPerf": item.plugin}
    return join_parts(
        [join_parts([" ", element("span", word, class_="tag")]) for word, applies in words.items() if applies]
    )


def draw_model(row: Row) -> Html | str:
    """Return the short name of the accelerators, or of the processors of a system without; the full one on hover."""
    return _with_title(short_model(row.device), row.device)


def _with_title(short: str, name: str) -> Html | str:
    return short if short == name else element("span", short, title=name)


def break_name(name: str) -> Html:
    """Return a name that may be broken into lines after its punctuation."""
    return join_parts(re.split(r"(?<=[_+@-])", name), element("wbr"))


# -- short names, so that they fit the table -------------------------------------------------------------------


VENDOR: Final = re.compile(r"\((?:R|TM)\)|\b(?:NVIDIA|Tesla|Quadro|FUJITSU|Intel|AMD|IBM|Processors?|CPU|GPU)\b", re.I)
VARIANT: Final = re.compile(r"\s*@.*|\s*\(.*|\s*\b\d+-Core.*|(?:\s*-\s*|\s+)(?:SXM|PCIe|NVL|\d+ ?GB).*", re.I)
"""What follows the name of a model: clock, form factor, size of the memory."""
FRAMEWORKS: Final = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet", "jax": "JAX", "paddle": "PaddlePaddle",
    "mindspore": "MindSpore",
}  # fmt: skip
VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
LONGEST: Final = 20


def short_model(name: str) -> str:
    """Return the model of an accelerator or processor: A100 for NVIDIA A100-SXM4-40GB (400W)."""
    model = " ".join(VARIANT.sub("", VENDOR.sub(" ", name)).split())
    return shortened(model or name, LONGEST)


def short_framework(name: str) -> str:
    """Return a framework and its version: PyTorch 22.08 for PyTorch NVIDIA Release 22.08."""
    framework = next((text for word, text in FRAMEWORKS.items() if word in name.lower()), "")
    version = VERSION.search(name)
    return shortened(f"{framework} {version[0]}" if framework and version else framework or name, LONGEST)


MAX_FAILURES: Final = 12
"""Failures that are shown at once; further ones after a click."""
MAX_CAUSES: Final = 3
"""Broken rules that are named for each; further ones are counted."""
FAILED: Final = "what-failed"
"""The id of the section with what failed."""
PACKAGE: Final = "submission-"
"""What the id of the section of a submission begins with."""
ACROSS: Final = "across"
"""The id of the section with the findings across submissions."""
SCORES: Final = {STRONG: ("Time to train", "min"), WEAK: ("Throughput", "models/min")}
"""The name and the unit of the scores of each scaling."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed: the message, the rule ("" for missing runs) and the section with the finding."""

    text: str
    rule: str
    section: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed, or lacks runs: its verdict, the id of its section, its name and why."""

    verdict: str
    section: str
    name: str
    causes: list[Cause]


# -- the best results --------------------------------------------------------------------------------------


def draw_best(lines: Sequence[ResultLine], previous: Sequence[Row], site: Site) -> Iterator[Html]:
    """Yield a table of the best passing results of each round and scaling; nothing for logs outside of submissions.

    previous: results of the previous round.
    """
    scored = [line for line in lines if not line.results.loose]
    rounds = dict.fromkeys(line.row.round for line in scored)
    tables = []
    for round_ in rounds:
        inside = [line for line in scored if line.row.round == round_]
        for scaling, (title, unit) in SCORES.items():
            rows = list(_best_rows(inside, scaling, previous))
            caption = f"{title}, round {label_round(round_)}" if len(rounds) > 1 else title
            caption += "; previous round and speed-up with staging" if previous else ""
            tables += [_findings_table(rows, unit, caption, bool(previous), site)] if rows else []
    if scored:
        yield element("h2", "Best passing results" + " (not MLPerf)" * all(line.row.plugin for line in scored))
        yield from tables or [element("p", "No result passes.")]


def _best_rows(
    lines: Sequence[ResultLine], scaling: str, previous: Sequence[Row]
) -> Iterator[tuple[ResultLine | None, Difference]]:
    """Yield the best result of each benchmark and division, None without one, and how it differs from the previous."""
    rows = [line.row for line in lines]
    by_row = {id(line.row): line for line in lines}
    best_rows = find_best(rows)
    for change in compare_rounds(previous, rows):
        if change.organisation == ALL_ORGANISATIONS and change.scaling == scaling:
            yield (
                by_row[id(best_rows[change.key])] if change.key in best_rows else None,
                change,
            )


def _findings_table(
    rows: Sequence[tuple[ResultLine | None, Difference]], unit: str, title: str, compared: bool, site: Site
) -> Html:
    """Return the table, without columns that are empty."""
    heads = [
        "Benchmark",
        "System",
        f"Score, {unit}",
        "Staging, min",
        f"Score with staging, {unit}",
    ]
    heads += [f"Previous round, {unit}", "Speed-up"] if compared else []
    cells: list[tuple[object, ...]] = []
    for line, change in rows:
        # The best score of the previous round has staging as the speed-up has it.
        speedup = f"{change.speedup:.2f}×" if change.speedup else ""
        before = (change.before_with_staging, speedup) if compared else ()
        benchmark = join_parts(
            [
                change.benchmark,
                draw_tags(change),
                element("div", change.division, class_="quiet"),
            ]
        )
        cells.append((benchmark, _link_best(line, site), *_list_scores(line, change), *before))
    texts = aligned([cell for row in cells for cell in row])
    columns = {head: texts[at :: len(heads)] for at, head in enumerate(heads)}
    filled = {head: column for head, column in columns.items() if any(column)}
    return draw_table(list(filled), zip(*filled.values(), strict=True), title, 2)


def _link_best(line: ResultLine | None, site: Site) -> Html:
    """Return the link to a result, with its organisation and accelerators."""
    if line is None:
        return escape_text("no passing result")
    row = line.row
    number = row.accelerators or row.processors
    machine = join_parts([f"{plain(number)} × " if number else "", draw_model(row)])
    return link_system(line, site, row.organisation, machine)


def _list_scores(line: ResultLine | None, change: Difference) -> tuple[object, ...]:
    if line is None:
        return ("–", "", None)
    waived = element("div", "waived", class_="quiet") if change.now_waived else None
    score: object = change.now if waived is None else join_parts([*aligned([change.now]), waived])
    return (
        score,
        line.row.staging_cells[0],
        None if line.row.contains_staging else change.now_with_staging,
    )


# -- what failed -------------------------------------------------------------------------------------------


def read_failures(lines: Sequence[ResultLine], report: Report) -> list[Failure]:
    """Return what fails: whole submissions and what is across them, then results, then results that lack runs."""
    whole = [(package_id(at), package.organisation, package.findings) for at, package in enumerate(report.packages, 1)]
    whole.append((ACROSS, "across the submissions", report.own))
    places = {id(finding): section for section, _, findings in whole for finding in findings}
    failed = [
        Failure(FAIL, section, name, _find_causes(lowered(several, False), section)) for section, name, several in whole
    ]
    results = [_result_failure(line, places) for line in lines if line.row.verdict in (FAIL, INCOMPLETE)]
    results.sort(key=lambda failure: failure.verdict == INCOMPLETE)
    return [*(failure for failure in failed if failure.causes), *results]


def package_id(number: int) -> str:
    """Return the id of the section of a submission, counted from 1."""
    return f"{PACKAGE}{number}"


def _result_failure(line: ResultLine, places: Mapping[int, str]) -> Failure:
    """Return what a result lacks. places: the section with each finding that is not on a result."""
    row = line.row
    benchmark = f"{row.benchmark or 'unknown benchmark'}{' throughput' if row.scaling == WEAK else ''}"
    result = " ".join(filter(None, (row.division, benchmark, "on", line.system)))
    causes = _find_causes(shown_of(line.results), line.name)
    if row.verdict == FAIL and not causes:
        rules = {
            finding.rule: places.get(id(finding), ACROSS)
            for finding in line.results.inherited
            if finding.severity == ERROR
        }
        causes = [
            Cause(
                f"an error of the submission: {RULES[rule].title() if rule in RULES else rule}",
                rule,
                section,
            )
            for rule, section in rules.items()
        ]
    if row.incomplete and not causes:
        causes.append(Cause(f"{row.incomplete}: the others are missing", "", line.name))
    return Failure(row.verdict, line.name, f"{row.organisation}: {result}" if row.organisation else result, causes)


def _find_causes(entries: Sequence[Shown], section: str) -> list[Cause]:
    """Return the first error of each broken rule and its files, without errors that follow from another."""
    errors = [entry for entry in entries if entry.severity == ERROR]
    first = [entry for entry in errors if not entry.finding.cause] or errors
    by_rule = group_pairs((entry.finding.rule, entry) for entry in first)
    causes = [Cause(f"{_name_files(several)}{several[0].text}", rule, section) for rule, several in by_rule.items()]
    return sorted(causes, key=lambda cause: cause.rule == "RUN02")  # broken as logs break others, which say more


def _name_files(entries: Sequence[Shown]) -> str:
    """Return the name of the first of the files with these errors, and how many there are, to go before a message."""
    paths = dict.fromkeys(
        entry.finding.path
        for entry in entries
        if entry.finding.line or entry.finding.path.endswith((".txt", ".txt.gz"))
    )
    names = [clean(os.path.basename(path)) for path in paths]
    return f"{list_some(names, 1)}: " if names else ""


def draw_failures(failures: Sequence[Failure], site: Site) -> Html:
    """Return the section with what failed, each line a link to the finding; nothing if nothing failed."""
    if not failures:
        return Html("")
    items = [_draw_failure(failure, site) for failure in failures]
    parts = [element("ul", *items[:MAX_FAILURES], class_="failures")]
    if items[MAX_FAILURES:]:
        rest = element("ul", *items[MAX_FAILURES:], class_="failures")
        parts.append(disclosure(f"{len(items) - MAX_FAILURES} more", rest))
    return element("section", element("h2", "What failed"), *parts, id=FAILED)


def _draw_failure(failure: Failure, site: Site) -> Html:
    causes = []
    for cause in failure.causes[:MAX_CAUSES]:
        address = site.find_address(cause.section, finding_id(cause.section, cause.rule) if cause.rule else "")
        rule = (" ", element("code", cause.rule, class_="quiet")) if cause.rule else ()
        causes.append(element("div", element("a", cause.text, href=address), *rule))
    more = len(failure.causes) - MAX_CAUSES
    if more > 0:
        link = element("a", f"and {counted(more, 'more broken rule')}", href=site.find_address(failure.section))
        causes.append(element("div", link, class_="quiet"))
    return element("li", draw_badge(failure.verdict), " ", element("b", failure.name), *causes)
