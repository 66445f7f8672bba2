"""Facts about results that their logs do not say: staging that copies nothing, normalisation, power caps.

They are data with a reason, in facts.yaml and in files of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from common.errors import UsageError
from common.values import is_number
from compliance.model.waivers import FORM
from compliance.rcp.stats import olympic_mean
from submission.analysis.user_file import quoted, read_mapping

T = TypeVar("T")

MOST: Final = 1e9
"""Numbers of epochs and watts are below it."""
SECTIONS: Final = ("staging_excluded", "reference_epochs", "power_cap_watts")


@dataclass(frozen=True, slots=True)
class Normalisation:
    """The epochs of reference runs, to whose olympic mean a result is normalised, and why."""

    epochs: tuple[float, ...]
    reason: str

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
        return Facts(*({**getattr(self, name), **getattr(other, name)} for name in SECTIONS))


def known_facts() -> Facts:
    """Return the facts of published results."""
    return read_facts(str(Path(__file__).with_name("facts.yaml")))


def read_facts(path: str) -> Facts:
    """Return the facts of a file of the user's; UsageError if it is broken."""
    root = read_mapping(path)
    if unknown := [key for key in root if key not in SECTIONS]:
        raise UsageError(f"{path}: unknown key {quoted(unknown[0])}; expected {', '.join(SECTIONS)}")
    for section in SECTIONS:
        root[section] = {} if root.get(section) is None else root[section]
        if not isinstance(root[section], dict):
            raise UsageError(f"{path}: {section} is not a mapping; expected lines {FORM}: ...")
        for name in root[section]:
            if not isinstance(name, str) or name.count("/") != FORM.count("/"):
                raise UsageError(f"{path}: {section}: {quoted(name)} names no result; expected {FORM}")

    def entries(section: str, read: Callable[[Any, str], T]) -> dict[str, T]:
        return {name: read(given, f"{path}: {section}: {name}") for name, given in root[section].items()}

    return Facts(
        entries("staging_excluded", _reason),
        entries("reference_epochs", _normalisation),
        entries("power_cap_watts", _positive),
    )


def _normalisation(given: Any, place: str) -> Normalisation:
    if not isinstance(given, dict) or set(given) != {"epochs", "reason"} or not isinstance(given["epochs"], list):
        raise UsageError(f"{place}: expected `epochs: [number, ...]` and `reason: text`")
    epochs = tuple(_positive(epochs, f"{place}: epochs") for epochs in given["epochs"])
    if len(epochs) < 3:
        raise UsageError(f"{place}: expected the epochs of at least 3 runs: the fewest and the most do not count")
    return Normalisation(epochs, _reason(given["reason"], f"{place}: reason"))


def _reason(given: Any, place: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{place}: expected the reason as text")
    return given.strip()


def _positive(given: Any, place: str) -> float:
    if not is_number(given) or not 0 < given < MOST:
        raise UsageError(f"{place}: expected a number above 0 and below {MOST:.0e}, found {quoted(given)}")
    return float(given)
