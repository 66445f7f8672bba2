"""Trends over results: the best scores of each round, and fits with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from compliance.model.layout import WEAK
from submission.results.figures.drawing import Point, Scale
from submission.results.figures.labels import YEARS, Box, around, labels, slug, title_of
from submission.results.figures.panel import HALF, WIDE, Axis, Figure, Panel, drawable, logarithmic, mark_items, spread
from submission.results.fits.fit import Fit
from submission.results.page.html import Html
from submission.results.quantities import AnalysedSet
from submission.results.quantity_tables import number
from submission.results.rows import ALL_ORGANISATIONS, best

BEST_LEFT, BEST_RIGHT, BEST_TOP, BEST_BOTTOM = 52, 14, 62, 34
"""Space around a panel for its titles and numbers."""
BEST_HEIGHT: Final = 190
PADDING: Final = 34
"""Space for names above and below the points."""
TITLES: Final = {False: "minutes to train, with staging", True: "models per minute, with staging"}
Kind = tuple[bool, str, str]
"""Whether it is throughput, the benchmark, and the division."""
FIT_LEFT, FIT_RIGHT, FIT_TOP, FIT_HEIGHT, FIT_BOTTOM = 60, 20, 38, 300, 52
"""Space around the panel, and its height."""
STEPS: Final = 40


def best_by_round(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw the best score of each round on the clock of all rounds: with staging. Empty for a single round."""
    winners = _find_best(sets)
    rounds = sorted({each.row.round for each in sets}, key=_order_rounds)
    if len(rounds) < 2 or not winners:
        return Html("")
    figure = Figure(name, title_of("Best results by round", sets), _describe_best(winners))
    panels = list(dict.fromkeys((weak, title) for weak, title, _ in sorted(winners)))
    wide, tall = WIDE / 2, BEST_TOP + BEST_HEIGHT + BEST_BOTTOM
    row, column = -1, 1
    for at, (weak, title) in enumerate(panels):
        # Throughput starts a new row.
        column = 0 if column == 1 or (at and panels[at - 1][0] != weak) else column + 1
        row += column == 0
        lines = {kind[2]: results for kind, results in winners.items() if kind[:2] == (weak, title)}
        _draw_best(figure, (title, TITLES[weak]), lines, rounds, Box(wide * column, tall * row, wide * (column + 1), 0))
    items = mark_items([each for results in winners.values() for each in results.values()])
    return figure.finish(tall * (row + 1) + 14, items)


def _order_rounds(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return 0.0, name


def _find_best(sets: Sequence[AnalysedSet]) -> dict[Kind, dict[str, AnalysedSet]]:
    """Return the best passing result of each round, by kind."""
    by_row = {id(each.row): each for each in sets if drawable(each.row.score_with_staging)}
    winners: dict[Kind, dict[str, AnalysedSet]] = {}
    for round_ in dict.fromkeys(each.row.round for each in by_row.values()):
        for key, row in best(each.row for each in by_row.values() if each.row.round == round_).items():
            if key[-1] == ALL_ORGANISATIONS:
                kind = row.scaling == WEAK, by_row[id(row)].marked_benchmark, row.division
                winners.setdefault(kind, {})[round_] = by_row[id(row)]
    return winners


def _draw_best(
    figure: Figure, titles: tuple[str, str], lines: dict[str, dict[str, AnalysedSet]], rounds: Sequence[str], area: Box
) -> None:
    """Draw a line for each division through its best results."""
    left, right, top = area.left + BEST_LEFT, area.right - BEST_RIGHT, area.top + BEST_TOP
    scores = [each.row.score_with_staging or 1.0 for results in lines.values() for each in results.values()]
    x, y = Scale(-0.5, len(rounds) - 0.5, left, right), logarithmic(scores, top + BEST_HEIGHT, top, PADDING)
    figure.text((area.left + 8, top - 46), titles[0], "heading")
    years = tuple(f"v{name}, {YEARS[name]}" if name in YEARS else f"v{name}" for name in rounds)
    panel = Panel(figure, Axis(x, "", names=years), Axis(y, titles[1]))
    marks: list[tuple[Point, AnalysedSet]] = []
    for division, results in lines.items():
        track = [(at, results[name]) for at, name in enumerate(rounds) if name in results]
        points = [panel.locate(at, each.row.score_with_staging or 1.0) for at, each in track]
        figure.curve(points, "track open" if division == "open" else "track")
        marks += zip(points, (each for _, each in track), strict=True)
        for (x1, y1), (x2, y2) in pairwise(points):
            panel.taken += [around((x1 + (x2 - x1) * part / 8, y1 + (y2 - y1) * part / 8), 4) for part in range(9)]
    texts = [f"{each.row.organisation} {number(each.row.score_with_staging, 3)}" for _, each in marks]
    panel.write_labels([point for point, _ in marks], texts)
    for point, each in marks:
        figure.mark(point, each, f"{each.row.organisation} {each.row.system}, {each.row.division} division")


def _describe_best(winners: dict[Kind, dict[str, AnalysedSet]]) -> Iterator[str]:
    for (weak, title, division), results in sorted(winners.items()):
        several = sorted(results.values(), key=lambda each: _order_rounds(each.row.round))
        values = ", ".join(f"{each.row.round}: {number(each.row.score_with_staging, 3)}" for each in several)
        yield f"{title}, {division}, {TITLES[weak]}: {values}."


# -- fits ------------------------------------------------------------------------------------------------------


def fit_name(fit: Fit) -> str:
    """Return the name of the drawing of a fit, of what is in it alone: "fit-epochs-batch-deepcam-round-0-7"."""
    return slug(f"fit {fit.y.name} {fit.x.name} {fit.title.partition(': ')[2]}")


def draw_fit(fit: Fit, sets: Mapping[str, AnalysedSet]) -> Html:
    """Draw a fit over the range of its points; empty without a law. sets: the results by the names of its points."""
    if fit.power is None or not fit.is_law:
        return Html("")
    figure = Figure(fit_name(fit), f"{fit.title[0].upper()}{fit.title[1:]}", [fit.said], HALF)
    x = logarithmic([point.x for point in fit.points], FIT_LEFT, HALF - FIT_RIGHT)
    low, high = (math.log(pick(point.x for point in fit.points)) for pick in (min, max))
    xs = [math.exp(low + (high - low) * at / STEPS) for at in range(STEPS + 1)]
    band = [interval for at in xs if (interval := fit.power.interval(at))]
    values = [point.y for point in fit.points] + [value for interval in band for value in interval]
    y = logarithmic(values, FIT_TOP + FIT_HEIGHT, FIT_TOP)
    names = (fit.x.name, fit.x.unit), (fit.y.symbol, fit.y.unit)
    titles = [name if name == unit else f"{name}, {unit}" for name, unit in names]
    panel = Panel(figure, Axis(x, titles[0]), Axis(y, titles[1]))
    edges = [[panel.locate(at, interval[end]) for at, interval in zip(xs, band, strict=True)] for end in (0, 1)]
    figure.curve([*edges[0], *reversed(edges[1])], "interval", closed=True)
    curve = [panel.locate(at, fit.power.at(at)) for at in xs]
    figure.line(curve[0], curve[-1], "fit")
    panel.taken += [around(point, 3) for point in curve]
    several = [sets[point.name] for point in fit.points]
    spots = spread([panel.locate(point.x, point.y) for point in fit.points])
    panel.write_labels(spots, labels(several), sets=several)
    for point, spot, each in zip(fit.points, spots, several, strict=True):
        figure.mark(spot, each, f"{point.name}: {point.x:,.6g}, {point.y:,.4g}")
    items = [("fit", f"{fit.y.symbol} = {fit.power.a:.4g} · {fit.x.name}^{fit.power.b:.3f}, {len(several)} results")]
    items += [("interval", "95 % interval of the curve"), *mark_items(several)]
    return figure.finish(FIT_TOP + FIT_HEIGHT + FIT_BOTTOM + 8, items)
