"""What a log or a result is judged by: round, profile, division, and the facts of its benchmark."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

from common.reference import COMMON_SETTINGS, FULL, OPEN_SETTINGS, Reference, Setting
from compliance.benchmarks import reference_of

STRICT: Final = "strict"
OFFICIAL: Final = "official"
PROFILES: Final = (STRICT, OFFICIAL)


class Case(Struct, frozen=True):
    """What a log or a result is judged by; can be sent to another process.

    Before its logs are read it holds what the user asks for and what folder and system description say; the logs
    complete it. division and benchmark are None where nothing states them. variant: "full" or the name of a mini
    problem. suite_code: the package says that this suite made the log. round_why: how the round was chosen, see
    `compliance.model.layout`.
    """

    round: str
    profile: str = STRICT
    division: str | None = None
    benchmark: str | None = None
    variant: str = FULL
    allow_mini: bool = False
    suite_code: bool = False
    round_why: str = ""

    @property
    def strict(self) -> bool:
        """Whether the written rules apply; otherwise only what the official tool checks."""
        return self.profile == STRICT

    @property
    def reference(self) -> Reference | None:
        """The facts of the benchmark; None if there is no such benchmark, or no mini problem of it."""
        return reference_of(self.benchmark, self.variant)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that a log of this division may state; of an unknown benchmark, those that all have."""
        benchmark = self.benchmark if self.reference else None  # a plug-in may be refused in the next check
        return _settings_of(benchmark, self.variant, self.round, self.division)


@lru_cache(maxsize=64)
def _settings_of(benchmark: str | None, variant: str, round_: str, division: str | None) -> tuple[Setting, ...]:
    reference = reference_of(benchmark, variant)
    if reference is None or division is None:
        common = COMMON_SETTINGS if division == "closed" else ()
        return (*(setting for setting in common if round_ in setting.rounds), *OPEN_SETTINGS)
    return reference.settings_of(round_, division)
