"""How results scale with the size of the machine, and trends over rounds, with fits and their intervals.

Time to solution, and what it is made of: the first figure of the MLPerf HPC paper, and its panels with shared axes of
batch size, epochs and throughput.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from common.rounds import find_usage, label_round, sort_versions
from common.values import group_pairs
from compliance.model.layout import WEAK
from submission.results.figures.drawing import PADDING, Point, Scale, make_log_scale
from submission.results.figures.labels import LINE, YEARS, Box, enclose_point, format_amount, name_results, title_of
from submission.results.figures.panel import (
    HALF,
    MARK,
    UNITS,
    WIDE,
    Axis,
    Figure,
    Iso,
    Panel,
    colour_of,
    estimate_density,
    is_drawable,
    mark_items,
    organisation_items,
    run_values,
    spread_points,
    state_of,
)
from submission.results.fits.fit import Fit
from submission.results.page.html import Html, make_slug
from submission.results.quantities import EPOCHS, AnalysedSet
from submission.results.quantity_tables import format_number
from submission.results.rows import ALL_ORGANISATIONS, find_best

MANY: Final = 24
"""Results of a benchmark above which the panel has numbers and a list below instead of names."""
FEW: Final = 6
"""Up to this many results the panel is lower."""
ROOM: Final = 100
"""Space for names beside the outermost points."""
TIME_LEFT, TIME_RIGHT, TIME_TOP, TIME_BOTTOM = 52.0, 54.0, 66.0, 48.0
"""Space around a panel for its titles and numbers."""
THROUGHPUT, TRAIN, EVAL = "run_epoch_throughput", "run_train_throughput", "run_eval_throughput"
BLOCK_LEFT, BLOCK_RIGHT, BLOCK_TOP, BLOCK_BOTTOM = 58, 74, 52, 46
"""Space around a panel for its titles and numbers."""
BLOCK_HEIGHT: Final = 270


def time_to_solution(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw the minutes of a benchmark's runs by compute units, with lines of the same compute budget."""
    sets = [each for each in sets if is_drawable(each.units) and is_drawable(each.mean("run_time"))]
    if not sets:
        return Html("")
    figure = Figure(
        name,
        title_of("Time to solution by compute units", sets),
        [_describe_times(sets)],
        width,
    )
    texts, bottom = name_results(sets), TIME_TOP + (500 if len(sets) > FEW else 340)
    units, means = [each.units or 1 for each in sets], [each.mean("run_time") or 1 for each in sets]
    x = make_log_scale(units, TIME_LEFT, width - TIME_RIGHT, ROOM if width == WIDE else PADDING)
    y = make_log_scale(
        [*means, *(value for each in sets for value in run_values(each, "run_time"))],
        bottom,
        TIME_TOP,
    )
    figure.draw_text((8, 22), sets[0].marked_benchmark, "heading")
    panel = Panel(figure, Axis(x, UNITS), Axis(y, "minutes per run"))
    panel.draw_iso_lines(Iso(slope=-1, factor=60, unit=" h"))
    points = [panel.locate_point(count, mean) for count, mean in zip(units, means, strict=True)]
    for each, point in zip(sets, points, strict=True):
        panel.draw_runs(each, "run_time", point, upright=True)
    is_named, top = len(sets) <= MANY, bottom + TIME_BOTTOM
    if not (is_named and panel.write_labels(points, texts, sets=sets, all_near=True)):
        panel.write_numbers(points)
        rows = [(text, f"{format_amount(mean)} min") for text, mean in zip(texts, means, strict=True)]
        top = figure.list_results(sets, rows, Box(0, top + LINE, width, math.inf))
    for each, text, mean, point in zip(sets, texts, means, points, strict=True):
        figure.mark_result(point, each, _explain_time(each, text, mean))
    items = [
        ("runs", "runs and their distribution"),
        ("iso", "equal accelerator (processor) hours"),
    ]
    return figure.finish_figure(top + 24, [*mark_items(sets), *items], organisation_items(sets))


def _explain_time(each: AnalysedSet, text: str, mean: float) -> str:
    times = each.statistics["run_time"]
    spread = f" ± {format_amount(times.std)}" if times.std else ""
    batch = f", batch size {each.row.batch_size}" if each.row.batch_size else ""
    return (
        f"{text}: {format_amount(mean)}{spread} min (mean of {times.count} runs), {each.units} {each.unit}{batch}, "
        f"{format_amount(mean * (each.units or 0) / 60)} unit hours, {each.row.verdict}"
    )


def _describe_times(sets: Sequence[AnalysedSet]) -> str:
    fastest = min(sets, key=lambda each: each.mean("run_time") or math.inf)
    return (
        f"{len(sets)} results; the shortest runs are those of {fastest.row.organisation} on {fastest.row.system}, with "
        f"{format_amount(fastest.mean('run_time') or 0)} minutes and {fastest.units} {fastest.unit}."
    )


# -- what a time to solution is made of ------------------------------------------------------------------------


def compute_analysis(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw batch size, epochs and throughput of each result of a benchmark by its units, in panels; and a list."""
    quantities = [(each.units, each.row.batch_size, each.mean(EPOCHS), each.mean(THROUGHPUT)) for each in sets]
    sets = [each for each, means in zip(sets, quantities, strict=True) if all(map(is_drawable, means))]
    if not sets:
        return Html("")
    figure = Figure(name, title_of("Batch size, epochs to solution and throughput", sets), [_describe_batches(sets)])
    figure.draw_text((8, 22), sets[0].marked_benchmark, "heading")
    bottom = _Block(figure, sets).draw(20.0)
    items = [
        *mark_items(sets),
        ("triangle", "training"),
        ("cross", "evaluation"),
        ("runs", "runs and their distribution"),
        ("iso", "equal values of what the panel's title says"),
    ]
    return figure.finish_figure(bottom + 22, items)


class _Block:
    """The panels: (batch, units), (batch, epochs), (throughput, units), (throughput, epochs), more."""

    def __init__(self, figure: Figure, sets: list[AnalysedSet]) -> None:
        self.figure, self.sets = figure, sets
        self.units = [each.units or 1 for each in sets]
        self.batches = [each.row.batch_size or 1 for each in sets]
        self.epochs = [each.mean(EPOCHS) or 1.0 for each in sets]
        self.rates = [each.mean(THROUGHPUT) or 1.0 for each in sets]
        self.names = name_results(sets)

    def draw(self, top: float) -> float:
        """Draw all; return the lower end."""
        width, step = WIDE / 2, BLOCK_TOP + BLOCK_HEIGHT + BLOCK_BOTTOM
        corners = [(width * (at % 2), top + step * (at // 2)) for at in range(6)]
        for at, (left, up) in enumerate(corners[:5]):
            ends = (
                (left + BLOCK_LEFT, left + width - BLOCK_RIGHT),
                (up + BLOCK_TOP + BLOCK_HEIGHT, up + BLOCK_TOP),
            )
            if at == 4:
                self._draw_samples(*ends)
            else:
                self._draw_panel(at // 2 == 1, at % 2 == 1, *ends)
        left, up = corners[5]
        minutes = (f"{format_amount(each.mean('run_time') or 0)} min" for each in self.sets)
        area = Box(left, up + BLOCK_TOP, left + width, math.inf)
        end = self.figure.list_results(self.sets, list(zip(self.names, minutes, strict=True)), area)
        return max(end, corners[4][1] + step)

    def _find_iso(self, of_rates: bool, by_epochs: bool) -> Iso | None:
        """Return the lines of a panel, None if the steps of training are not known."""
        if not by_epochs:
            title = "lines: per unit" if of_rates else "lines: batch per unit"
            return Iso(slope=1, unit="/min" if of_rates else "/unit", title=title)
        if of_rates:
            return Iso(slope=1, power=-1, unit=" min", title="lines: compute time")
        results = zip((each.mean("run_steps") for each in self.sets), self.batches, self.epochs, strict=True)
        steps = [mean * batch / epochs for mean, batch, epochs in results if mean is not None]
        if not steps:
            return None
        return Iso(
            slope=1,
            factor=statistics.median(steps),
            power=-1,
            unit=" steps",
            title="lines: steps of training",
        )

    def _draw_panel(
        self, of_rates: bool, by_epochs: bool, across: tuple[float, float], up: tuple[float, float]
    ) -> None:
        """Draw the batch sizes or throughputs by units or epochs, which have the distributions of their runs."""
        ys, title = (self.rates, "E per minute") if of_rates else (self.batches, "batch size")
        xs = self.epochs if by_epochs else self.units
        x = Axis(make_log_scale(self.units, *across), UNITS)
        if by_epochs:
            x = Axis(
                make_log_scale(_find_range(self.sets, EPOCHS, self.epochs), *across),
                "E, epochs to solution",
            )
        y = Axis(make_log_scale(ys, *up), title, numbers=not by_epochs)
        panel = Panel(self.figure, x, y)
        if iso := self._find_iso(of_rates, by_epochs):
            panel.draw_iso_lines(iso)
        points = spread_points([panel.locate_point(*values) for values in zip(xs, ys, strict=True)], MARK)
        for each, point in zip(self.sets, points, strict=True):
            if by_epochs:
                panel.draw_runs(each, EPOCHS, point)
        panel.write_numbers(points)
        for each, name, point, *values in zip(self.sets, self.names, points, xs, ys, strict=True):
            self.figure.mark_result(point, each, f"{name}: {', '.join(map(format_amount, values))}")

    def _draw_samples(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        rates = [rate for each in self.sets for rate in (each.mean(TRAIN), each.mean(EVAL)) if is_drawable(rate)]
        if not rates:
            return
        x, y = Axis(make_log_scale(self.units, *across), UNITS), Axis(make_log_scale(rates, *up), "samples per minute")
        panel = Panel(self.figure, x, y)
        panel.draw_iso_lines(Iso(slope=1, unit="/min", title="lines: per unit"))
        trained: dict[int, Point] = {}
        for mark_number, (each, name, units) in enumerate(zip(self.sets, self.names, self.units, strict=True), 1):
            colour = colour_of(each)
            if is_drawable(rate := each.mean(EVAL)):
                point = panel.locate_point(units, rate)
                self.figure.draw_cross(
                    point,
                    f"stroke {colour}",
                    f"{name}: evaluation {format_amount(rate)} samples per minute",
                )
                panel.covered.append(enclose_point(point, 6))
            if is_drawable(rate := each.mean(TRAIN)):
                trained[mark_number] = point = panel.locate_point(units, rate)
                hint = f"{name}: training {format_amount(rate)} samples per minute"
                self.figure.draw_mark(point, ("triangle", state_of(each)), f"mark {colour}", hint)
        panel.write_numbers(list(trained.values()), list(trained))


def _find_range(sets: Sequence[AnalysedSet], name: str, means: Sequence[float]) -> list[float]:
    """Return the ends of the values of all runs, of their distributions and of the means."""
    runs = [run_values(each, name) for each in sets]
    values = [value for several in runs for value in (*several, *(value for value, _ in estimate_density(several)))]
    return [min(*values, *means), max(*values, *means)] if values else [*means]


def _describe_batches(sets: Sequence[AnalysedSet]) -> str:
    few, many = (pick(sets, key=lambda each: each.mean(EPOCHS) or 0) for pick in (min, max))
    return (
        f"From {format_amount(few.mean(EPOCHS) or 0)} epochs with batches of {few.row.batch_size} to "
        f"{format_amount(many.mean(EPOCHS) or 0)} with batches of {many.row.batch_size}."
    )


BEST_LEFT, BEST_RIGHT, BEST_TOP, BEST_BOTTOM = 52, 14, 62, 34
"""Space around a panel for its titles and numbers."""
BEST_HEIGHT: Final = 190
TREND_PADDING: Final = 34
"""Space for names above and below the points."""
TITLES: Final = {
    False: "minutes to train, with staging",
    True: "models per minute, with staging",
}
Kind = tuple[bool, str, str]
"""Whether it is throughput, the benchmark, and the division."""
FIT_LEFT, FIT_RIGHT, FIT_TOP, FIT_HEIGHT, FIT_BOTTOM = 60, 20, 38, 300, 52
"""Space around the panel, and its height."""
STEPS: Final = 40


def best_by_round(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw the best score of each round on the clock of all rounds: with staging. Empty without two of a suite."""
    of_suites = group_pairs((find_usage(round_), round_) for round_ in {each.row.round for each in sets})
    suites = {usage: sort_versions(rounds) for usage, rounds in of_suites.items() if len(rounds) > 1}
    sets = [each for each in sets if each.row.usage in suites]
    winners = _find_best(sets)
    if not winners:
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
        usage = next(each.row.usage for results in lines.values() for each in results.values())
        _draw_best(
            figure,
            (title, TITLES[weak]),
            lines,
            suites[usage],
            Box(wide * column, tall * row, wide * (column + 1), 0),
        )
    items = mark_items([each for results in winners.values() for each in results.values()])
    return figure.finish_figure(tall * (row + 1) + 14, items)


def _find_best(sets: Sequence[AnalysedSet]) -> dict[Kind, dict[str, AnalysedSet]]:
    """Return the best passing result of each round, by kind."""
    by_row = {id(each.row): each for each in sets if is_drawable(each.row.score_with_staging)}
    winners: dict[Kind, dict[str, AnalysedSet]] = {}
    for round_ in dict.fromkeys(each.row.round for each in by_row.values()):
        for key, row in find_best(each.row for each in by_row.values() if each.row.round == round_).items():
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
    x, y = Scale(-0.5, len(rounds) - 0.5, left, right), make_log_scale(scores, top + BEST_HEIGHT, top, TREND_PADDING)
    figure.draw_text((area.left + 8, top - 46), titles[0], "heading")
    years = tuple(f"v{label_round(name)}" + (f", {YEARS[name]}" if name in YEARS else "") for name in rounds)
    panel = Panel(figure, Axis(x, "", names=years), Axis(y, titles[1]))
    marks: list[tuple[Point, AnalysedSet]] = []
    for division, results in lines.items():
        track = [(at, results[name]) for at, name in enumerate(rounds) if name in results]
        points = [panel.locate_point(at, each.row.score_with_staging or 1.0) for at, each in track]
        figure.draw_curve(points, "track open" if division == "open" else "track")
        marks += zip(points, (each for _, each in track), strict=True)
        for (x1, y1), (x2, y2) in pairwise(points):
            panel.covered += [
                enclose_point((x1 + (x2 - x1) * part / 8, y1 + (y2 - y1) * part / 8), 4) for part in range(9)
            ]
    texts = [f"{each.row.organisation} {format_number(each.row.score_with_staging, 3)}" for _, each in marks]
    panel.write_labels([point for point, _ in marks], texts)
    for point, each in marks:
        figure.mark_result(
            point,
            each,
            f"{each.row.organisation} {each.row.system}, {each.row.division} division",
        )


def _describe_best(winners: dict[Kind, dict[str, AnalysedSet]]) -> Iterator[str]:
    for (weak, title, division), results in sorted(winners.items()):
        values = ", ".join(
            f"{label_round(name)}: {format_number(results[name].row.score_with_staging, 3)}"
            for name in sort_versions(results)
        )
        yield f"{title}, {division}, {TITLES[weak]}: {values}."


# -- fits ------------------------------------------------------------------------------------------------------


def fit_name(fit: Fit) -> str:
    """Return the name of the drawing of a fit, of what is in it alone: "fit-epochs-batch-deepcam-round-0-7"."""
    return make_slug(f"fit {fit.y.name} {fit.x.name} {fit.title.partition(': ')[2]}")


def draw_fit(fit: Fit, sets: Mapping[str, AnalysedSet]) -> Html:
    """Draw a fit over the range of its points; empty without a law. sets: the results by the names of its points."""
    if fit.power is None or not fit.is_law:
        return Html("")
    figure = Figure(fit_name(fit), f"{fit.title[0].upper()}{fit.title[1:]}", [fit.said], HALF)
    x = make_log_scale([point.x for point in fit.points], FIT_LEFT, HALF - FIT_RIGHT)
    low, high = (math.log(pick(point.x for point in fit.points)) for pick in (min, max))
    xs = [math.exp(low + (high - low) * at / STEPS) for at in range(STEPS + 1)]
    band = [interval for at in xs if (interval := fit.power.interval(at))]
    values = [point.y for point in fit.points] + [value for interval in band for value in interval]
    y = make_log_scale(values, FIT_TOP + FIT_HEIGHT, FIT_TOP)
    names = (fit.x.name, fit.x.unit), (fit.y.symbol, fit.y.unit)
    titles = [name if name == unit else f"{name}, {unit}" for name, unit in names]
    panel = Panel(figure, Axis(x, titles[0]), Axis(y, titles[1]))
    edges = [[panel.locate_point(at, interval[end]) for at, interval in zip(xs, band, strict=True)] for end in (0, 1)]
    figure.draw_curve([*edges[0], *reversed(edges[1])], "interval", closed=True)
    curve = [panel.locate_point(at, fit.power.at(at)) for at in xs]
    figure.draw_line(curve[0], curve[-1], "fit")
    panel.covered += [enclose_point(point, 3) for point in curve]
    several = [sets[point.name] for point in fit.points]
    spots = spread_points([panel.locate_point(point.x, point.y) for point in fit.points])
    panel.write_labels(spots, name_results(several), sets=several)
    for point, spot, each in zip(fit.points, spots, several, strict=True):
        figure.mark_result(spot, each, f"{point.name}: {point.x:,.6g}, {point.y:,.4g}")
    items = [
        ("fit", f"{fit.y.symbol} = {fit.power.a:.4g} · {fit.x.name}^{fit.power.b:.3f}, {len(several)} results"),
        ("interval", "95 % interval of the curve"),
        *mark_items(several),
    ]
    return figure.finish_figure(FIT_TOP + FIT_HEIGHT + FIT_BOTTOM + 8, items)
