"""What one run amounts to: when it started and stopped, how it converged, with which settings.

`Run` is the small, picklable digest of a log that result-set rules, convergence tests and scores work on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

from common.reference import FULL, MINI, Target, is_number
from compliance.logs.log import Log
from compliance.logs.power import RunPower
from compliance.logs.record import FILE_ORDER, Record
from compliance.model.finding import Finding, worst


@dataclass(slots=True)
class Run:
    """The digest of one log.

    start_ms, stop_ms: run_start and run_stop as the score uses them (milliseconds since 1970), None if absent.
    staging_ms: time between staging_start and staging_stop records, in milliseconds.
    convergence: epoch_num (openfold: samples) of the last evaluation that counts, None if there is none.
    converged: that evaluation meets the target and the run stopped with success.
    official_convergence: what the official RCP checker reads, None for a run that it takes as not converged.
    seeds: (line, source file, source line, value) of each seed record.
    settings: value of each setting that the division asks for, as logged first.
    variant: "mini" or "full", as the log says (in either profile).
    power: what its power files say, None without them.
    timeline: hash of the times of all structural records: equal for copies of one run.
    """

    path: str
    round: str
    benchmark: str | None = None
    division: str | None = None
    submission: dict[str, Any] = field(default_factory=dict)
    batch_size: Any = None
    nodes: Any = None
    accelerators_per_node: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    seeds: list[tuple[int, Any, Any, Any]] = field(default_factory=list)
    start_ms: float | None = None
    stop_ms: float | None = None
    staging_ms: float = 0.0
    status: Any = None
    convergence: Any = None
    converged: bool = False
    official_convergence: float | None = None
    timeline: int = 0
    event_count: int = 0
    variant: str = FULL
    parsed_clean: bool = True
    power: RunPower | None = None
    findings: list[Finding] = field(default_factory=list)
    ignored: list[tuple[Finding, str]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """PASS, WARN or FAIL from the rules about the log itself."""
        return worst(self.findings)

    @property
    def mini(self) -> bool:
        """Whether it is a run on the mini problem, which is no MLPerf result."""
        return self.variant == MINI

    @property
    def minutes(self) -> float | None:
        """Time to train in minutes, or None."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return (self.stop_ms - self.start_ms) / 60 / 1000

    @property
    def energy_joules(self) -> float | None:
        """Energy of nodes and switches from run_start to run_stop, in joules; None if it was not measured."""
        return self.power.joules if self.power else None

    @property
    def scale(self) -> int | None:
        """Accelerators of the run, or nodes on a system without accelerators; None if the log does not say."""
        if not is_number(self.nodes) or not is_number(self.accelerators_per_node):
            return None
        return int(self.nodes) * max(int(self.accelerators_per_node), 1)


def variant_of(log: Log) -> str:
    """Return which problem the log is about: the mini one if any of its records says so."""
    return MINI if any(record.value == MINI for record in log["dataset_variant"]) else FULL


def counted_evaluations(log: Log, target: Target) -> list[Record]:
    """Return the evaluations that count: after the first epoch or block starts and before the run stops."""
    starts = [record.order for key in ("epoch_start", "block_start") for record in log[key][:1]]
    stop = log.first("run_stop")
    first = min(starts, default=-1)
    last = stop.order if stop else log.record_count
    found = log[target.key]
    return found[bisect_right(found, first, key=FILE_ORDER) : bisect_left(found, last, key=FILE_ORDER)]


def clock(log: Log) -> tuple[float | None, float | None]:
    """Return run_start and run_stop in ms: the last start before the first stop, as the official summary does."""
    starts, stops = log["run_start"], log["run_stop"]
    if not starts or not stops:
        return (starts[-1].time_ms if starts else None), (stops[0].time_ms if stops else None)
    if stops[0].order < starts[0].order:
        stop = next(record for record in reversed(stops) if record.order < starts[0].order)
        return starts[0].time_ms, stop.time_ms
    start = next(record for record in reversed(starts) if record.order < stops[0].order)
    return start.time_ms, stops[0].time_ms


def staging_ms(log: Log) -> float:
    """Return the time between each staging_start and the staging_stop that follows it, in ms."""
    total, begin = 0.0, None
    for record in log.in_order("staging_start", "staging_stop"):
        if record.key == "staging_start":
            begin = record.time_ms if begin is None else begin
        elif begin is not None:
            total, begin = total + record.time_ms - begin, None
    return total


def official_convergence(log: Log) -> float | None:
    """Return the convergence that the official RCP checker reads: None for a run that it takes as not converged.

    It takes the last evaluation before the last run_stop, whatever its value, if that says "success".
    """
    if not log["run_stop"]:
        return None
    stop = log["run_stop"][-1]
    if stop.meta("status") != "success":
        return None
    evaluations = [r for key in ("eval_error", "eval_accuracy") for r in log[key] if r.order < stop.order]
    last = max(evaluations, key=FILE_ORDER, default=None)
    epoch = last.meta("epoch_num") if last else None
    return float(round(epoch, 3)) if epoch is not None and is_number(epoch) else None
