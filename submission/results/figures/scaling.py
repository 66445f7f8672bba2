"""How results scale with the size of the machine: time to solution, and what it is made of.

The first figure of the MLPerf HPC paper, and its panels with shared axes of batch size, epochs and throughput.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import chain, starmap
from typing import Final

from submission.results.figures.drawing import Scale
from submission.results.figures.labels import LINE, Box, amount, around, by_benchmark, labels, title_of
from submission.results.figures.panel import (
    PADDING,
    UNITS,
    WIDE,
    Axis,
    Figure,
    Iso,
    Panel,
    colour_of,
    density,
    drawable,
    logarithmic,
    mark_items,
    numbers,
    organisation_items,
    run_values,
    state_of,
)
from submission.results.page.html import Html
from submission.results.quantities import EPOCHS, AnalysedSet

MANY: Final = 24
"""Results of a benchmark above which the panel has numbers and a list below instead of names."""
FEW: Final = 6
"""Up to this many results a panel takes half of the width."""
ROOM: Final = 100
"""Space for names beside the outermost points."""
TIME_LEFT, TIME_RIGHT, TIME_TOP, TIME_BOTTOM = 52, 54, 66, 48
"""Space around a panel for its titles and numbers."""
GAP: Final = 14
THROUGHPUT, TRAIN, EVAL = "run_epoch_throughput", "run_train_throughput", "run_eval_throughput"
BLOCK_LEFT, BLOCK_RIGHT, BLOCK_TOP, BLOCK_BOTTOM = 58, 74, 52, 46
"""Space around a panel for its titles and numbers."""
BLOCK_HEIGHT: Final = 270


def time_to_solution(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw the minutes of the runs by compute units, with lines of the same compute budget; a panel per benchmark."""
    found = by_benchmark([each for each in sets if drawable(each.units) and drawable(each.mean("run_time"))])
    if not found:
        return Html("")
    shown = list(chain.from_iterable(found.values()))
    figure = Figure(
        name, title_of("Time to solution by compute units", shown), starmap(_describe_times, found.items()), width
    )
    top = 6.0
    for blocks in figure.side_by_side(list(found.items()), FEW):
        wide = figure.width / len(blocks)
        corners = (Box(wide * at, top, wide * (at + 1), math.inf) for at in range(len(blocks)))
        top = max(_draw_times(figure, *block, corner) for block, corner in zip(blocks, corners, strict=True))
    items = [
        *mark_items(shown),
        ("runs", "runs and their distribution"),
        ("iso", "equal accelerator (processor) hours"),
    ]
    return figure.finish(organisation_items(shown), figure.legend(items, top + 10) + 4)


def _draw_times(figure: Figure, title: str, sets: Sequence[AnalysedSet], room: Box) -> float:
    """Draw the panel of a benchmark with its titles and numbers; return its lower end."""
    names = labels(sets)
    tall = (500 if len(sets) > FEW else 340) if figure.is_wide else 330
    left, top, bottom = room.left, room.top, room.top + TIME_TOP + tall
    units = [each.units or 1 for each in sets]
    padding = ROOM if room.right - left == WIDE else PADDING
    x = logarithmic(units, left + TIME_LEFT, room.right - TIME_RIGHT, padding)
    means = [each.mean("run_time") or 1 for each in sets]
    minutes = [value for each in sets for value in run_values(each, "run_time")]
    y = logarithmic([*minutes, *means], bottom, top + TIME_TOP)
    figure.text((left + 8, top + 16), title, "heading")
    panel = Panel(figure, Axis(x, UNITS), Axis(y, "minutes per run"))
    panel.iso_lines(Iso(slope=-1, factor=60, unit=" h"))
    points = [panel.place(count, mean) for count, mean in zip(units, means, strict=True)]
    for each, count in zip(sets, units, strict=True):
        panel.upright(each, "run_time", count)
    named = figure.is_wide and len(sets) <= MANY
    if named:
        panel.write_labels(points, names, sets=sets)
    else:
        panel.number(points, numbers(sets))
    for each, text, mean, point in zip(sets, names, means, points, strict=True):
        figure.mark(point, each, _explain_time(each, text, mean))
    if named:
        return bottom + TIME_BOTTOM + GAP
    rows = [(text, f"{amount(mean)} min") for text, mean in zip(names, means, strict=True)]
    return figure.numbered_list(sets, rows, Box(left, bottom + TIME_BOTTOM + LINE, room.right, math.inf)) + GAP


def _explain_time(each: AnalysedSet, text: str, mean: float) -> str:
    found = each.statistics["run_time"]
    spread = f" ± {amount(found.std)}" if found.std else ""
    budget = amount(mean * (each.units or 0) / 60)
    batch = f", batch size {each.row.batch_size}" if each.row.batch_size else ""
    return (
        f"{text}: {amount(mean)}{spread} min (mean of {found.count} runs), {each.units} {each.unit}{batch}, "
        f"{budget} unit hours, {each.row.verdict}"
    )


def _describe_times(title: str, sets: list[AnalysedSet]) -> str:
    fastest = min(sets, key=lambda each: each.mean("run_time") or math.inf)
    minutes = amount(fastest.mean("run_time") or 0)
    return (
        f"{title}: {len(sets)} results; the shortest runs are those of {fastest.row.organisation} on "
        f"{fastest.row.system}, with {minutes} minutes and {fastest.units} {fastest.unit}."
    )


# -- what a time to solution is made of ------------------------------------------------------------------------


def compute_analysis(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw batch size, epochs and throughput of each result by its units; panels for each benchmark, and a list."""
    quantities = [(each.units, each.row.batch_size, each.mean(EPOCHS), each.mean(THROUGHPUT)) for each in sets]
    found = by_benchmark([each for each, means in zip(sets, quantities, strict=True) if all(map(drawable, means))])
    if not found:
        return Html("")
    shown = list(chain.from_iterable(found.values()))
    title = title_of("Batch size, epochs to solution and throughput", shown)
    figure = Figure(name, title, starmap(_describe_batches, found.items()), width)
    top = 6.0
    for title, several in found.items():
        top = _Block(figure, several).draw(title, top) + 16
    items = [
        *mark_items(shown),
        ("triangle", "training"),
        ("cross", "evaluation"),
        ("runs", "runs and their distribution"),
        ("iso", "equal values of what the panel's title says"),
    ]
    return figure.finish(items, top + 6)


class _Block:
    """The panels of one benchmark: (batch, units), (batch, epochs), (throughput, units), (throughput, epochs), more."""

    def __init__(self, figure: Figure, sets: list[AnalysedSet]) -> None:
        self.figure, self.sets = figure, sets
        self.units = [each.units or 1 for each in sets]
        self.batches = [each.row.batch_size or 1 for each in sets]
        self.epochs = [each.mean(EPOCHS) or 1.0 for each in sets]
        self.rates = [each.mean(THROUGHPUT) or 1.0 for each in sets]
        self.names = labels(sets)

    def draw(self, title: str, top: float) -> float:
        """Draw all; return the lower end."""
        self.figure.text((8, top + 16), title, "heading")
        top += 14
        wide = self.figure.is_wide
        width = self.figure.width / 2 if wide else self.figure.width
        step = BLOCK_TOP + BLOCK_HEIGHT + BLOCK_BOTTOM
        corners = [(width * (at % 2), top + step * (at // 2)) if wide else (0.0, top + step * at) for at in range(6)]
        for at, (left, up) in enumerate(corners[:5]):
            ends = (left + BLOCK_LEFT, left + width - BLOCK_RIGHT), (up + BLOCK_TOP + BLOCK_HEIGHT, up + BLOCK_TOP)
            if at == 4:
                self._draw_samples(*ends)
            else:
                self._draw_panel(at // 2 == 1, at % 2 == 1, *ends)
        left, up = corners[5]
        minutes = (f"{amount(each.mean('run_time') or 0)} min" for each in self.sets)
        rows = list(zip(self.names, minutes, strict=True))
        area = Box(left, up + (BLOCK_TOP if wide else LINE), left + width, math.inf)
        end = self.figure.numbered_list(self.sets, rows, area)
        return max(end, corners[4][1] + step if wide else 0.0)

    def _open_panel(self, x: Axis, y: Axis, iso: Iso | None, what: str) -> Panel:
        panel = Panel(self.figure, x, y)
        if iso:
            panel.iso_lines(iso)
            self.figure.text((panel.area.right, panel.area.top - 24), what, "iso-text", "end")
        return panel

    def _find_iso(self, of_rates: bool, by_epochs: bool) -> tuple[Iso | None, str]:
        """Return the lines of a panel, and what is equal on them."""
        if not by_epochs:
            return Iso(slope=1, unit="/min" if of_rates else "/unit"), f"lines: {'' if of_rates else 'batch '}per unit"
        if of_rates:
            return Iso(slope=1, power=-1, unit=" min"), "lines: compute time"
        steps = [
            each.statistics["run_steps"].mean * batch / epochs
            for each, batch, epochs in zip(self.sets, self.batches, self.epochs, strict=True)
            if "run_steps" in each.statistics
        ]
        return Iso(
            slope=1, factor=statistics.median(steps), power=-1, unit=" steps"
        ) if steps else None, "lines: steps of training"

    def _draw_panel(
        self, of_rates: bool, by_epochs: bool, across: tuple[float, float], up: tuple[float, float]
    ) -> None:
        """Draw the batch sizes or throughputs by units or epochs, which have the distributions of their runs."""
        ys, title = (self.rates, "epochs per minute") if of_rates else (self.batches, "batch size")
        xs = self.epochs if by_epochs else self.units
        x = Axis(logarithmic(self.units, *across), UNITS)
        if by_epochs:
            x = Axis(logarithmic(_range(self.sets, EPOCHS, self.epochs), *across), "epochs to solution")
        y = Axis(logarithmic(ys, *up), title, numbers=not (by_epochs and self.figure.is_wide))
        panel = self._open_panel(x, y, *self._find_iso(of_rates, by_epochs))
        for each, value in zip(self.sets, ys, strict=True):
            if by_epochs:
                panel.lying(each, EPOCHS, value)
        points = [panel.place(*values) for values in zip(xs, ys, strict=True)]
        panel.number(points, numbers(self.sets))
        for each, name, point, *values in zip(self.sets, self.names, points, xs, ys, strict=True):
            self.figure.mark(point, each, f"{name}: {', '.join(map(amount, values))}")

    def _draw_samples(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        rates = [rate for each in self.sets for rate in (each.mean(TRAIN), each.mean(EVAL)) if drawable(rate)]
        if not rates:
            return
        y: Scale = logarithmic(rates, *up)
        x = Axis(logarithmic(self.units, *across), UNITS)
        panel = self._open_panel(x, Axis(y, "samples per minute"), Iso(slope=1, unit="/min"), "lines: per unit")
        points, texts = [], []
        for number, each, name, units in zip(numbers(self.sets), self.sets, self.names, self.units, strict=True):
            for rate, what in ((each.mean(EVAL), "evaluation"), (each.mean(TRAIN), "training")):
                if not drawable(rate):
                    continue
                point = panel.place(units, rate)
                hint = f"{name}: {what} {amount(rate)} samples per minute"
                if what == "training":
                    self.figure.draw_mark(point, ("triangle", state_of(each)), f"mark {colour_of(each)}", hint)
                    points.append(point)
                    texts.append(number)
                else:
                    self.figure.cross(point, f"stroke {colour_of(each)}", hint)
                    panel.taken.append(around(point, 6))
        panel.number(points, texts)


def _range(sets: Sequence[AnalysedSet], name: str, means: Sequence[float]) -> list[float]:
    """Return the ends of the values of all runs, of their distributions and of the means."""
    runs = [run_values(each, name) for each in sets]
    values = [value for found in runs for value in (*found, *(place for place, _ in density(found)))]
    return [min(*values, *means), max(*values, *means)] if values else [*means]


def _describe_batches(title: str, sets: list[AnalysedSet]) -> str:
    few, many = (pick(sets, key=lambda each: each.mean(EPOCHS) or 0) for pick in (min, max))
    return (
        f"{title}: from {amount(few.mean(EPOCHS) or 0)} epochs with batches of {few.row.batch_size} to "
        f"{amount(many.mean(EPOCHS) or 0)} with batches of {many.row.batch_size}."
    )
