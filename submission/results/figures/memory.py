"""The data of a node beside its memory and its local disk, over the nodes that share the data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from submission.results.figures.drawing import Point
from submission.results.figures.labels import LINE, Box, amount, around, labels, title_of
from submission.results.figures.panel import (
    MARK,
    PADDING,
    WIDE,
    Axis,
    Figure,
    Panel,
    logarithmic,
    mark_items,
    organisation_items,
    spread,
)
from submission.results.page.html import Html
from submission.results.quantities import CACHEABLE, AnalysedSet, NodeData

LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 60, 20, 40, 340, 52
"""Space around the panel, and its height."""
MANY: Final = 16
"""Results above which the panel has numbers and a list below instead of names."""
GIGA: Final = 1e9
OUTCOMES: Final = {"disk": ": exceeds memory, fits disk", "neither": ": exceeds memory", "": ": memory unknown"}
"""What a label says of data that memory does not hold, by `NodeData.held_by`."""
ROOM: Final = 80
"""Space for names beside the outermost points."""
STEPS: Final = 40


def data_per_node(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw the stored data per node of results of a benchmark, with memory and disk of a node; empty without any."""
    known = [(each, each.data) for each in sets if each.data]
    if not known:
        return Html("")
    results, data = [each for each, _ in known], [held for _, held in known]
    texts = [label + OUTCOMES.get(held.held_by, "") for label, held in zip(labels(results), data, strict=True)]
    limits = (f" of {amount(held.memory / GIGA)}" if held.memory else "" for held in data)
    sizes = [f"{amount(held.stored / GIGA)} GB{limit}" for held, limit in zip(data, limits, strict=True)]
    described = [f"{text}, {size}." for text, size in zip(texts, sizes, strict=True)]
    figure = Figure(name, title_of("Data per node", results), described)
    bottom = TOP + HEIGHT
    named = len(results) <= MANY
    x = logarithmic([held.nodes for held in data], LEFT, WIDE - RIGHT, ROOM if named else PADDING)
    amounts = [size for held in data for size in (held.raw, held.stored, held.memory, held.disk) if size]
    y = logarithmic([size / GIGA for size in amounts], bottom, TOP)
    panel = Panel(figure, Axis(x, "nodes of a run"), Axis(y, "GB per node"))
    for kind, totals in (("track open", {h.raw * h.nodes for h in data}), ("fit", {h.stored * h.nodes for h in data})):
        for total in sorted(totals):
            _draw_share(panel, total / GIGA, kind)
    points = spread([panel.locate(held.nodes, held.stored / GIGA) for held in data])
    for held, point in zip(data, points, strict=True):
        _draw_capacities(panel, held, point)
    named = named and panel.write_labels(points, texts, sets=results, all_near=True)
    if not named:
        panel.write_numbers(points)
    for each, point, text, size in zip(results, points, texts, sizes, strict=True):
        figure.mark(point, each, f"{text}, {size}")
    end: float = bottom + BOTTOM
    if not named:
        rows = list(zip(texts, sizes, strict=True))
        end = figure.list_results(results, rows, Box(LEFT, end + LINE, WIDE - RIGHT, math.inf))
    items = [("fit", "data per node, as stored")]
    items += [("track open", "decoded")] if any(held.raw != held.stored for held in data) else []
    memory = f"memory of a node; files have at most {100 * CACHEABLE:g} % of it"
    items += [("batch", memory)] if any(held.memory for held in data) else []
    items += [("triangle", "local disk")] if any(held.disk for held in data) else []
    return figure.finish(end + 8, [*mark_items(results), *items], organisation_items(results))


def _draw_share(panel: Panel, total: float, kind: str) -> None:
    """Draw the data per node over the nodes, as far as they are in the panel. total: of the data set, in GB."""
    low, high = max(panel.x.low, total / panel.y.high), min(panel.x.high, total / panel.y.low)
    if low < high:
        several = (low * (high / low) ** (at / STEPS) for at in range(STEPS + 1))
        points = [panel.locate(nodes, total / nodes) for nodes in several]
        panel.figure.line(points[0], points[-1], kind)
        panel.taken += [around(point, 3) for point in points]


def _draw_capacities(panel: Panel, held: NodeData, point: Point) -> None:
    """Draw memory and disk of a node, with a link to the point of its data."""
    x = point[0]
    if held.memory:
        up = panel.y(held.memory / GIGA)
        panel.figure.line(point, (x, up), "link")
        panel.figure.line((x - MARK, up), (x + MARK, up), "batch")
        panel.taken.append(Box(x - MARK, min(up, point[1]), x + MARK, max(up, point[1])))
    if held.disk:
        disk = x, panel.y(held.disk / GIGA)
        panel.figure.draw_mark(disk, ("triangle", ""), "mark", f"disk: {amount(held.disk / GIGA)} GB")
        panel.taken.append(around(disk, MARK))
