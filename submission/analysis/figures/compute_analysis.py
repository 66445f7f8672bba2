"""What a time to solution is made of: batch size, epochs and throughput, in panels with shared axes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from submission.analysis.figures.boxes import LINE, Box, around
from submission.analysis.figures.names import amount, by_benchmark, labels
from submission.analysis.figures.panel import (
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
    mark,
    mark_items,
    numbered_list,
    numbers,
    run_values,
    triangle,
)
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import EPOCHS
from submission.web.drawing import Scale
from submission.web.html import Html

THROUGHPUT, TRAIN, EVAL = "run_epoch_throughput", "run_train_throughput", "run_eval_throughput"
LEFT, RIGHT, TOP, BOTTOM = 58, 48, 52, 46
"""Space around a panel for its titles and numbers."""
HEIGHT: Final = 270


def compute_analysis(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw batch size, epochs and throughput of each result by its units; panels for each benchmark, and a list."""
    quantities = [(each.units, each.row.batch_size, each.mean(EPOCHS), each.mean(THROUGHPUT)) for each in sets]
    found = by_benchmark([each for each, means in zip(sets, quantities, strict=True) if all(map(drawable, means))])
    if not found:
        return Html("")
    figure = Figure(name, "Batch size, epochs to solution and throughput", _text(found), width)
    top = 6.0
    for title, several in found.items():
        top = _Block(figure, several).draw(title, top) + 16
    shown = [each for several in found.values() for each in several]
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
        step = TOP + HEIGHT + BOTTOM
        corners = [(width * (at % 2), top + step * (at // 2)) if wide else (0.0, top + step * at) for at in range(6)]
        for at, (left, up) in enumerate(corners[:5]):
            ends = (left + LEFT, left + width - RIGHT), (up + TOP + HEIGHT, up + TOP)
            (self._batch_units, self._batch_epochs, self._rate_units, self._rate_epochs, self._samples)[at](*ends)
        left, up = corners[5]
        rows = [
            (text, f"{amount(each.mean('run_time') or 0)} min")
            for text, each in zip(self.names, self.sets, strict=True)
        ]
        end = numbered_list(
            self.figure, self.sets, rows, Box(left, up + (TOP if wide else LINE), left + width, math.inf)
        )
        return max(end, corners[4][1] + step if wide else 0.0)

    def _panel(self, x: Axis, y: Axis, iso: Iso | None, what: str) -> Panel:
        panel = Panel(self.figure, x, y)
        if iso:
            panel.iso_lines(iso)
            self.figure.text((panel.area.right, panel.area.top - 24), what, "iso-text", "end")
        return panel

    def _points(self, panel: Panel, xs: Sequence[float], ys: Sequence[float]) -> None:
        points = [panel.place(x, y) for x, y in zip(xs, ys, strict=True)]
        panel.number(points, numbers(self.sets))
        for each, name, point, x, y in zip(self.sets, self.names, points, xs, ys, strict=True):
            mark(self.figure, point, each, f"{name}: {amount(x)}, {amount(y)}")

    def _x_units(self, across: tuple[float, float]) -> Axis:
        return Axis(logarithmic(self.units, *across), UNITS)

    def _x_epochs(self, across: tuple[float, float]) -> Axis:
        return Axis(logarithmic(_range(self.sets, EPOCHS, self.epochs), *across), "epochs to solution")

    def _batch_units(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        y = Axis(logarithmic(self.batches, *up), "batch size")
        panel = self._panel(self._x_units(across), y, Iso(slope=1), "lines: batch per unit")
        self._points(panel, self.units, self.batches)

    def _batch_epochs(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        y = Axis(logarithmic(self.batches, *up), "batch size", numbers=not self.figure.is_wide)
        steps = [
            each.statistics["run_steps"].mean * batch / epochs
            for each, batch, epochs in zip(self.sets, self.batches, self.epochs, strict=True)
            if "run_steps" in each.statistics
        ]
        iso = Iso(slope=1, factor=statistics.median(steps), power=-1) if steps else None
        panel = self._panel(self._x_epochs(across), y, iso, "lines: steps of training")
        for each, batch in zip(self.sets, self.batches, strict=True):
            panel.lying(each, EPOCHS, batch)
        self._points(panel, self.epochs, self.batches)

    def _rate_units(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        y = Axis(logarithmic(self.rates, *up), "epochs per minute")
        panel = self._panel(self._x_units(across), y, Iso(slope=1), "lines: per unit")
        self._points(panel, self.units, self.rates)

    def _rate_epochs(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        y = Axis(logarithmic(self.rates, *up), "epochs per minute", numbers=not self.figure.is_wide)
        panel = self._panel(self._x_epochs(across), y, Iso(slope=1, power=-1), "lines: minutes of computing")
        for each, rate in zip(self.sets, self.rates, strict=True):
            panel.lying(each, EPOCHS, rate)
        self._points(panel, self.epochs, self.rates)

    def _samples(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        rates = [rate for each in self.sets for rate in (each.mean(TRAIN), each.mean(EVAL)) if drawable(rate)]
        if not rates:
            return
        y: Scale = logarithmic(rates, *up)
        panel = self._panel(self._x_units(across), Axis(y, "samples per minute"), Iso(slope=1), "lines: per unit")
        points, texts = [], []
        for number, each, name, units in zip(numbers(self.sets), self.sets, self.names, self.units, strict=True):
            for rate, what in ((each.mean(EVAL), "evaluation"), (each.mean(TRAIN), "training")):
                if not drawable(rate):
                    continue
                point = panel.place(units, rate)
                hint = f"{name}: {what} {amount(rate)} samples per minute"
                if what == "training":
                    triangle(self.figure, point, f"mark {colour_of(each)}", hint)
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


def _text(found: dict[str, list[AnalysedSet]]) -> str:
    parts = []
    for title, sets in found.items():
        few, many = (pick(sets, key=lambda each: each.mean(EPOCHS) or 0) for pick in (min, max))
        parts.append(
            f"{title}: from {amount(few.mean(EPOCHS) or 0)} epochs with batches of {few.row.batch_size} to "
            f"{amount(many.mean(EPOCHS) or 0)} with batches of {many.row.batch_size}."
        )
    return " ".join(parts)
