"""Panels with two logarithmic axes, iso-lines, and the marks of results; and a figure of several panels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeGuard

from compliance.model.judging import FAIL, INCOMPLETE
from compliance.model.layout import WEAK
from submission.results.figures.drawing import LARGEST, Drawing, Point, Scale, round_steps, round_text, round_values
from submission.results.figures.labels import (
    LINE,
    Box,
    choose_colour,
    enclose_points,
    fit_text,
    format_amount,
    place_labels,
    text_width,
)
from submission.results.page.html import Html, join_parts
from submission.results.quantities import AnalysedSet

WIDE, HALF = 960, 580
"""Widths of a figure, and of one of two side by side."""
MARK: Final = 5.5
"""Radius of the mark of a result."""
MANY_RUNS: Final = 60
"""Above this number of runs only their distribution is drawn."""
VIOLIN: Final = 20
"""Width of a distribution at its peak."""
FAR: Final = 135
"""A name at this distance from its point is not seen as the point's."""
TOGETHER: Final = 4
"""Numbers in one label."""
NEXT_RESULT: Final = Html("\n")
"""Between the names of results that share a drawing; page.js splits them there, and no name has one."""
STEPS: Final = 32
"""Points of the curve of a distribution, less by one."""
SHAPES: Final = {
    "circle": "closed division",
    "star": "open division",
    "square": "throughput: many models at once",
}
"""The shapes of marks, and their texts in a legend."""
FAILING, LACKING, WAIVED = "failing", "lacking", "waived"
STATES: Final = {
    FAILING: "fails: no valid result",
    LACKING: "incomplete: runs are missing",
    WAIVED: "waiver or bypass of the convergence test",
}
"""The states of results, drawn over their marks, and their texts."""
UNITS: Final = "accelerators (or processors)"
"""The title of an axis of compute units."""


class Figure(Drawing):
    """A drawing that grows downwards. descriptions: its contents in sentences."""

    def __init__(self, name: str, title: str, descriptions: Iterable[str], width: int = WIDE) -> None:
        super().__init__(f"{name}-{width}", title, " ".join(descriptions), 0)
        self._failing: list[Html] = []
        self.width, self.class_ = width, "plot wide"

    def finish_figure(self, top: float, *legends: Sequence[tuple[str, str]]) -> Html:
        """Draw legends below everything else, samples with their names in lines that fit; return the drawing."""
        self._shapes += self._failing
        for items in legends:
            x = 14.0
            for kind, text in items:
                width = 30 + text_width(text) + 14
                if x > 14 and x + width > self.width:
                    x, top = 14.0, top + LINE + 4
                self._draw_sample(kind, (x + 10, top))
                self.draw_text((x + 28, top + 4.5), text)
                x += width
            top += LINE + 4
        self.height = top
        return self.render_svg()

    @contextmanager
    def drawing_of(self, each: AnalysedSet) -> Iterator[None]:
        """Say that what is drawn is about a result."""
        before, self.result = self.result, join_parts(each.drawn_for or [each.full_name], NEXT_RESULT)
        yield
        self.result = before

    def mark_result(self, point: Point, each: AnalysedSet, hint: str = "", radius: float = MARK) -> None:
        """Draw the mark of a result: its shape says the division and throughput, what is over it the state."""
        state = state_of(each)
        hint = f"{hint}; {STATES[state]}" if hint and state else hint
        with self.drawing_of(each):
            below = len(self._shapes)
            self.draw_mark(point, (shape_of(each), state), f"mark {colour_of(each)}", hint, radius)
            if state == FAILING:  # over all other marks, so that it is seen
                self._failing += self._shapes[below:]
                del self._shapes[below:]

    def draw_mark(self, point: Point, look: tuple[str, str], class_: str, hint: str = "", radius: float = MARK) -> None:
        """Draw a mark. look: its shape and state."""
        shape, state = look
        x, y = point
        if state in (FAILING, LACKING) or shape in ("square", "open square"):
            class_ += " hollow"
        if state == LACKING:
            class_ += " lacking"
        match shape:
            case "star":
                self.draw_curve(_trace_star(point, radius * 1.45), class_, hint, closed=True)
            case "open square":
                self.draw_curve(_trace_star(point, radius * 1.3), class_, hint, closed=True)
            case "triangle":
                self.draw_curve([(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)], class_, hint, closed=True)
            case "square":
                self.draw_box(
                    (x - radius + 0.7, y - radius + 0.7),
                    2 * radius - 1.4,
                    2 * radius - 1.4,
                    class_,
                    hint,
                )
            case _:
                self.draw_dot(point, class_, hint, radius)
        if state == FAILING:
            self.draw_cross(point, "failing", half=6)
        elif state == WAIVED:
            self.draw_dot(point, "waived", radius=radius + 3)

    def list_results(self, sets: Sequence[AnalysedSet], rows: Sequence[tuple[str, str]], area: Box) -> float:
        """List the numbers, marks, names and values of results in columns; return the lower end of the list."""
        values, names = max(text_width(value) for _, value in rows), max(text_width(text) for text, _ in rows)
        name = text_width(str(len(sets)), bold=True) + 28
        columns = max(int((area.right - area.left) / (name + names + values + 20)), 1)
        column = min((area.right - area.left) / columns, name + names + values + 30)
        lines = math.ceil(len(sets) / columns)
        for at, (each, (text, value)) in enumerate(zip(sets, rows, strict=True)):
            x, y = area.left + (at // lines) * column, area.top + (at % lines) * (LINE + 2)
            with self.drawing_of(each):
                self.draw_text((x + name - 22, y + 4.5), str(at + 1), "number", "end")
                self.mark_result((x + name - 11, y), each, text)
                self.draw_text((x + name, y + 4.5), fit_text(text, column - name - values - 20), "name")
                self.draw_text((x + column - 12, y + 4.5), value, "label", "end")
        return area.top + lines * (LINE + 2)

    def _draw_sample(self, kind: str, point: Point) -> None:
        x, y = point
        match kind:
            case "circle" | "star" | "square" | "triangle":
                self.draw_mark(point, (kind, ""), "mark")
            case _ if kind in STATES:
                self.draw_mark(point, ("circle", kind), "mark")
            case "runs":
                self.draw_path(f"M{round_text(x - 8)} {round_text(y)}h0m7 0h0", "runs")
                self.draw_curve(
                    [(x + 4, y - 7), (x + 10, y - 1), (x + 10, y + 1), (x + 4, y + 7)],
                    "violin",
                    closed=True,
                )
            case "cross":
                self.draw_cross(point, "stroke")
            case "ellipse":
                for factor in (1.0, 0.5):
                    self.add_shape(
                        "ellipse",
                        "ellipse",
                        cx=round_text(x + 1),
                        cy=round_text(y),
                        rx=11 * factor,
                        ry=6 * factor,
                    )
            case "":  # a further line of text
                pass
            case _ if " org-" in kind:
                shape, _, colour = kind.partition(" ")
                self.draw_mark(point, (shape, ""), f"mark {colour}")
            case _ if kind.startswith("org-"):
                self.draw_dot(point, f"mark {kind}", radius=MARK)
            case _ if kind.startswith(("part", "interval", "range")):
                self.draw_box((x - 9, y - 6), 18, 12, kind)
            case _:
                self.draw_line((x - 10, y), (x + 12, y), kind)


@dataclass(frozen=True, slots=True)
class Iso:
    """Lines on which a quantity is constant: y * x**-slope = factor * quantity**power. slope, power: 1 or -1.

    unit: of the quantity, written behind its value. title: what is equal on a line, written above the panel.
    """

    slope: int
    factor: float = 1.0
    power: int = 1
    unit: str = ""
    title: str = ""

    def find_constant(self, quantity: float) -> float:
        """Return the y at x = 1 of a line."""
        return self.factor * quantity**self.power

    def find_quantity(self, x: float, y: float) -> float:
        """Return the quantity at a point."""
        return float((y * x**-self.slope / self.factor) ** self.power)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its scale, its title, and whether its numbers are drawn. names: of its places, in place of numbers."""

    scale: Scale
    title: str
    numbers: bool = True
    names: tuple[str, ...] = ()

    def ticks(self, gap: float) -> list[tuple[float, str]]:
        """Return (position, text) of the places or of round numbers at least a gap apart."""
        if self.names:
            return [(self.scale(at), name) for at, name in enumerate(self.names)]
        if self.scale.logarithmic:
            values = round_values(self.scale, gap)
        else:
            values = round_steps(
                self.scale.low,
                self.scale.high,
                int(abs(self.scale.stop - self.scale.start) / (2 * gap)),
            )
        return [(self.scale(value), format_amount(value)) for value in values]


class Panel:
    """An area of a figure with two axes."""

    def __init__(self, figure: Figure, x: Axis, y: Axis) -> None:
        self.figure, self.x, self.y = figure, x.scale, y.scale
        self.area = Box(x.scale.start, y.scale.stop, x.scale.stop, y.scale.start)
        self.covered: list[Box] = []
        left, top, right, bottom = self.area.left, self.area.top, self.area.right, self.area.bottom
        figure.draw_box((left, top), right - left, bottom - top, "panel")
        columns, rows = x.ticks(36), y.ticks(22)
        upright = "".join(f"M{round_text(across)} {round_text(top)}V{round_text(bottom)}" for across, _ in columns)
        lying = "".join(f"M{round_text(left)} {round_text(up)}H{round_text(right)}" for up, _ in rows)
        figure.draw_path(upright + lying, "grid")
        for across, text in columns if x.numbers else []:
            figure.draw_text((across, bottom + 17), text, "tick", "middle")
        for up, text in rows if y.numbers else []:
            figure.draw_text((left - 7, up + 4.5), text, "tick", "end")
        figure.draw_path(
            f"M{round_text(left)} {round_text(top)}V{round_text(bottom)}H{round_text(right)}",
            "axis",
        )
        if x.title:
            figure.draw_text(((left + right) / 2, bottom + 37), x.title, "label", "middle")
        figure.draw_text((left - 44 if y.numbers else left, top - 24), y.title)

    def locate_point(self, x: float, y: float) -> Point:
        """Return the position of a point."""
        return self.x(x), self.y(y)

    def draw_iso_lines(self, iso: Iso) -> None:
        """Draw lines of a constant quantity, each with its value where it leaves the panel above or to the right."""
        if iso.title:
            self.figure.draw_text((self.area.right, self.area.top - 24), iso.title, "iso-text", "end")
        corners = [iso.find_quantity(x, y) for x in (self.x.low, self.x.high) for y in (self.y.low, self.y.high)]
        for value in round_values(Scale(min(corners), max(corners), 0, 1, logarithmic=True), 0.13):
            ends = self._clip_line(iso.find_constant(value), iso.slope)
            if ends is None:
                continue
            self.figure.draw_line(*ends, "iso")
            end = max(ends) if iso.slope > 0 else min(ends, key=lambda end: end[1])
            if end[1] > self.area.top + 1 and iso.slope < 0:
                end = max(ends)
            (x, y), text = end, f"{format_amount(value)}{iso.unit}"
            if x >= self.area.right - 1:
                self.figure.draw_text((x + 4, y + 4.5), text, "iso-text")
            elif y <= self.area.top + 1:
                self.figure.draw_text((x, y - 6), text, "iso-text", "middle")
            else:
                self.figure.draw_text((x + 2, y - 5), text, "iso-text")
                self.covered.append(Box(x, y - 3 - LINE, x + 2 + text_width(text), y))

    def _clip_line(self, constant: float, slope: int) -> tuple[Point, Point] | None:
        """Return the ends of y = constant * x**slope inside the panel, None if too little of it is inside."""
        ends = [(x, constant * x**slope) for x in (self.x.low, self.x.high)]
        ends += [((y / constant) ** slope, y) for y in (self.y.low, self.y.high)]
        inside = [
            self.locate_point(x, y)
            for x, y in ends
            if self.x.low * 0.9999 <= x <= self.x.high * 1.0001 and self.y.low * 0.9999 <= y <= self.y.high * 1.0001
        ]
        if len(inside) < 2 or math.dist(min(inside), max(inside)) < 40:
            return None
        return min(inside), max(inside)

    def draw_runs(self, each: AnalysedSet, name: str, origin: Point, upright: bool = False) -> None:
        """Draw the distribution of a quantity of the runs above a point, or to the right of it, and the runs opposite.

        upright: the quantity is that of the y axis.
        """

        def locate(value: float, distance: float) -> Point:
            return (origin[0] + distance, self.y(value)) if upright else (self.x(value), origin[1] - distance)

        peak, colour = VIOLIN if upright else VIOLIN * 0.8, colour_of(each)
        with self.figure.drawing_of(each):
            if curve := estimate_density(run_values(each, name, (True,))):
                outline = [
                    locate(curve[0][0], 2),
                    *(locate(value, 2 + peak * height) for value, height in curve),
                    locate(curve[-1][0], 2),
                ]
                self.figure.draw_curve(outline, f"violin {colour}", closed=True)
                self.covered.append(enclose_points(outline))
            for kept, class_ in ((True, "runs"), (False, "runs left-out")):
                points = [locate(value, -10) for value in run_values(each, name, (kept,))]
                if 0 < len(points) <= MANY_RUNS:
                    self.figure.draw_path(trace_dots(points), f"{class_} {colour}")
                    self.covered.append(enclose_points(points, 3))

    def write_numbers(self, points: Sequence[Point], numbers: Sequence[int] = ()) -> None:
        """Write the number of each point beside it, from 1 by default; points in one place share labels."""
        groups: list[tuple[Point, list[str]]] = []
        for point, number in zip(points, numbers or range(1, len(points) + 1), strict=True):
            near = (texts for spot, texts in groups if math.dist(spot, point) < 4 and len(texts) < TOGETHER)
            if (texts := next(near, None)) is None:
                groups.append((point, texts := []))
            texts.append(str(number))
        self.write_labels([point for point, _ in groups], [", ".join(texts) for _, texts in groups], "number")

    def write_labels(
        self,
        points: Sequence[Point],
        texts: Sequence[str],
        class_: str = "name",
        sets: Sequence[AnalysedSet] = (),
        all_near: bool = False,
    ) -> bool:
        """Write a label beside each point that covers nothing; one without room is left out. sets: of the points.

        all_near: write none, and return False, if one is left out or FAR from its point.
        """
        widths = [text_width(text, bold=class_ == "number") + 4 for text in texts]
        places = place_labels(points, widths, self.area, self.covered)
        if all_near and not all(label and label.distance_to(label.point) < FAR for label in places):
            return False
        for point, text, label, each in zip_longest(points, texts, places, sets):
            if label is None:
                continue
            left_of_it = label.box.right < point[0]
            edge = label.box.right - 1 if left_of_it else label.box.left + 1
            with self.figure.drawing_of(each) if isinstance(each, AnalysedSet) else nullcontext():
                if label.leader:
                    self.figure.draw_line(point, label.leader, "leader")
                self.figure.draw_text(
                    (edge, label.box.bottom - 4),
                    text,
                    class_,
                    "end" if left_of_it else "start",
                )
        return True


def spread_points(points: Sequence[Point], step: float = 2 * MARK) -> list[Point]:
    """Return the points with those in one place side by side, so that the mark of each is seen."""
    spots = []
    for at, point in enumerate(points):
        same = [number for number, other in enumerate(points) if math.dist(other, point) < MARK / 2]
        spots.append((point[0] + step * (same.index(at) - (len(same) - 1) / 2), point[1]))
    return spots


def trace_dots(points: Iterable[Point]) -> str:
    """Return the strokes of a path that has a dot at each point."""
    return "".join(f"M{round_text(x)} {round_text(y)}h0" for x, y in points)


def is_drawable(value: float | None) -> TypeGuard[float]:
    """Return whether a value is known and has a place on a logarithmic axis."""
    return value is not None and 1 / LARGEST < value < LARGEST


def run_values(each: AnalysedSet, name: str, kept: tuple[bool, ...] = (True, False)) -> list[float]:
    """Return the drawable values of a quantity of the runs that are kept or not."""
    return [value for run in each.runs if run.kept in kept and is_drawable(value := run.values.get(name))]


def estimate_density(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return (value, density) of a Gaussian kernel density whose peak is 1, empty if the values do not vary.

    The bandwidth is half of the standard deviation, as in the MLPerf HPC paper.
    """
    if len(values) < 3 or (bandwidth := statistics.stdev(values) / 2) <= 0:
        return []
    low, high = min(values) - 2 * bandwidth, max(values) + 2 * bandwidth
    points = [low + (high - low) * step / STEPS for step in range(STEPS + 1)]
    curve = [sum(math.exp(-(((point - value) / bandwidth) ** 2) / 2) for value in values) for point in points]
    return [(point, height / max(curve)) for point, height in zip(points, curve, strict=True) if point > 0]


def colour_of(each: AnalysedSet) -> str:
    """Return the class of the colour of a result."""
    return choose_colour(each.row.organisation)


def _trace_star(middle: Point, radius: float) -> list[Point]:
    polar = [(radius if corner % 2 == 0 else radius * 0.45, math.pi * corner / 5) for corner in range(10)]
    return [(middle[0] + size * math.sin(angle), middle[1] - size * math.cos(angle)) for size, angle in polar]


def shape_of(each: AnalysedSet) -> str:
    """Return the shape of a result's mark, a key of SHAPES, or "open square" for throughput in the open division."""
    if each.row.scaling == WEAK:
        return "open square" if each.row.division == "open" else "square"
    return "star" if each.row.division == "open" else "circle"


def state_of(each: AnalysedSet) -> str:
    """Return the state of a result that is not simply valid, a key of STATES; "" of a valid one."""
    row = each.row
    if row.verdict == FAIL:
        return FAILING
    if row.verdict == INCOMPLETE or row.incomplete:
        return LACKING
    return WAIVED if row.waiver or row.bypass else ""


def mark_items(sets: Sequence[AnalysedSet]) -> list[tuple[str, str]]:
    """Return the items of a legend for the marks of these results."""
    shapes = [word for each in sets for word in shape_of(each).replace("open square", "star square").split()]
    kinds = {*shapes, *map(state_of, sets)}
    return [(kind, text) for kind, text in {**SHAPES, **STATES}.items() if kind in kinds]


def organisation_items(sets: Sequence[AnalysedSet]) -> list[tuple[str, str]]:
    """Return the items of a legend for the colours of organisations; variants of a spelling are one."""
    names = {colour_of(each): each.row.organisation for each in sets}
    return sorted(names.items(), key=lambda item: item[1].lower())
