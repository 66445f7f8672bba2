"""Hardware counters of four kernels, by NVIDIA's Nsight Compute: bytes moved, occupancy, and what they wait for."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpu.cases import Bench
from gpu.results import Row
from gpu.trainer import python_path

ROOT: Final = Path(__file__).resolve().parents[2]
KERNELS: Final = {
    "pool backward": ("pool", "_unpool_kernel"),
    "first block": ("pool", "_first_block_kernel"),
    "triplets, moments": ("triplets", "moments_kernel"),
    "triplets, bases": ("triplets", "bases_kernel"),
}
"""By title: the work that launches a kernel, see `bench/gpu/counted.py`, and its name."""
METRICS: Final = {
    "gpu__time_duration.sum": "time_ns",
    "dram__bytes_read.sum": "bytes_read",
    "dram__bytes_write.sum": "bytes_written",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory_percent",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "arithmetic_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "launch__registers_per_thread": "registers",
}
SCALES: Final = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}
"""Of units that are not bytes and nanoseconds."""


def measure(bench: Bench) -> None:
    """Count for each kernel; a dry run only makes each work once."""
    for title, (work, kernel) in list(KERNELS.items())[:: bench.size(1, 2)]:
        names = {"name": title, "kernel": kernel}
        if bench.lacks_time(5, "counters", **names):
            continue
        with bench.case("counters", **names) as row:
            command = [sys.executable, str(ROOT / "bench" / "gpu" / "counted.py"), work, bench.device.type]
            if not bench.dry:
                command = [*profiler(kernel), *command]
            limit_s = min(40.0, max(bench.left_s - 3, 1)) if not bench.dry else None
            environment = os.environ | {"PYTHONPATH": python_path()}
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit_s, env=environment, cwd=ROOT
            )
            print(done.stdout[-4000:], done.stderr[-4000:])
            if done.returncode:
                raise RuntimeError(f"ended by {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
            if not bench.dry:
                row.update(counted(done.stdout.splitlines()))
                row["bytes_per_s"] = (row["bytes_read"] + row["bytes_written"]) / row["time_ns"] * 1e9


def profiler(kernel: str) -> list[str]:
    """Return the command that counts the third launch of a kernel and leaves the clocks alone."""
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin") or (installed and str(installed[-1]))
    if not found:
        raise RuntimeError("ncu is not on the PATH: install NVIDIA's Nsight Compute")
    which = ["--kernel-name", f"regex:^{kernel}", "--launch-skip", "2", "--launch-count", "1"]
    return [found, "--clock-control", "none", "--csv", "--print-units", "base", *which, "--metrics", ",".join(METRICS)]


def counted(lines: Iterable[str]) -> Row:
    """Return the metrics of a report as CSV, in bytes, nanoseconds and per cent."""
    table = [line for line in lines if line.startswith('"')]
    found: Row = {}
    for row in csv.DictReader(table):
        name = METRICS.get(row["Metric Name"])
        if name:
            value = float(row["Metric Value"].replace(",", ""))
            found[name] = value * SCALES.get(row["Metric Unit"], 1.0)
    if missing := set(METRICS.values()) - found.keys():
        raise RuntimeError(f"the report lacks {', '.join(sorted(missing))}: {' '.join(table)[:200]}")
    return found
