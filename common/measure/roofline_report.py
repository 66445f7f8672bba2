"""What limits a training step, and the rates that the other parts would allow; and the roofline as SVG."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from common.command import counted
from common.measure.fom import Measurement
from common.precision import Format

COMPUTE, FILES, NETWORK = "compute", "I/O", "network"
CACHED: Final = "cached files"
MEMORY: Final = "memory"
ARITHMETIC: Final = ("matrix products", "convolutions")
LEAST_USE: Final = 0.5
"""A resource that works less than this share of the time does not limit the step that waits for it."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The measured ceilings; rates in operations or bytes per second, of all units unless the name says otherwise.

    products: a square matrix product; convolutions: 3×3, 256 channels to 256. memory: reads and writes of a sum of two
    vectors. cold_files, cached_files: reading the files for the first time and again, None without files; cold_share:
    the part of the first time that came from devices, as far as the kernel tells. unit_network: what a rank sends in
    an all-reduce by a ring, None with one rank. unit_input: copies from the host to the accelerator; None on a CPU.
    """

    units: int
    nodes: int
    device: str
    model: str
    dtype: Format
    products: float
    convolutions: float
    memory: float
    cold_files: float | None
    cold_share: float | None
    cached_files: float | None
    unit_network: float | None
    unit_input: float | None

    @property
    def words(self) -> list[str]:
        """The words of the model's name, which a system description has too."""
        plain = re.sub(r"\((R|TM|r|tm)\)|@.*", " ", self.model)
        return [word for word in re.findall(r"[A-Za-z0-9]+", plain) if word not in ("CPU", "Processor")] or ["unknown"]


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling. seconds: how long the step's work would take at it. rate: of the ceiling, in unit."""

    name: str
    part: str
    rate: float
    unit: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The measured steps under their ceilings.

    exposed: for each part the seconds of a step in which only this part worked. roofs: only of resources that the step
    uses. others: steps of other networks on the same units, for the picture.
    """

    measurement: Measurement
    ceilings: Ceilings
    exposed: dict[str, float]
    roofs: tuple[Roof, ...]
    others: tuple[Measurement, ...] = ()

    @property
    def step_s(self) -> float:
        """The median step."""
        return self.measurement.median_step_ms / 1000

    @property
    def binds(self) -> str:
        """The part that takes most of a step."""
        return max(self.exposed, key=lambda part: self.exposed[part])

    @property
    def nearest(self) -> Roof | None:
        """Of the binding part's ceilings the one that the step comes nearest to, None if it has none.

        Of products and convolutions the faster one: the slower one does not limit the other.
        """
        slower = max((roof for roof in self.roofs if roof.name in ARITHMETIC), key=lambda roof: roof.seconds)
        roofs = [roof for roof in self.roofs if roof.part == self.binds and roof.name != CACHED and roof is not slower]
        return max(roofs, key=lambda roof: roof.seconds, default=None)

    def allowed_rate(self, roof: Roof) -> float:
        """Return the samples per second that this ceiling alone would allow."""
        return self.measurement.batch / roof.seconds

    def format_lines(self) -> Iterator[str]:
        """Yield the report as text."""
        measurement = self.measurement
        parts = ", ".join(f"{part} {1000 * seconds:,.1f}" for part, seconds in self.exposed.items())
        yield f"{measurement.benchmark}: units {measurement.units}, batch {measurement.batch}"
        yield f"a step takes {measurement.median_step_ms:,.1f} ms: {parts}"
        yield self.limit
        yield f"{'ceiling':24}{'rate':>16}{'step at it':>14}{'allows':>20}"
        for roof in self.roofs:
            rate, step = f"{roof.rate / 1e9:,.3g} {roof.unit}", f"{1000 * roof.seconds:,.3g} ms"
            yield f"{roof.name:24}{rate:>16}{step:>14}{rate_text(self.allowed_rate(roof)):>10} samples/s"

    @property
    def limit(self) -> str:
        """What limits the steps, and how far they are from its ceiling, in words."""
        text = f"{self.binds} limits the steps: {self.exposed[self.binds] / self.step_s:.0%} of their time"
        roof = self.nearest
        if roof is None:
            return f"{text}; its ceiling is not known: name the files by --data" if self.binds == FILES else text
        reached = roof.seconds / self.step_s
        text += f"; they run at {reached:.0%} of the rate that {roof.name} alone would allow"
        if self.binds == FILES and reached < LEAST_USE:
            return f"{text}, so what follows the reading, such as decompression, is the limit: give it more cores"
        return text

    def format_json(self) -> str:
        """Return the report as JSON."""
        content: dict[str, Any] = {
            "format": 1,
            "binds": self.binds,
            "step_ms": self.measurement.median_step_ms,
            "exposed_ms": {part: 1000 * seconds for part, seconds in self.exposed.items()},
            "roofs": [
                {**asdict(roof), "samples_per_s": self.allowed_rate(roof), "reached": roof.seconds / self.step_s}
                for roof in self.roofs
            ],
            "ceilings": asdict(self.ceilings),
        }
        return json.dumps(content, indent=1) + "\n"


def rate_text(rate: float) -> str:
    """Return a rate with four digits at least."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def build_report(measurement: Measurement, ceilings: Ceilings, others: tuple[Measurement, ...] = ()) -> Report:
    """Return which part limits the measured steps. others: see Report."""
    exposed = {
        COMPUTE: measurement.computing_ms / 1000,
        FILES: measurement.waiting_ms / 1000,
        NETWORK: measurement.communicating_ms / 1000,
    }
    roofs = tuple(roof for roof in _list_roofs(measurement, ceilings) if roof.seconds > 0)
    return Report(measurement, ceilings, exposed, roofs, others)


def _list_roofs(measurement: Measurement, ceilings: Ceilings) -> Iterator[Roof]:
    operations, touched = measurement.flop_per_step, measurement.bytes_touched_per_step
    read = measurement.bytes_read_per_step
    for name, rate in zip(ARITHMETIC, (ceilings.products, ceilings.convolutions), strict=True):
        yield Roof(name, COMPUTE, rate, "GFLOP/s", operations / rate)
    yield Roof(MEMORY, COMPUTE, ceilings.memory, "GB/s", touched / ceilings.memory)
    if read and ceilings.cold_files and ceilings.cached_files:
        stored = measurement.stored_bytes_per_step
        if stored is None or ceilings.cold_share is None or ceilings.cold_share < 0.5:
            stored = read  # the kernel does not tell, or not of files that are read for the first time
        stored = min(stored, read)
        seconds = stored / ceilings.cold_files + (read - stored) / ceilings.cached_files
        yield Roof("files", FILES, read / seconds, "GB/s", seconds)
        yield Roof(CACHED, FILES, ceilings.cached_files, "GB/s", read / ceilings.cached_files)
    if ceilings.unit_network:
        sent = 2 * (ceilings.units - 1) / ceilings.units * measurement.bytes_reduced_per_step
        yield Roof("messages of a unit", NETWORK, ceilings.unit_network, "GB/s", sent / ceilings.unit_network)


WIDTH, HEIGHT = 790, 540
LEFT, RIGHT, TOP, BOTTOM = 92, 556, 108, 452
"""The edges of the panel; the names of the ceilings are to the right of it."""
LINE: Final = 16
"""Height of a line of text."""
ROOM: Final = 6.0
"""The factor by which the axes go beyond what is drawn."""
CLASSES: Final = {COMPUTE: "c", FILES: "f", NETWORK: "n"}
STYLE: Final = """
text{font:13px system-ui,sans-serif;fill:#1d2733}.h{font-weight:600;font-size:16px}.s{fill:#5a6675}.b{fill:#fff}
line{stroke-width:2}
line.g{stroke:#dde2e8;stroke-width:1}.limit{stroke-dasharray:6 4}.c{stroke:#3b6fb6}.f{stroke:#a8620c}
.n{stroke:#2f7d4f}text.c{fill:#3b6fb6;stroke:none}text.f{fill:#a8620c;stroke:none}text.n{fill:#2f7d4f;stroke:none}
.p{stroke:#b3261e;stroke-width:2;fill:#b3261e}.o{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.s{fill:#9aa7b5}.b{fill:#14181d}line.g{stroke:#323a44}.c{stroke:#7fb0f0}
.f{stroke:#e0a04f}.n{stroke:#6cc08e}text.c{fill:#7fb0f0}text.f{fill:#e0a04f}text.n{fill:#6cc08e}
.p{stroke:#ff8a80;fill:#ff8a80}.o{fill:#14181d}}
"""
Point = tuple[float, float]


def draw_picture(report: Report) -> str:
    """Return the roofline: ceilings as lines, points for the whole steps of each network and for their computing."""
    measurement, ceilings = report.measurement, report.ceilings
    steps = (measurement, *report.others)
    units = f"{counted(measurement.units, 'unit')} ({measurement.device})"
    title = f"Roofline of {units}: {ceilings.model}, {ceilings.dtype}"
    rates = [rate for each in steps for rate in _reached_rates(each)]
    limits = [measurement.flop_per_step / roof.seconds for roof in report.roofs if roof.part != COMPUTE]
    peak = max(ceilings.products, ceilings.convolutions)
    spans = [*map(_find_intensity, steps), peak / ceilings.memory], [*rates, *limits, peak]
    plane = _Plane(*((min(values) / ROOM, max(values) * ROOM) for values in spans))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="b" width="{WIDTH}" height="{HEIGHT}"/>',
        _draw_text((16, 26), title, "h"),
        *(_draw_text((16, 46 + LINE * at), line, "s") for at, line in enumerate(report.limit.split("; "))),
        *plane.draw_axes(),
        *_draw_ceilings(report, plane),
        *(mark for each in steps for mark in _draw_steps(each, plane)),
        _draw_text((16, HEIGHT - 32), "filled: rate of whole steps; hollow: while they compute", "s"),
        _draw_text(
            (16, HEIGHT - 12), f"dashed: the rate of {measurement.benchmark} that files or messages alone allow", "s"
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


class _Plane:
    """Intensities, in FLOP/byte, and rates, in FLOP/s, on logarithmic axes between a lowest and a highest value."""

    def __init__(self, intensities: Point, rates: Point) -> None:
        self.intensities, self.rates = intensities, rates

    def locate_point(self, intensity: float, rate: float) -> Point:
        """Return where a point is drawn."""
        ends = (intensity, *self.intensities), (rate, *self.rates)
        across, up = (math.log(value / low) / math.log(high / low) for value, low, high in ends)
        return LEFT + (RIGHT - LEFT) * across, BOTTOM - (BOTTOM - TOP) * up

    def draw_axes(self) -> Iterator[str]:
        """Yield the grid, its numbers and the titles of the axes."""
        for value in _round_values(*self.intensities):
            x, _ = self.locate_point(value, self.rates[0])
            yield _draw_line((x, TOP), (x, BOTTOM), "g")
            yield _draw_text((x, BOTTOM + 17), f"{value:g}", "s", "middle")
        for value in _round_values(*self.rates):
            _, y = self.locate_point(self.intensities[0], value)
            yield _draw_line((LEFT, y), (RIGHT, y), "g")
            yield _draw_text((LEFT - 7, y + 4), f"{value / 1e9:,.9g}", "s", "end")
        yield _draw_text(
            ((LEFT + RIGHT) / 2, BOTTOM + 37), "arithmetic intensity, FLOP/byte of memory traffic", "s", "middle"
        )
        yield _draw_text((16, TOP - 14), "GFLOP/s", "s")


def _draw_ceilings(report: Report, plane: _Plane) -> Iterator[str]:
    """Yield the lines of the ceilings: memory rises, arithmetic is flat from it on, files and messages are dashed."""
    ceilings, flop = report.ceilings, report.measurement.flop_per_step
    (least, most), lowest = plane.intensities, plane.rates[0]
    begin = max(least, lowest / ceilings.memory)
    end = max(ceilings.products, ceilings.convolutions) / ceilings.memory
    (x1, y1), (x2, y2) = (plane.locate_point(at, at * ceilings.memory) for at in (begin, end))
    yield _draw_line((x1, y1), (x2, y2), "c")
    middle, angle = f"{(x1 + x2) / 2:.1f} {(y1 + y2) / 2:.1f}", math.degrees(math.atan2(y2 - y1, x2 - x1))
    name = _draw_text((0, -6), f"memory {rate_text(ceilings.memory / 1e9)} GB/s", "c", "middle")
    yield f'<g transform="translate({middle}) rotate({angle:.1f})">{name}</g>'
    flat = [(roof.rate if roof.part == COMPUTE else flop / roof.seconds, roof) for roof in report.roofs]
    lowest_name = math.inf
    for rate, roof in sorted((pair for pair in flat if pair[1].name != MEMORY), key=lambda pair: pair[0]):
        start = max(rate / ceilings.memory, least) if roof.part == COMPUTE else least
        (x1, y), (x2, _), class_ = plane.locate_point(start, rate), plane.locate_point(most, rate), CLASSES[roof.part]
        yield _draw_line((x1, y), (x2, y), class_ if roof.part == COMPUTE else f"{class_} limit")
        lowest_name = min(y + 4, lowest_name - LINE)  # names of nearly the same rates stand above each other
        yield _draw_text((RIGHT + 8, lowest_name), f"{roof.name} {rate_text(roof.rate / 1e9)} {roof.unit}", class_)


def _draw_steps(steps: Measurement, plane: _Plane) -> Iterator[str]:
    """Yield the points of a network, joined by a line, and its name."""
    intensity = _find_intensity(steps)
    whole, *computing = (plane.locate_point(intensity, rate) for rate in _reached_rates(steps))
    name = f"{steps.benchmark}, {steps.network}"
    for point, class_, phase in [*((point, "p o", "computing") for point in computing), (whole, "p", "whole steps")]:
        yield _draw_line(whole, point, "p")
        hint = escape(f"{name}, {phase}: {intensity:,.3g} FLOP/byte")
        x, y = point
        yield f'<circle class="{class_}" cx="{x:.1f}" cy="{y:.1f}" r="5.5"><title>{hint}</title></circle>'
    side, anchor = (10, "start") if whole[0] < (LEFT + RIGHT) / 2 else (-10, "end")
    yield _draw_text(
        (whole[0] + side, whole[1] + 4),
        f"{name}: {rate_text(_reached_rates(steps)[0] / 1e9)} GFLOP/s",
        anchor=anchor,
    )


def _find_intensity(steps: Measurement) -> float:
    """Return the operations for each byte that they touch."""
    return steps.flop_per_step / max(steps.bytes_touched_per_step, 1)


def _reached_rates(steps: Measurement) -> list[float]:
    """Return the operations per second of whole steps, and of the time in which they compute if that is known."""
    return [1000 * steps.flop_per_step / ms for ms in (steps.median_step_ms, steps.computing_ms) if ms > 0]


def _round_values(low: float, high: float) -> Sequence[float]:
    """Return the powers of ten between two values, with 2 and 5 times them where they are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    return [value for power in powers for factor in factors if low < (value := factor * 10.0**power) < high]


def _draw_line(begin: Point, end: Point, class_: str) -> str:
    (x1, y1), (x2, y2) = begin, end
    return f'<line class="{class_}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _draw_text(point: Point, text: str, class_: str = "", anchor: str = "start") -> str:
    x, y = point
    return f'<text class="{class_}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
