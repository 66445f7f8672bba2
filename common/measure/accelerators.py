"""The peaks of accelerators, and of processors of systems without: accelerators.yaml, or a file of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from common.config import SHOWN, load, rebuild

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
        rates = ("peak_flop_per_s", "memory_bytes_per_s", "network_bytes_per_s", "input_bytes_per_s")
        values = {name: getattr(self, name) for name in rates}
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


def ceilings_of(model: str, known: Mapping[str, Ceilings]) -> str:
    """Return the name of the ceilings for a model name of a system description, "" if there are none."""
    squeezed = _squeezed(model)
    matches = [name for name, entry in known.items() if all(_squeezed(word) in squeezed for word in entry.match)]
    return max(matches, key=lambda name: len(known[name].match), default="")


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
