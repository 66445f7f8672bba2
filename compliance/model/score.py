"""Scores: time to train of one result, throughput of many instances. Read, never written.

Time to train is the olympic mean of the runs' minutes: without the fastest and the slowest; one rejected run
counts as the slowest. Throughput is (T, S, M', TTTa): accelerators of the system, accelerators per instance,
trained models, minutes from the first run_start to the last run_stop (hpc_training_rules.adoc#results).

Up to round 2.0 this time contains the staging of the data; in 3.0 a submitter may stage before run_start, out of the
clock. Only times of one clock can be compared, so each score also has the time with and without staging.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compliance.model.judging import FAIL, JudgedRun
from compliance.rcp.means import olympic_mean, without_extremes

SHORTEST_STAGING: Final = 0.005
"""Minutes; many logs contain an empty staging interval of milliseconds, which do not count."""
IN, OUT, BOTH = "in", "out", "in and out"


class Score(Struct, frozen=True, kw_only=True):
    """What the scores of both scalings have.

    minutes: None if the runs do not give a score. rejected: names of the runs that do not count. normalization: the
    RCP factor. mini: of runs on the mini problem, not an MLPerf result. energy_joules: None if a run lacks it.
    staging_clock: IN if `minutes` contains the staging, OUT if it lies outside run_start to run_stop, BOTH, or ""
    without staging. time_with_staging_minutes, time_without_staging_minutes: the score if all of it, or nothing,
    belonged to the time of each run.
    """

    minutes: float | None
    rejected: tuple[str, ...] = ()
    normalization: float = 1.0
    mini: bool = False
    energy_joules: float | None = None
    staging_minutes: float | None = None
    staging_clock: str = ""
    time_with_staging_minutes: float | None = None
    time_without_staging_minutes: float | None = None


class TimeToTrain(Score, frozen=True, kw_only=True):
    """Score of a time-to-train result, in minutes.

    run_minutes: of the accepted runs, ascending. normalized: minutes times the RCP factor. scaled: minutes times the
    committee's factor of scaling.json. staging_minutes: olympic mean of the staging time of the accepted runs.
    energy_joules: mean energy of the runs whose minutes are averaged.
    """

    run_minutes: tuple[float, ...]
    committee_factor: float | None = None
    convergence: float | None = None

    @property
    def normalized(self) -> float | None:
        """Minutes after the RCP normalisation."""
        return None if self.minutes is None else self.minutes * self.normalization

    @property
    def scaled(self) -> float | None:
        """Minutes after the committee's scaling, or None if there is no scaling.json."""
        return None if self.minutes is None or self.committee_factor is None else self.minutes * self.committee_factor


class Throughput(Score, frozen=True, kw_only=True):
    """Score of a throughput result.

    system_scale: T, accelerators of the whole system (host processors if it has none); None if unknown.
    instance_scale: S, accelerators of one instance (nodes if there are none). models: M'. minutes: TTTa.
    energy_joules: of all models together. staging_minutes: mean of the accepted instances; with and without it, the
    time of each instance begins earlier by the staging outside its clock, or later by that inside.
    """

    system_scale: int | None
    instance_scale: int | None
    models: int

    @property
    def models_per_minute(self) -> float | None:
        """Trained models per minute."""
        return self.models / self.minutes if self.minutes else None

    @property
    def normalized_models_per_minute(self) -> float | None:
        """Models per minute after the RCP normalisation."""
        rate = self.models_per_minute
        return None if rate is None else rate / self.normalization


def time_to_train(
    runs: list[JudgedRun], normalization: float = 1.0, committee_factor: float | None = None
) -> TimeToTrain:
    """Return the time to train of a result; no minutes if more than one run was rejected."""
    accepted, rejected = _sorted_out(runs)
    timed = [(run, run.minutes) for run in accepted if run.minutes is not None]
    run_minutes = sorted(minutes for _, minutes in timed)
    counts = [float(run.convergence) for run in accepted if isinstance(run.convergence, (int, float))]

    def mean(values: list[float]) -> float | None:
        return olympic_mean(values, len(rejected)) if len(rejected) <= 1 else None

    return TimeToTrain(
        minutes=mean(run_minutes),
        run_minutes=tuple(run_minutes),
        rejected=tuple(rejected),
        normalization=normalization,
        committee_factor=committee_factor,
        staging_minutes=mean([run.staging_ms / 60_000 for run in accepted]),
        convergence=mean(counts),
        mini=any(run.mini for run in runs),
        energy_joules=_mean_energy(accepted, len(rejected)) if len(rejected) <= 1 else None,
        staging_clock=staging_clock(accepted),
        time_with_staging_minutes=mean([minutes + run.staging_outside_ms / 60_000 for run, minutes in timed]),
        time_without_staging_minutes=mean([minutes - run.staging_inside_ms / 60_000 for run, minutes in timed]),
    )


def range_with_rejected(score: TimeToTrain, run_minutes: float | None) -> tuple[float, float] | None:
    """Return the least and the most minutes of a result if its one rejected run counted; None without a result.

    run_minutes: of that run; None if they are unknown: it may be the fastest or the slowest.
    """
    ends = (0.0, inf) if run_minutes is None else (run_minutes, run_minutes)
    least, most = (olympic_mean([*score.run_minutes, end]) for end in ends)
    return None if score.minutes is None or least is None or most is None else (least, most)


def throughput(
    runs: list[JudgedRun], system_scale: int | None, instance_scale: int | None, normalization: float = 1.0
) -> Throughput:
    """Return the throughput of a set of instances, over the accepted ones."""
    accepted, rejected = _sorted_out(runs)
    return Throughput(
        system_scale=system_scale,
        instance_scale=instance_scale,
        models=len(accepted),
        minutes=_minutes_of_all(accepted, lambda run: 0.0),
        rejected=tuple(rejected),
        normalization=normalization,
        mini=any(run.mini for run in runs),
        energy_joules=_total_energy(accepted),
        staging_minutes=sum(run.staging_ms for run in accepted) / 60_000 / len(accepted) if accepted else None,
        staging_clock=staging_clock(accepted),
        time_with_staging_minutes=_minutes_of_all(accepted, lambda run: -run.staging_outside_ms),
        time_without_staging_minutes=_minutes_of_all(accepted, lambda run: run.staging_inside_ms),
    )


def without_result(score: TimeToTrain | Throughput) -> TimeToTrain | Throughput:
    """Return the score of a result whose runs lack some, or a target: the same without what is of all runs together."""
    of_all = {name for name in score.__struct_fields__ if name.endswith("minutes") and name != "run_minutes"}
    of_all |= {"convergence", "energy_joules"} & set(score.__struct_fields__)
    return replace(score, **dict.fromkeys(of_all))


def staging_clock(runs: list[JudgedRun]) -> str:
    """Return where the runs stage their data: IN the clock, OUT of it, BOTH, or "" if they do not."""
    shortest = SHORTEST_STAGING * 60_000 * len(runs)
    inside = sum(run.staging_inside_ms for run in runs) >= shortest if runs else False
    outside = sum(run.staging_outside_ms for run in runs) >= shortest if runs else False
    return {(True, True): BOTH, (True, False): IN, (False, True): OUT}.get((inside, outside), "")


def _minutes_of_all(runs: list[JudgedRun], later_ms: Callable[[JudgedRun], float]) -> float | None:
    """Return the minutes from the first start to the last stop, where each run starts later by later_ms(run)."""
    starts = [run.start_ms + later_ms(run) for run in runs if run.start_ms is not None]
    stops = [run.stop_ms for run in runs if run.stop_ms is not None]
    return (max(stops) - min(starts)) / 60_000 if starts and stops else None


def most_at_once(runs: list[JudgedRun], end_ms: float | None = None) -> int:
    """Return the largest number of runs that were active at the same time; end_ms: the stop of a run without one."""
    ends = [(run.start_ms, end_ms if run.stop_ms is None else run.stop_ms) for run in runs]
    starts = sorted(start for start, stop in ends if start is not None and stop is not None)
    stops = sorted(stop for start, stop in ends if start is not None and stop is not None)
    return max((0, *(started - bisect_right(stops, start) for started, start in enumerate(starts, 1))))


def _mean_energy(accepted: list[JudgedRun], rejected: int) -> float | None:
    """Return the mean energy of the runs whose minutes are averaged: power_measurement.adoc#scoring."""
    timed = sorted((run.minutes, number, run) for number, run in enumerate(accepted) if run.minutes is not None)
    kept = [run for _, _, run in without_extremes(timed, rejected)]
    total = _total_energy(kept)
    return None if total is None else total / len(kept)


def _total_energy(runs: list[JudgedRun]) -> float | None:
    joules = [run.energy_joules for run in runs if run.energy_joules is not None]
    return sum(joules) if joules and len(joules) == len(runs) else None


def _sorted_out(runs: list[JudgedRun]) -> tuple[list[JudgedRun], list[str]]:
    """Return the runs that may count, and the names of the others."""
    accepted = [run for run in runs if run.verdict != FAIL and not run.without_target]
    return accepted, [os.path.basename(run.path) for run in runs if run.verdict == FAIL or run.without_target]
