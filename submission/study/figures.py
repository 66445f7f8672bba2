"""The figures of a study, as inline SVG: points with their repetitions, the law with its band, perfect scaling."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain, cycle, islice
from typing import Final

from common.values import is_number
from submission.results.figures.drawing import CHARACTER_WIDTH, Point, Scale, make_log_scale, make_scale
from submission.results.figures.labels import LINE, fit_text, format_amount
from submission.results.figures.panel import (
    HALF,
    Axis,
    Figure,
    Panel,
    trace_dots,
)
from submission.results.fits.laws import TWO_VARIABLES
from submission.results.fits.least_squares import Interval
from submission.results.page.export import render_standalone
from submission.results.page.html import Html
from submission.study.curves import Curve, CurveLine, CurvePoint
from submission.study.records import figure_name, list_figures

LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 60, 24, 40, 320, 58
"""Space around the panel, and its height."""
STEPS: Final = 48
COLOURS: Final = tuple(f"org-{number}" for number in (1, 3, 4, 2, 6, 10, 0, 5))
SHAPES: Final = ("circle", "triangle", "star", "square")
LawPath = list[tuple[float, float, Interval]]
"""Places along a law: x, y and interval."""


def draw_curve(curve: Curve) -> Html:
    """Draw the points and laws of a curve; where there is no law, the figure says why. Empty without points."""
    spec, points = curve.spec, [point for line in curve.lines for point in line.points]
    if not points:
        return Html("")
    figure = Figure(figure_name(spec), f"{spec.title[:1].upper()}{spec.title[1:]}", _describe_curve(curve), HALF)
    panel = _make_panel(figure, curve, points)
    looks = list(islice(zip(cycle(SHAPES), cycle(COLOURS), strict=False), len(curve.lines)))
    for line, (_, colour) in zip(curve.lines, looks, strict=True):
        if ideal := _trace_ideal(curve, line):
            figure.draw_curve([panel.locate_point(x, y) for x, y in ideal], "iso")
        if law := _trace_law(curve, line):
            _draw_law(panel, law, colour)
        elif curve.names or not spec.law:
            figure.draw_curve(
                [panel.locate_point(point.x, point.mean) for point in line.points],
                f"thread {colour}",
            )
    for line, look in zip(curve.lines, looks, strict=True):
        for point in line.points:
            _draw_point(panel, curve, line, point, look)
    if spec.law == "isoflop" and curve.law:
        for parabola in curve.law.parabolas:
            spot = panel.locate_point(parabola.minimum, parabola.loss)
            figure.draw_cross(spot, "failing", f"minimum at {format_amount(parabola.minimum)}")
    return _write_legend(figure, curve, looks)


def draw_best_sizes(curve: Curve) -> Html:
    """Draw the minima of an IsoFLOP curve over compute, with their law; empty for others and without a law."""
    if curve.spec.law != "isoflop" or not (law := curve.law):
        return Html("")
    spec, minima = curve.spec, law.parabolas
    figure = Figure(f"{figure_name(spec)}-best", "Best size over compute", [law.formula], HALF)
    xs = _spread_between(minima[0].compute, minima[-1].compute, is_log=True)
    path = [(x, law.at(x), law.interval(x)) for x in xs]
    sizes = [parabola.minimum for parabola in minima] + [end for *_, band in path for end in band]
    x = Axis(make_log_scale(xs, LEFT, HALF - RIGHT), spec.by)
    panel = Panel(
        figure,
        x,
        Axis(make_log_scale(sizes, TOP + HEIGHT, TOP), f"best {spec.x_label or spec.x}"),
    )
    _draw_law(panel, path, COLOURS[0])
    for parabola in minima:
        spot = panel.locate_point(parabola.compute, parabola.minimum)
        hint = f"{format_amount(parabola.compute)}: {format_amount(parabola.minimum)}"
        figure.draw_mark(spot, ("circle", ""), f"mark {COLOURS[0]}", hint)
    return figure.finish_figure(
        TOP + HEIGHT + BOTTOM,
        [(f"circle {COLOURS[0]}", law.formula)],
        [("range", "95 % interval of the law")],
    )


def draw_files(curves: Iterable[Curve]) -> dict[str, str]:
    """Return the text of an SVG file for each figure, by the name of the file."""
    files = dict[str, str]()
    for curve in curves:
        for name, draw in zip(list_figures(curve.spec), (draw_curve, draw_best_sizes), strict=False):
            if drawing := draw(curve):
                files[name] = render_standalone(drawing)
    return files


# -- parts of a figure ------------------------------------------------------------------------------------------


def _make_panel(figure: Figure, curve: Curve, points: Sequence[CurvePoint]) -> Panel:
    """Draw the axes, with room for points, bands of the laws and perfect scaling."""
    spec = curve.spec
    ys = [y for point in points for y in point.ys]
    for line in curve.lines:
        ys += [end for *_, band in _trace_law(curve, line) for end in band]
        ys += [y for _, y in _trace_ideal(curve, line)]
    xs = [x for point in points for x in point.xs]
    left, right, bottom = LEFT, figure.width - RIGHT, TOP + HEIGHT
    ys = [y for y in ys if math.isfinite(y) and (y > 0 or not spec.log_y)]
    y = (make_log_scale if spec.log_y else make_scale)(ys, bottom, TOP)
    if curve.names:
        x = Scale(-0.5, len(curve.names) - 0.5, left, right)
    else:
        x = (make_log_scale if spec.log_x else make_scale)(xs, left, right)
    names = tuple(fit_text(name, (right - left) / len(curve.names) - 6) for name in curve.names)
    return Panel(figure, Axis(x, spec.x_label or spec.x, names=names), Axis(y, spec.y_label or spec.y))


def _spread_between(low: float, high: float, is_log: bool) -> list[float]:
    """Return places from low to high, both included."""
    shares = [step / STEPS for step in range(STEPS + 1)]
    if is_log:
        return [low * (high / low) ** share for share in shares]
    return [low + (high - low) * share for share in shares]


def _sample_range(curve: Curve, line: CurveLine) -> list[float]:
    """Return places from the first to the last point; none where x has words."""
    if curve.names:
        return []
    return _spread_between(line.points[0].x, line.points[-1].x, curve.spec.log_x)


def _trace_ideal(curve: Curve, line: CurveLine) -> list[Point]:
    """Return places of perfect scaling from the first point of a line on; none if it is not asked for."""
    if (exponent := curve.spec.ideal) is None:
        return []
    first = line.points[0]
    return [(x, first.mean * (x / first.x) ** exponent) for x in _sample_range(curve, line)]


def _trace_law(curve: Curve, line: CurveLine) -> LawPath:
    """Return places along the law of a line; none without a law. The parabola of a compute has no band."""
    xs, by = _sample_range(curve, line), line.by
    if curve.law and is_number(by):
        if curve.spec.law == "joint":
            return [(x, curve.law.at(by, x), curve.law.interval(by, x)) for x in xs]
        parabolas = (parabola for parabola in curve.law.parabolas if parabola.compute == by)
        return [(x, y := parabola.at(x), (y, y)) for parabola in parabolas for x in xs]
    return [(x, line.law.at(x), line.law.interval(x)) for x in xs] if line.law else []


def _draw_law(panel: Panel, path: LawPath, colour: str) -> None:
    lower, upper = ([panel.locate_point(x, band[side]) for x, _, band in path] for side in (0, 1))
    if lower != upper:
        panel.figure.draw_curve([*lower, *reversed(upper)], f"range {colour}", closed=True)
    panel.figure.draw_curve([panel.locate_point(x, y) for x, y, _ in path], f"stroke {colour}")


def _draw_point(panel: Panel, curve: Curve, line: CurveLine, point: CurvePoint, look: tuple[str, str]) -> None:
    """Draw the mean, and the repetitions with a line from the least to the largest."""
    (shape, colour), figure = look, panel.figure
    spots = [panel.locate_point(x, y) for x, y in zip(point.xs, point.ys, strict=True)]
    if len(spots) > 1:
        if len(set(point.xs)) == 1:
            figure.draw_line(min(spots), max(spots), f"component {colour}")
        figure.draw_path(trace_dots(spots), f"runs small {colour}")
    x = curve.names[int(point.x)] if curve.names else format_amount(point.x)
    spread = (
        f", {format_amount(min(point.ys))} to {format_amount(max(point.ys))} in {len(spots)} runs"
        if len(spots) > 1
        else ""
    )
    hint = f"{curve.spec.x} {x}{line.label and ', '}{line.label}: {format_amount(point.mean)}{spread}"
    figure.draw_mark(panel.locate_point(point.x, point.mean), (shape, ""), f"mark {colour}", hint, 4.5)


def _write_legend(figure: Figure, curve: Curve, looks: Sequence[tuple[str, str]]) -> Html:
    """Write what marks and lines mean, a law with its formula and a missing one with its reason, a line each."""
    rows, spec = list[list[tuple[str, str]]](), curve.spec
    width = int((figure.width - 60) / CHARACTER_WIDTH)
    shared = spec.law in TWO_VARIABLES or curve.problem
    for line, (shape, colour) in zip(curve.lines, looks, strict=True):
        formula = line.law.formula if line.law else line.problem
        rows += _wrap_text(
            f"{shape} {colour}",
            ": ".join(filter(None, (line.label, "" if shared else formula))) or spec.y_label or spec.y,
            width,
        )
    if shared:
        rows = [list(chain(*rows))] if len(rows) < len(COLOURS) * 2 else rows
        rows += _wrap_text("", curve.law.formula if curve.law else curve.problem, width)
    last = [("cross", "minimum of a parabola")] if spec.law == "isoflop" and curve.law else []
    if spec.law != "isoflop" and any(law for _, law, _ in curve.laws):
        last.append(("range", "95 % interval of the law"))
    last += [("iso", "perfect scaling")] if spec.ideal is not None and not curve.names else []
    return figure.finish_figure(TOP + HEIGHT + BOTTOM - LINE / 4, *rows, last)


def _wrap_text(kind: str, text: str, width: int) -> list[list[tuple[str, str]]]:
    first, *others = textwrap.wrap(text, width) or [""]
    return [[(kind, first)], *([("", other)] for other in others)]


def _describe_curve(curve: Curve) -> Iterable[str]:
    """Yield the content of a figure in sentences."""
    yield f"{curve.spec.y_label or curve.spec.y} over {curve.spec.x_label or curve.spec.x}."
    for line in curve.lines:
        texts = (
            f"{curve.names[int(p.x)] if curve.names else format_amount(p.x)}: {format_amount(p.mean)}"
            for p in line.points
        )
        yield f"{line.label or 'Points'}: {', '.join(texts)}."
    for label, law, problem in curve.laws:
        yield f"{label} {law.formula if law else problem}.".lstrip()
