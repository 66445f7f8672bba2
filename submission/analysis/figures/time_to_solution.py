"""Time to solution by size of the machine: the first figure of the MLPerf HPC paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from submission.analysis.figures.boxes import LINE, Box, around
from submission.analysis.figures.names import amount, by_benchmark, labels
from submission.analysis.figures.panel import (
    MARK,
    WIDE,
    Axis,
    Figure,
    Iso,
    Panel,
    key,
    legend,
    logarithmic,
    mark,
    mark_items,
    organisation_items,
)
from submission.analysis.model import AnalysedSet
from submission.web.drawing import Scale
from submission.web.html import Html

MANY: Final = 24
"""Results of a benchmark above which the panel has numbers and a list below instead of names."""
LEFT, RIGHT, TOP, BOTTOM = 52, 44, 66, 48
"""Space around a panel for its titles and numbers."""
GAP: Final = 14


def time_to_solution(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw the minutes of the runs by compute units, with lines of the same compute budget; a panel per benchmark."""
    found = by_benchmark([each for each in sets if each.units and each.mean("run_time")])
    if not found:
        return Html("")
    shown = [each for several in found.values() for each in several]
    figure = Figure(name, "Time to solution by compute units", _text(found), width)
    top = 6.0
    for title, several in found.items():
        top = _panel(figure, title, several, top)
    items = [
        *mark_items(shown),
        ("runs", "runs and their distribution"),
        ("link", "to the batch size"),
        ("iso", "equal compute budget in unit hours"),
    ]
    top = legend(figure, items, top + 10)
    figure.height = legend(figure, organisation_items(shown), top + 4) + 4
    return figure.svg()


def _panel(figure: Figure, title: str, sets: Sequence[AnalysedSet], top: float) -> float:
    """Draw the panel of a benchmark; return its lower end."""
    names = labels(sets)
    tall = (470 if len(sets) > 6 else 360) if figure.is_wide else 330
    bottom = top + TOP + tall
    # A batch far below the units, as of a model in many parts, must not squeeze the results.
    units = [each.units or 1 for each in sets]
    x = logarithmic([*units, *filter(None, (_batch(each) for each in sets))], LEFT, figure.width - RIGHT)
    minutes = [run.values["run_time"] for each in sets for run in each.runs if run.values.get("run_time", 0) > 0]
    y = logarithmic(minutes or [each.mean("run_time") or 1 for each in sets], bottom, top + TOP)
    figure.text((8, top + 16), title, "heading")
    panel = Panel(figure, Axis(x, "accelerators, or processors without"), Axis(y, "minutes of a run"))
    panel.iso_lines(Iso(slope=-1, factor=60))
    means = [each.mean("run_time") or 1 for each in sets]
    points = [panel.place(count, mean) for count, mean in zip(units, means, strict=True)]
    for each, count, mean, point in zip(sets, units, means, points, strict=True):
        _batch_link(panel, each, x, point)
        panel.upright(each, "run_time", count)
    for each, text, mean, point in zip(sets, names, means, points, strict=True):
        mark(figure, point, each, _hint(each, text, mean))
    if figure.is_wide and len(sets) <= MANY:
        panel.label(points, names)
        return bottom + BOTTOM + GAP
    panel.label(points, [str(number) for number in range(1, len(sets) + 1)], "number")
    texts = [f"{text}, {amount(mean)} min" for text, mean in zip(names, means, strict=True)]
    area = Box(0, bottom + BOTTOM + LINE, figure.width, math.inf)
    return key(figure, sets, texts, area) + GAP


def _batch(each: AnalysedSet) -> int | None:
    """Return the batch size if it is another number than that of the units."""
    size = each.row.batch_size
    return size if size and size > 0 and size != each.units else None


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
        parts.append(
            f"{title}: {len(sets)} results, the shortest runs are those of {fastest.row.organisation} "
            f"{fastest.row.system} with {amount(fastest.mean('run_time') or 0)} minutes on {fastest.units} {fastest.unit}."
        )
    return " ".join(parts)
