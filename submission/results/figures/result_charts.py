"""The charts of a result: convergence, time breakdown and spread of its runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.reference import Target
from common.values import group_pairs
from compliance.formats.table import shortened
from compliance.formats.words import minutes as duration
from compliance.formats.words import plain
from compliance.logs.timeline import PARTS
from submission.results.figures.drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    WIDTH,
    Drawing,
    Point,
    Scale,
    limit_value,
    make_scale,
)
from submission.results.page.html import Html

MANY: Final = 24
MANY_BARS: Final = 12
"""Above these numbers of runs a chart shows their distribution instead of each run."""
STATES: Final = {
    "kept": "counts",
    "dropped": "fastest or slowest, left out",
    "failed": "rejected",
}
"""The states of a run, and their texts in a legend."""
DOT: Final = 11
"""Width of a dot, or of a column of a histogram."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A run in a chart. state: a key of STATES. points: (epoch, quality) of its evaluations. seconds: by part."""

    name: str
    state: str
    points: tuple[Point, ...] = ()
    minutes: float | None = None
    seconds: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a result is compared with.

    target: of the quality. mean: convergence of this result, in `unit`. reference_mean, reference_minimum: mean and
    lowest accepted mean of the reference runs.
    """

    target: Target
    unit: str = "epochs"
    mean: float | None = None
    reference_mean: float | None = None
    reference_minimum: float | None = None

    @property
    def band(self) -> tuple[float, float] | None:
        """The lowest accepted mean, below which a result is too fast, and the reference's; None without a reference."""
        if self.reference_mean is None or self.reference_minimum is None:
            return None
        return self.reference_minimum, self.reference_mean


Timed = tuple[float, Curve]


# -- convergence -------------------------------------------------------------------------------------------


def draw_convergence(name: str, curves: Sequence[Curve], goal: Goal) -> Html:
    """Return the chart of quality by epoch with target and reference: each run, or the distribution of many."""
    evaluated = [curve for curve in curves if curve.points]
    target, band = goal.target, goal.band
    drawing = Drawing(name, f"Convergence: {target.key} by {goal.unit}", _convergence_text(evaluated, goal), 300)
    # The labels of reference and result are above the curves, so that no curve crosses them.
    top, bottom = 66 if band else 26 + 20 * (goal.mean is not None), 300 - BOTTOM
    ends = [curve.points[-1][0] for curve in evaluated]
    x = make_scale(
        [0, *ends, *(band or ()), *([goal.mean] if goal.mean else ())],
        LEFT,
        WIDTH - RIGHT,
        0.03,
    )
    y = _quality_scale([value for curve in evaluated for _, value in curve.points], target, bottom, top)
    drawing.y_axis(y, LEFT, WIDTH - RIGHT, target.key)
    drawing.x_axis(x, top, bottom, goal.unit)
    if band:
        drawing.draw_box((LEFT, top - 22), x(band[0]) - LEFT, bottom - top + 22, "band")
        drawing.draw_line((x(band[1]), top - 22), (x(band[1]), bottom), "reference")
        text = f"reference {format_length(band[1])} (limit {format_length(band[0])})"
        drawing.label_beside((x(band[0]), x(band[1])), top - 12, text, "label reference-text")
    if goal.mean is not None:
        at = x(goal.mean)
        drawing.draw_line((at, top - 40), (at, bottom), "mean")
        drawing.label_beside((at, at), top - 30, f"this result {format_length(goal.mean)}", "label mean-text")
    if len(evaluated) > MANY:
        _draw_distribution(drawing, evaluated, x, y)
    else:
        for curve in sorted(evaluated, key=lambda curve: curve.state != "dropped"):
            _run_curve(drawing, curve, x, y)
    drawing.draw_line((LEFT, y(target.value)), (WIDTH - RIGHT, y(target.value)), "target")
    below = y(target.value) + (14 if target.lower_is_better else -6)
    drawing.draw_text((LEFT + 6, below), f"target {target.value:g}", "label target-text")
    return drawing.render_svg()


def format_length(value: float) -> str:
    """Return a number of epochs or samples; thousands of samples without decimals."""
    return plain(round(value) if value >= 1000 else value)


def _quality_scale(values: list[float], target: Target, bottom: float, top: float) -> Scale:
    """Return the vertical scale, logarithmic for errors over a wide range; outliers are cut off."""
    goal = target.value
    if not target.lower_is_better:
        low = min([goal, *(value for value in values if 0 <= value <= 1)])
        return make_scale([low, min(1.0, goal + 0.25 * (goal - low) + 0.01)], bottom, top, 0)
    high = max([goal * 1.25, *(value for value in values if 0 < value <= goal * 40)])
    low = min([goal, *(value for value in values if goal / 5 < value < goal)])
    if high > 4 * goal:
        return Scale(low * 0.78, high * 1.1, bottom, top, logarithmic=True)
    return Scale(max(low - (high - low) * 0.15, 0), high + (high - low) * 0.05, bottom, top)


def _run_curve(drawing: Drawing, curve: Curve, x: Scale, y: Scale) -> None:
    places = [(x(limit_value(epoch)), y(limit_value(value))) for epoch, value in curve.points]
    epoch, value = curve.points[-1]
    hint = f"{curve.name}: {value:.4g} after {plain(epoch)}"
    drawing.draw_curve(places, f"run {curve.state}", hint)
    if curve.state == "failed":
        drawing.draw_cross(places[-1], "end failed", hint)
    else:
        drawing.draw_dot(places[-1], f"end {curve.state}", hint, 3.2)


def _draw_distribution(drawing: Drawing, curves: Sequence[Curve], x: Scale, y: Scale) -> None:
    """Draw the median and the middle 80 % of the runs that are still training, and the ends of all runs."""
    by_epoch = quality_by_epoch(curves)
    epochs = sorted(by_epoch)
    low, middle, high = (
        [y(limit_value(by_epoch[epoch][round(part * (len(by_epoch[epoch]) - 1))])) for epoch in epochs]
        for part in (0.1, 0.5, 0.9)
    )
    across = [x(limit_value(epoch)) for epoch in epochs]
    edge = [*zip(across, high, strict=True), *reversed(list(zip(across, low, strict=True)))]
    drawing.draw_curve(edge, "area", "the middle 80 % of the runs", closed=True)
    drawing.draw_curve(zip(across, middle, strict=True), "run kept median", "median of the runs")
    ends = {(round(x(limit_value(e))), round(y(limit_value(v))), c.state) for c in curves for e, v in c.points[-1:]}
    for left, up, state in sorted(ends):
        drawing.draw_dot((left, up), f"end {state}", radius=2)


def quality_by_epoch(curves: Sequence[Curve]) -> dict[float, list[float]]:
    """Return the qualities of all runs by epoch, ascending."""
    qualities = group_pairs(point for curve in curves for point in curve.points)
    return {epoch: sorted(values) for epoch, values in qualities.items()}


def _convergence_text(curves: Sequence[Curve], goal: Goal) -> str:
    met = sum(any(goal.target.met(value) for _, value in curve.points) for curve in curves)
    text = f"{met} of {len(curves)} runs with evaluations meet the target {goal.target.range_text}."
    if goal.mean is not None:
        text += f" They converge in {format_length(goal.mean)} {goal.unit} on average."
    if goal.band:
        low, mean = goal.band
        text += (
            f" The mean of the reference is {format_length(mean)}; means of at least {format_length(low)} are accepted."
        )
    return text


# -- time --------------------------------------------------------------------------------------------------


def draw_breakdown(name: str, curves: Sequence[Curve]) -> Html:
    """Return the bars of the parts of each run's minutes; of many runs: of the mean, fastest, median and slowest."""
    bars = breakdown_bars(curves)
    totals = [sum(parts.values()) / 60 for _, parts in bars]
    longest = max(totals, default=0.0)
    decimals = 1 + (longest < 100) + (longest < 1)
    left = 22 + max((len(label) for label, _ in bars), default=0) * 6
    height = 12 + 22 * len(bars) + BOTTOM
    drawing = Drawing(name, "Time breakdown, in minutes", _breakdown_text(curves), height)
    x = make_scale([0, *totals], left, WIDTH - 46, 0)
    bottom = height - BOTTOM
    drawing.x_axis(x, 4, bottom, "minutes from init_start to run_stop")
    for row, ((label, parts), total) in enumerate(zip(bars, totals, strict=True)):
        up, begin = 10 + 22 * row, 0.0
        drawing.draw_text((left - 8, up + 12), label, "tick", "end")
        for part in PARTS:
            length = max(limit_value(parts.get(part, 0.0)), 0.0) / 60
            hint = f"{label}: {part} {length:.4g} minutes"
            drawing.draw_box((x(begin), up), x(begin + length) - x(begin), 15, f"part {part}", hint)
            begin += length
        drawing.draw_text((x(total) + 6, up + 12), f"{total:,.{decimals}f}", "tick")
    return drawing.render_svg()


def breakdown_bars(curves: Sequence[Curve]) -> list[tuple[str, Mapping[str, float]]]:
    """Return (label, seconds by part) of the bars to draw."""
    timed = [(curve.name, curve.seconds) for curve in curves if curve.seconds]
    if len(timed) <= MANY_BARS:
        return [(shortened(name, 16, "…"), seconds) for name, seconds in timed]
    ranked = sorted((seconds for _, seconds in timed), key=lambda seconds: sum(seconds.values()))
    return [
        (f"mean of {len(timed)}", mean_seconds(curves)),
        ("fastest", ranked[0]),
        ("median", ranked[len(ranked) // 2]),
        ("slowest", ranked[-1]),
    ]


def mean_seconds(curves: Sequence[Curve]) -> dict[str, float]:
    """Return the mean seconds of each part; empty if no run has any."""
    timed = [curve.seconds for curve in curves if curve.seconds]
    return {part: statistics.fmean(seconds.get(part, 0.0) for seconds in timed) for part in PARTS} if timed else {}


def _breakdown_text(curves: Sequence[Curve]) -> str:
    mean = mean_seconds(curves)
    total = sum(mean.values())
    if not total:
        return "The logs have no times."
    shares = ", ".join(f"{part} {seconds / total:.1%}" for part, seconds in mean.items())
    return f"Mean shares of the time from init_start to run_stop: {shares}."


# -- spread ------------------------------------------------------------------------------------------------


def draw_spread(name: str, curves: Sequence[Curve], mean: float | None) -> Html:
    """Return the chart of the runs' minutes with the olympic mean: a dot for each run, or a histogram of many."""
    timed = [(curve.minutes, curve) for curve in curves if curve.minutes is not None]
    values = [limit_value(minutes) for minutes, _ in timed]
    x = make_scale([*values, *([mean] if mean is not None else ())], LEFT - 30, WIDTH - RIGHT, 0.08)
    height = 44 + (120 if len(timed) > MANY else max(DOT * len(_stack_runs(timed, x)), 40)) + BOTTOM
    drawing = Drawing(name, "Minutes of the runs", _spread_text(values, mean), height)
    bottom = height - BOTTOM
    drawing.x_axis(x, 24, bottom, "minutes from run_start to run_stop")
    if mean is not None:
        drawing.draw_line((x(mean), 8), (x(mean), bottom), "mean")
        drawing.label_beside((x(mean), x(mean)), 16, f"olympic mean {duration(mean)}", "label mean-text")
    if len(timed) > MANY:
        _draw_histogram(drawing, timed, x, bottom)
        return drawing.render_svg()
    for row, dots in enumerate(_stack_runs(timed, x)):
        for minutes, curve in dots:
            mark = drawing.draw_cross if curve.state == "failed" else drawing.draw_dot
            hint = f"{curve.name}: {minutes:.4g} minutes, {STATES[curve.state]}"
            mark((x(limit_value(minutes)), bottom - 9 - DOT * row), f"end {curve.state}", hint)
    return drawing.render_svg()


def _stack_runs(timed: Sequence[Timed], x: Scale) -> list[list[Timed]]:
    """Return the runs in stacked rows so that no dots overlap."""
    rows: list[list[Timed]] = []
    for minutes, curve in sorted(timed, key=lambda pair: pair[0]):
        left = x(limit_value(minutes))
        row = next((row for row in rows if x(limit_value(row[-1][0])) <= left - DOT), None)
        if row is None:
            rows.append([(minutes, curve)])
        else:
            row.append((minutes, curve))
    return rows


def _draw_histogram(drawing: Drawing, timed: Sequence[Timed], x: Scale, bottom: float) -> None:
    ascending = sorted(minutes for minutes, _ in timed)
    columns = group_pairs((math.floor((x(limit_value(each)) - x.start) / DOT), each) for each in ascending)
    most = max(map(len, columns.values()))
    step = 120 / most
    highest = next(column for column, times in sorted(columns.items()) if len(times) == most)
    for column, times in sorted(columns.items()):
        corner, height = (x.start + column * DOT, bottom - step * len(times)), step * len(times)
        drawing.draw_box(
            corner,
            DOT - 1,
            height,
            "bar",
            f"{len(times)} runs of {times[0]:.4g} to {times[-1]:.4g} minutes",
        )
        if column == highest:
            drawing.draw_text((corner[0] + DOT / 2, corner[1] - 5), f"{most} runs", anchor="middle")


def _spread_text(values: Sequence[float], mean: float | None) -> str:
    if not values:
        return "No run has both run_start and run_stop."
    middle = statistics.median(values)
    text = f"{len(values)} runs of {min(values):.4g} to {max(values):.4g} minutes, median {middle:.4g}."
    return text if mean is None else f"{text} The olympic mean is {mean:.4g} minutes."
