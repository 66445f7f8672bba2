"""The page of an analysis: figures and tables of each round, then what holds across rounds. One file, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from common.version import VERSION
from compliance.formats.words import clean, counted
from submission.analysis.analysis import Analysis
from submission.analysis.cost_model import cost_table, error_table
from submission.analysis.fits import Fit
from submission.analysis.model import AnalysedSet
from submission.analysis.projection import projection_table
from submission.analysis.quantities import QUANTITIES, RATIOS
from submission.analysis.tables import number, short_name, tables
from submission.text_table import TextTable
from submission.web.document import document, theme_switch
from submission.web.html import Html, disclosure, element, joined, table

GENERATOR: Final = Html('<meta name="generator" content="mlperf-hpc-suite analysis">')
"""The tag by which the command recognises its own pages."""


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page. name: its id and the start of the ids in it."""

    name: str
    title: str
    body: tuple[Html, ...]


def render(found: Analysis, files: Sequence[str]) -> str:
    """Return the page. files: names of the other files of the analysis, in the same folder."""
    sets = found.sets
    title, parts = _title(sets), [*_rounds(sets), *_across(found)]
    links = [element("li", element("a", part.title, href=f"#{part.name}")) for part in parts]
    body = [
        element("a", "Skip to the results", href=f"#{parts[0].name}", class_="skip"),
        element(
            "header",
            element("div", element("h1", title), theme_switch(), class_="title"),
            element("p", _summary(sets), class_="verdict"),
            element("nav", element("ul", *links, class_="contents"), aria_label="Contents"),
        ),
        element("main", *(_section(part) for part in parts), *_problems(sets)),
        _footer(files),
    ]
    return document(title, joined(body), GENERATOR)


def _rounds(sets: Sequence[AnalysedSet]) -> Iterator[Part]:
    for round_ in dict.fromkeys(one.row.round for one in sets if not one.problem):
        inside = [one for one in sets if one.row.round == round_ and not one.problem]
        yield Part(f"round-{round_.replace('.', '-')}", f"Round {round_}", tuple(_round_tables(inside)))


def _across(found: Analysis) -> Iterator[Part]:
    """Yield what follows from the results, each part marked for what it is."""
    if found.fits:
        yield Part("fits", "Fits", tuple(_fits(found.fits)))
    if found.projected.projections:
        shown = html_table(projection_table(found.projected))
        yield Part("projections", "Projections, not results", (element("p", found.projected.said), shown))
    if found.costed:
        said = element("p", found.cost_error.said)
        parts = [html_table(cost_table(found.costed))]
        parts += [html_table(error_table(found.cost_error))] if found.cost_error.pairs else []
        yield Part("cost-model", "Cost model, not results", (said, *parts))


def _fits(fits: Sequence[Fit]) -> Iterator[Html]:
    for fit in fits:
        critical = fit.critical
        said = [fit.said]
        if critical is not None:
            said.append(
                f"E0 (1 + B / Bc): E0 {critical.e0:.4g}, Bc {critical.bc:.4g}"
                if critical.e0 is not None and critical.bc is not None
                else critical.problem
            )
        for one in fit.efficiencies:
            said.append(
                f"{one.second_units:,} units are {one.efficiency:.3f} times as efficient as {one.first_units:,}"
            )
        rows = [(one.name, number(one.x), number(one.y), "") for one in fit.points]
        rows += [(one.name, "", "", one.reason) for one in fit.left_out]
        head = ("result", f"{fit.x.name} ({fit.x.unit})", f"{fit.y.name} ({fit.y.unit})", "left out because")
        points = disclosure(f"{counted(len(fit.points), 'point')}", table(head, rows, fit.model, 1))
        yield element("div", *(element("p", one) for one in said), points, class_="fit")


def _title(sets: Sequence[AnalysedSet]) -> str:
    rounds = list(dict.fromkeys(one.row.round for one in sets))
    return f"Analysis of {'round' if len(rounds) == 1 else 'rounds'} {', '.join(rounds)}"


def _summary(sets: Sequence[AnalysedSet]) -> str:
    good = [one for one in sets if not one.problem]
    runs = counted(sum(len(one.runs) for one in good), "run")
    left = f"; {len(sets) - len(good)} cannot be analysed, see the end of the page" if len(good) < len(sets) else ""
    return f"{counted(len(good), 'result')} with {runs}{left}. mlperf-hpc-suite {VERSION}."


def _section(part: Part) -> Html:
    return element("section", element("h2", part.title), *part.body, id=part.name, class_="analysis")


def _round_tables(sets: Sequence[AnalysedSet]) -> Iterator[Html]:
    """Yield the tables of a round and the notes on its results."""
    first, *others = tables(sets)
    yield html_table(first)
    yield from (disclosure(one.title, html_table(one)) for one in others)
    notes = [(one, [*one.notes, *(f"{key}: {reason}" for key, reason in one.excluded.items())]) for one in sets]
    items = [
        element("li", f"{short_name(one)}, {one.row.benchmark}: {'; '.join(map(clean, said))}")
        for one, said in notes
        if said
    ]
    if items:
        yield disclosure(f"Notes on {counted(len(items), 'result')}", element("ul", *items))


def html_table(shown: TextTable) -> Html:
    """Return a table of text as HTML; groups are a column."""
    head = [
        " ".join(filter(None, (name, f"({unit})" if unit in UNIT_WORDS else unit))) for name, unit in shown.headings
    ]
    texts = next((at for at, numeric in enumerate(shown.numeric) if numeric), len(head))
    rows: Sequence[Sequence[object]] = shown.rows
    if shown.groups:
        head, texts = ["benchmark", *head], texts + 1
        rows = [(group, *row) for group, row in zip(shown.groups, shown.rows, strict=True)]
    return table(head, rows, shown.title, texts)


UNIT_WORDS: Final = frozenset(quantity.unit for quantity in QUANTITIES.values()) | {"%", "unit h", "h"}


def _problems(sets: Sequence[AnalysedSet]) -> Iterator[Html]:
    items = [
        element("li", f"round {one.row.round}, {one.name or one.folder}: {one.problem}") for one in sets if one.problem
    ]
    if items:
        yield element("section", element("h2", "Results that cannot be analysed"), element("ul", *items), id="problems")


def _footer(files: Sequence[str]) -> Html:
    rows = [(q.name, q.unit, q.definition, "harmonic" if q.harmonic else "arithmetic") for q in QUANTITIES.values()]
    rows += [(name, "", definition, "ratio of means") for name, definition in RATIOS.items()]
    links = joined([element("a", name, href=name) for name in files], ", ")
    return element(
        "footer",
        element("h2", "How to read this page"),
        element("p", WHICH_RUNS),
        disclosure(
            "Definitions of the quantities", table(("name", "unit", "definition", "mean over runs"), rows, "", 4)
        ),
        element("p", "The numbers behind this page: ", links, ".") if files else "",
    )


WHICH_RUNS: Final = (
    "Means and deviations are over the runs of a result without the fastest and the slowest; a run without run_stop, "
    "or that ended without success, counts as the slowest. Throughputs are averaged harmonically, and shares are "
    "ratios of means. Units are accelerators, or processors of a system without. The quantities are those of the "
    "MLPerf HPC paper (arXiv 2110.11466)."
)
