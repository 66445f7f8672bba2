"""The figure of merit of a measurement: one line for the tools of a centre, and fom.json for all the rest.

docs/reference/fom.schema.json is the schema of the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from common.files import whole_file

NAME: Final = "fom.json"
FORMAT: Final = 1
"""Version of the file; it grows when a key changes its meaning or goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOfMerit:
    """What a measurement found.

    samples_per_s: of all units, by the median step. units: ranks, one for each accelerator, or processes on CPUs.
    batch: samples of a step, over all units. spread: standard deviation (ddof 1) of the steps' times by their median.
    network: full or mini. step_ms: of each measured step, on the slowest rank. wait_share: part of the time in which
    that rank waited for data that waited most. memory_bytes: the most that a rank used, of its accelerator or else of
    main memory. flop_per_s: of all units, of the products and convolutions that are made, a multiply-add as two.
    """

    benchmark: str
    samples_per_s: float
    units: int
    batch: int
    dtype: str
    spread: float
    network: str
    nodes: int
    device: str
    step_ms: tuple[float, ...]
    median_step_ms: float
    warmup_steps: int
    samples_per_s_per_unit: float
    wait_share: float
    memory_bytes: int
    flop_per_s: float
    data: str
    date: str
    torch: str

    @property
    def line(self) -> str:
        """The line on standard output. Tools parse it: the order stays, and new pairs come at the end."""
        return (
            f"FOM {self.benchmark} samples/s {self.samples_per_s:.6g} units {self.units} batch {self.batch} "
            f"dtype {self.dtype} spread {self.spread:.3f}"
        )

    def write(self, path: Path) -> None:
        """Write the file; one of an earlier measurement is replaced."""
        content = {"format": FORMAT, "kind": "measurement", "mlperf_result": False, **asdict(self)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
