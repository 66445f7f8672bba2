"""The ceilings of the machine: what no kernel exceeds, measured on random data."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gpu.cases import Bench
from gpu.networks import EDGES, LARGE, MIDDLE
from gpu.results import Row

PRODUCTS = {LARGE: (8192, 8192, 8192), EDGES: (59_200, 192, 192), MIDDLE: (27_648, 728, 728)}
CLOCKS = {"clocks.sm": "sm_mhz", "clocks.mem": "memory_mhz", "power.draw": "watts"}
TINY = (64, 32, 32)
CACHE_BYTES = 60e6


def measure(bench: Bench) -> None:
    """Measure all ceilings."""
    copies(bench)
    for name, shape in PRODUCTS.items():
        for format in ("bf16", "tf32", "fp32") if name == LARGE else ("bf16",):
            product(bench, name, shape, format)
    clocks(bench)
    pinned(bench)
    launches(bench)


def copies(bench: Bench) -> None:
    """Measure a pass over memory by a kernel, and a copy; recorded, a copy becomes another and slower operation."""
    numbers = bench.size(2**30, 2**14)
    source = torch.randint(0, 256, (numbers,), dtype=torch.int32, device=bench.device)
    target = torch.empty_like(source)
    with bench.case("ceiling", name="copy, by a kernel") as row:
        row.update(bench.clock.per_call_ms([partial(torch.add, source, 1, out=target)]))
        assert torch.equal(source[-1000:] + 1, target[-1000:])
        row["bytes_per_s"] = 8e3 * numbers / row["ms"]
    with bench.case("ceiling", name="copy, launched") as row:
        row.update(events(bench, partial(target.copy_, source), bench.size(10, 1)))
        assert torch.equal(source[-1000:], target[-1000:])
        row["bytes_per_s"] = 8e3 * numbers / row["ms"]


def product(bench: Bench, name: str, shape: tuple[int, int, int], format: str) -> None:
    """Measure a matrix product, of sets of matrices that together do not fit in the cache."""
    with bench.case("ceiling", name=name, format=format) as row:
        m, k, n = bench.size(shape, TINY)
        dtype = torch.bfloat16 if format == "bf16" else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = format == "tf32"
        moved = (m * k + k * n + m * n) * dtype.itemsize
        sets = bench.size(max(1, min(8, round(4 * CACHE_BYTES / moved))), 1)
        pairs = [
            (torch.randn(m, k, device=bench.device, dtype=dtype), torch.randn(k, n, device=bench.device, dtype=dtype))
            for _ in range(sets)
        ]
        row.update(bench.clock.per_call_ms([partial(torch.mm, a, b) for a, b in pairs]))
        row["flop_per_s"] = 2e3 * m * k * n / row["ms"]
        row["bytes_per_s"] = 1e3 * moved / row["ms"]
        torch.backends.cuda.matmul.allow_tf32 = False


def clocks(bench: Bench) -> None:
    """Note the clocks and the power while the device multiplies large matrices."""
    with bench.case("clocks") as row:
        a = torch.randn(bench.size((8192, 8192), TINY[1:]), device=bench.device).to(torch.bfloat16)
        for _ in range(bench.size(500, 1)):  # most of a second, in which the device grows warm
            torch.mm(a, a)
        bench.clock.finish()
        query = ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader,nounits"]
        with subprocess.Popen(bench.size(query, ["echo", "1, 1, 1"]), stdout=subprocess.PIPE, text=True) as asked:
            while asked.poll() is None:
                torch.mm(a, a)
                bench.clock.finish()
            assert asked.stdout
            row.update(zip(CLOCKS.values(), map(float, asked.stdout.read().split(",")), strict=True))


def pinned(bench: Bench) -> None:
    """Measure copies between pinned memory and the device, in both directions."""
    size = bench.size(2**30, 2**12)
    here = torch.randint(0, 256, (size,), dtype=torch.uint8, pin_memory=bench.device.type == "cuda")
    there = torch.empty(size, dtype=torch.uint8, device=bench.device)
    for name, target, source in (("pinned to device", there, here), ("device to pinned", here, there)):
        with bench.case("ceiling", name=name) as row:
            row.update(events(bench, partial(target.copy_, source, non_blocking=True), bench.size(10, 1)))
            row["bytes_per_s"] = 1e3 * size / row["ms"]


def events(bench: Bench, call: Callable[[], Any], times: int) -> Row:
    """Return the time of a call that is not recorded, twice."""
    marks = [bench.clock.mark()]
    for _ in range(2 * times):
        call()
        marks.append(bench.clock.mark())
    return dict(bench.clock.steps_ms(marks))


def launches(bench: Bench) -> None:
    """Measure what it costs to launch a kernel that does next to nothing, and to replay it in a graph."""
    number, times = torch.randn(64, device=bench.device), bench.size(2000, 4)
    with bench.case("ceiling", name="launch") as row:
        for _ in range(10):
            number.add_(0.5)
        bench.clock.finish()
        begin = time.perf_counter()
        for _ in range(times):
            number.add_(0.5)
        row["host_us"] = (time.perf_counter() - begin) / times * 1e6
        bench.clock.finish()
        row["us"] = (time.perf_counter() - begin) / times * 1e6
    with bench.case("ceiling", name="graph node") as row:
        replay = bench.clock.graph([partial(number.add_, 0.5)] * times)
        row.update(events(bench, replay, bench.size(10, 1)))
        row["us"] = 1e3 * row["ms"] / times
    with bench.case("ceiling", name="graph launch") as row:
        replay = bench.clock.graph([partial(number.add_, 0.5)])
        row.update(events(bench, replay, bench.size(200, 1)))
        row["us"] = 1e3 * row["ms"]
