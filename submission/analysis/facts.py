"""Facts about results that their logs do not say: staging that copies nothing, normalisation, power caps.

They are data with a reason, in facts.yaml and in files of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from common.config import load, rebuild, shown
from compliance.model.waivers import FORM
from compliance.rcp.stats import olympic_mean

MOST: Final = 1e9
"""Numbers of epochs and watts are below it."""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """The epochs of reference runs, to whose olympic mean a result is normalised, and why."""

    epochs: tuple[float, ...]
    reason: str

    def __post_init__(self) -> None:
        if len(self.epochs) < 3:
            raise ValueError("epochs: expected those of at least 3 runs: the fewest and the most do not count")
        for epochs in self.epochs:
            _check_positive("epochs", epochs)

    def factor(self, epochs: Iterable[float]) -> float:
        """Return by what epochs and times of a result with these epochs are multiplied."""
        own, wanted = olympic_mean(epochs), olympic_mean(self.epochs)
        return wanted / own if own and wanted else 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by the name of the result.

    staging_excluded: why its staging interval means nothing. power_cap_watts: of each accelerator.
    """

    staging_excluded: Mapping[str, str] = field(default_factory=dict)
    reference_epochs: Mapping[str, Normalisation] = field(default_factory=dict)
    power_cap_watts: Mapping[str, float] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of all results that facts are about."""
        return list(dict.fromkeys((*self.staging_excluded, *self.reference_epochs, *self.power_cap_watts)))

    def updated(self, other: Facts) -> Facts:
        """Return these facts with those of another file, which count where both know a result."""
        return Facts(*({**getattr(self, name), **getattr(other, name)} for name in (one.name for one in fields(self))))


def known_facts() -> Facts:
    """Return the facts of published results."""
    return read_facts(Path(__file__).with_name("facts.yaml"))


@dataclass(frozen=True, slots=True)
class _File:
    """What a file says, with each normalisation as it is written."""

    staging_excluded: dict[str, str] = field(default_factory=dict)
    reference_epochs: dict[str, dict[str, Any]] = field(default_factory=dict)
    power_cap_watts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for section in (one.name for one in fields(self)):
            for name in getattr(self, section):
                if name.count("/") != FORM.count("/"):
                    raise ValueError(f"{section}: {shown(name)} names no result; expected {FORM}")
        for name, watts in self.power_cap_watts.items():
            _check_positive(f"power_cap_watts: {name}", watts)


def read_facts(path: Path) -> Facts:
    """Return the facts of a file of the user's; UsageError if it is broken."""
    read = load(_File, path)
    normalisations = {
        name: rebuild(Normalisation, entry, f"{path}: reference_epochs: {name}")
        for name, entry in read.reference_epochs.items()
    }
    return Facts(read.staging_excluded, normalisations, read.power_cap_watts)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < MOST:
        raise ValueError(f"{name}: expected a number above 0 and below {MOST:.0e}; got {value}")
