"""A fit as a figure: the results that count, the power law through them and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from submission.analysis.figures.boxes import around
from submission.analysis.figures.names import labels
from submission.analysis.figures.panel import WIDE, Axis, Figure, Panel, logarithmic, mark
from submission.analysis.fits.fit import Fit
from submission.analysis.model import AnalysedSet
from submission.web.html import Html

LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 60, 20, 34, 300, 52
"""Space around the panel, and its height."""
STEPS: Final = 40


def draw_fit(fit: Fit, sets: Mapping[str, AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw a fit, empty without one. sets: the results by the names of its points."""
    if fit.power is None:
        return Html("")
    figure = Figure(name, fit.title, fit.said, width)
    x = logarithmic([point.x for point in fit.points], LEFT, width - RIGHT)
    places = [(math.log(x.low) + (math.log(x.high) - math.log(x.low)) * at / STEPS) for at in range(STEPS + 1)]
    intervals = [(at, interval) for at in map(math.exp, places) if (interval := fit.power.interval(at)) is not None]
    # The outline of the interval of the curve, empty for two points.
    band = [(x, low) for x, (low, _) in intervals] + [(x, high) for x, (_, high) in reversed(intervals)]
    values = [point.y for point in fit.points] + [fit.power.at(x.low), fit.power.at(x.high)]
    y = logarithmic(values, TOP + HEIGHT, TOP)
    panel = Panel(figure, Axis(x, _title(fit.x.name, fit.x.unit)), Axis(y, _title(fit.y.name, fit.y.unit)))
    if band:
        figure.curve([panel.place(*point) for point in band], "interval", closed=True)
    ends = panel.place(x.low, fit.power.at(x.low)), panel.place(x.high, fit.power.at(x.high))
    figure.line(*ends, "fit")
    (x1, y1), (x2, y2) = ends
    panel.taken += [around((x1 + (x2 - x1) * at / STEPS, y1 + (y2 - y1) * at / STEPS), 3) for at in range(STEPS + 1)]
    several = [sets[point.name] for point in fit.points]
    spots = [panel.place(point.x, point.y) for point in fit.points]
    panel.label(spots, labels(several))
    for point, spot, each in zip(fit.points, spots, several, strict=True):
        mark(figure, spot, each, f"{point.name}: {point.x:,.6g}, {point.y:,.4g}")
    items = [("fit", f"{fit.y.name} = {fit.power.a:.4g} · {fit.x.name}^{fit.power.b:.3f}")]
    items += [("interval", "95 % interval of the curve")] if band else []
    return figure.finish(items, TOP + HEIGHT + BOTTOM + 8)


def _title(name: str, unit: str) -> str:
    return name if name == unit else f"{name}, {unit}"
