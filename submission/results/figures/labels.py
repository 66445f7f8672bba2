"""The labels of figures: what they call a result, its colour, and where they stand.

Names and colours are the same in every figure and round. A label stands beside its point so that it overlaps nothing
and stays inside an area.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compliance.formats.table import shortened
from submission.results.figures.drawing import Point
from submission.results.quantities import AnalysedSet

ORGANISATIONS: Final = (
    "nvidia lbnl fujitsu cscs helmholtzai tacc riken dell anl clemson ncsa fujitsuriken hpelbnl".split()
)
"""The organisations of rounds 0.7 to 3.0; each has the colour of its place here, `.org-<place>` in page.css."""
SPARE: Final = 4
"""Further colours, for all other organisations."""
LONGEST: Final = 24
"""Characters of a system's name that a figure shows."""
FRAMEWORK: Final = re.compile(r"[_-](tf|pt|fjpytorch|pytorch|tensorflow|mxnet|ngc)[\d.]*([_-].*)?$", re.IGNORECASE)
"""The part of many systems' names that says more of the software than of the system, and what comes after it."""
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
YEARS: Final = {"0.7": "2020", "1.0": "2021", "2.0": "2022", "3.0": "2023"}
"""The year of each round."""
LINE: Final = 16
"""Height of a line of text."""
NEAR: Final = 8
"""Distance of a label from its point; those further away have a line to it."""
BOLD: Final = 1.1
"""How much wider bold text is."""
RINGS: Final = (NEAR, 16, 26, 38, 52, 68, 86, 106, 130, 160)
DIRECTIONS: Final = tuple(
    (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    for degrees in (0, 180, 330, 30, 210, 150, 270, 90, 300, 60, 240, 120)
)
"""From the point to its label, in the order in which they are tried."""
MARK: Final = 7
"""Half the width of the mark of a point."""
NEIGHBOURHOOD: Final = 90
CROSSING: Final = 45
"""Further distance that a crossing less is worth, or one label less in another order than its point."""
FAR: Final = 400
"""The cost of a place that is not around the point."""
CROWD: Final = 30
"""With more labels than this, only the first order is tried, and only places near the points."""
Line = tuple[Point, Point]


def colour(organisation: str) -> str:
    """Return the class of an organisation's colour; its spellings, as TACC and tacc, have the same."""
    key = "".join(filter(str.isalnum, organisation.lower()))
    if key in ORGANISATIONS:
        return f"org-{ORGANISATIONS.index(key)}"
    return f"org-{len(ORGANISATIONS) + zlib.crc32(key.encode()) % SPARE}"


def by_benchmark(sets: Sequence[AnalysedSet]) -> dict[str, list[AnalysedSet]]:
    """Return the results of each benchmark in a fixed order; those of mini problems are apart.

    A result with the same runs in several rounds is there once, with all of its rounds.
    """
    found: dict[str, dict[tuple[object, ...], AnalysedSet]] = {}
    for each in sorted(sets, key=lambda each: (each.row.mini, each.row.benchmark, each.row.round, each.name)):
        row = each.row
        runs = tuple(sorted(run.values.get("run_time", 0.0) for run in each.runs))
        same = (colour(row.organisation), row.system.lower(), row.scaling, row.division, each.units, runs)
        known = found.setdefault(each.marked_benchmark, {})
        if same in known:
            rounds = f"{known[same].row.round}, v{row.round}"
            each = replace(known[same], row=replace(known[same].row, round=rounds))
        known[same] = each
    return {name: list(known.values()) for name, known in found.items()}


def labels(sets: Sequence[AnalysedSet]) -> list[str]:
    """Return "organisation system" of each result, as short as they stay different; with the round if several."""
    several = len({each.row.round for each in sets}) > 1
    rounds = [f" v{each.row.round}" if several else "" for each in sets]
    short = [f"{each.row.organisation} {_cut(FRAMEWORK.sub('', each.row.system))}" for each in sets]
    whole = [f"{each.row.organisation} {_cut(each.row.system)}" for each in sets]
    kinds = [(each.row.division, each.row.scaling) for each in sets]
    looks = list(zip(short, rounds, kinds, strict=True))
    texts = (short[at] if looks.count(look) == 1 else whole[at] for at, look in enumerate(looks))
    return [text.strip() + round_ for text, round_ in zip(texts, rounds, strict=True)]


def _cut(name: str) -> str:
    return shortened(name, LONGEST, "…")


def amount(value: float) -> str:
    """Return a number with at most three significant digits."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{_digits(value / (1e3 if letter == 'k' else limit))}{letter}"
    return _digits(value)


def _digits(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:.0f}"
    digits, _, power = f"{value:.3g}".partition("e")
    if not power:
        return digits
    return f"{'' if digits == '1' else digits + '·'}10{str(int(power)).translate(SUPERSCRIPT)}"


# -- where labels stand ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def contains(self, other: Box) -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom

    def nearest(self, point: Point) -> Point:
        """Return the point of the box that is nearest to another one."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.top), self.bottom)

    def crossed_by(self, begin: Point, end: Point) -> bool:
        """Return whether a straight line touches the box."""
        low, high = 0.0, 1.0
        for start, stop, least, most in (
            (begin[0], end[0], self.left, self.right),
            (begin[1], end[1], self.top, self.bottom),
        ):
            step = stop - start
            if step == 0:
                if not least <= start <= most:
                    return False
                continue
            first, last = sorted(((least - start) / step, (most - start) / step))
            low, high = max(low, first), min(high, last)
        return low <= high


@dataclass(frozen=True, slots=True)
class Place:
    """Where the label of a point is. leader: the end of its line to the point, None beside the point."""

    point: Point
    box: Box
    leader: Point | None


def around(point: Point, radius: float) -> Box:
    """Return the square around a point."""
    return Box(point[0] - radius, point[1] - radius, point[0] + radius, point[1] + radius)


def enclose(points: Sequence[Point], margin: float = 0) -> Box:
    """Return the box around several points, with a margin on all sides."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Box(min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin)


def text_width(text: str, bold: bool = False) -> float:
    """Return about how wide a text of 13 units is, in the widest of the usual fonts."""
    return (BOLD if bold else 1) * sum(
        4.4 if sign in "ijl.,:|'! -()" else 12 if sign in "mwMW@%…" else 9.4 if "A" <= sign <= "Z" else 8.3
        for sign in text
    )


def fitted(text: str, width: float) -> str:
    """Return the text without so much of its middle that it fits."""
    if text_width(text) <= width:
        return text
    left, cut, right = text.partition("…")
    if not cut:
        left, right = text[: len(text) // 2], text[len(text) // 2 :]
    while len(left) > 1 and text_width(f"{left}…{right}") > width:
        left, right = (left[:-1], right) if len(left) > len(right) else (left, right[1:])
    return f"{left}…{right}"


def placed(points: Sequence[Point], widths: Sequence[float], area: Box, taken: Sequence[Box]) -> list[Place | None]:
    """Return a place for the label of each point, None where no room is left.

    taken: what labels must not cover, beside the points. A label is near its point, and its line to it crosses as few
    other labels, points and lines as possible. Several orders are tried: the first labels have the best places.
    """
    layout = _Layout(points, widths, area, taken)
    crowd = [sum(math.dist(point, other) < NEIGHBOURHOOD for other in points) for point in points]
    numbers = range(len(points))
    orders = [
        sorted(numbers, key=lambda at: (-crowd[at], at)),
        *(sorted(numbers, key=lambda at: (sign * points[at][axis], at)) for axis in (0, 1) for sign in (1, -1)),
    ]
    if len(points) > CROWD:
        del orders[1:]
    return min((layout.placed(order) for order in orders), key=lambda found: found[0])[1]


class _Layout:
    """Points, the widths of their labels, and where these may be."""

    def __init__(self, points: Sequence[Point], widths: Sequence[float], area: Box, taken: Sequence[Box]) -> None:
        self.points, self.widths, self.area = points, widths, area
        self.marks = [around(point, MARK) for point in points]
        self.fixed = [*self.marks, *taken]
        self.rings = RINGS if len(points) <= CROWD else RINGS[:4]
        self.candidates = [self._free(point, width) for point, width in zip(points, widths, strict=True)]

    def _free(self, point: Point, width: float) -> list[tuple[float, Place]]:
        """Return the places around a point that cover nothing but perhaps other labels."""
        reach = self.rings[-1] + LINE
        around_it = Box(point[0] - reach - width, point[1] - reach, point[0] + reach + width, point[1] + reach)
        near = list(filter(around_it.overlaps, self.fixed))
        found = _around(point, width, self.area, self.rings)
        return [(radius, place) for radius, place in found if not any(map(place.box.overlaps, near))]

    def placed(self, order: Sequence[int]) -> tuple[float, list[Place | None]]:
        """Return the places of the labels when one after the other takes its best, and the cost of all."""
        found: list[Place | None] = [None] * len(order)
        total = 0.0
        for number in (*order, *order):
            others = [place for at, place in enumerate(found) if place and at != number]
            cost, found[number] = self._best(number, others)
            total += cost
        return total, found

    def _best(self, number: int, others: Sequence[Place]) -> tuple[float, Place | None]:
        point, best, chosen = self.points[number], math.inf, None
        labels = [place.box for place in others]
        lines = [(place.point, place.leader) for place in others if place.leader]
        marks = [mark for mark in self.marks if mark != self.marks[number]]
        close = [place for place in others if math.dist(place.point, point) < NEIGHBOURHOOD]
        for radius, place in self.candidates[number]:
            if radius >= best:
                break
            if any(map(place.box.overlaps, labels)) or any(place.box.crossed_by(*line) for line in lines):
                continue
            crossed = sum(_swapped(place, other) for other in close)
            if place.leader:
                line = point, place.leader
                crossed += sum(box.crossed_by(*line) for box in (*labels, *marks))
                crossed += sum(_cross(line, other) for other in lines)
            if radius + CROSSING * crossed < best:
                best, chosen = radius + CROSSING * crossed, place
        if chosen:
            return best, chosen
        for place in _anywhere(point, self.widths[number], self.area) if len(self.points) <= CROWD else ():
            if not any(map(place.box.overlaps, (*self.fixed, *labels))):
                return FAR + math.dist(place.box.nearest(point), point), place
        return 10 * FAR, None


def _swapped(one: Place, other: Place) -> bool:
    """Return whether of two labels one above the other, the upper one is that of the lower point."""
    stacked = one.box.left < other.box.right and other.box.left < one.box.right
    return stacked and (one.point[1] - other.point[1]) * (one.box.top - other.box.top) < 0


def _cross(one: Line, other: Line) -> bool:
    """Return whether two lines cross."""
    return all(_side(*a, b[0]) * _side(*a, b[1]) < 0 for a, b in ((one, other), (other, one)))


def _side(begin: Point, end: Point, point: Point) -> float:
    return (end[0] - begin[0]) * (point[1] - begin[1]) - (end[1] - begin[1]) * (point[0] - begin[0])


def _around(point: Point, width: float, area: Box, rings: Sequence[float]) -> Iterator[tuple[float, Place]]:
    """Yield the places around a point and their distances, the nearest first."""
    for radius in rings:
        for across, down in DIRECTIONS:
            x, y = point[0] + radius * across, point[1] + radius * down
            left = x if across > 0.3 else x - width if across < -0.3 else x - width / 2
            top = y if down > 0.7 else y - LINE if down < -0.7 else y - LINE / 2
            box = Box(left, top, left + width, top + LINE)
            if area.contains(box):
                yield radius, Place(point, box, box.nearest(point) if radius > NEAR else None)


def _anywhere(point: Point, width: float, area: Box) -> Iterator[Place]:
    """Yield places in all of the area, the nearest first."""
    rows = [area.top + LINE * row for row in range(int((area.bottom - area.top) / LINE))]
    columns = [area.left + LINE * column for column in range(max(int((area.right - area.left - width) / LINE), 0))]
    boxes = [Box(left, top, left + width, top + LINE) for left in columns for top in rows]
    for box in sorted(boxes, key=lambda box: math.dist(box.nearest(point), point)):
        yield Place(point, box, box.nearest(point))
