"""The ceilings of a machine, measured on all ranks at once: products, convolutions, memory, files, messages."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import conv2d
from tqdm import tqdm

from common.errors import UsageError
from common.files import open_regular
from common.measure.fom import Measurement
from common.measure.meter import process_reads
from common.precision import DTYPES, Format, Precision
from common.ranks.device import read_model_name
from common.ranks.dist import Dist
from common.settings.machine import PrecisionConfig
from common.stop import STOP

SECONDS: Final = 1.0
"""The time for each ceiling, measured at least FEWEST times."""
FEWEST: Final = 5
FILES_SECONDS: Final = 10.0
"""The longest time for reading files, each time."""
THREADS: Final = 4
"""Threads of a rank that read files."""
BLOCK_BYTES: Final = 1 << 20
MESSAGE_BYTES: Final = 64 << 20
"""The message where the measured steps sent none."""
LARGEST_MESSAGE: Final = 1 << 30
"""A larger message is not faster."""


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


def measure_ceilings(measurement: Measurement, files: Sequence[Path], dist: Dist) -> Ceilings:
    """Return the ceilings for the type and the message of the measured steps. A collective call."""
    dtype, device = DTYPES[Precision(PrecisionConfig(measurement.dtype), dist.device).name], dist.device
    bar = tqdm(total=5, desc="ceilings", leave=False, disable=None if dist.is_main else True)

    def show_part(name: str) -> None:
        bar.set_postfix_str(name)
        bar.update()

    rates: dict[str, Any] = {}
    with bar, torch.inference_mode():
        show_part("products")
        rates["products"] = _measure_products(dist, dtype)
        show_part("convolutions")
        rates["convolutions"] = _measure_convolutions(dist, dtype)
        show_part("memory")
        rates["memory"], rates["unit_input"] = _measure_memory(dist), _measure_copies(dist)
        show_part("files")
        rates["cold_files"], rates["cold_share"], rates["cached_files"] = _measure_files(dist, files)
        show_part("messages")
        rates["unit_network"] = _measure_network(dist, int(measurement.bytes_reduced_per_step))
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
    message = torch.zeros(min(message_bytes or MESSAGE_BYTES, LARGEST_MESSAGE) // 4 or 1, device=dist.device)
    _time_repeats(dist, lambda: dist.all_reduce(message), 2)
    steps: int = dist.broadcast_json(_count_repeats(_time_repeats(dist, lambda: dist.all_reduce(message), 1)))
    # Of each repetition the rank that comes last waits least: its time is the message's.
    times = torch.tensor(_time_repeats(dist, lambda: dist.all_reduce(message), steps), dtype=torch.float64)
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


def _measure_files(dist: Dist, files: Sequence[Path]) -> tuple[float | None, float | None, float | None]:
    """Return the bytes per second of files outside and inside of the kernel's cache, and the part from devices."""
    if not files:
        return None, None, None
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
    return cold, median(shares) if shares else None, cached


def _read_files(dist: Dist, files: Sequence[Path], limit: int) -> tuple[float, int]:
    """Read files with all ranks, for a limited time; return their bytes per second and how many this rank read."""
    dist.barrier()
    begin_s = time.perf_counter()
    sizes: list[int] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, limit, THREADS):
            STOP.check()
            sizes += pool.map(_read_size, files[start : min(start + THREADS, limit)])
            if time.perf_counter() - begin_s > FILES_SECONDS:
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
