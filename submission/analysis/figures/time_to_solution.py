"""Time to solution by size of the machine: the first figure of the MLPerf HPC paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from submission.analysis.figures.boxes import LINE, Box, around
from submission.analysis.figures.names import amount, by_benchmark, labels
from submission.analysis.figures.panel import (
    MARK,
    PADDING,
    UNITS,
    WIDE,
    Axis,
    Figure,
    Iso,
    Panel,
    drawable,
    legend,
    logarithmic,
    mark,
    mark_items,
    numbered_list,
    numbers,
    organisation_items,
    run_values,
)
from submission.analysis.model import AnalysedSet
from submission.web.drawing import Scale
from submission.web.html import Html

MANY: Final = 24
"""Results of a benchmark above which the panel has numbers and a list below instead of names."""
FEW: Final = 6
"""Up to this many results a panel takes half of the width."""
ROOM: Final = 100
"""Space for names beside the outermost points."""
LEFT, RIGHT, TOP, BOTTOM = 52, 44, 66, 48
"""Space around a panel for its titles and numbers."""
GAP: Final = 14


def time_to_solution(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw the minutes of the runs by compute units, with lines of the same compute budget; a panel per benchmark."""
    found = by_benchmark([each for each in sets if drawable(each.units) and drawable(each.mean("run_time"))])
    if not found:
        return Html("")
    shown = [each for several in found.values() for each in several]
    figure = Figure(name, "Time to solution by compute units", _text(found), width)
    top = 6.0
    for blocks in figure.side_by_side(list(found.items()), FEW):
        wide = figure.width / len(blocks)
        corners = (Box(wide * at, top, wide * (at + 1), math.inf) for at in range(len(blocks)))
        top = max(_panel(figure, *block, corner) for block, corner in zip(blocks, corners, strict=True))
    items = [
        *mark_items(shown),
        ("runs", "runs and their distribution"),
        ("link", "link to the batch size"),
        ("iso", "equal accelerator (processor) hours"),
    ]
    return figure.finish(organisation_items(shown), legend(figure, items, top + 10) + 4)


def _panel(figure: Figure, title: str, sets: Sequence[AnalysedSet], room: Box) -> float:
    """Draw the panel of a benchmark with its titles and numbers; return its lower end."""
    names = labels(sets)
    tall = (500 if len(sets) > FEW else 340) if figure.is_wide else 330
    left, top, bottom = room.left, room.top, room.top + TOP + tall
    units = [each.units or 1 for each in sets]
    padding = ROOM if room.right - left == WIDE else PADDING
    x = logarithmic([*units, *filter(None, map(_batch, sets))], left + LEFT, room.right - RIGHT, padding)
    means = [each.mean("run_time") or 1 for each in sets]
    minutes = [value for each in sets for value in run_values(each, "run_time")]
    y = logarithmic([*minutes, *means], bottom, top + TOP)
    figure.text((left + 8, top + 16), title, "heading")
    panel = Panel(figure, Axis(x, UNITS), Axis(y, "minutes per run"))
    panel.iso_lines(Iso(slope=-1, factor=60))
    points = [panel.place(count, mean) for count, mean in zip(units, means, strict=True)]
    for each, count, point in zip(sets, units, points, strict=True):
        _batch_link(panel, each, x, point)
        panel.upright(each, "run_time", count)
    named = figure.is_wide and len(sets) <= MANY
    if named:
        panel.label(points, names)
    else:
        panel.number(points, numbers(sets))
    for each, text, mean, point in zip(sets, names, means, points, strict=True):
        mark(figure, point, each, _hint(each, text, mean))
    if named:
        return bottom + BOTTOM + GAP
    rows = [(text, f"{amount(mean)} min") for text, mean in zip(names, means, strict=True)]
    return numbered_list(figure, sets, rows, Box(left, bottom + BOTTOM + LINE, room.right, math.inf)) + GAP


def _batch(each: AnalysedSet) -> float | None:
    """Return the batch size if it is another number than that of the units."""
    size = each.row.batch_size
    return size if drawable(size) and size != each.units else None


def _batch_link(panel: Panel, each: AnalysedSet, x: Scale, point: tuple[float, float]) -> None:
    batch = _batch(each)
    if batch is None:
        return
    at = x(batch)
    panel.figure.line(point, (at, point[1]), "link")
    panel.figure.line((at, point[1] - MARK), (at, point[1] + MARK), "batch")
    panel.taken += [around((at, point[1]), MARK), Box(min(at, point[0]), point[1] - 1, max(at, point[0]), point[1] + 1)]


def _hint(each: AnalysedSet, text: str, mean: float) -> str:
    found = each.statistics["run_time"]
    spread = f" ± {amount(found.std)}" if found.std else ""
    budget = amount(mean * (each.units or 0) / 60)
    batch = f", batch size {each.row.batch_size}" if each.row.batch_size else ""
    return (
        f"{text}: {amount(mean)}{spread} min (mean of {found.count} runs), {each.units} {each.unit}{batch}, "
        f"{budget} unit hours, {each.row.verdict}"
    )


def _text(found: dict[str, list[AnalysedSet]]) -> str:
    parts = []
    for title, sets in found.items():
        fastest = min(sets, key=lambda each: each.mean("run_time") or math.inf)
        minutes = amount(fastest.mean("run_time") or 0)
        parts.append(
            f"{title}: {len(sets)} results; the shortest runs are those of {fastest.row.organisation} on "
            f"{fastest.row.system}, with {minutes} minutes and {fastest.units} {fastest.unit}."
        )
    return " ".join(parts)
