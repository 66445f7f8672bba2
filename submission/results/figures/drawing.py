"""Draw charts as inline SVG, and scale values to positions in them.

Colours are classes of page.css, for light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from submission.results.page.html import Attribute, Html, element, join_parts

WIDTH: Final = 480
LEFT, RIGHT, BOTTOM = 54, 22, 40
CHARACTER_WIDTH: Final = 6.6
"""Approximate width of a character in a chart; in units of the canvas, as all lengths here."""

LARGEST: Final = 1e12
"""Larger values are drawn here: no valid epoch, quality or time reaches it."""

PADDING: Final = 30
"""Space in a panel between its edge and the outermost points."""

FACTORS: Final = ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""The round numbers of a decade, the densest first."""
Point = tuple[float, float]


class Drawing:
    """A chart of `width` x `height`.

    name: makes its ids unique on the page. description: text for screen readers. class_: of the whole chart. result:
    the key of the result that is being drawn, by which the page filters.
    """

    width: float = WIDTH
    class_: str | None = None
    result: str | None = None

    def __init__(self, name: str, title: str, description: str, height: float) -> None:
        self.name, self.title, self.description, self.height = name, title, description, height
        self._shapes: list[Html] = []

    def add_shape(self, shape: str, class_: str, hint: str = "", **attributes: Attribute) -> None:
        """Draw a shape; `hint` is its tooltip."""
        inside = [element("title", hint)] if hint else []
        self._shapes.append(element(shape, *inside, class_=class_, data_result=self.result, **attributes))

    def draw_line(self, begin: Point, end: Point, class_: str) -> None:
        """Draw a straight line."""
        (x1, y1), (x2, y2) = begin, end
        self.add_shape(
            "line",
            class_,
            x1=round_text(x1),
            y1=round_text(y1),
            x2=round_text(x2),
            y2=round_text(y2),
        )

    def draw_curve(self, points: Iterable[Point], class_: str, hint: str = "", closed: bool = False) -> None:
        """Draw a line through all points, or the area inside it."""
        text = " ".join(f"{round_text(x)},{round_text(y)}" for x, y in points)
        self.add_shape("polygon" if closed else "polyline", class_, hint, points=text)

    def draw_box(self, corner: Point, width: float, height: float, class_: str, hint: str = "") -> None:
        """Draw a rectangle from its upper left corner."""
        size = {"width": round_text(max(width, 0)), "height": round_text(max(height, 0))}
        self.add_shape("rect", class_, hint, x=round_text(corner[0]), y=round_text(corner[1]), **size)

    def draw_dot(self, point: Point, class_: str, hint: str = "", radius: float = 4.5) -> None:
        """Draw a circle."""
        self.add_shape(
            "circle",
            class_,
            hint,
            cx=round_text(point[0]),
            cy=round_text(point[1]),
            r=round_text(radius),
        )

    def draw_cross(self, point: Point, class_: str, hint: str = "", half: int = 4) -> None:
        """Draw a cross. half: of its width."""
        x, y, wide = point[0] - half, point[1] - half, 2 * half
        self.draw_path(
            f"M{round_text(x)} {round_text(y)}l{wide} {wide}m0 -{wide}l-{wide} {wide}",
            class_,
            hint,
        )

    def draw_path(self, strokes: str, class_: str, hint: str = "") -> None:
        """Draw the strokes of an SVG path."""
        self.add_shape("path", class_, hint, d=strokes)

    def draw_text(self, point: Point, text: str, class_: str = "label", anchor: str = "start") -> None:
        """Write text with its baseline at a point."""
        x, y = point
        spot = {"x": round_text(x), "y": round_text(y), "text_anchor": anchor}
        self._shapes.append(element("text", text, class_=class_, data_result=self.result, **spot))

    def label_beside(self, span: tuple[float, float], up: float, text: str, class_: str = "label") -> None:
        """Write text to the right of a span, or to its left where it would leave the canvas."""
        begin, end = span
        leaves = end + 5 + len(text) * CHARACTER_WIDTH > self.width
        self.draw_text((begin - 5 if leaves else end + 5, up), text, class_, "end" if leaves else "start")

    def x_axis(self, scale: Scale, top: float, bottom: float, title: str) -> None:
        """Draw the horizontal axis at `bottom`, with grid and title."""
        for x, text in scale.ticks(6):
            self.draw_line((x, top), (x, bottom), "grid")
            self.draw_text((x, bottom + 15), text, "tick", "middle")
        self.draw_line((scale.start, bottom), (scale.stop, bottom), "axis")
        self.draw_text(((scale.start + scale.stop) / 2, bottom + 33), title, "label", "middle")

    def y_axis(self, scale: Scale, left: float, right: float, title: str) -> None:
        """Draw the vertical axis at `left`, with grid, and its title above."""
        for y, text in scale.ticks(5):
            self.draw_line((left, y), (right, y), "grid")
            self.draw_text((left - 7, y + 4), text, "tick", "end")
        self.draw_text((4, 14), title)

    def render_svg(self) -> Html:
        """Return the drawing."""
        title, description = f"{self.name}-title", f"{self.name}-text"
        head = (
            element("title", self.title, id=title),
            element("desc", self.description, id=description),
        )
        about = {
            "role": "img",
            "class_": self.class_,
            "aria_labelledby": f"{title} {description}",
        }
        box = f"0 0 {round_text(self.width)} {round_text(self.height)}"
        return element("svg", *head, join_parts(self._shapes), **about, viewBox=box)


def round_text(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


# -- scales ------------------------------------------------------------------------------------------------


def limit_value(value: float) -> float:
    """Return the value limited to the range that a scale can show."""
    return max(-LARGEST, min(LARGEST, float(value)))


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic map from values in [low, high] to positions in [start, stop].

    Values outside are drawn at the edge.
    """

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        values = max(self.low, min(self.high, value)), self.low, self.high
        value, low, high = map(math.log, values) if self.logarithmic else values
        return self.start + (self.stop - self.start) * (value - low) / (high - low)

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Return (position, text) of about `count` round numbers."""
        gap = abs(self.stop - self.start) / (2 * count)
        values = round_values(self, gap) if self.logarithmic else round_steps(self.low, self.high, count)
        return [(self(value), text) for value, text in zip(values, _format_alike(values), strict=True)]


def make_scale(values: Iterable[float], start: float, stop: float, margin: float = 0.05) -> Scale:
    """Return a linear scale for all values, with a margin at both ends (a fraction of their range)."""
    limited = [limit_value(value) for value in values] or [0.0]
    low, high = min(limited), max(limited)
    added = (high - low) * margin if high > low else max(abs(high) * 0.05, 0.05)
    return Scale(low - added if low > added or low < 0 else min(low, 0.0), high + added, start, stop)


def make_log_scale(values: Iterable[float], start: float, stop: float, padding: float = PADDING) -> Scale:
    """Return a logarithmic scale for all values (above 0), with padding at both ends, of at least a factor of 3."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs), max(logs)
    missing = max(0.5 - (high - low), 0)
    low, high = low - missing / 2, high + missing / 2
    room = padding * (high - low) / max(abs(stop - start) - 2 * padding, padding)
    return Scale(10 ** (low - room), 10 ** (high + room), start, stop, logarithmic=True)


def round_steps(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers of a linear scale, at equal steps."""
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def round_values(scale: Scale, gap: float) -> list[float]:
    """Return round numbers of a logarithmic scale whose positions are at least a gap apart."""
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for factors in FACTORS:
        values = [factor * 10.0**power for power in powers for factor in factors]
        inside = [value for value in values if scale.low <= value <= scale.high]
        if all(abs(scale(b) - scale(a)) >= gap for a, b in pairwise(inside)):
            return inside
    return inside[::2]


def _format_alike(values: list[float]) -> list[str]:
    """Return the numbers as texts with equal decimals, as many as needed."""
    texts = [f"{value:.6g}" for value in values]
    if any(abs(value) >= 10_000 for value in values):
        return [f"{value / 1000:,.6g}k" if value else "0" for value in values]
    decimals = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    return [text if "e" in text else f"{value:.{decimals}f}" for value, text in zip(values, texts, strict=True)]
