"""What bounds the power and the speed of a node's devices: read with every run, never set.

Sources: `nvidia-smi --help-query-gpu`; Documentation/power/powercap and admin-guide/pm/cpufreq of the kernel.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.provenance import host

if TYPE_CHECKING:
    import torch

POWERCAP: Final = "/sys/class/powercap"
QUERY: Final = "uuid,power.limit,power.default_limit,clocks.current.sm,clocks.max.sm"
QUERY_TIMEOUT_S: Final = 10.0
"""The driver takes seconds where no process holds the GPUs open."""
CPUFREQ: Final = "/sys/devices/system/cpu/cpu{}/cpufreq"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a device or of several, in W and MHz; None where the machine does not tell.

    power_limit_w: in force. power_default_w: of the device as it was made, of a processor its thermal design power.
    clock_mhz, clock_max_mhz: of the multiprocessors of a GPU, or of a core that this process may use.
    """

    power_limit_w: float | None = None
    power_default_w: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None


def read_gpus(uuids: Container[str]) -> tuple[Limits, ...]:
    """Return the limits of the GPUs with these identities, without "GPU-"; none where nvidia-smi does not answer."""
    words = ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    try:
        output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=QUERY_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ()
    rows = [line.split(",") for line in output.splitlines()]
    return tuple(
        Limits(*map(_parse_number, numbers)) for uuid, *numbers in rows if uuid.strip().removeprefix("GPU-") in uuids
    )


def read_processors(powercap: Path = Path(POWERCAP), cpufreq: str = CPUFREQ) -> tuple[Limits, ...]:
    """Return the limits of the processor packages; of one of unknown power where only its clock can be read.

    cpufreq: the folder of a core's clock, with {} for its number.
    """
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    names = ("scaling_cur_freq", "cpuinfo_max_freq")
    clocks = [_read_number(Path(cpufreq.format(core)) / name, 1e3) for name in names]
    powers = [
        [_read_number(zone / f"constraint_0_{name}_uw", 1e6) for name in ("power_limit", "max_power")]
        for zone in sorted(powercap.glob("intel-rapl:*"))
        if zone.name.count(":") == 1 and (zone / "constraint_0_power_limit_uw").exists()
    ]
    devices = (Limits(*power, *clocks) for power in powers or [[None, None]])
    return tuple(device for device in devices if device != Limits())


def read_limits(device: torch.device, local_size: int) -> tuple[Limits, ...]:
    """Return the limits of the devices of this host's ranks; of its processors if they train, () if unknown.

    local_size: the number of ranks; their devices follow that of this rank, the first of them.
    """
    if device.type == "cpu":
        return read_processors()
    import torch  # which the other readers of these facts do without

    module = torch.get_device_module(device)
    numbers = range(device.index or 0, module.device_count())[:local_size]
    return read_gpus({str(getattr(module.get_device_properties(number), "uuid", "")) for number in numbers})


def read_model_name(device: torch.device) -> str:
    """Return the model of a device as its driver names it, of a CPU that of the processor."""
    if device.type == "cpu":
        return str(host()["cpu"])
    import torch

    return str(torch.get_device_module(device).get_device_name(device))


def find_lowest(devices: Iterable[Limits]) -> Limits:
    """Return the lowest limits of devices that work in step: that of the slowest one. Unknown if one is unknown."""
    devices = tuple(devices)
    columns = {field.name: [getattr(device, field.name) for device in devices] for field in fields(Limits)}
    return Limits(**{name: min(column) for name, column in columns.items() if column and None not in column})


def _parse_number(text: str) -> float | None:
    """Return a number above 0, None for other text such as [N/A]."""
    with suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) and value > 0 else None
    return None


def _read_number(path: Path, divisor: float) -> float | None:
    try:
        value = _parse_number(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if value is None else value / divisor
