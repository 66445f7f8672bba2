"""Measure the ceilings of a machine on all ranks at once, and report how they limit the steps."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import yaml
from msgspec import convert
from torch import Tensor
from torch.nn.functional import conv2d
from tqdm import tqdm

from common.command import as_called
from common.errors import UsageError
from common.files import write_whole_file
from common.measure.devices import read_model_name
from common.measure.fom import SYNTHETIC, Measurement, read_measurement
from common.measure.meter import process_reads
from common.measure.roofline_report import Ceilings, Report, build_report, draw_picture
from common.precision import DTYPES, Precision
from common.processes import keep_freed_memory
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.settings.machine import DistConfig, PrecisionConfig
from common.stop import STOP
from common.tree import open_regular

SECONDS: Final = 1.0
"""The time for each ceiling, measured at least FEWEST times."""
FEWEST: Final = 5
THREADS: Final = 4
"""Threads of a rank that read files."""
BLOCK_BYTES: Final = 1 << 20


def measure_ceilings(measurement: Measurement, files: Sequence[Path], dist: Dist) -> Ceilings:
    """Return the ceilings for the type and the message of the measured steps. A collective call."""
    dtype, device = DTYPES[Precision(PrecisionConfig(measurement.dtype), dist.device).name], dist.device
    parts: dict[str, Callable[[], dict[str, float | None]]] = {
        "products": lambda: {"products": _measure_products(dist, dtype)},
        "convolutions": lambda: {"convolutions": _measure_convolutions(dist, dtype)},
        "memory": lambda: {"memory": _measure_memory(dist), "unit_input": _measure_copies(dist)},
        "files": lambda: _measure_files(dist, files),
        "messages": lambda: {"unit_network": _measure_network(dist, int(measurement.bytes_reduced_per_step))},
    }
    rates: dict[str, Any] = {}
    with (
        tqdm(total=len(parts), desc="ceilings", leave=False, disable=None if dist.is_main else True) as bar,
        torch.inference_mode(),
    ):
        for name, measure in parts.items():
            bar.set_postfix_str(name)
            bar.update()
            rates |= measure()
    return Ceilings(dist.world_size, dist.nodes, device.type, read_model_name(device), measurement.dtype, **rates)


def _measure_products(dist: Dist, dtype: torch.dtype) -> float:
    size = 2048 if dist.device.type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=dist.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2.0 * size**3 * _measure_rate(dist, lambda: torch.mm(a, b, out=out))


def _measure_convolutions(dist: Dist, dtype: torch.dtype) -> float:
    channels, side = 256, 56
    batch = 2 if dist.device.type == "cpu" else 64
    x = torch.randn(batch, channels, side, side, device=dist.device).to(dtype)
    weight = torch.randn(channels, channels, 3, 3, device=dist.device).to(dtype)
    return 2 * batch * side**2 * channels**2 * 9 * _measure_rate(dist, lambda: conv2d(x, weight, padding=1))


def _measure_memory(dist: Dist) -> float:
    values = (32 if dist.device.type == "cpu" else 256) << 20
    a, b, out = (torch.ones(values, device=dist.device) for _ in range(3))
    return float(3 * out.nbytes * _measure_rate(dist, lambda: torch.add(a, b, alpha=3.0, out=out)))


def _measure_copies(dist: Dist) -> float | None:
    """Return the bytes per second that a rank copies to its accelerator; None without one."""
    if dist.device.type == "cpu":
        return None
    source = torch.ones(64 << 20, pin_memory=True)
    target = torch.empty_like(source, device=dist.device)
    copies = _measure_rate(dist, lambda: target.copy_(source, non_blocking=True))
    return float(source.nbytes * copies / dist.world_size)


def _measure_network(dist: Dist, message_bytes: int) -> float | None:
    """Return the bytes per second that a rank sends while all reduce a message; None for one rank."""
    if dist.world_size == 1:
        return None
    # 64 MiB where the measured steps sent none; above 1 GiB a message is no faster.
    message = torch.zeros(min(message_bytes or 64 << 20, 1 << 30) // 4 or 1, device=dist.device)
    ranks = dist.in_float32()
    _time_repeats(dist, lambda: ranks.average(message), 2)
    steps: int = dist.broadcast_json(_count_repeats(_time_repeats(dist, lambda: ranks.average(message), 1)))
    # Of each repetition the rank that comes last waits least: its time is the message's.
    times = torch.tensor(_time_repeats(dist, lambda: ranks.average(message), steps), dtype=torch.float64)
    seconds = median(dist.all_reduce(times, "min").tolist())
    return float(2 * (dist.world_size - 1) / dist.world_size * message.nbytes / seconds)


def _measure_rate(dist: Dist, work: Callable[[], Tensor]) -> float:
    """Return how often all ranks together do the work in a second, while all of them do."""
    seconds = _time_repeats(dist, work, 2)[-1]
    dist.barrier()
    rate = 1 / median(_time_repeats(dist, work, _count_repeats([seconds])))
    return float(dist.all_reduce(torch.tensor(rate, dtype=torch.float64)))


def _count_repeats(seconds: Sequence[float]) -> int:
    return max(FEWEST, int(SECONDS / max(seconds[-1], 1e-6)))


def _time_repeats(dist: Dist, work: Callable[[], Tensor], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        STOP.check()
        begin_s = time.perf_counter()
        work()
        if dist.device.type != "cpu":
            torch.accelerator.synchronize(dist.device)
        seconds.append(time.perf_counter() - begin_s)
    return seconds


# -- files ---------------------------------------------------------------------------------------------------


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder and those below, links left out; UsageError if there are none."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected the folder of the samples")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        raise UsageError(f"{folder}: no files, but for links; expected the folder of the samples")
    return files


def _measure_files(dist: Dist, files: Sequence[Path]) -> dict[str, float | None]:
    """Return the bytes per second of files outside and inside of the kernel's cache, and the part from devices."""
    if not files:
        return dict.fromkeys(("cold_files", "cold_share", "cached_files"))
    own_files = files[dist.rank :: dist.world_size]
    for path in own_files:
        STOP.check()
        _evict_file(path)
    before = process_reads()
    cold, count = _read_files(dist, own_files, len(own_files))
    after = process_reads()
    cached, _ = _read_files(dist, own_files, count)
    share = None
    if before and after and after.files > before.files:
        share = min(1.0, (after.devices - before.devices) / (after.files - before.files))
    shares = [value for value in dist.gather_json(share) if value is not None]
    return {"cold_files": cold, "cold_share": median(shares) if shares else None, "cached_files": cached}


def _read_files(dist: Dist, files: Sequence[Path], limit: int) -> tuple[float, int]:
    """Read files with all ranks, for a limited time; return their bytes per second and how many this rank read."""
    dist.barrier()
    begin_s = time.perf_counter()
    sizes: list[int] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, limit, THREADS):
            STOP.check()
            sizes += pool.map(_read_size, files[start : min(start + THREADS, limit)])
            if time.perf_counter() - begin_s > 10:  # s
                break
    size = int(dist.all_reduce(torch.tensor(sum(sizes))))
    seconds = float(dist.all_reduce(torch.tensor(time.perf_counter() - begin_s, dtype=torch.float64), "max"))
    return size / seconds, len(sizes)


def _read_size(path: Path) -> int:
    """Read a file and return its size in bytes."""
    block, size = bytearray(BLOCK_BYTES), 0
    with open(open_regular(path), "rb", buffering=0) as file:
        while count := file.readinto(block):
            size += count
    return size


def _evict_file(path: Path) -> None:
    """Ask the kernel to forget a file's content, as far as nobody has it open or changed."""
    handle = open_regular(path)
    try:
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # such as a file system that cannot be written
                os.fdatasync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


# -- the command ---------------------------------------------------------------------------------------------


def run_roofline(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status. A collective call."""
    with connect(DistConfig(device=arguments.device), (OSError, UsageError)) as dist:
        own = _read_inputs(arguments, dist) if dist.is_main else None
        fields, names = dist.broadcast_json(own and [asdict(own[0]), [str(path) for path in own[1]]])
        measurement, files = convert(fields, Measurement), [Path(name) for name in names]
        if dist.device.type == "cpu":
            keep_freed_memory()
        ceilings = measure_ceilings(measurement, files, dist)
        if dist.is_main:
            _write_files(build_report(measurement, ceilings, own[2] if own else ()), arguments.output)
    return 0


def _read_inputs(arguments: argparse.Namespace, dist: Dist) -> tuple[Measurement, list[Path], tuple[Measurement, ...]]:
    """Return the measurement, the files that its steps read, and those beside it; make the folder of the output."""
    measurement = read_measurement(arguments.fom)
    measured_ranks = (measurement.units, measurement.nodes, measurement.device)
    ranks = (dist.world_size, dist.nodes, dist.device.type)
    if ranks != measured_ranks:
        then, now = (f"{units} rank(s) on {nodes} node(s) on {kind}" for units, nodes, kind in (measured_ranks, ranks))
        raise UsageError(f"the steps were measured with {then}, this command runs with {now}: start both alike")
    folder = arguments.data or (None if measurement.data == SYNTHETIC else Path(measurement.data))
    files = files_in(folder) if folder else []
    others = tuple(_read_other(path, measurement) for path in arguments.beside)
    arguments.output.mkdir(parents=True, exist_ok=True)
    return measurement, files, others


def _read_other(path: Path, measurement: Measurement) -> Measurement:
    """Return a measurement whose steps stand beside the first ones; UsageError if it is of other units or types."""
    other = read_measurement(path)
    kinds = [(steps.units, steps.nodes, steps.device, steps.dtype) for steps in (other, measurement)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{path}: expected the units, nodes, device and type {kinds[1]} of the first; got {kinds[0]}")
    return other


def _write_files(report: Report, folder: Path) -> None:
    contents = {"roofline.json": report.format_json(), "roofline.svg": draw_picture(report)}
    if report.ceilings.unit_network:
        contents["ceilings.yaml"] = ceilings_file(report.ceilings)
    for name, text in contents.items():
        write_whole_file(folder / name, text)
    print("\n".join(report.format_lines()))
    print(f"written: {folder}/{', '.join(contents)}")
    if "ceilings.yaml" not in contents:
        use = as_called("for the cost model of `python -m submission.report --data`")
        print(f"ceilings.yaml, {use}, needs several ranks: a network")


def ceilings_file(ceilings: Ceilings) -> str:
    """Return the entry that `python -m submission.report --ceilings` reads, of one unit."""
    assert ceilings.unit_network is not None
    memory = ceilings.memory / ceilings.units
    entry = {
        "match": ceilings.words,
        "peak_flop_per_s": max(ceilings.products, ceilings.convolutions) / ceilings.units,
        "value_bytes": DTYPES[ceilings.dtype].itemsize,
        "memory_bytes_per_s": memory,
        "network_bytes_per_s": ceilings.unit_network,
        "input_bytes_per_s": ceilings.unit_input or memory,
        "source": f"measured on {ceilings.units} units and {ceilings.nodes} node(s), {ceilings.dtype}",
    }
    return yaml.safe_dump({"ceilings": {"-".join(ceilings.words): entry}}, sort_keys=False)
