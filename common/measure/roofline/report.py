"""The part of the machine that limits a training step, and the rates that the others would allow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

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
    times = (measurement.computing_ms, measurement.waiting_ms, measurement.communicating_ms)
    exposed = {part: ms / 1000 for part, ms in zip((COMPUTE, FILES, NETWORK), times, strict=True)}
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
