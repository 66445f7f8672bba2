"""The runs of results: the shares of staging, training and evaluation in their time, and how they vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Final

from submission.results.figures.drawing import Point, round_text
from submission.results.figures.labels import by_benchmark, fit_text, format_amount, name_results, text_width, title_of
from submission.results.figures.panel import (
    MANY_RUNS,
    MARK,
    WIDE,
    Figure,
    colour_of,
    is_drawable,
    mark_items,
    trace_dots,
)
from submission.results.page.html import Html
from submission.results.quantities import EPOCH_TIME, EPOCHS, NO_STAGING, STAGING, AnalysedSet, LogPca

PARTS: Final = {"staging": "staging_time", "train": "train_time", "eval": "eval_time"}
"""The class of each part, and its quantity."""
NAMES: Final = {
    "staging": "staging",
    "train": "training",
    "eval": "evaluation",
    "rest": "rest",
}
BAR: Final = 19
NAME_WIDTH, TIME_WIDTH = 350, 214
"""Width of the names before the bars and of the times after them."""
COLUMNS: Final = 6
GAP: Final = 14
LABELS: Final = 62
"""Height of the lines below a cell, with a gap."""
LOWEST: Final = 0.45
"""Height of a cell divided by its width, at least."""
PERCENTS: Final = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 500, 900)


def draw_time_shares(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw a bar for each result, from the longest run of a benchmark to the shortest."""
    benchmarks = by_benchmark([each for each in sets if find_shares(each)])
    if not benchmarks:
        return Html("")
    drawn = list(chain.from_iterable(benchmarks.values()))
    title = title_of("Shares of the time of a run", drawn)
    figure = Figure(name, title, starmap(_describe_shares, benchmarks.items()))
    top = 6.0
    for title, several in benchmarks.items():
        figure.draw_text((8, top + 16), title, "heading")
        top += 34
        rows = sorted(
            zip(several, name_results(several), strict=True),
            key=lambda row: -(row[0].mean("run_time") or 0),
        )
        for each, label in rows:
            with figure.drawing_of(each):
                top = _draw_bar(figure, each, label, top)
        top += 10
    items = [(f"part {part}", text) for part, text in NAMES.items()]
    return figure.finish_figure(top + 10, [*items, *mark_items(drawn)])


def find_shares(each: AnalysedSet) -> dict[str, float]:
    """Return the share of each part in the time of a run, and the rest; empty if the logs give no part."""
    ratios = ((part, each.ratios.get(f"{quantity}/run_time")) for part, quantity in PARTS.items())
    measured = {part: share for part, share in ratios if share is not None and share >= 0}
    return measured and measured | {"rest": max(1 - sum(measured.values()), 0.0)}


def _explain_missing(each: AnalysedSet) -> str:
    """Return why a bar has no staging, "" if it has."""
    reason = "no staging logged" if each.excluded.get(STAGING) == NO_STAGING else "staging not counted"
    return "" if "staging" in find_shares(each) else reason


def _draw_bar(figure: Figure, each: AnalysedSet, label: str, top: float) -> float:
    """Draw the bar of a result; return its lower end."""
    parts, missing, minutes = find_shares(each), _explain_missing(each), each.mean("run_time")
    time = f"{format_amount(minutes)} min" if minutes else ""
    left, length = NAME_WIDTH, WIDE - NAME_WIDTH - TIME_WIDTH
    figure.draw_text((left - 22, top + 14), fit_text(label, NAME_WIDTH - 30), "name", "end")
    figure.mark_result((left - 11, top + 9), each, label)
    figure.draw_text((left + length + 66, top + 14), time, "name", "end")
    if missing:
        figure.draw_text((left + length + 74, top + 14), missing)
    x = float(left)
    for part, share in parts.items():
        wide = length * share / sum(parts.values())
        figure.draw_box(
            (x, top),
            wide,
            BAR,
            f"part {part}",
            f"{label}: {NAMES[part]} {share:.1%} of the run",
        )
        text = f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"
        if wide > text_width(text) + 4:
            figure.draw_text((x + wide / 2, top + 14), text, f"share {part}", "middle")
        x += wide
    return top + BAR + 7


def _describe_shares(title: str, sets: list[AnalysedSet]) -> str:
    low, high = (pick(find_shares(each).get("eval", 0.0) for each in sets) for pick in (min, max))
    staged = [find_shares(each)["staging"] for each in sets if "staging" in find_shares(each)]
    most = f"staging up to {max(staged):.0%}" if staged else " or ".join(dict.fromkeys(map(_explain_missing, sets)))
    return f"{title}: evaluation takes {low:.0%} to {high:.0%} of a run, {most}."


# -- whether runs differ in epochs or in the time of an epoch --------------------------------------------------


def draw_variation(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw each result's runs around their mean, with the ellipses of one and two standard deviations."""
    benchmarks = by_benchmark([each for each in sets if each.pca])
    if not benchmarks:
        return Html("")
    title = title_of(
        "Variation of epochs and of the time of an epoch between runs",
        [*chain(*benchmarks.values())],
    )
    figure = Figure(name, title, starmap(_describe_variation, benchmarks.items()))
    wide = (WIDE - GAP * (COLUMNS + 1)) / COLUMNS
    top = 6.0
    for title, several in benchmarks.items():
        across, up = _find_reach([each.pca for each in several if each.pca])
        cell = Cell(wide, wide * up / across, wide / 2 / across)
        figure.draw_text((8, top + 16), title, "heading")
        figure.draw_text((8, top + 37), f"E, epochs to solution → ±{10**across - 1:.0%} of the mean")
        figure.draw_text(
            (8 + COLUMNS // 2 * (wide + GAP), top + 37),
            f"time of an epoch ↑ ±{10**up - 1:.0%} of the mean",
        )
        top += 48
        step = cell.height + LABELS
        for at, (each, label) in enumerate(zip(several, name_results(several), strict=True)):
            row, column = divmod(at, COLUMNS)
            _draw_runs(figure, each, label, (GAP + column * (wide + GAP), top + row * step), cell)
        top += math.ceil(len(several) / COLUMNS) * step + 8
    items = [
        *mark_items([*chain(*benchmarks.values())]),
        ("ellipse", "1 and 2 standard deviations"),
        ("component", "first component: its share of the variance and its direction; r: correlation"),
    ]
    return figure.finish_figure(top + 8, items)


@dataclass(frozen=True, slots=True)
class Cell:
    """The size of the area of a result, and the units of a decade in it."""

    width: float
    height: float
    scale: float


def _find_reach(several: Sequence[LogPca]) -> tuple[float, float]:
    """Return the decades from the middle of a cell to its right and upper edges; two deviations of all results fit."""
    pairs = [tuple(zip(pca.variances, (pca.first, pca.second), strict=True)) for pca in several]
    across, up = (math.sqrt(max(sum(v * axes[at] ** 2 for v, axes in pair) for pair in pairs)) for at in (0, 1))
    right, upper = _round_decades(2.1 * across), _round_decades(2.1 * up)
    return max(right, upper), max(upper, LOWEST * right)


def _round_decades(wanted: float) -> float:
    """Return the decades of the next round percentage."""
    return next(
        (decades for percent in PERCENTS if (decades := math.log10(1 + percent / 100)) >= wanted),
        1.0,
    )


def _draw_runs(figure: Figure, each: AnalysedSet, label: str, corner: Point, cell: Cell) -> None:
    """Draw the runs of a result in an area with the mean in its middle."""
    pca = each.pca
    if pca is None:
        return
    left, top = corner
    middle = left + cell.width / 2, top + cell.height / 2
    colour, x, y = colour_of(each), round_text(middle[0]), round_text(middle[1])
    figure.draw_box(corner, cell.width, cell.height, "panel framed")
    figure.draw_path(
        f"M{round_text(left)} {y}h{round_text(cell.width)}M{x} {round_text(top)}v{round_text(cell.height)}",
        "grid",
    )
    first, second = (math.sqrt(max(variance, 0)) * cell.scale for variance in pca.variances)
    turn = f"rotate({-math.degrees(math.atan2(pca.first[1], pca.first[0])):.1f} {x} {y})"
    if first > 1:
        for size in (2, 1):
            radii = {"rx": round_text(size * first), "ry": round_text(max(size * second, 0.5))}
            figure.add_shape("ellipse", f"ellipse {colour}", cx=x, cy=y, **radii, transform=turn)
        across, up = (2 * first * part for part in pca.first)
        begin, end = (middle[0] - across, middle[1] + up), (middle[0] + across, middle[1] - up)
        figure.draw_line(begin, end, f"component {colour}")
    points = _locate_runs(each, pca, middle, cell)
    if len(points) <= MANY_RUNS:
        figure.draw_path(trace_dots(points), f"runs {colour}")
    figure.mark_result(middle, each, f"{label}: {_describe_pca(pca)}", MARK * 0.7)
    system = label.removeprefix(each.row.organisation).strip()
    texts = (each.row.organisation, "name"), (system, "name"), (_describe_pca(pca), "label")
    for line, (text, class_) in enumerate(texts):
        figure.draw_text(
            (left, top + cell.height + 15 + 16 * line),
            fit_text(text, cell.width + GAP),
            class_,
        )


def _describe_pca(pca: LogPca) -> str:
    """Return explained variance and correlation in words."""
    if pca.explained is None:
        return "no variance"
    across, up = abs(pca.first[0]), abs(pca.first[1])
    kinds = {"epochs": across > 2 * up, "time": up > 2 * across, "mixed": True}
    kind = next(name for name, applies in kinds.items() if applies)
    correlation = "" if pca.correlation is None else f", r {pca.correlation:.2f}".replace("-", "−")
    return f"{pca.explained:.0%} {kind}{correlation}"


def _locate_runs(each: AnalysedSet, pca: LogPca, middle: Point, cell: Cell) -> list[Point]:
    """Return the positions of the runs that count and lie inside the cell."""
    pairs = [(run.values.get(EPOCHS, 0.0), run.values.get(EPOCH_TIME, 0.0)) for run in each.runs if run.kept]
    logs = [
        (math.log10(epochs), math.log10(time)) for epochs, time in pairs if is_drawable(epochs) and is_drawable(time)
    ]
    shifts = [((epochs - pca.center[0]) * cell.scale, (pca.center[1] - time) * cell.scale) for epochs, time in logs]
    inside = [(x, y) for x, y in shifts if abs(x) <= cell.width / 2 and abs(y) <= cell.height / 2]
    return [(middle[0] + x, middle[1] + y) for x, y in inside]


def _describe_variation(title: str, sets: list[AnalysedSet]) -> str:
    texts = [_describe_pca(each.pca) for each in sets if each.pca]
    epochs, time = (sum(f"% {word}" in text for text in texts) for word in ("epochs", "time"))
    return f"{title}: of {len(sets)} results {epochs} vary mostly in epochs, {time} in the time of an epoch."
