"""Scores: time to train of one result, throughput of many instances. Read, never written.

Time to train is the olympic mean of the runs' minutes: without the fastest and the slowest; one rejected run
counts as the slowest. Throughput is (T, S, M', TTTa): accelerators of the system, accelerators per instance,
trained models, minutes from the first run_start to the last run_stop (hpc_training_rules.adoc#results).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compliance.logs.run import Run
from compliance.rcp.stats import olympic_mean, without_extremes


@dataclass(frozen=True, slots=True)
class TimeToTrain:
    """Score of a time-to-train result, in minutes; None if the runs do not give one.

    run_minutes: of the accepted runs, ascending. rejected: names of the others.
    normalized: minutes times the RCP factor. scaled: minutes times the committee's factor of scaling.json.
    staging_minutes: olympic mean of the staging time of the accepted runs, which `minutes` contains if the
    staging lies inside the run. mini: of runs on the mini problem, not an MLPerf result.
    energy_joules: mean energy of the runs whose minutes are averaged, None if one of them lacks it.
    """

    minutes: float | None
    run_minutes: tuple[float, ...]
    rejected: tuple[str, ...]
    normalization: float = 1.0
    committee_factor: float | None = None
    staging_minutes: float | None = None
    convergence: float | None = None
    mini: bool = False
    energy_joules: float | None = None

    @property
    def normalized(self) -> float | None:
        """Minutes after the RCP normalisation."""
        return None if self.minutes is None else self.minutes * self.normalization

    @property
    def scaled(self) -> float | None:
        """Minutes after the committee's scaling, or None if there is no scaling.json."""
        if self.minutes is None or self.committee_factor is None:
            return None
        return self.minutes * self.committee_factor

    def without_result(self) -> TimeToTrain:
        """Return the same without the means over all runs, for a result that lacks runs."""
        return replace(self, minutes=None, staging_minutes=None, convergence=None, energy_joules=None)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Score of a throughput result.

    system_scale: T, accelerators of the whole system (host processors if it has none); None if unknown.
    instance_scale: S, accelerators of one instance (nodes if there are none). models: M'. minutes: TTTa.
    mini: of runs on the mini problem, not an MLPerf result. energy_joules: of all models together, None
    if one of them lacks it.
    """

    system_scale: int | None
    instance_scale: int | None
    models: int
    minutes: float | None
    rejected: tuple[str, ...] = ()
    normalization: float = 1.0
    mini: bool = False
    energy_joules: float | None = None

    @property
    def models_per_minute(self) -> float | None:
        """Trained models per minute."""
        return self.models / self.minutes if self.minutes else None

    @property
    def normalized_models_per_minute(self) -> float | None:
        """Models per minute after the RCP normalisation."""
        rate = self.models_per_minute
        return None if rate is None else rate / self.normalization

    def without_result(self) -> Throughput:
        """Return the same without time and energy, for a result that lacks runs."""
        return replace(self, minutes=None, energy_joules=None)


def time_to_train(runs: list[Run], normalization: float = 1.0, committee_factor: float | None = None) -> TimeToTrain:
    """Return the time to train of a result; no minutes if more than one run was rejected."""
    accepted, rejected = _sorted_out(runs)
    run_minutes = sorted(run.minutes for run in accepted if run.minutes is not None)
    counts = [float(run.convergence) for run in accepted if isinstance(run.convergence, (int, float))]
    fair = len(rejected) <= 1
    return TimeToTrain(
        olympic_mean(run_minutes, len(rejected)) if fair else None,
        tuple(run_minutes),
        tuple(rejected),
        normalization,
        committee_factor,
        olympic_mean([run.staging_ms / 60_000 for run in accepted], len(rejected)) if fair else None,
        olympic_mean(counts, len(rejected)) if fair else None,
        _mini(runs),
        _mean_energy(accepted, len(rejected)) if fair else None,
    )


def throughput(
    runs: list[Run], system_scale: int | None, instance_scale: int | None, normalization: float = 1.0
) -> Throughput:
    """Return the throughput of a set of instances, over the accepted ones."""
    accepted, rejected = _sorted_out(runs)
    starts = [run.start_ms for run in accepted if run.start_ms is not None]
    stops = [run.stop_ms for run in accepted if run.stop_ms is not None]
    return Throughput(
        system_scale,
        instance_scale,
        len(accepted),
        (max(stops) - min(starts)) / 60_000 if starts and stops else None,
        tuple(rejected),
        normalization,
        _mini(runs),
        _total_energy(accepted),
    )


def _mean_energy(accepted: list[Run], rejected: int) -> float | None:
    """Return the mean energy of the runs whose minutes are averaged: power_measurement.adoc#scoring."""
    timed = sorted((run.minutes, number, run) for number, run in enumerate(accepted) if run.minutes is not None)
    kept = [run for _, _, run in without_extremes(timed, rejected)]
    total = _total_energy(kept)
    return None if total is None else total / len(kept)


def _total_energy(runs: list[Run]) -> float | None:
    joules = [run.energy_joules for run in runs if run.energy_joules is not None]
    return sum(joules) if joules and len(joules) == len(runs) else None


def _mini(runs: list[Run]) -> bool:
    return any(run.mini for run in runs)


def _sorted_out(runs: list[Run]) -> tuple[list[Run], list[str]]:
    accepted = [run for run in runs if run.verdict != "FAIL"]
    return accepted, [run.path.rsplit("/", 1)[-1] for run in runs if run.verdict == "FAIL"]
