"""The three networks at their published sizes: what a training step must do and move, and how fast others were.

Operations and bytes are counted layer by layer in bf16. The floor is the time of the operations, at the rate that the
machine reaches in a product of the network's own shape, plus that of the bytes, as kernels rarely do both at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LARGE: Final = "product 8192³"
EDGES: Final = "product of OC20's edges"
MIDDLE: Final = "product of DeepCAM's middle"


@dataclass(frozen=True)
class Ceilings:
    """The rates that the machine reaches: FLOP/s of products in bf16, by their names, bytes/s, read and written."""

    products: Mapping[str, float] = field(default_factory=dict)
    bytes_per_s: float = 4.3e12

    def flop_per_s(self, product: str) -> float:
        """Return the rate of a product; that of a large one on an H200 as long as it is not measured."""
        return self.products.get(product, 790e12)


@dataclass(frozen=True)
class Network:
    """A network, per sample of a training step in bf16.

    flop: of convolutions and matrix products. bytes_moved: by kernels that fuse what can be fused. record_bytes: read
    from files. product: the ceiling whose rate is that of its operations. batch: the local batch that is measured
    first. edges: of the frame that flop and bytes are of, to which they are proportional; 0 for other networks.
    """

    name: str
    title: str
    flop: float
    bytes_moved: float
    record_bytes: float
    product: str
    batch: int
    edges: float = 0.0

    def flop_per_step(self, row: Mapping[str, Any]) -> float:
        """Return the operations of a measured step."""
        return float(self.flop * row["batch"] * self._share(row))

    def floor_ms(self, row: Mapping[str, Any], reached: Ceilings) -> float:
        """Return the least time of a measured step."""
        moved = self.bytes_moved * row["batch"] * self._share(row)
        return 1e3 * (self.flop_per_step(row) / reached.flop_per_s(self.product) + moved / reached.bytes_per_s)

    def _share(self, row: Mapping[str, Any]) -> float:
        """Return the size of a row's samples over that of the counted one."""
        return float(row["edges"] / self.edges) if self.edges else 1.0


COSMOFLOW: Final = Network("cosmoflow", "CosmoFlow, 128³ × 4", 192.1e9, 0.39e9, 16.8e6, LARGE, 16)
DEEPCAM: Final = Network("deepcam", "DeepCAM, 768 × 1152 × 16", 1.966e12, 7.5e9, 57.5e6, MIDDLE, 8)
OC20: Final = Network("oc20", "OC20", 52e9, 1.2e9, 0.02e6, EDGES, 32, edges=3700)
NETWORKS: Final = {network.name: network for network in (COSMOFLOW, DEEPCAM, OC20)}


@dataclass(frozen=True)
class Published:
    """A published training: samples per second of each of its GPUs, at a local batch, in a job of so many.

    note: what differs from other trainings of the network.
    """

    network: str
    batch: float
    gpus: int
    per_s: float
    card: str = "H100"
    note: str = ""


PUBLISHED: Final = (
    Published("cosmoflow", 1, 32, 223.5),
    Published("cosmoflow", 1, 512, 206.5),
    Published("deepcam", 8, 16, 81.9),
    Published("deepcam", 1, 2048, 30.6, note="batch normalisation over 2 GPUs"),
    Published("oc20", 16, 64, 375.1),
    Published("oc20", 3.2, 640, 166.8),
)
"""The fastest closed results of MLPerf HPC v3.0 per GPU and local batch, by their result logs.

From the samples and the time of training without evaluations; reading and averaging gradients are inside.
"""


def find_published(network: str, batch: float, card: str) -> list[Published]:
    """Return the published trainings of the same network, batch and card; no others are compared."""
    return [
        result for result in PUBLISHED if (result.network, result.batch) == (network, batch) and result.card in card
    ]


def ceilings_of(rows: Iterable[dict[str, Any]]) -> Ceilings:
    """Return the ceilings that rows of results tell.

    The rate of the memory is the largest that was seen: that of a copy, or of a kernel that moves its least bytes.
    """
    products, copied = {}, 0.0
    for row in rows:
        if row["what"] == "ceiling" and row["name"].startswith("copy"):
            copied = max(copied, row.get("bytes_per_s", 0.0))
        elif row["what"] == "ceiling" and row.get("format") == "bf16" and "flop_per_s" in row:
            products[row["name"]] = row["flop_per_s"]
        elif row["what"] == "layer" and "bytes" in row and "ms" in row:
            copied = max(copied, 1e3 * row["bytes"] / row["ms"])
    return Ceilings(products, copied or Ceilings.bytes_per_s)
