"""The report as a picture: what each ceiling would allow, beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Final

from common.measure.roofline.report import COMPUTE, FILES, NETWORK, Report, rate_text

WIDTH, LEFT, RIGHT, TOP, ROW = 720, 190, 130, 104, 26
CLASSES: Final = {COMPUTE: "c", FILES: "f", NETWORK: "n"}
STYLE: Final = """
text{font:13px system-ui,sans-serif;fill:#1d2733}.h{font-weight:600;font-size:15px}.s{fill:#5a6675}.c{fill:#3b6fb6}
.f{fill:#c07a1e}.n{fill:#3d8f5f}.m{stroke:#b3261e;stroke-width:2;stroke-dasharray:5 3}.r{fill:#b3261e}.b{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.s{fill:#9aa7b5}.b{fill:#14181d}.r{fill:#ff8a80}.m{stroke:#ff8a80}}
"""


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
    """Yield the bar of a step's parts."""
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
