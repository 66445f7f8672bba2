"""Forgeries of the course of a run: its start and stop, hours without a clock, how it ended."""

from __future__ import annotations

import random
from typing import Any

from tests.conformance.forgeries.package_bases import Package
from tests.conformance.forgeries.package_forgery import Forge, Forgery, in_each_log, on_each
from tests.conformance.variants.logtext import LogText

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


# -- F08: run_start and run_stop moved by less than a second -------------------------------------------------------


def start_by_time(log: LogText, rng: random.Random) -> str:
    """Let run_start have a time after that of the first epoch; its place stays."""
    late_ms = rng.choice((60, 180, 400, 700, 995))
    log.last("run_start").time = log.first("epoch_start").time + late_ms
    return f"{late_ms} ms"


def start_by_place(log: LogText, rng: random.Random) -> str:
    """Move run_start behind the first epoch_start."""
    first, late_ms = log.first("epoch_start"), rng.choice((40, 200, 500, 900, 990))
    later = log.lines[log.at(first) + 1 :]
    after = next((line for line in later if line.record and line.time > first.time + late_ms), None)
    line = log.lines[log.at(after) - 1] if after else first
    log.put(log.last("run_start"), line, first.time + late_ms)
    return f"{late_ms} ms"


def stop_by_time(log: LogText, rng: random.Random) -> str:
    """Let run_stop have a time before that of the result that meets the target; its place stays."""
    early_ms = rng.choice((30, 150, 450, 800, 995))
    log.last("run_stop").time = log.results[-1].time - early_ms
    return f"{early_ms} ms"


def stop_in_order(log: LogText, rng: random.Random) -> str:
    """Write run_stop before the last result and let the result come up to a second later."""
    early_ms = rng.choice((30, 150, 450, 800, 995))
    result, stop = log.results[-1], log.last("run_stop")
    at_ms = result.time - early_ms
    for line in log.timed:
        if log.at(line) < log.at(result):
            line.time = min(line.time, at_ms)
    log.put_before(stop, result)
    stop.time = at_ms
    return f"{early_ms} ms"


def stop_before_evaluation_ends(log: LogText, rng: random.Random) -> str:
    """Let run_stop have a time before eval_stop and the result."""
    early_ms = rng.choice((100, 300, 950))
    ends = [line.time for line in (*log.all("eval_stop")[-1:], log.results[-1])]
    log.last("run_stop").time = min(ends) - early_ms
    return f"{early_ms} ms"


SCORE = ("run_start", "run_stop")
F08 = [
    *on_each(
        "F08",
        "Dell deepcam, NVIDIA cosmoflow, CSCS oc20, TACC openfold, built cosmoflow, suite deepcam",
        "run_start has a time within the first epoch",
        SCORE,
        in_each_log(start_by_time),
    ),
    *on_each(
        "F08",
        "Clemson deepcam, NVIDIA oc20, HelmholtzAI cosmoflow, Clemson openfold, built deepcam",
        "run_start is written after the first epoch_start",
        SCORE,
        in_each_log(start_by_place),
    ),
    *on_each(
        "F08",
        "Dell deepcam, NVIDIA cosmoflow, CSCS oc20, TACC openfold, built oc20, suite cosmoflow",
        "run_stop has a time before that of the result that meets the target",
        SCORE,
        in_each_log(stop_by_time),
    ),
    *on_each(
        "F08",
        "Clemson deepcam, HelmholtzAI cosmoflow, NVIDIA oc20, built openfold",
        "run_stop is written before the result that meets the target",
        SCORE,
        in_each_log(stop_in_order),
    ),
    *on_each(
        "F08",
        "NVIDIA deepcam, Clemson openfold, built cosmoflow",
        "run_stop has a time before the end of the last evaluation",
        SCORE,
        in_each_log(stop_before_evaluation_ends),
    ),
]

# -- F32: hours without a clock -----------------------------------------------------------------------------------


def gap(low_ms: float, high_ms: float) -> Forge:
    """Return a forgery with this much time between init_stop and run_start."""

    def change(log: LogText, rng: random.Random) -> str:
        """Move run_start and all after it."""
        by_ms = round(rng.uniform(low_ms, high_ms))
        log.delay(log.last("init_stop"), by_ms)
        return f"{by_ms / MINUTE_MS:.1f} minutes"

    return in_each_log(change)


def gap_by_early_start(log: LogText, rng: random.Random) -> str:
    """Move all records up to init_stop back in time."""
    by_ms = round(rng.uniform(3, 200) * MINUTE_MS)
    end = log.at(log.last("init_stop"))
    for line in log.lines[: end + 1]:
        if line.record:
            line.time -= by_ms
    return f"{by_ms / MINUTE_MS:.0f} minutes"


def cache_not_cleared(log: LogText, rng: random.Random) -> None:
    """Say that the caches were not cleared."""
    log.first("cache_clear").record["value"] = False


def cache_cleared_long_ago(log: LogText, rng: random.Random) -> str:
    """Clear the caches hours before the run."""
    hours = rng.choice((9, 30, 100))
    line = log.first("cache_clear")
    if line is not log.timed[0]:
        log.put_before(line, log.timed[0])
    line.time -= hours * HOUR_MS
    return f"{hours} hours"


def states(key: str, *values: Any) -> Forge:
    """Return a forgery that states a value under a key of the reference implementation."""

    def change(log: LogText, rng: random.Random) -> str:
        """Set the value, in the header or where the record is."""
        value = rng.choice(values)
        lines = log.all(key)
        if not lines:
            before = log.first("train_samples")
            lines = [log.add(before, before, 0, key=key)]
        for line in lines:
            line.record["value"] = value
        return f"{value!r}"

    return in_each_log(change)


GAP, CACHE = ("init_stop", "run_start"), ("cache",)
F32 = [
    *on_each(
        "F32",
        "Dell deepcam, TACC openfold, CSCS oc20, NVIDIA cosmoflow, built deepcam, suite cosmoflow",
        "hours between init_stop and run_start",
        GAP,
        gap(HOUR_MS, 12 * HOUR_MS),
    ),
    *on_each(
        "F32",
        "Clemson deepcam, NVIDIA oc20, built oc20",
        "minutes between init_stop and run_start",
        GAP,
        gap(2 * MINUTE_MS, HOUR_MS),
    ),
    *on_each(
        "F32", "Dell deepcam, built openfold", "seconds between init_stop and run_start", GAP, gap(15_000, 55_000)
    ),
    *on_each(
        "F32",
        "Clemson openfold, HelmholtzAI cosmoflow, suite deepcam",
        "all before run_start is moved back in time",
        GAP,
        in_each_log(gap_by_early_start),
    ),
    *on_each(
        "F32",
        "Dell deepcam, TACC openfold, suite cosmoflow",
        "cache_clear is false",
        CACHE,
        in_each_log(cache_not_cleared),
    ),
    *on_each(
        "F32",
        "Clemson deepcam, NVIDIA cosmoflow, built oc20",
        "the caches were cleared long ago",
        CACHE,
        in_each_log(cache_cleared_long_ago),
    ),
    *on_each(
        "F32",
        "Dell deepcam, Clemson deepcam",
        "training starts from a checkpoint",
        ("checkpoint",),
        states("checkpoint", "/scratch/best_model.pt", "runs/7/step_2000.cpt"),
    ),
    *on_each(
        "F32",
        "Dell deepcam, NVIDIA deepcam",
        "an epoch is a part of the data",
        ("oversampl",),
        states("data_oversampling_factor", 0.1, 0.25, 0.5),
    ),
    *on_each(
        "F32",
        "Clemson deepcam",
        "the implementation's own target is lower",
        ("target_accuracy_reached",),
        states("target_accuracy_reached", 0.7, 0.78),
    ),
]

# -- F36: run_stop contradicts its status -------------------------------------------------------------------------


def ends(**fields: Any) -> Forge:
    """Return a forgery whose run_stop has status success, and these fields."""

    def change(log: LogText, rng: random.Random) -> str:
        """Add the fields to run_stop."""
        drawn = {name: rng.choice(values) for name, values in fields.items()}
        log.last("run_stop").record["metadata"] |= drawn
        return str(drawn)

    return in_each_log(change)


CAUSES = ("CUDA out of memory", "NCCL timeout on rank 3", "RuntimeError: loss is nan")
ENDED = ("ended", "cause", "status")
F36 = [
    *on_each(
        "F36",
        "suite cosmoflow, suite deepcam, built cosmoflow",
        "status success, ended failed",
        ENDED,
        ends(ended=("failed",), cause=CAUSES),
    ),
    *on_each(
        "F36",
        "suite cosmoflow, suite deepcam, built deepcam",
        "status success, ended target_not_met",
        ENDED,
        ends(ended=("target_not_met",)),
    ),
    *on_each(
        "F36",
        "suite deepcam, suite cosmoflow",
        "status success, ended stopped or diverged",
        ENDED,
        ends(ended=("stopped", "diverged"), cause=("SIGTERM",)),
    ),
    *on_each("F36", "suite cosmoflow", "status success with the cause of a failure", ENDED, ends(cause=CAUSES)),
    *on_each(
        "F36",
        "Dell deepcam, NVIDIA cosmoflow",
        "a published run ended failed",
        ENDED,
        ends(ended=("failed",), cause=CAUSES),
    ),
]


def one_run_ends(package: Package, rng: random.Random) -> str:
    """Let two of the runs say that they failed."""
    which = rng.sample(range(len(package.logs)), 2)
    package.edit(lambda log: log.last("run_stop").record["metadata"].update(ended="failed", cause=CAUSES[0]), *which)
    return f"runs {which}"


F36.append(Forgery("F36", "suite deepcam", "two runs say that they failed", ENDED, one_run_ends))

FORGERIES = [*F08, *F32, *F36]
