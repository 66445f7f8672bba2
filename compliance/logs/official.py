"""What the official package checker (mlperf-logging 4.1.68) reads in a log beside its rules, and where it crashes.

A traceback on one log leaves the whole package without a verdict, so that the profile official counts it as failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from common.rounds import TRAINING, find_usage
from compliance.benchmarks import REFERENCES, benchmarks_of
from compliance.logs.log import METRICS, Log
from compliance.logs.record import FILE_ORDER

SCHEDULES: Final = ("multistep", "cosine_annealing", "lamb")


class OfficialReading(Struct, frozen=True):
    """What the official tools read in a log.

    batch_size, benchmark: of the last record, as the RCP checker takes them. log_crash, rcp_crash: why the log checker
    or the RCP checker ends with a traceback; "" if it does not.
    """

    batch_size: Any
    benchmark: Any
    log_crash: str
    rcp_crash: str


def read_officially(log: Log, round_: str) -> OfficialReading:
    """Return what the official tools read in a log of this round."""
    size, benchmark = log.last("global_batch_size"), log.last("submission_benchmark")
    return OfficialReading(
        size.value if size else -1,  # what the RCP checker takes for the size where a log states none
        benchmark.value if benchmark else None,
        next(_find_log_crashes(log, round_), ""),
        next(_find_rcp_crashes(log, round_), ""),
    )


def official_convergence(log: Log) -> float | None:
    """Return the convergence that the official RCP checker reads: None for a run that it takes as not converged.

    It takes the last evaluation before the last run_stop, whatever its value, if that says "success".
    """
    stop = log.last("run_stop")
    if stop is None or stop.meta("status") != "success":
        return None
    evaluations = [r for key in METRICS for r in log[key] if r.order < stop.order]
    last = max(evaluations, key=FILE_ORDER, default=None)
    return _round_officially(log.position(last)) if last else None


def _round_officially(epoch: Any) -> float | None:
    try:
        return float(round(epoch, 3))
    except (TypeError, ValueError, OverflowError):
        return None


def _find_rcp_crashes(log: Log, round_: str) -> Iterator[str]:
    """Yield why the RCP checker ends with a traceback."""
    of_training, field = find_usage(round_) == TRAINING, "samples_count" if log.counts_samples else "epoch_num"
    records = log.in_order(*(key for key in METRICS if of_training or len(log.numbered(key)) < len(log[key])))
    yield from (
        f"line {record.line}: the {field} of {record.key} is not a number"
        for record in records
        if _round_officially(record.meta(field)) is None
    )
    for stop in log["run_stop"]:
        if not isinstance(stop.metadata, dict) or "status" not in stop.metadata:
            yield f"line {stop.line}: run_stop has no status"
        elif stop.meta("status") == "success" and not any(r.order < stop.order for key in METRICS for r in log[key]):
            yield f"line {stop.line}: run_stop says success, and there is no evaluation before it"
    if math.isnan(log.derive(official_convergence) or 0):  # the mean then depends on the order of the files
        yield "the last epoch_num is NaN"


def _find_log_crashes(log: Log, round_: str) -> Iterator[str]:
    """Yield why the log checker ends with a traceback; of MLPerf Training's, its rule files tell."""
    if find_usage(round_) == TRAINING:
        return
    for problem in log.list_problems("no object", "missing field", "time type", "deep"):
        yield f"line {problem.line}: a record of another form"
    division, named = log.first("submission_division"), log.first("submission_benchmark")
    if division and str(division.value) not in ("closed", "open"):
        yield f"line {division.line}: there are no rules of this division"
    if division is None or named is None:
        return
    closed, benchmark = division.value == "closed", str(named.value)
    if benchmark in benchmarks_of(round_):
        yield from (
            f"line {record.line}: {record.key} is not a number"
            for record in log[REFERENCES[benchmark].target.key]
            if not isinstance(record.value, (int, float))
        )
    elif not closed or benchmark not in [f"deepcam_{name}" for name in SCHEDULES]:  # files of rules, for closed
        yield f"line {named.line}: there are no rules of this benchmark"
    if closed and benchmark == "deepcam":
        yield from (
            f"line {record.line}: there are no rules of this schedule"
            for record in log["scheduler_type"]
            if isinstance(record.value, str) and record.value.lower() not in SCHEDULES
        )
