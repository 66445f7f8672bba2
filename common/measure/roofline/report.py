"""The part of the machine that binds a training step, and the rates that the others would allow: text and picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from common.measure.fom import Measurement
from common.measure.roofline.ceilings import Ceilings

COMPUTE, FILES, NETWORK = "compute", "I/O", "network"
CACHED: Final = "cached files"
ARITHMETIC: Final = ("matrix products", "convolutions")
COUNTS_DEVICES: Final = 0.5
"""The kernel counts what comes from devices if it does so for this part of files that are read for the first time."""
LEAST_USE: Final = 0.5
"""A resource that works less than this share of the time does not limit the step that waits for it."""
WIDTH, LEFT, RIGHT, TOP, ROW = 720, 190, 130, 104, 26
CLASSES: Final = {COMPUTE: "c", FILES: "f", NETWORK: "n"}
STYLE: Final = """
text{font:13px system-ui,sans-serif;fill:#1d2733}.h{font-weight:600;font-size:15px}.s{fill:#5a6675}.c{fill:#3b6fb6}
.f{fill:#c07a1e}.n{fill:#3d8f5f}.m{stroke:#b3261e;stroke-width:2;stroke-dasharray:5 3}.r{fill:#b3261e}.b{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.s{fill:#9aa7b5}.b{fill:#14181d}.r{fill:#ff8a80}.m{stroke:#ff8a80}}
"""


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
    uses.
    """

    measurement: Measurement
    ceilings: Ceilings
    exposed: dict[str, float]
    roofs: tuple[Roof, ...]

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
        share = self.exposed[self.binds] / self.step_s
        yield f"{self.binds} binds: {share:.0%} of the step{self._describe_distance()}"
        yield f"{'ceiling':24}{'rate':>16}{'step at it':>14}{'allows':>20}"
        for roof in self.roofs:
            rate, step = f"{roof.rate / 1e9:,.3g} {roof.unit}", f"{1000 * roof.seconds:,.3g} ms"
            yield f"{roof.name:24}{rate:>16}{step:>14}{rate_text(self.allowed_rate(roof)):>10} samples/s"

    def _describe_distance(self) -> str:
        roof = self.nearest
        if roof is None:
            return "; its ceiling is not known: name the files by --data" if self.binds == FILES else ""
        reached = roof.seconds / self.step_s
        text = f"; the step runs at {reached:.0%} of the ceiling of {roof.name}"
        if self.binds == FILES and reached < LEAST_USE:
            return f"{text}: reading is bound by what follows it, such as decompression, and wants more cores"
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


def build_report(measurement: Measurement, ceilings: Ceilings) -> Report:
    """Return which part binds the measured steps."""
    exposed = {
        COMPUTE: measurement.computing_ms / 1000,
        FILES: measurement.waiting_ms / 1000,
        NETWORK: measurement.communicating_ms / 1000,
    }
    roofs = tuple(roof for roof in _list_roofs(measurement, ceilings) if roof.seconds > 0)
    return Report(measurement, ceilings, exposed, roofs)


def _list_roofs(measurement: Measurement, ceilings: Ceilings) -> Iterator[Roof]:
    operations, touched = measurement.flop_per_step, measurement.bytes_touched_per_step
    read = measurement.bytes_read_per_step
    for name, rate in zip(ARITHMETIC, (ceilings.products, ceilings.convolutions), strict=True):
        yield Roof(name, COMPUTE, rate, "GFLOP/s", operations / rate)
    yield Roof("memory", COMPUTE, ceilings.memory, "GB/s", touched / ceilings.memory)
    if read and ceilings.cold_files and ceilings.cached_files:
        stored = _device_bytes(measurement, ceilings)
        seconds = stored / ceilings.cold_files + (read - stored) / ceilings.cached_files
        yield Roof("files", FILES, read / seconds, "GB/s", seconds)
        yield Roof(CACHED, FILES, ceilings.cached_files, "GB/s", read / ceilings.cached_files)
    if ceilings.unit_network:
        sent = 2 * (ceilings.units - 1) / ceilings.units * measurement.bytes_reduced_per_step
        yield Roof("messages of a unit", NETWORK, ceilings.unit_network, "GB/s", sent / ceilings.unit_network)


def _device_bytes(measurement: Measurement, ceilings: Ceilings) -> float:
    """Return the bytes of a step's files that came from devices: all, where the kernel does not tell."""
    read, stored = measurement.bytes_read_per_step or 0.0, measurement.stored_bytes_per_step
    if stored is None or ceilings.cold_share is None or ceilings.cold_share < COUNTS_DEVICES:
        return read
    return min(stored, read)


# -- as a picture --------------------------------------------------------------------------------------------


def draw_picture(report: Report) -> str:
    """Return the report as SVG: a bar for the parts of a step, and one for each ceiling, on a log scale."""
    height = TOP + ROW * len(report.roofs) + 34
    title = f"{report.measurement.benchmark}, units {report.measurement.units}: {report.binds} binds"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        f'<text class="h" x="16" y="24">{escape(title)}</text>',
        *_draw_parts(report),
        *_draw_roofs(report, height),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _draw_parts(report: Report) -> Iterator[str]:
    yield f'<text x="16" y="58">a step: {report.measurement.median_step_ms:,.1f} ms</text>'
    x, total_s = float(LEFT), sum(report.exposed.values()) or 1.0
    for part, seconds in report.exposed.items():
        width = (WIDTH - LEFT - RIGHT) * seconds / total_s
        yield f'<rect class="{CLASSES[part]}" x="{x:.1f}" y="44" width="{width:.1f}" height="18"/>'
        x += width
    names = (f"{part} {1000 * seconds:,.1f} ms" for part, seconds in report.exposed.items())
    yield f'<text class="s" x="{LEFT}" y="80">{escape(" · ".join(names))}</text>'


def _draw_roofs(report: Report, height: int) -> Iterator[str]:
    """Yield the bars of the ceilings, and the line of what was measured."""
    rates = [report.measurement.samples_per_s, *map(report.allowed_rate, report.roofs)]
    low, high = math.floor(math.log10(min(rates))) - 0.2, math.ceil(math.log10(max(rates)))

    def rate_x(rate: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(rate) - low) / (high - low)

    for row, roof in enumerate(report.roofs):
        y, rate = TOP + ROW * row, report.allowed_rate(roof)
        yield f'<text x="16" y="{y + 14}">{escape(roof.name)}</text>'
        yield f'<rect class="{CLASSES[roof.part]}" x="{LEFT}" y="{y}" width="{rate_x(rate) - LEFT:.1f}" height="18"/>'
        yield f'<text class="s" x="{rate_x(rate) + 6:.1f}" y="{y + 14}">{rate_text(rate)} samples/s</text>'
    x = rate_x(report.measurement.samples_per_s)
    yield f'<line class="m" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 28}"/>'
    speed = rate_text(report.measurement.samples_per_s)
    caption = f"measured: {speed} samples/s; a bar: what this ceiling alone would allow; scale: logarithmic"
    yield f'<text class="r" x="16" y="{height - 10}">{caption}</text>'
