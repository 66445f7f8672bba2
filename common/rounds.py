"""The rounds of MLPerf HPC and of MLPerf Training: a round is a value, not a directory.

A round of HPC has the name of its version, `3.0`; one of Training `training-4.1`, as the versions of both coincide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

HPC: Final = "hpc"
TRAINING: Final = "training"
USAGES: Final = (HPC, TRAINING)
"""The suites, by the word of the committee's tools for them."""
TITLES: Final = {HPC: "MLPerf HPC", TRAINING: "MLPerf Training"}


class Round:
    """A round. first_day: of the runs that belong to it; older ones belong to the round before.

    flat: its folders are results/<system>/<benchmark>, without a level for strong and weak scaling.
    """

    def __init__(self, usage: str, version: str, first_day: str = "2000-01-01", flat: bool = False) -> None:
        self.usage: Final = usage  # no dataclass: to make one costs every check of a log a hundredth
        self.version: Final = version
        self.first_day: Final = first_day
        self.flat: Final = flat

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return self.version if self.usage == HPC else f"{self.usage}-{self.version}"

    @property
    def title(self) -> str:
        """What people call it: 3.0 of MLPerf HPC."""
        return f"{self.version} of {TITLES[self.usage]}"

    @property
    def first_ms(self) -> int:
        """The start of its first day, in ms since 1970."""
        return int(datetime.fromisoformat(self.first_day).replace(tzinfo=UTC).timestamp()) * 1000

    @property
    def folder(self) -> str:
        """The folder of its rules in mlperf-logging."""
        return f"{self.usage}_{self.version}.0"


KNOWN: Final = (
    Round(HPC, "0.7", flat=True),
    Round(HPC, "1.0", "2021-09-01"),
    Round(HPC, "2.0", "2022-08-01"),
    Round(HPC, "3.0", "2023-07-01"),
    Round(TRAINING, "0.7", flat=True),
    Round(TRAINING, "1.0", "2020-07-30", flat=True),
    Round(TRAINING, "1.1", "2021-07-01", flat=True),
    Round(TRAINING, "2.0", "2021-12-02", flat=True),
    Round(TRAINING, "2.1", "2022-06-30", flat=True),
    Round(TRAINING, "3.0", "2022-11-10", flat=True),
    Round(TRAINING, "3.1", "2023-06-28", flat=True),
    Round(TRAINING, "4.0", "2023-11-09", flat=True),
    Round(TRAINING, "4.1", "2024-06-13", flat=True),
    Round(TRAINING, "5.0", "2024-11-14", flat=True),
    Round(TRAINING, "5.1", "2025-06-05", flat=True),
    Round(TRAINING, "6.0", "2025-11-13", flat=True),
    Round(TRAINING, "6.1", "2026-06-17", flat=True),
)
"""Of each suite oldest first. HPC's begin with the month of the first published run, Training's the day after the
results of the round before were published (mlcommons.org). Further ones are those for which there are rule files."""
BY_NAME: Final = {round_.name: round_ for round_ in KNOWN}


def find_round(name: str) -> Round:
    """Return the round of a name; one that is not known has no day, and the layout of its suite's newest."""
    if name in BY_NAME:
        return BY_NAME[name]
    usage, _, version = name.rpartition("-")
    return Round(usage or HPC, version, flat=usage == TRAINING)


def label_round(name: str) -> str:
    """Return a round as it stands in texts after "round" or "v": 3.0, or 4.1 Training; so of each in a list of them."""
    return re.sub(rf"{TRAINING}-([0-9.]+)", r"\1 Training", name)


def find_usage(name: str) -> str:
    """Return the suite of a round."""
    return TRAINING if name.startswith(f"{TRAINING}-") else HPC


def sort_versions(versions: Iterable[str]) -> list[str]:
    """Return versions such as 4.1, oldest first, each once."""
    return sorted(set(versions), key=lambda version: [int(number) for number in re.findall("[0-9]+", version)])
