"""The peaks of accelerators, and what bounds the power and the speed of a node's devices.

Peaks are those of accelerators.yaml, or of a file of the user's. Limits are read with every run, never set. Sources:
`nvidia-smi --help-query-gpu`; Documentation/power/powercap and admin-guide/pm/cpufreq of the kernel.
"""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.config import SHOWN, load, rebuild
from common.programs import ask_program
from common.provenance import host

if TYPE_CHECKING:
    import torch

HERE: Final = Path(__file__).parent
PEAKS: Final = (1e3, 1e21)
"""Between these lie all peaks: more or less is a mistake in the unit."""
WATTS: Final = (1.0, 1e5)
TRAINED: Final = {1: "fp8", 2: "fp16", 4: "fp32", 8: "fp64"}
"""The format of a peak by the bytes of a value."""
FORMATS: Final = ("fp8", "fp16", "bf16", "tf32", "fp32", "fp64")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Peaks of one unit; what the keys mean: accelerators.yaml."""

    match: tuple[str, ...]
    peak_flop_per_s: float
    value_bytes: int
    memory_bytes_per_s: float
    network_bytes_per_s: float
    input_bytes_per_s: float
    source: str
    other_peaks: dict[str, float] = field(default_factory=dict)
    watts: float | None = None

    def __post_init__(self) -> None:
        if not all(map(_squeezed, self.match or ("",))):
            raise ValueError("match: expected words of the model name, each with a letter or digit; got none")
        if self.value_bytes not in TRAINED:
            raise ValueError(f"value_bytes: expected {', '.join(map(str, TRAINED))}; got {self.value_bytes}")
        if unknown := ", ".join(self.other_peaks.keys() - set(FORMATS)):
            raise ValueError(f"other_peaks: expected formats of {', '.join(FORMATS)}; got {unknown[:SHOWN]}")
        values = {
            name: getattr(self, name)
            for name in ("peak_flop_per_s", "memory_bytes_per_s", "network_bytes_per_s", "input_bytes_per_s")
        }
        values |= {f"other_peaks.{name}": peak for name, peak in self.other_peaks.items()}
        for name, value in values.items():
            if not PEAKS[0] <= value <= PEAKS[1]:
                raise ValueError(f"{name}: expected {PEAKS[0]:.0e} to {PEAKS[1]:.0e} per second; got {value}")
        if self.watts is not None and not WATTS[0] <= self.watts <= WATTS[1]:
            raise ValueError(f"watts: expected {WATTS[0]:g} to {WATTS[1]:g}; got {self.watts}")

    def find_peak(self, number_format: str = "") -> tuple[str, float]:
        """Return a format and its peak in FLOP/s: the one asked for if it is known, else that of training."""
        trained = TRAINED.get(self.value_bytes, "")
        if number_format != trained and number_format in self.other_peaks:
            return number_format, self.other_peaks[number_format]
        return trained, self.peak_flop_per_s


@dataclass(frozen=True, slots=True)
class _CeilingsFile:
    ceilings: dict[str, dict[str, Any]]


@cache
def read_ceilings(path: Path = HERE / "accelerators.yaml") -> dict[str, Ceilings]:
    """Return the ceilings of a file by name; UsageError with file, key and what was expected if it is broken."""
    entries = load(_CeilingsFile, path).ceilings
    return {name: rebuild(Ceilings, entry, f"{path}: ceilings.{name[:SHOWN]}") for name, entry in entries.items()}


def ceilings_of(model: str, ceilings: Mapping[str, Ceilings]) -> str:
    """Return the name of the ceilings for a model name of a system description, "" if there are none."""
    squeezed = _squeezed(model)
    matches = [name for name, entry in ceilings.items() if all(_squeezed(word) in squeezed for word in entry.match)]
    return max(matches, key=lambda name: len(ceilings[name].match), default="")


def rate_device(model: str, number_format: str, flop_per_s: float) -> tuple[float | None, str | None]:
    """Return the share of a device's peak that a rate of it is, and the format of the peak; None if it is unknown.

    model: as its driver names it.
    """
    if not (name := ceilings_of(model, read_ceilings())):
        return None, None
    peak_format, peak = read_ceilings()[name].find_peak(number_format)
    return flop_per_s / peak, peak_format


def _squeezed(text: str) -> str:
    return "".join(sign for sign in text.lower() if sign.isalnum())


POWERCAP: Final = "/sys/class/powercap"
QUERY: Final = "uuid,power.limit,power.default_limit,clocks.current.sm,clocks.max.sm"
CPUFREQ: Final = "/sys/devices/system/cpu/cpu{}/cpufreq"


def _limit(unit: str, meaning: str) -> Any:
    return field(default=None, metadata={"unit": unit, "meaning": f"{meaning}, where it tells"})


@dataclass(frozen=True)
class Limits:
    """The limits of a device or of several, as the fields say; None where the machine does not tell.

    The default power of a processor is its thermal design power; clocks are those of the multiprocessors of a GPU, or
    of a core that this process may use.
    """

    power_limit_w: float | None = _limit("W", "power limit of a device")
    power_default_w: float | None = _limit("W", "power limit of a device as it was made")
    clock_mhz: float | None = _limit("MHz", "clock of a device when the run ended")
    clock_max_mhz: float | None = _limit("MHz", "highest clock of a device")


def read_gpus(uuids: Container[str]) -> tuple[Limits, ...]:
    """Return the limits of the GPUs with these identities, without "GPU-"; none, and a warning, if nvidia-smi fails."""
    answer = ask_program("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    rows = [row for line in answer.output.splitlines() if len(row := line.split(",")) == 1 + len(fields(Limits))]
    if not rows:
        answer.warn_unread("the limits of power and clock of the GPUs are unknown")
    return tuple(
        Limits(*map(_parse_number, numbers)) for uuid, *numbers in rows if uuid.strip().removeprefix("GPU-") in uuids
    )


def read_processors(powercap: Path = Path(POWERCAP), cpufreq: str = CPUFREQ) -> tuple[Limits, ...]:
    """Return the limits of the processor packages; of one of unknown power where only its clock can be read.

    cpufreq: the folder of a core's clock, with {} for its number.
    """
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    clocks = [_read_number(Path(cpufreq.format(core)) / name, 1e3) for name in ("scaling_cur_freq", "cpuinfo_max_freq")]
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
