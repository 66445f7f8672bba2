"""The three networks at their published sizes: what a training step must do and move, and how fast others were.

The operations and bytes are those of docs/performance/gpu.md, counted layer by layer in bf16; the floor is the time of
the operations plus that of the bytes, as kernels rarely do both at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Ceilings:
    """The rates that the machine reaches: FLOP/s of a large product in bf16, bytes/s, read and written."""

    flop_per_s: float
    bytes_per_s: float


ASSUMED: Final = Ceilings(790e12, 4.3e12)
"""Of one H200, until they are measured."""


@dataclass(frozen=True)
class Network:
    """A network, per sample of a training step in bf16.

    flop: of convolutions and matrix products. bytes_eager, bytes_planned: moved by torch's own operations, and by the
    kernels that are planned.
    published: samples per second of `published_of`. batch: the local batch that the goals are for.
    as_is, goal: expected shares of the rate at the floor, from and to: eager, and with all that is planned.
    """

    name: str
    title: str
    flop: float
    bytes_eager: float
    bytes_planned: float
    published: float
    published_of: str
    batch: int
    as_is: tuple[float, float]
    goal: tuple[float, float]

    def floors_ms(self, ceilings: Ceilings, share: float = 1.0) -> tuple[float, float]:
        """Return the least time of a sample, with torch's own operations and as planned.

        share: the size of the samples over that of the published ones.
        """
        arithmetic = self.flop / ceilings.flop_per_s
        eager, planned = (
            share * 1e3 * (arithmetic + moved / ceilings.bytes_per_s)
            for moved in (self.bytes_eager, self.bytes_planned)
        )
        return eager, planned


COSMOFLOW: Final = Network(
    name="cosmoflow",
    title="CosmoFlow, 128³ × 4",
    flop=192.1e9,
    bytes_eager=1.88e9,
    bytes_planned=0.39e9,
    published=224.0,
    published_of="an H100 at local batch 1, the fastest published closed result per accelerator (round 3.0)",
    batch=16,
    as_is=(0.30, 0.50),
    goal=(0.43, 0.53),
)
DEEPCAM: Final = Network(
    name="deepcam",
    title="DeepCAM, 768 × 1152 × 16",
    flop=1.966e12,
    bytes_eager=18.6e9,
    bytes_planned=7.5e9,
    published=81.9,
    published_of="an H100 at local batch 8, the fastest published closed result per accelerator (round 3.0)",
    batch=8,
    as_is=(0.48, 0.61),
    goal=(0.59, 0.70),
)
OC20: Final = Network(
    name="oc20",
    title="OC20, 78 atoms with 3,700 edges",
    flop=52e9,
    bytes_eager=5.0e9,
    bytes_planned=1.2e9,
    published=375.0,
    published_of="an H100 at local batch 16, the fastest published closed result per accelerator (round 3.0)",
    batch=32,
    as_is=(0.68, 0.86),
    goal=(0.41, 0.61),
)
NETWORKS: Final = {network.name: network for network in (COSMOFLOW, DEEPCAM, OC20)}
OC20_EDGES: Final = 3700
"""Edges of the frame that OC20's numbers are for; nearly all of its work is proportional to them."""


def ceilings_of(rows: Iterable[dict[str, Any]]) -> Ceilings:
    """Return the ceilings that rows of results tell, those that are assumed where they do not.

    The rate of the memory is the largest that was seen: that of a copy, or of a kernel that moves its least bytes.
    """
    flop_per_s, bytes_per_s = ASSUMED.flop_per_s, 0.0
    for row in rows:
        if row["what"] == "ceiling" and row["name"].startswith("copy"):
            bytes_per_s = max(bytes_per_s, row.get("bytes_per_s", 0.0))
        elif row["what"] == "ceiling" and row["name"] == "product 8192³" and row["format"] == "bf16":
            flop_per_s = row.get("flop_per_s", flop_per_s)
        elif row["what"] == "layer" and "bytes" in row and "ms" in row:
            bytes_per_s = max(bytes_per_s, 1e3 * row["bytes"] / row["ms"])
    return Ceilings(flop_per_s, bytes_per_s or ASSUMED.bytes_per_s)
