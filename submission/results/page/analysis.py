"""The sections of the page with the analysis: figures and tables of each round, then what holds across rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile
from operator import attrgetter, not_
from typing import Final, NamedTuple

from common.command import clean, counted
from common.rounds import label_round
from compliance.formats.table import TextTable
from compliance.formats.words import plain
from submission.results.analysis import Analysis
from submission.results.cost_model import cost_table, error_table
from submission.results.figures.hardware import data_per_node, peak_against_power
from submission.results.figures.labels import by_benchmark
from submission.results.figures.runs import draw_time_shares, draw_variation
from submission.results.figures.scaling import best_by_round, compute_analysis, draw_fit, time_to_solution
from submission.results.fits.fit import Fit
from submission.results.fits.projection import Projections, projection_table
from submission.results.page.findings import Part
from submission.results.page.html import Html, disclosure, draw_table, element, join_parts, make_scrollable, make_slug
from submission.results.quantities import QUANTITIES, AnalysedSet
from submission.results.quantity_tables import format_number, make_tables, short_name

BEST: Final = "Best passing results of each round"


def draw_analysis(analysis: Analysis) -> Iterator[Part]:
    """Yield the sections of an analysis that have something to show, in pieces."""
    for round_, several in groupby(list_pictures(analysis.sets), attrgetter("round")):
        section, heading = f"round-{round_.replace('.', '-')}", f"Analysis of round {label_round(round_)}"
        if not round_:
            section, heading = "best-by-round", BEST
        for picture in several:
            # All times to solution are at the top of the page.
            if picture.kind is not TIMES and (drawing := _draw_picture(picture)):
                yield Part(section, heading, drawing)
        inside = [each for each in analysis.sets if each.row.round == round_ and not each.problem]
        yield from (Part(section, heading, body) for body in _round_tables(inside))
    yield from _draw_derived(analysis)
    problems = [
        element("li", f"round {label_round(each.row.round)}, {each.name}: {each.problem}")
        for each in analysis.sets
        if each.problem
    ]
    if problems:
        yield Part("problems", "Results that cannot be analysed", element("ul", *problems))


@dataclass(frozen=True)
class Picture:
    """A figure of some results.

    name: its id on the page and the name of its file. round: "" for one of all rounds.
    """

    name: str
    round: str
    title: str
    kind: PictureKind
    sets: list[AnalysedSet]

    @cached_property
    def drawing(self) -> Html:
        """The drawing; empty if there is nothing to draw."""
        return self.kind.draw(self.sets, self.name)


class PictureKind(NamedTuple):
    """What figures show. title: where `{}` stands for the benchmark. folded: opened by a click."""

    name: str
    title: str
    caption: str
    draw: Callable[[Sequence[AnalysedSet], str], Html]
    folded: bool = True


TIMES: Final = PictureKind(
    "time-to-solution",
    "Time to solution",
    "Each result at its units, with the distribution of its runs. Dotted: equal unit-hours.",
    time_to_solution,
    folded=False,
)
OF_ROUNDS: Final = (
    PictureKind(
        "time-shares",
        "Where the time goes",
        "Shares of the time of a run, as ratios of means.",
        draw_time_shares,
        folded=False,
    ),
    PictureKind(
        "variation",
        "Variation of the runs",
        "Logarithmic principal components of epochs and epoch time. A flat ellipse varies in epochs, by the training; "
        "an upright one varies in the time of an epoch, by the system.",
        draw_variation,
    ),
    PictureKind(
        "utilization",
        "Utilization: peak against power, and what results achieve",
        "Peaks are those of data sheets for dense products. A result stands below the peak of its device at the FLOP "
        "of training by the time of training, per device; benchmarks stand side by side around its watts, and devices "
        "without published watts, such as A64FX, are not drawn. Labels are of the best result of a benchmark on a "
        "device.",
        peak_against_power,
    ),
)
OF_BENCHMARKS: Final = (
    PictureKind(
        "compute",
        "Compute analysis: {}",
        "Batch size, E (epochs), E per minute and units, with lines of equal samples per unit, steps, throughput per "
        "unit and compute time. Samples per minute have a panel of their own, because their scale differs.",
        compute_analysis,
    ),
    PictureKind(
        "memory",
        "Data per node: {}",
        "Training and validation set, shared evenly by the nodes of a run: how they shrink below the memory of a "
        "node. Results in one place stand side by side.",
        data_per_node,
    ),
)


def list_pictures(sets: Sequence[AnalysedSet]) -> Iterator[Picture]:
    """Yield figures 1 to 4 of each round, two of them for each benchmark, and the best results of all rounds."""
    good = [each for each in sets if not each.problem]
    for round_ in dict.fromkeys(each.row.round for each in good):
        inside = [each for each in good if each.row.round == round_]
        for kinds in ((TIMES,), OF_ROUNDS, OF_BENCHMARKS):
            for benchmark, results in ({"": inside} if kinds is OF_ROUNDS else by_benchmark(inside)).items():
                for kind in kinds:
                    name = make_slug(f"v{round_} {benchmark} {kind.name}")
                    yield Picture(name, round_, kind.title.format(benchmark), kind, results)
    yield Picture("best-by-round", "", "", PictureKind("best-by-round", "", "", best_by_round, folded=False), good)


def _draw_picture(picture: Picture) -> Html:
    """Return the figure with its title and caption, empty if there is nothing to draw."""
    if not picture.drawing:
        return picture.drawing
    drawing = make_scrollable(picture.drawing, picture.title or BEST)
    caption = element("p", picture.kind.caption, class_="quiet") if picture.kind.caption else ""
    if picture.kind.folded:
        return disclosure(picture.title, element("figure", drawing, caption, class_="plots"), class_="folded")
    title = element("figcaption", picture.title) if picture.title else ""
    return element("figure", title, drawing, caption, class_="plots")


def _draw_derived(analysis: Analysis) -> Iterator[Part]:
    """Yield what follows from the results, each part marked for what it is."""
    if any(fit.power for fit in analysis.fits):
        yield Part("fits", "Fits", element("div", *_draw_fit_sections(analysis), class_="pairs"))
    if analysis.projected.projections:
        yield Part(
            "projections",
            "Projections, not results",
            join_parts(_draw_projections(analysis.projected)),
        )
    elif analysis.projected.not_projected:
        yield Part("projections", "Projections, not results", element("p", analysis.projected.said))
    if analysis.costed:
        steps, error = cost_table(analysis.costed), analysis.cost_error
        errors = _html_table(error_table(error)) if error.pairs else element("p", error.text)
        model = disclosure(
            "Predicted and published times",
            errors,
            disclosure(steps.title, _html_table(steps)),
        )
        yield Part("cost-model", "Cost model, not results", model)


def _draw_projections(projected: Projections) -> Iterator[Html]:
    whole = projection_table(projected)
    rows = tuple(row[:-1] for row in whole.rows)
    yield _html_table(whole._replace(headings=whole.headings[:-1], rows=rows, numeric=whole.numeric[:-1]))
    notes = [element("li", f"{row[0]} on {row[2]}: {row[-1]}") for row in whole.rows]
    yield disclosure("How each was projected", element("ul", *notes))


def draw_fits(analysis: Analysis) -> Iterator[tuple[Fit, Html]]:
    """Yield each fit and its drawing, which is empty where there is no law."""
    sets = {each.full_name: each for each in analysis.sets}
    yield from ((fit, draw_fit(fit, sets)) for fit in analysis.fits)


def _draw_fit_sections(analysis: Analysis) -> Iterator[Html]:
    for fit, drawing in draw_fits(analysis):
        critical = fit.critical
        sentences = [fit.said]
        if critical is not None:
            is_solved = critical.e0 is not None and critical.bc is not None
            sentences.append(
                f"E0 (1 + B / Bc): E0 {critical.e0:.4g}, Bc {critical.bc:.4g}" if is_solved else critical.problem
            )
        sentences += [
            f"{each.second_units:,} units are {each.efficiency:.3f} times as efficient as {each.first_units:,}"
            for each in fit.efficiencies
        ]
        rows = [(point.name, plain(point.x), format_number(point.y), "") for point in fit.points]
        rows += [(other.name, "", "", other.reason) for other in fit.left_out]
        head = (
            "result",
            f"{fit.x.name} ({fit.x.unit})",
            f"{fit.y.symbol} ({fit.y.unit})",
            "left out because",
        )
        points = disclosure(f"{counted(len(fit.points), 'point')}", draw_table(head, rows, fit.model, 1))
        figure = element("figure", make_scrollable(drawing, fit.title), class_="plots") if drawing else ""
        yield element("div", *(element("p", sentence) for sentence in sentences), figure, points)


def _round_tables(sets: Sequence[AnalysedSet]) -> Iterator[Html]:
    """Yield the tables of a round and the notes on its results."""
    yield from (disclosure(each.title, _html_table(each)) for each in make_tables(sets))
    notes = ((each, [*each.notes, *(f"{key}: {reason}" for key, reason in each.excluded.items())]) for each in sets)
    items = [
        element("li", f"{short_name(each)}, {each.marked_benchmark}: {'; '.join(map(clean, texts))}")
        for each, texts in notes
        if texts
    ]
    if items:
        yield disclosure(f"Notes on {counted(len(items), 'result')}", element("ul", *items))


def _html_table(content: TextTable) -> Html:
    """Return a table of text as HTML, with its title as the caption; groups are a column."""
    head = [" ".join(filter(None, (name, f"({unit})" if unit in UNITS else unit))) for name, unit in content.headings]
    texts, ends = (len(list(takewhile(not_, order))) for order in (content.numeric, reversed(content.numeric)))
    rows: Sequence[Sequence[object]] = content.rows
    if content.groups:
        head, texts = ["benchmark", *head], texts + 1
        rows = [(group, *row) for group, row in zip(content.groups, content.rows, strict=True)]
    return draw_table(head, rows, content.title, texts, ends)


UNITS: Final = {
    *(quantity.unit for quantity in QUANTITIES.values()),
    *"% ms s samples/s".split(),
}


WHICH_RUNS: Final = (
    "Means and deviations are over the runs of a result without the fastest and the slowest; runs that have no time to "
    "solution count as the slowest, and the notes say why. All other runs of a throughput result count. Throughputs "
    "are averaged harmonically, and shares are ratios of means. Units are accelerators, or processors of a system "
    "without. The quantities are those of the MLPerf HPC paper (arXiv 2110.11466)."
)
