"""The rows of the tables of a round: score, convergence and system of each result; and differences between rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from common.rounds import HPC, find_usage
from compliance.benchmarks import describe_plugin
from compliance.formats.words import staging_cell
from compliance.model.judging import PASSING
from compliance.model.layout import WEAK
from compliance.model.score import IN

ALL_ORGANISATIONS: Final = "(all)"
"""Placeholder for the organisation in the rows with the best score of a round."""
NOT_JUDGED: Final = "NOT JUDGED"
"""In place of a verdict that would pass, on logs that were not judged as a result."""

Key = tuple[str, bool, str, str, str]
"""A kind of result: benchmark, whether mini, division, scaling, and the organisation in lower case."""


class NoResultsError(ValueError):
    """The paths contain no result; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class ResultOperations:
    """The operations of a result per second, of all its units; None where `reason` says why a number is missing.

    flops: FLOP of training by the time of training; sustained_flops: FLOP of training and evaluation by the time of the
    runs; vflops: flops by the quality that was reached. utilization: FLOP of training and evaluation by the peak of the
    system in the time of the result; training_utilization: flops, of instances that train at the same time, by the same
    peak. peak_format: the number format of the peak, such as "fp16". accelerator: its entry in accelerators.yaml.
    peak_flops: of all units. flop_source: LOG or WORKLOADS.
    """

    flops: float | None = None
    sustained_flops: float | None = None
    vflops: float | None = None
    utilization: float | None = None
    training_utilization: float | None = None
    peak_format: str = ""
    reason: str = ""
    accelerator: str = ""
    peak_flops: float | None = None
    flop_source: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One result. None or "" means that neither logs nor system description have the value.

    verdict: PASS, WARN, INCOMPLETE or FAIL of the result with its logs, NOT_JUDGED of logs that are none.
    availability: status of the system.
    nodes, processors, accelerators: of the system; without system description, of one run.
    run_minutes: of the accepted runs, ascending. minutes: time to train, or for throughput from the first start to
    the last stop. convergence: mean length of the runs, in convergence_unit (epochs or samples).
    rcp: the verdict on convergence; rcp_factor: its factor on the score, None unless it passed.
    normalised: the score with this factor: minutes, or for throughput models per minute; scaled: minutes with the
    committee's factor. staging_minutes: mean of the runs; staging_clock: whether it lies "in" the time of the score or
    "out" of it; time_with_staging_minutes, time_without_staging_minutes: see `compliance.model.score`.
    instance_scale: accelerators of a model; states_whole_system: the logs state those of the whole system instead.
    waiver: why a failed convergence test does not count, "" if it is not waived; bypass: the line in which the
    submitter asks to leave a failed test out. incomplete: such as "1 of 10 runs", "" if complete.
    not_judged: why logs were not judged as a result, "" if they were. folder: that of logs outside of submissions,
    and what tells them from others there; "" inside of one.
    own_code: what computed in place of the suite's code, "" if nothing did. plugin: that the benchmark is not one of
    MLPerf, and its origin; "" for those of the suite.
    states: what the committee was asked or decided: waived, bypass asked for, pruned. operations: of a report with
    details, else empty.
    """

    verdict: str
    round: str
    organisation: str
    division: str
    availability: str
    system: str
    scaling: str
    benchmark: str
    mini: bool
    nodes: int | None
    processor: str
    processors: int | None
    accelerator: str
    accelerators: int | None
    framework: str
    batch_size: int | None
    runs: int
    required_runs: int | None
    incomplete: str
    not_judged: str = ""
    folder: str = ""
    run_minutes: tuple[float, ...] = ()
    minutes: float | None = None
    models: int | None = None
    models_per_minute: float | None = None
    instance_scale: int | None = None
    convergence: float | None = None
    convergence_unit: str = "epochs"
    rcp: str = ""
    rcp_factor: float | None = None
    waiver: str = ""
    bypass: str = ""
    normalised: float | None = None
    scaled: float | None = None
    staging_minutes: float | None = None
    energy_joules: float | None = None
    staging_clock: str = ""
    time_with_staging_minutes: float | None = None
    time_without_staging_minutes: float | None = None
    states_whole_system: bool = False
    states: tuple[str, ...] = ()
    own_code: str = ""
    plugin: str = ""
    operations: ResultOperations = ResultOperations()

    @property
    def table_order(self) -> tuple[str, str, str, str]:
        """The round, scaling, benchmark and division, by which tables are sorted."""
        return self.round, self.scaling, self.benchmark, self.division

    @property
    def usage(self) -> str:
        """The suite of its round: HPC or TRAINING."""
        return find_usage(self.round)

    @property
    def kind_of_scaling(self) -> str:
        """The scaling, as it stands in names: "" in MLPerf Training, which has one kind."""
        return self.scaling if self.usage == HPC else ""

    @property
    def units(self) -> int | None:
        """Accelerators of the system, or processors of a system without."""
        return self.accelerators or self.processors

    @property
    def device(self) -> str:
        """The model of the accelerators, or of the processors of a system without."""
        return self.processor if self.accelerators == 0 or not self.accelerator else self.accelerator

    @property
    def score(self) -> float | None:
        """The score: minutes (less is better) or models per minute (more is better), normalised if possible."""
        raw = self.models_per_minute if self.scaling == WEAK else self.minutes
        return raw if self.normalised is None else self.normalised

    @property
    def contains_staging(self) -> bool:
        """Whether the time of the score contains all staging there was."""
        return self.staging_clock in ("", IN)

    @property
    def staging_cells(self) -> tuple[str, float | None]:
        """The minutes of staging, in or out of the time, and the time with them if it lacks them."""
        apart = None if self.contains_staging else self.time_with_staging_minutes
        return staging_cell(self.staging_minutes, self.staging_clock), apart

    @property
    def score_with_staging(self) -> float | None:
        """The score if all staging belonged to its time: the clock that all rounds have in common."""
        score, time = self.score, self.time_with_staging_minutes
        if score is None or self.contains_staging or not self.minutes or not time:
            return score
        return score * self.minutes / time if self.scaling == WEAK else score * time / self.minutes


def mark_benchmark(name: str, mini: bool, plugin: str) -> str:
    """Return the name of a benchmark, with marks if it is a mini problem or not one of MLPerf."""
    return f"{name}{' (mini)' if mini else ''}{' (not MLPerf)' if plugin else ''}"


# -- from one round to the next ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """The best passing results of two rounds, on the clock they have in common: with staging.

    before, now: their scores in minutes (less is better) or models per minute, normalised if possible; None without
    a passing result. before_with_staging, now_with_staging: the same with all staging in the time. speedup: of
    the latter, above 1 if now is better. before_waived, now_waived: whether the result passes only because its
    convergence test is waived. plugin: as in a row.
    """

    organisation: str
    benchmark: str
    scaling: str
    division: str
    mini: bool
    unit: str
    before: float | None
    now: float | None
    before_with_staging: float | None = None
    now_with_staging: float | None = None
    before_waived: bool = False
    now_waived: bool = False
    plugin: str = ""

    @property
    def key(self) -> Key:
        """The kind of result."""
        return (
            self.benchmark,
            self.mini,
            self.division,
            self.scaling,
            self.organisation.lower(),
        )

    @property
    def speedup(self) -> float | None:
        """The ratio of the scores with staging, above 1 if now is better; None without a score in both rounds."""
        before, now = self.before_with_staging, self.now_with_staging
        if not before or not now:
            return None
        return now / before if self.scaling == WEAK else before / now


def compare_rounds(previous: Sequence[Row], rows: Sequence[Row]) -> list[Difference]:
    """Return the changes from one round to another, by benchmark and organisation, ignoring letter case.

    Results that passed in neither round are left out.
    """
    before, now = find_best(previous), find_best(rows)
    names = {row.organisation.lower(): row.organisation for row in (*previous, *rows)}
    changes = []
    for key in sorted({*before, *now}):
        benchmark, mini, division, scaling, organisation = key
        former, latter = before.get(key), now.get(key)
        changes.append(
            Difference(
                organisation=names.get(organisation, organisation),
                benchmark=benchmark,
                scaling=scaling,
                division=division,
                mini=mini,
                unit="models/min" if scaling == WEAK else "min",
                before=former.score if former else None,
                now=latter.score if latter else None,
                before_with_staging=former.score_with_staging if former else None,
                now_with_staging=latter.score_with_staging if latter else None,
                before_waived=former is not None and former.waiver != "",
                now_waived=latter is not None and latter.waiver != "",
                plugin=describe_plugin(benchmark),
            )
        )
    return changes


def find_best(rows: Iterable[Row]) -> dict[Key, Row]:
    """Return the best passing result of each kind and organisation, and of ALL_ORGANISATIONS, by score with staging."""
    winners: dict[Key, Row] = {}
    for row in rows:
        score = row.score_with_staging
        if row.verdict not in PASSING or not score:
            continue
        for organisation in (row.organisation.lower(), ALL_ORGANISATIONS):
            key = (row.benchmark, row.mini, row.division, row.scaling, organisation)
            best_score = winners.setdefault(key, row).score_with_staging or score
            if score > best_score if row.scaling == WEAK else score < best_score:
                winners[key] = row
    return winners
