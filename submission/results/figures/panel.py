"""Panels with two logarithmic axes, iso-lines, and the marks of results; and a figure of several panels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeGuard

from compliance.model.layout import WEAK
from submission.results.figures.drawing import LARGEST, Drawing, Point, Scale, short
from submission.results.figures.labels import LINE, Box, amount, colour, enclose, fitted, placed, text_width
from submission.results.page.html import Html
from submission.results.quantities import AnalysedSet

WIDE, HALF, NARROW = 960, 580, 360
"""Widths of a figure on a screen or paper, of one of two side by side, and of one on a phone."""
PADDING: Final = 30
"""Space in a panel between its edge and the outermost points."""
MARK: Final = 5.5
"""Radius of the mark of a result."""
MANY_RUNS: Final = 60
"""Above this number of runs only their distribution is drawn."""
VIOLIN: Final = 20
"""Width of a distribution at its peak."""
TOGETHER: Final = 4
"""Numbers in one label."""
STEPS: Final = 32
"""Points of the curve of a distribution, less by one."""
FACTORS: Final = ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""The round numbers of a decade, the densest first."""
UNITS: Final = "accelerators (or processors)"
"""The title of an axis of compute units."""
Block = tuple[str, list[AnalysedSet]]
"""A benchmark and its results."""


class Figure(Drawing):
    """A drawing that grows downwards. descriptions: its contents in sentences."""

    def __init__(self, name: str, title: str, descriptions: Iterable[str], width: int) -> None:
        super().__init__(f"{name}-{width}", title, " ".join(descriptions), 0)
        self.width, self.class_ = width, f"plot {'wide' if width > NARROW else 'narrow'}"

    @property
    def is_wide(self) -> bool:
        """Whether it is for a screen or paper, not for a phone."""
        return self.width > NARROW

    def finish(self, items: Sequence[tuple[str, str]], top: float) -> Html:
        """Draw the legend below everything else; return the drawing."""
        self.height = self.legend(items, top) + 4
        return self.svg()

    def mark(self, place: Point, each: AnalysedSet, hint: str = "", radius: float = MARK) -> None:
        """Draw the mark of a result: a star in the open division, a hollow square for throughput, or a circle."""
        class_ = f"mark {colour_of(each)}"
        x, y = place
        self.result = each.full_name
        if each.row.division == "open":
            size, hollow = (1.3, " hollow") if each.row.scaling == WEAK else (1.45, "")
            self.curve(_star(place, radius * size), class_ + hollow, hint, closed=True)
        elif each.row.scaling == WEAK:
            self.box((x - radius + 0.7, y - radius + 0.7), 2 * radius - 1.4, 2 * radius - 1.4, f"{class_} hollow", hint)
        else:
            self.dot(place, class_, hint, radius)
        self.result = None

    def triangle(self, place: Point, class_: str, hint: str = "") -> None:
        """Draw a triangle."""
        x, y = place
        self.curve([(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)], class_, hint, closed=True)

    def numbered_list(self, sets: Sequence[AnalysedSet], rows: Sequence[tuple[str, str]], area: Box) -> float:
        """List the numbers, marks, names and values of results in columns; return the lower end of the list."""
        values, names = max(text_width(value) for _, value in rows), max(text_width(text) for text, _ in rows)
        name = text_width(str(len(sets)), bold=True) + 28
        columns = max(int((area.right - area.left) / (name + names + values + 20)), 1)
        column = min((area.right - area.left) / columns, name + names + values + 30)
        lines = math.ceil(len(sets) / columns)
        for at, (each, (text, value)) in enumerate(zip(sets, rows, strict=True)):
            x, y = area.left + (at // lines) * column, area.top + (at % lines) * (LINE + 2)
            self.text((x + name - 22, y + 4.5), str(at + 1), "number", "end")
            self.mark((x + name - 11, y), each)
            self.text((x + name, y + 4.5), fitted(text, column - name - values - 20), "name")
            self.text((x + column - 12, y + 4.5), value, "label", "end")
        return area.top + lines * (LINE + 2)

    def legend(self, items: Sequence[tuple[str, str]], top: float) -> float:
        """Draw samples of what is drawn with their names, in lines that fit; return the lower end."""
        x, y = 14.0, top
        for kind, text in items:
            width = 30 + text_width(text) + 14
            if x > 14 and x + width > self.width:
                x, y = 14.0, y + LINE + 4
            self._sample(kind, (x + 10, y))
            self.text((x + 28, y + 4.5), text)
            x += width
        return y + LINE

    def _sample(self, kind: str, place: Point) -> None:
        x, y = place
        match kind:
            case "circle":
                self.dot(place, "mark", radius=MARK)
            case "star":
                self.curve(_star(place, MARK * 1.45), "mark", closed=True)
            case "square":
                self.box((x - 5, y - 5), 10, 10, "mark hollow")
            case "runs":
                self.path(f"M{short(x - 8)} {short(y)}h0m7 0h0", "runs")
                self.curve([(x + 4, y - 7), (x + 10, y - 1), (x + 10, y + 1), (x + 4, y + 7)], "violin", closed=True)
            case "triangle":
                self.triangle(place, "mark")
            case "cross":
                self.cross(place, "stroke")
            case "ellipse":
                for factor in (1.0, 0.5):
                    self.add("ellipse", "ellipse", cx=short(x + 1), cy=short(y), rx=11 * factor, ry=6 * factor)
            case _ if kind.startswith("org-"):
                self.dot(place, f"mark {kind}", radius=MARK)
            case _ if kind.startswith(("part", "interval")):
                self.box((x - 9, y - 6), 18, 12, kind)
            case _:
                self.line((x - 10, y), (x + 12, y), kind)

    def write_labels(
        self, labels: Sequence[tuple[Point, str]], area: Box, taken: Sequence[Box] = (), class_: str = "name"
    ) -> None:
        """Write a label beside each point, inside the area, that covers nothing; one without room is left out.

        taken: what else labels must not cover.
        """
        widths = [text_width(text, bold=class_ == "number") + 4 for _, text in labels]
        places = placed([point for point, _ in labels], widths, area, taken)
        for (point, text), place in zip(labels, places, strict=True):
            if place is None:
                continue
            if place.leader:
                self.line(point, place.leader, "leader")
            left_of_it = place.box.right < point[0]
            edge = place.box.right - 1 if left_of_it else place.box.left + 1
            self.text((edge, place.box.bottom - 4), text, class_, "end" if left_of_it else "start")

    def side_by_side(self, blocks: Sequence[Block], few: int) -> list[list[Block]]:
        """Return rows of blocks: two neighbours with few results each stand side by side in a wide figure."""
        rows: list[list[Block]] = []
        for block in blocks:
            last = rows[-1] if rows else []
            if self.is_wide and len(last) == 1 and len(last[0][1]) <= few and len(block[1]) <= few:
                last.append(block)
            else:
                rows.append([block])
        return rows


def logarithmic(values: Iterable[float], start: float, stop: float, padding: float = PADDING) -> Scale:
    """Return a logarithmic scale for all values (above 0), with padding at both ends, of at least a factor of 3."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs), max(logs)
    missing = max(0.5 - (high - low), 0)
    low, high = low - missing / 2, high + missing / 2
    room = padding * (high - low) / max(abs(stop - start) - 2 * padding, padding)
    return Scale(10 ** (low - room), 10 ** (high + room), start, stop, logarithmic=True)


def round_values(scale: Scale, gap: float) -> list[float]:
    """Return round numbers of a logarithmic scale whose positions are at least a gap apart."""
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for factors in FACTORS:
        values = [factor * 10.0**power for power in powers for factor in factors]
        inside = [value for value in values if scale.low <= value <= scale.high]
        if all(abs(scale(b) - scale(a)) >= gap for a, b in pairwise(inside)):
            return inside
    return inside[::2]


@dataclass(frozen=True, slots=True)
class Iso:
    """Lines on which a quantity is constant: y * x**-slope = factor * quantity**power. slope, power: 1 or -1."""

    slope: int
    factor: float = 1.0
    power: int = 1

    def constant(self, quantity: float) -> float:
        """Return the y at x = 1 of a line."""
        return self.factor * quantity**self.power

    def quantity(self, x: float, y: float) -> float:
        """Return the quantity at a point."""
        return float((y * x**-self.slope / self.factor) ** self.power)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its scale, its title, and whether its numbers are drawn."""

    scale: Scale
    title: str
    numbers: bool = True


class Panel:
    """An area of a figure with two logarithmic axes."""

    def __init__(self, figure: Figure, x: Axis, y: Axis) -> None:
        self.figure, self.x, self.y = figure, x.scale, y.scale
        self.area = Box(x.scale.start, y.scale.stop, x.scale.stop, y.scale.start)
        self.taken: list[Box] = []
        left, top, right, bottom = self.area.left, self.area.top, self.area.right, self.area.bottom
        figure.box((left, top), right - left, bottom - top, "panel")
        columns = [(x.scale(value), amount(value)) for value in round_values(x.scale, 36)]
        rows = [(y.scale(value), amount(value)) for value in round_values(y.scale, 22)]
        upright = "".join(f"M{short(place)} {short(top)}V{short(bottom)}" for place, _ in columns)
        lying = "".join(f"M{short(left)} {short(place)}H{short(right)}" for place, _ in rows)
        figure.path(upright + lying, "grid")
        for place, text in columns if x.numbers else []:
            figure.text((place, bottom + 17), text, "tick", "middle")
        for place, text in rows if y.numbers else []:
            figure.text((left - 7, place + 4.5), text, "tick", "end")
        figure.path(f"M{short(left)} {short(top)}V{short(bottom)}H{short(right)}", "axis")
        figure.text(((left + right) / 2, bottom + 37), x.title, "label", "middle")
        figure.text((left - 44 if y.numbers else left, top - 24), y.title)

    def place(self, x: float, y: float) -> Point:
        """Return the position of a point."""
        return self.x(x), self.y(y)

    def iso_lines(self, iso: Iso) -> None:
        """Draw lines of a constant quantity, each with its value where it leaves the panel above or to the right."""
        corners = [iso.quantity(x, y) for x in (self.x.low, self.x.high) for y in (self.y.low, self.y.high)]
        for value in round_values(Scale(min(corners), max(corners), 0, 1, logarithmic=True), 0.13):
            ends = self._clipped(iso, value)
            if ends is None:
                continue
            self.figure.line(*ends, "iso")
            end = max(ends) if iso.slope > 0 else min(ends, key=lambda end: end[1])
            if end[1] > self.area.top + 1 and iso.slope < 0:
                end = max(ends)
            (x, y), text = end, amount(value)
            if x >= self.area.right - 1:
                self.figure.text((x + 4, y + 4.5), text, "iso-text")
            elif y <= self.area.top + 1:
                self.figure.text((x, y - 6), text, "iso-text", "middle")
            else:
                self.figure.text((x + 2, y - 5), text, "iso-text")
                self.taken.append(Box(x, y - 3 - LINE, x + 2 + text_width(text), y))

    def _clipped(self, iso: Iso, value: float) -> tuple[Point, Point] | None:
        """Return the ends of a line inside the panel, None if too little of it is inside."""
        constant = iso.constant(value)
        ends = [(x, constant * x**iso.slope) for x in (self.x.low, self.x.high)]
        ends += [((y / constant) ** iso.slope, y) for y in (self.y.low, self.y.high)]
        inside = [
            self.place(x, y)
            for x, y in ends
            if self.x.low * 0.9999 <= x <= self.x.high * 1.0001 and self.y.low * 0.9999 <= y <= self.y.high * 1.0001
        ]
        if len(inside) < 2 or math.dist(min(inside), max(inside)) < 40:
            return None
        return min(inside), max(inside)

    def upright(self, each: AnalysedSet, name: str, x: float) -> None:
        """Draw the distribution of a quantity of the runs along y, to the right of x, and its runs to the left."""
        at = self.x(x)
        self._distribution(each, name, lambda value, height: (at + 2 + VIOLIN * height, self.y(value)))
        self._runs(each, name, lambda value: (at - 10, self.y(value)))

    def lying(self, each: AnalysedSet, name: str, y: float) -> None:
        """Draw the distribution of a quantity of the runs along x, above y, and its runs below."""
        at = self.y(y)
        self._distribution(each, name, lambda value, height: (self.x(value), at - 2 - VIOLIN * 0.8 * height))
        self._runs(each, name, lambda value: (self.x(value), at + 10))

    def _distribution(self, each: AnalysedSet, name: str, place: Callable[[float, float], Point]) -> None:
        curve = density(run_values(each, name, (True,)))
        if not curve:
            return
        outline = [place(curve[0][0], 0), *(place(*point) for point in curve), place(curve[-1][0], 0)]
        self.figure.curve(outline, f"violin {colour_of(each)}", closed=True)
        self.taken.append(enclose(outline))

    def _runs(self, each: AnalysedSet, name: str, place: Callable[[float], Point]) -> None:
        for kept, class_ in ((True, "runs"), (False, "runs left-out")):
            points = [place(value) for value in run_values(each, name, (kept,))]
            if 0 < len(points) <= MANY_RUNS:
                self.figure.path(dots(points), f"{class_} {colour_of(each)}")
                self.taken.append(enclose(points, 3))

    def number(self, points: Sequence[Point], texts: Sequence[str]) -> None:
        """Write the number of each point beside it; points in one place share labels."""
        groups: list[tuple[Point, list[str]]] = []
        for point, text in zip(points, texts, strict=True):
            last = next((found for at, found in groups if math.dist(at, point) < 4 and len(found) < TOGETHER), None)
            if last is None:
                groups.append((point, [text]))
            else:
                last.append(text)
        self.write_labels([point for point, _ in groups], [", ".join(found) for _, found in groups], "number")

    def write_labels(self, points: Sequence[Point], texts: Sequence[str], class_: str = "name") -> None:
        """Write a label beside each point that covers nothing; one without room is left out."""
        self.figure.write_labels(list(zip(points, texts, strict=True)), self.area, self.taken, class_)


def dots(points: Iterable[Point]) -> str:
    """Return the strokes of a path that has a dot at each point."""
    return "".join(f"M{short(x)} {short(y)}h0" for x, y in points)


def drawable(value: float | None) -> TypeGuard[float]:
    """Return whether a value is known and has a place on a logarithmic axis."""
    return value is not None and 1 / LARGEST < value < LARGEST


def run_values(each: AnalysedSet, name: str, kept: tuple[bool, ...] = (True, False)) -> list[float]:
    """Return the drawable values of a quantity of the runs that are kept or not."""
    return [value for run in each.runs if run.kept in kept and drawable(value := run.values.get(name))]


def density(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return (value, density) of a Gaussian kernel density whose peak is 1, empty if the values do not vary.

    The bandwidth is half of the standard deviation, as in the MLPerf HPC paper.
    """
    if len(values) < 3 or (bandwidth := statistics.stdev(values) / 2) <= 0:
        return []
    low, high = min(values) - 2 * bandwidth, max(values) + 2 * bandwidth
    places = [low + (high - low) * step / STEPS for step in range(STEPS + 1)]
    curve = [sum(math.exp(-(((place - value) / bandwidth) ** 2) / 2) for value in values) for place in places]
    peak = max(curve)
    return [(place, height / peak) for place, height in zip(places, curve, strict=True) if place > 0]


def numbers(sets: Sequence[AnalysedSet]) -> list[str]:
    """Return the number of each result, by which `numbered_list` lists it."""
    return [str(number) for number in range(1, len(sets) + 1)]


def colour_of(each: AnalysedSet) -> str:
    """Return the class of the colour of a result."""
    return colour(each.row.organisation)


def _star(place: Point, radius: float) -> list[Point]:
    sizes = [radius if corner % 2 == 0 else radius * 0.45 for corner in range(10)]
    return [
        (place[0] + size * math.sin(math.pi * corner / 5), place[1] - size * math.cos(math.pi * corner / 5))
        for corner, size in enumerate(sizes)
    ]


def mark_items(sets: Sequence[AnalysedSet]) -> list[tuple[str, str]]:
    """Return the items of a legend for the marks of these results."""
    kinds = {(each.row.division == "open", each.row.scaling == WEAK) for each in sets}
    items = [("circle", "closed division")] if (False, False) in kinds else []
    items += [("star", "open division")] if any(is_open for is_open, _ in kinds) else []
    return items + ([("square", "throughput: one of many models")] if any(weak for _, weak in kinds) else [])


def organisation_items(sets: Sequence[AnalysedSet]) -> list[tuple[str, str]]:
    """Return the items of a legend for the colours of organisations; variants of a spelling are one."""
    names = {colour_of(each): each.row.organisation for each in sets}
    return sorted(names.items(), key=lambda item: item[1].lower())
