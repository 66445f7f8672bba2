"""The labels of figures: what they call a result, its colour, and where they stand.

Names and colours are the same in every figure and round. A label stands beside its point so that it overlaps nothing
and stays inside an area.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Final

from common.rounds import label_round
from compliance.formats.table import shortened
from compliance.model.layout import WEAK
from submission.results.figures.drawing import Point
from submission.results.quantities import AnalysedSet

ORGANISATIONS: Final = (
    "nvidia lbnl fujitsu cscs helmholtzai tacc riken dell anl clemson ncsa fujitsuriken hpelbnl".split()
)
"""The organisations of rounds 0.7 to 3.0; each has the colour of its place here, `.org-<place>` in page.css."""
SPARE: Final = 4
"""Further colours, for all other organisations."""
FRAMEWORK: Final = re.compile(r"[_-](tf|pt|fjpytorch|pytorch|tensorflow|mxnet|ngc)[\d.]*([_-].*)?$", re.IGNORECASE)
"""The part of many systems' names that says more of the software than of the system, and what comes after it."""
LETTERS: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
"""From where on a number has a letter."""
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
YEARS: Final = {"0.7": "2020", "1.0": "2021", "2.0": "2022", "3.0": "2023"}
"""The year of each round."""
LINE: Final = 16
"""Height of a line of text."""
WIDTHS: Final = {
    **dict.fromkeys(ascii_uppercase, 9.4),
    **dict.fromkeys("mwMW@%…", 12.0),
    **dict.fromkeys("ijl.,:|'! -()", 4.4),
}
"""Of the signs that are not as wide as most."""
BOLD: Final = 1.1
"""How much wider bold text is."""
NEAR: Final = 8
"""Distance of a label from its point; those further away have a line to it."""
RINGS: Final = (NEAR, 16, 26, 38, 52, 68, 86, 106, 130, 160, 200, 250, 310)
DIRECTIONS: Final = tuple(
    (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    for degrees in (0, 180, 330, 30, 210, 150, 270, 90, 300, 60, 240, 120)
)
"""From the point to its label, in the order in which they are tried."""
MARK: Final = 7
"""Half the width of the mark of a point."""
NEIGHBOURHOOD: Final = 90
CROSSING: Final = 45
"""Further distance that a crossing less is worth."""
CROWD: Final = 30
"""With more labels than this, only places near the points are tried, once."""
Line = tuple[Point, Point]


def choose_colour(organisation: str) -> str:
    """Return the class of an organisation's colour; its spellings, as TACC and tacc, have the same."""
    key = "".join(filter(str.isalnum, organisation.lower()))
    if key in ORGANISATIONS:
        return f"org-{ORGANISATIONS.index(key)}"
    return f"org-{len(ORGANISATIONS) + zlib.crc32(key.encode()) % SPARE}"


def by_benchmark(sets: Sequence[AnalysedSet]) -> dict[str, list[AnalysedSet]]:
    """Return the results of each benchmark in a fixed order; those of mini problems are apart.

    A result with the same runs in several rounds is there once, with all of its rounds.
    """
    benchmarks: dict[str, dict[tuple[object, ...], AnalysedSet]] = {}
    for each in sorted(sets, key=lambda each: (each.row.mini, each.row.benchmark, each.row.round, each.name)):
        row = each.row
        same = (
            choose_colour(row.organisation),
            row.system.lower(),
            row.scaling,
            row.division,
            each.units,
            tuple(sorted(run.values.get("run_time", 0.0) for run in each.runs)),
        )
        results = benchmarks.setdefault(each.marked_benchmark, {})
        if first := results.get(same):
            each = replace(
                first,
                row=replace(first.row, round=f"{first.row.round}, v{row.round}"),
                drawn_for=(*(first.drawn_for or [first.full_name]), each.full_name),
            )
        results[same] = each
    return {name: list(results.values()) for name, results in benchmarks.items()}


def name_results(sets: Sequence[AnalysedSet]) -> list[str]:
    """Return "organisation system" of each result, as short as all stay different; with the round if several."""
    several = len({each.row.round for each in sets}) > 1
    texts = [""] * len(sets)
    for kept in (
        "",
        r"\2",
        r"\g<0>",
    ):  # of what follows "_pytorch": nothing, what says more than the software, all
        systems = [shortened(FRAMEWORK.sub(kept, each.row.system), 24, "…") for each in sets]
        names = [
            f"{each.row.organisation} {system}".strip() + f" v{label_round(each.row.round)}" * several
            for each, system in zip(sets, systems, strict=True)
        ]
        counts = Counter(names)
        texts = [text or (name if counts[name] == 1 else "") for text, name in zip(texts, names, strict=True)]
    kinds = (f"{each.row.division} {'throughput' if each.row.scaling == WEAK else ''}".strip() for each in sets)
    return [text or f"{name}, {kind}" for text, name, kind in zip(texts, names, kinds, strict=True)]


def title_of(subject: str, sets: Sequence[AnalysedSet]) -> str:
    """Return the title of a figure: "subject: benchmarks, rounds"."""
    benchmarks = dict.fromkeys(each.marked_benchmark for each in sets)
    rounds = sorted({label_round(each.row.round) for each in sets})
    return f"{subject}: {', '.join(benchmarks)}, {'round' if len(rounds) == 1 else 'rounds'} {', '.join(rounds)}"


def format_amount(value: float) -> str:
    """Return a number with at most three significant digits, of four those before the point."""
    least, letter = next((scale for scale in LETTERS if abs(value) >= scale[0]), (1.0, ""))
    value /= 1e3 if letter == "k" else least
    digits, _, power = (f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}").partition("e")
    if power:
        digits = f"{'' if digits == '1' else digits + '·'}10{str(int(power)).translate(SUPERSCRIPT)}"
    return f"{digits}{letter}"


# -- where labels stand ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def contains(self, other: Box) -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )

    def nearest(self, point: Point) -> Point:
        """Return the point of the box that is nearest to another one."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.top), self.bottom)

    def crossed_by(self, begin: Point, end: Point) -> bool:
        """Return whether a straight line crosses the box, that is one of its diagonals."""
        (x1, y1), (x2, y2) = begin, end
        if max(x1, x2) < self.left or min(x1, x2) > self.right or max(y1, y2) < self.top or min(y1, y2) > self.bottom:
            return False
        corners = (
            (self.left, self.top),
            (self.right, self.bottom),
            (self.left, self.bottom),
            (self.right, self.top),
        )
        return any(_do_cross((begin, end), diagonal) for diagonal in (corners[:2], corners[2:]))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the label of a point is. leader: the end of its line to the point, None beside the point."""

    point: Point
    box: Box
    leader: Point | None

    def distance_to(self, point: Point) -> float:
        """Return how far the label is from a point."""
        return math.dist(self.box.nearest(point), point)


def enclose_point(point: Point, radius: float) -> Box:
    """Return the square around a point."""
    return Box(point[0] - radius, point[1] - radius, point[0] + radius, point[1] + radius)


def enclose_points(points: Sequence[Point], margin: float = 0) -> Box:
    """Return the box around several points, with a margin on all sides."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Box(min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin)


def text_width(text: str, bold: bool = False) -> float:
    """Return about how wide a text of 13 units is, in the widest of the usual fonts."""
    return (BOLD if bold else 1) * sum(WIDTHS.get(sign, 8.3) for sign in text)


def fit_text(text: str, width: float) -> str:
    """Return the text without so much of its middle that it fits."""
    if text_width(text) <= width:
        return text
    left, cut, right = text.partition("…")
    if not cut:
        left, right = text[: len(text) // 2], text[len(text) // 2 :]
    while len(left) > 1 and text_width(f"{left}…{right}") > width:
        left, right = (left[:-1], right) if len(left) > len(right) else (left, right[1:])
    return f"{left}…{right}"


def place_labels(
    points: Sequence[Point], widths: Sequence[float], area: Box, covered: Sequence[Box]
) -> list[Place | None]:
    """Return a place for the label of each point, None where no room is left.

    covered: what labels must not cover, beside the points. A label without a line to its point is nearer to it than to
    any other. Those in a crowd choose first; then each chooses again among the others.
    """
    layout = _Layout(points, widths, area, covered)
    neighbours = zip(points, layout.neighbours, strict=True)
    crowds = [sum(math.dist(points[at], point) < NEIGHBOURHOOD for at in near) for point, near in neighbours]
    order = sorted(range(len(points)), key=lambda number: -crowds[number])
    for number in order * (2 if len(points) <= CROWD else 1):
        layout.places[number] = layout.choose_place(number)
    return layout.places


class _Layout:
    """Points, the widths of their labels, where these may be, and where they are."""

    def __init__(self, points: Sequence[Point], widths: Sequence[float], area: Box, covered: Sequence[Box]) -> None:
        self.points, self.widths, self.area = points, widths, area
        self.places: list[Place | None] = [None] * len(points)
        self.rings = RINGS if len(points) <= CROWD else RINGS[:4]
        self.marks = [enclose_point(point, MARK) for point in points]
        reach = self.rings[-1] + LINE + max(widths, default=0.0)
        fixed = [*self.marks, *covered]
        self.blocked = [list(filter(enclose_point(point, reach).overlaps, fixed)) for point in points]
        self.neighbours = [
            [at for at, (left, up) in enumerate(points) if abs(left - x) < 2 * reach > abs(up - y) and at != number]
            for number, (x, y) in enumerate(points)
        ]

    def choose_place(self, number: int) -> Place | None:
        """Return the nearest place of a label that covers nothing and whose line crosses little."""
        point = self.points[number]
        others = [label for at in self.neighbours[number] if (label := self.places[at])]
        other_points = [other for at in self.neighbours[number] if (other := self.points[at]) != point]
        labels, marks = [label.box for label in others], [self.marks[at] for at in self.neighbours[number]]
        lines = [(label.point, label.leader) for label in others if label.leader]
        blocked = self.blocked[number] + labels
        least, chosen = math.inf, None
        for radius, label in _list_places(point, self.widths[number], self.area, self.rings):
            if radius >= least:
                break
            if any(map(label.box.overlaps, blocked)):
                continue
            nearer = any(label.distance_to(other) < label.distance_to(point) for other in other_points)
            if nearer and not label.leader:
                continue
            line = label.leader and (point, label.leader)
            crossed = nearer + sum(_are_swapped(label, other) for other in others)
            crossed += 3 * sum(label.box.crossed_by(*other) for other in lines)
            crossed += sum(box.crossed_by(*line) for box in (*labels, *marks)) if line else 0
            crossed += sum(_do_cross(line, other) for other in lines) if line else 0
            if radius + CROSSING * crossed < least:
                least, chosen = radius + CROSSING * crossed, label
        return chosen


def _are_swapped(a: Place, b: Place) -> bool:
    """Return whether of two labels one above the other, the upper one is that of the lower point."""
    near = math.dist(a.point, b.point) < NEIGHBOURHOOD
    stacked = near and a.box.left < b.box.right and b.box.left < a.box.right
    return stacked and (a.point[1] - b.point[1]) * (a.box.top - b.box.top) < 0


def _do_cross(a: Line, b: Line) -> bool:
    """Return whether two lines cross."""
    return all(_find_side(*line, other[0]) * _find_side(*line, other[1]) < 0 for line, other in ((a, b), (b, a)))


def _find_side(begin: Point, end: Point, point: Point) -> float:
    return (end[0] - begin[0]) * (point[1] - begin[1]) - (end[1] - begin[1]) * (point[0] - begin[0])


def _find_part_before(direction: float, limit: float) -> float:
    """Return which part of a label lies before the end of its line, which goes in a direction."""
    if abs(direction) <= limit:
        return 0.5
    return float(direction < 0)


def _list_places(point: Point, width: float, area: Box, rings: Sequence[float]) -> Iterator[tuple[float, Place]]:
    """Yield the places around a point and their distances, the nearest first."""
    for radius in rings:
        for across, down in DIRECTIONS:
            x, y = point[0] + radius * across, point[1] + radius * down
            left = x - width * _find_part_before(across, 0.3)
            left = max(min(left, area.right - width), area.left)
            top = y - LINE * _find_part_before(down, 0.7)
            box = Box(left, top, left + width, top + LINE)
            if area.contains(box):
                yield radius, Place(point, box, box.nearest(point) if radius > NEAR else None)
