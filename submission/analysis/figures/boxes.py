"""Place labels beside points so that they overlap nothing and stay inside an area."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from submission.web.drawing import Point

LINE: Final = 16
"""Height of a line of text."""
NEAR: Final = 8
"""Distance of a label from its point; those further away have a line to it."""
RINGS: Final = (NEAR, 16, 26, 38, 52, 68, 86, 106, 130, 160)
DIRECTIONS: Final = (0, 180, 330, 30, 210, 150, 270, 90, 300, 60, 240, 120)
"""Degrees, clockwise from the right, in the order in which they are tried."""
NEIGHBOURHOOD: Final = 90


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
    """Where a label is. leader: the end of its line to the point, None beside the point."""

    box: Box
    leader: Point | None


def around(point: Point, radius: float) -> Box:
    """Return the square around a point."""
    return Box(point[0] - radius, point[1] - radius, point[0] + radius, point[1] + radius)


def text_width(text: str) -> float:
    """Return about how wide a text of 13 units is, in the widest of the usual fonts."""
    return sum(4.2 if sign in "ijl.,:|'! -()" else 11 if sign in "mwMW@%" else 8.2 for sign in text)


def placed(points: Sequence[Point], widths: Sequence[float], area: Box, taken: Sequence[Box]) -> list[Place | None]:
    """Return a place for the label of each point, None where no room is left.

    taken: what labels must not cover; the points belong to it. The label of a point in a crowd is placed first.
    """
    crowd = [sum(math.dist(point, other) < NEIGHBOURHOOD for other in points) for point in points]
    found: list[Place | None] = [None] * len(points)
    boxes, lines = list(taken), list[tuple[Point, Point]]()
    for at in sorted(range(len(points)), key=lambda at: (-crowd[at], at)):
        point = points[at]
        place = next((place for place in _candidates(point, widths[at], area) if _free(place, point, boxes, lines)), None)
        found[at] = place
        if place:
            boxes.append(place.box)
            if place.leader:
                lines.append((point, place.leader))
    return found


def _candidates(point: Point, width: float, area: Box) -> Iterator[Place]:
    """Yield the places around a point, then all of the area, the nearest first."""
    for radius in RINGS:
        for degrees in DIRECTIONS:
            across, down = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            x, y = point[0] + radius * across, point[1] + radius * down
            left = x if across > 0.3 else x - width if across < -0.3 else x - width / 2
            top = y if down > 0.7 else y - LINE if down < -0.7 else y - LINE / 2
            box = Box(left, top, left + width, top + LINE)
            if area.contains(box):
                yield Place(box, box.nearest(point) if radius > NEAR else None)
    rows = [area.top + LINE / 2 * row for row in range(int((area.bottom - area.top) / LINE * 2) - 1)]
    columns = [area.left + 12 * column for column in range(max(int((area.right - area.left - width) / 12), 0))]
    whole = [Box(left, top, left + width, top + LINE) for left in columns for top in rows]
    for box in sorted(whole, key=lambda box: math.dist(box.nearest(point), point)):
        yield Place(box, box.nearest(point))


def _free(place: Place, point: Point, boxes: Sequence[Box], lines: Sequence[tuple[Point, Point]]) -> bool:
    box = place.box
    if any(box.overlaps(other) for other in boxes) or any(box.crossed_by(*line) for line in lines):
        return False
    if place.leader is None:
        return True
    end = place.leader
    return not any(other.crossed_by(point, end) for other in boxes if not other.crossed_by(point, point))
