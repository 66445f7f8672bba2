"""What the analysis knows of results: the quantities of each run, and their statistics over the runs that count.

Names and definitions of the quantities: `submission.analysis.quantities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from submission.summary.rows import Row


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """One run. name: of its log. values: its quantities by name; those that the log does not give are missing.

    kept: it counts in the statistics. why_not: why it does not, "" if it does: "fastest", "slowest", or what failed.
    """

    name: str
    values: Mapping[str, float]
    kept: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one quantity over the runs that count. std is that of a sample, None for a single run."""

    mean: float
    std: float | None
    median: float
    min: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class LogPca:
    """Principal components of (log10 epochs, log10 minutes of an epoch) over the runs that count.

    center: means of both. first, second: unit vectors, the one of the larger variance first; the epochs' part of the
    first is >= 0. variances: along them. correlation: of both logarithms, None where one of them does not vary.
    """

    center: tuple[float, float]
    first: tuple[float, float]
    second: tuple[float, float]
    variances: tuple[float, float]
    correlation: float | None

    @property
    def explained(self) -> float | None:
        """The share of the first component in the variance; None without variance."""
        total = sum(self.variances)
        return self.variances[0] / total if total > 0 else None


@dataclass(frozen=True, slots=True)
class AnalysedSet:
    """One result.

    row: its line in the summary: verdict, round, organisation, system, accelerator, benchmark, division, score.
    units: accelerators of a run (of one instance, for throughput), or processors on a system without; None if unknown.
    statistics: of the runs that count, by name of the quantity; a quantity that one of them lacks is missing.
    ratios: by name, such as "train_time/run_time"; each is a ratio of means, None where it is excluded.
    hyperparameters: as logged, where all runs agree.
    excluded: why a quantity is missing, by its name; "normalised": why the result is normalised.
    notes: what a reader must know of the result.
    problem: why the result cannot be analysed at all, else "".
    normalisation: by what epochs and all times but staging were multiplied.
    sharing: how many ranks share each sample, by the logs; 1 where they do not say.
    """

    row: Row
    folder: str
    units: int | None
    runs: tuple[AnalysedRun, ...] = ()
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    ratios: Mapping[str, float | None] = field(default_factory=dict)
    pca: LogPca | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str = ""
    normalisation: float = 1.0
    sharing: int = 1

    @property
    def name(self) -> str:
        """The organisation, system, scaling and benchmark: unique in a round; of unnamed logs the folder."""
        who = [part for part in (self.row.organisation, self.row.system) if part]
        return "/".join(filter(None, (*(who or [self.folder]), self.row.scaling, self.row.benchmark)))

    @property
    def full_name(self) -> str:
        """The name with the round, as in waiver files: unique in a repository of rounds."""
        return f"{self.row.round}/{self.name}"

    @property
    def marked_benchmark(self) -> str:
        """The benchmark, with a mark if it is a mini problem."""
        return f"{self.row.benchmark} (mini)" if self.row.mini else self.row.benchmark

    @property
    def unit(self) -> str:
        """What the units are."""
        return "processors" if self.row.accelerators == 0 else "accelerators"

    def mean(self, name: str) -> float | None:
        """Return the mean of a quantity, None without it."""
        found = self.statistics.get(name)
        return None if found is None else found.mean
