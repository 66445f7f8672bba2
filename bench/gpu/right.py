"""Right or wrong: the networks and their kernels against float64, before anything is timed."""

from __future__ import annotations

from gpu.cases import Bench
from gpu.references import FORMATS, compare
from gpu.variants import MODELS


def networks(bench: Bench) -> None:
    """Compare each network, with each choice of its configuration, in each format."""
    for network, models in MODELS.items():
        for keys in models:
            for format in FORMATS:
                if bench.device.type == "cpu" and format == "tf32":
                    continue  # which is fp32 there
                with bench.case("right", network=network, model=str(keys), format=format) as row:
                    row.update(compare(network, keys, format, bench.device, bench.dry))
