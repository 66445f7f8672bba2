"""What results achieve of the hardware: of the peak of accelerators, and of the memory and local disk of a node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from common.measure.devices import Ceilings, read_ceilings
from submission.results.figures.drawing import PADDING, Point, make_log_scale
from submission.results.figures.labels import LINE, Box, enclose_point, format_amount, name_results, title_of
from submission.results.figures.panel import (
    MARK,
    WIDE,
    Axis,
    Figure,
    Iso,
    Panel,
    is_drawable,
    mark_items,
    organisation_items,
    spread_points,
)
from submission.results.page.html import Html
from submission.results.quantities import CACHEABLE, AnalysedSet, NodeData
from submission.results.rows import ResultOperations

LEFT, RIGHT, TOP, BOTTOM = 60, 104, 40, 50
"""Space around the panel for its titles and numbers."""
HEIGHT: Final = 460
TERA: Final = 1e12
SIDE: Final = 8
"""How far the results of a benchmark stand from those of the next."""
Peak = tuple[float, float]
"""The watts and the peak of a device, in TFLOPS."""


def peak_against_power(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw the peak of each accelerator by its watts, with the FLOPS over the training time of results below it.

    Results on devices whose watts no data sheet gives are left out; without others there is no figure.
    """
    rated = {device: entry for device, entry in read_ceilings().items() if entry.watts}
    sets = [
        each
        for each in sets
        if each.row.operations.accelerator in rated and is_drawable(each.row.operations.training_utilization)
    ]
    if not sets:
        return Html("")
    formats = {each.row.operations.accelerator: each.row.operations.peak_format for each in sets}
    devices = _name_peaks(rated, formats)
    points = [_find_point(each.row.operations) for each in sets]
    figure = Figure(
        name,
        title_of("Peak against power, and what results achieve", sets),
        _describe_peaks(sets),
    )
    x = make_log_scale([watts for watts, _ in devices], LEFT, WIDE - RIGHT)
    y = make_log_scale([value for _, value in (*devices, *points)], TOP + HEIGHT, TOP)
    panel = Panel(figure, Axis(x, "watts of a device by its data sheet"), Axis(y, "TFLOPS of a device"))
    panel.draw_iso_lines(Iso(slope=1, factor=1e-3, unit=" GFLOPS/W"))
    benchmarks = sorted({each.row.benchmark for each in sets})
    middle = (len(benchmarks) - 1) / 2
    spots = [
        (panel.x(watts) + SIDE * (benchmarks.index(each.row.benchmark) - middle), panel.y(achieved))
        for each, (watts, achieved) in zip(sets, points, strict=True)
    ]
    spots = spread_points(spots, MARK)
    panel.covered += [enclose_point(spot, 6) for spot in spots]
    labels = [
        *((panel.locate_point(*peak), text) for peak, text in devices.items()),
        *_find_best(sets, spots),
    ]
    panel.write_labels([spot for spot, _ in labels], [text for _, text in labels])
    for (watts, peak), text in devices.items():
        hint = f"{text}: {peak:,.4g} TFLOPS, {watts:,.0f} W"
        figure.draw_mark(panel.locate_point(watts, peak), ("triangle", ""), "mark", hint)
    for each, (_, achieved), spot in zip(sets, points, spots, strict=True):
        share = f"{each.row.operations.training_utilization:.1%} of {each.row.operations.peak_format}"
        figure.mark_result(spot, each, f"{each.full_name}: {achieved:,.3g} TFLOPS of a device, {share}")
    items = [
        ("triangle", "peak of dense products"),
        *mark_items(sets),
        ("iso", "equal GFLOPS per watt"),
    ]
    return figure.finish_figure(TOP + HEIGHT + BOTTOM, items, organisation_items(sets))


def _name_peaks(rated: Mapping[str, Ceilings], formats: Mapping[str, str]) -> dict[Peak, str]:
    """Return the names of the devices by their watts and peak; formats: in which results trained on them."""
    names: dict[Peak, str] = {}
    for device, entry in rated.items():
        number_format, flops = entry.find_peak(formats.get(device, ""))
        # The first of the variants of a device names them all, such as A100.
        names.setdefault((entry.watts or 0.0, flops / TERA), f"{device} {number_format}")
    return names


def _find_point(operations: ResultOperations) -> Peak:
    """Return the watts of a result's device and the TFLOPS that each reaches over the training time."""
    entry = read_ceilings()[operations.accelerator]
    _, peak = entry.find_peak(operations.peak_format)
    return entry.watts or 0.0, peak * (operations.training_utilization or 0.0) / TERA


def _find_best(sets: Sequence[AnalysedSet], spots: Sequence[Point]) -> Iterator[tuple[Point, str]]:
    """Yield the place and the label of the best result of each benchmark on devices of these watts and this peak."""
    best: dict[tuple[str, float | None, float], tuple[float, str, Point]] = {}
    for each, spot in zip(sets, spots, strict=True):
        operations = each.row.operations
        entry = read_ceilings()[operations.accelerator]
        key = each.marked_benchmark, entry.watts, entry.find_peak(operations.peak_format)[1]
        share = operations.training_utilization or 0.0
        best[key] = max(best.get(key, (0.0, "", spot)), (share, name_results([each])[0], spot))
    for (benchmark, *_), (share, name, spot) in best.items():
        yield spot, f"{name} {benchmark}, {100 * share:.3g} % in training".lstrip()


def _describe_peaks(sets: Sequence[AnalysedSet]) -> Iterator[str]:
    yield "FLOP of training by the time of training and the number of devices."
    for each in sets:
        operations = each.row.operations
        share = 100 * (operations.training_utilization or 0.0)
        yield f"{each.full_name}: {share:.3g} % of the {operations.peak_format} peak of {operations.accelerator}."


MEMORY_LEFT, MEMORY_RIGHT, MEMORY_TOP, MEMORY_HEIGHT, MEMORY_BOTTOM = 60, 20, 40, 340, 52
"""Space around the panel, and its height."""
MANY: Final = 16
"""Results above which the panel has numbers and a list below instead of names."""
GIGA: Final = 1e9
OUTCOMES: Final = {
    "disk": ": exceeds memory, fits disk",
    "neither": ": exceeds memory",
    "": ": memory unknown",
}
"""What a label says of data that memory does not hold, by `NodeData.held_by`."""
ROOM: Final = 80
"""Space for names beside the outermost points."""
STEPS: Final = 40


def data_per_node(sets: Sequence[AnalysedSet], name: str) -> Html:
    """Draw the stored data per node of results of a benchmark, with memory and disk of a node; empty without any."""
    pairs = [(each, each.data) for each in sets if each.data]
    if not pairs:
        return Html("")
    results, data = [each for each, _ in pairs], [held for _, held in pairs]
    texts = [label + OUTCOMES.get(held.held_by, "") for label, held in zip(name_results(results), data, strict=True)]
    limits = (f" of {format_amount(held.memory / GIGA)}" if held.memory else "" for held in data)
    sizes = [f"{format_amount(held.stored / GIGA)} GB{limit}" for held, limit in zip(data, limits, strict=True)]
    described = [f"{text}, {size}." for text, size in zip(texts, sizes, strict=True)]
    figure = Figure(name, title_of("Data per node", results), described)
    bottom = MEMORY_TOP + MEMORY_HEIGHT
    has_names = len(results) <= MANY
    x = make_log_scale(
        [held.nodes for held in data],
        MEMORY_LEFT,
        WIDE - MEMORY_RIGHT,
        ROOM if has_names else PADDING,
    )
    amounts = [size for held in data for size in (held.raw, held.stored, held.memory, held.disk) if size]
    y = make_log_scale([size / GIGA for size in amounts], bottom, MEMORY_TOP)
    panel = Panel(figure, Axis(x, "nodes of a run"), Axis(y, "GB per node"))
    for kind, totals in (
        ("track open", {h.raw * h.nodes for h in data}),
        ("fit", {h.stored * h.nodes for h in data}),
    ):
        for total in sorted(totals):
            _draw_share(panel, total / GIGA, kind)
    points = spread_points([panel.locate_point(held.nodes, held.stored / GIGA) for held in data])
    for held, point in zip(data, points, strict=True):
        _draw_capacities(panel, held, point)
    has_names = has_names and panel.write_labels(points, texts, sets=results, all_near=True)
    if not has_names:
        panel.write_numbers(points)
    for each, point, text, size in zip(results, points, texts, sizes, strict=True):
        figure.mark_result(point, each, f"{text}, {size}")
    end: float = bottom + MEMORY_BOTTOM
    if not has_names:
        rows = list(zip(texts, sizes, strict=True))
        end = figure.list_results(results, rows, Box(MEMORY_LEFT, end + LINE, WIDE - MEMORY_RIGHT, math.inf))
    items = [("fit", "data per node, as stored")]
    items += [("track open", "decoded")] if any(held.raw != held.stored for held in data) else []
    memory = f"memory of a node; files have at most {100 * CACHEABLE:g} % of it"
    items += [("batch", memory)] if any(held.memory for held in data) else []
    items += [("triangle", "local disk")] if any(held.disk for held in data) else []
    return figure.finish_figure(end + 8, [*mark_items(results), *items], organisation_items(results))


def _draw_share(panel: Panel, total: float, kind: str) -> None:
    """Draw the data per node over the nodes, as far as they are in the panel. total: of the data set, in GB."""
    low, high = max(panel.x.low, total / panel.y.high), min(panel.x.high, total / panel.y.low)
    if low < high:
        several = (low * (high / low) ** (at / STEPS) for at in range(STEPS + 1))
        points = [panel.locate_point(nodes, total / nodes) for nodes in several]
        panel.figure.draw_line(points[0], points[-1], kind)
        panel.covered += [enclose_point(point, 3) for point in points]


def _draw_capacities(panel: Panel, held: NodeData, point: Point) -> None:
    """Draw memory and disk of a node, with a link to the point of its data."""
    x = point[0]
    if held.memory:
        up = panel.y(held.memory / GIGA)
        panel.figure.draw_line(point, (x, up), "link")
        panel.figure.draw_line((x - MARK, up), (x + MARK, up), "batch")
        panel.covered.append(Box(x - MARK, min(up, point[1]), x + MARK, max(up, point[1])))
    if held.disk:
        disk = x, panel.y(held.disk / GIGA)
        panel.figure.draw_mark(disk, ("triangle", ""), "mark", f"disk: {format_amount(held.disk / GIGA)} GB")
        panel.covered.append(enclose_point(disk, MARK))
