"""Forgeries of amounts: batch size, steps, samples, ranks, accelerators, rates."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.conformance.forgeries.package_bases import Package, add_value
from tests.conformance.forgeries.package_forgery import Forge, Forgery, in_each_log, on_each
from tests.conformance.variants.logtext import LogText

STEP_FIELDS = ("step_num", "step")
STEPS, RANKS = ("step",), ("rank",)


# -- F06: steps and batch size ------------------------------------------------------------------------------------


def steps_times(*factors: float, first: int = 0) -> Forge:
    """Return a forgery that multiplies all numbers of steps, from the epoch at a position on."""

    def change(log: LogText, rng: random.Random) -> str:
        """Multiply the fields of metadata."""
        factor, numbers = rng.choice(factors), log.numbers
        before = _steps_before(log, numbers[first]) if first else 0
        later = log.at(log.first("epoch_start", numbers[first]))
        for line in log.timed:
            for name in STEP_FIELDS:
                steps = line.record["metadata"].get(name)
                if isinstance(steps, int) and log.at(line) >= later:
                    kept = before if name == "step_num" or "epoch" in line.record["metadata"] else 0
                    line.record["metadata"][name] = int(kept + (steps - kept) * factor)
        return f"steps × {factor}"

    return in_each_log(change)


def _steps_before(log: LogText, number: int) -> int:
    return log.first("epoch_start", number).record["metadata"].get("step_num", 0)


def batch_times(*factors: float) -> Forge:
    """Return a forgery that claims another batch size; the steps stay."""

    def change(log: LogText, rng: random.Random) -> str:
        """Change the header, and the configuration of this suite."""
        line = log.first("global_batch_size")
        line.record["value"] = batch = int(line.record["value"] * rng.choice(factors))
        for made in log.all("provenance"):
            made.record["value"]["config"]["train"]["global_batch_size"] = batch
        return f"batch size {batch}"

    return in_each_log(change)


WITH_STEPS = "Dell deepcam, Clemson deepcam, NVIDIA deepcam, LBNL deepcam, built deepcam, suite cosmoflow"
F06 = [
    *on_each("F06", WITH_STEPS, "step_num halved", STEPS, steps_times(0.5, 0.45, 0.6)),
    *on_each("F06", WITH_STEPS, "step_num divided by ten", STEPS, steps_times(0.1, 0.12, 0.08)),
    *on_each("F06", WITH_STEPS, "batch size half of what the steps show", STEPS, batch_times(0.5, 0.25)),
    *on_each("F06", WITH_STEPS, "batch size twice what the steps show", STEPS, batch_times(2, 4, 8)),
    *on_each(
        "F06",
        "Dell deepcam, Clemson deepcam, suite deepcam, built deepcam",
        "a batch size a little smaller than the steps show",
        STEPS,
        batch_times(200 / 256, 0.75, 0.875),
    ),
    *on_each(
        "F06",
        "Dell deepcam, NVIDIA deepcam, built deepcam, suite deepcam",
        "step_num halved from the third epoch on",
        STEPS,
        steps_times(0.5, 0.3, first=2),
    ),
    *on_each(
        "F06",
        "Dell deepcam, LBNL deepcam, suite cosmoflow, suite deepcam",
        "twice the steps",
        STEPS,
        steps_times(2, 1.5, 3),
    ),
]

# -- F07: ranks against accelerators ------------------------------------------------------------------------------


def ranks_of(*values: int) -> Forge:
    """Return a forgery that states another number of ranks."""

    def change(log: LogText, rng: random.Random) -> str:
        """Set number_of_ranks."""
        return f"{add_value(log, 'number_of_ranks', rng.choice(values)).record['value']} ranks"

    return in_each_log(change)


def one_run_of(key: str, *values: Any) -> Forge:
    """Return a forgery in which one run states another value."""

    def forge(package: Package, rng: random.Random) -> str:
        value, at = rng.choice(values), rng.randrange(len(package.logs))
        package.edit(lambda log: add_value(log, key, value), at)
        return f"{key} {value} in run {at}"

    return forge


F07 = [
    *on_each("F07", "Dell deepcam, suite cosmoflow, suite deepcam", "one rank", RANKS, ranks_of(1)),
    *on_each("F07", "suite cosmoflow", "ranks that no batch is divided by", RANKS, ranks_of(63, 60, 48)),
    *on_each(
        "F07", "Dell deepcam, suite deepcam", "more ranks than samples in a batch", RANKS, ranks_of(512, 1024, 4096)
    ),
    *on_each("F07", "Clemson deepcam, suite cosmoflow", "more ranks than accelerators", RANKS, ranks_of(256, 192, 128)),
    *on_each(
        "F07",
        "Dell deepcam, Clemson deepcam",
        "one run has another number of ranks",
        RANKS,
        one_run_of("number_of_ranks", 64, 8, 32),
    ),
]

# -- F18 and others: parts of epochs, rates -----------------------------------------------------------------------


def epoch_of_few_steps(*which: int) -> Forge:
    """Return a forgery in which epochs at some positions trained a tenth of the steps."""

    def change(log: LogText, rng: random.Random) -> str:
        """Take the steps from all later counts, too."""
        at = rng.choice(which)
        number = log.numbers[at]
        starts = [line for line in log.timed if "step_num" in line.record["metadata"]]
        if not starts:
            for line in log.of_epoch(number, "learning_rate", "tracked_stats"):
                line.record["metadata"]["step"] //= 10
            return f"epoch {number}"
        begin = log.first("epoch_start", number).record["metadata"]["step_num"]
        steps = log.last("epoch_stop", number).record["metadata"]["step_num"] - begin
        gone = steps - steps // 10
        for line in log.timed:
            for name in STEP_FIELDS:
                if isinstance(count := line.record["metadata"].get(name), int) and count > begin:
                    line.record["metadata"][name] = max(begin + 1, count - gone)
        return f"epoch {number}: {steps // 10} steps"

    return in_each_log(change)


def epoch_of_little_time(part: float) -> Forge:
    """Return a forgery in which an epoch of the middle takes a part of its time."""

    def change(log: LogText, rng: random.Random) -> str:
        """Take the time away."""
        number = log.numbers[log.inner(rng, 2, 2)]
        start = log.first("epoch_start", number)
        stop = min((line for line in log.of_epoch(number, "epoch_stop", "eval_start")), key=lambda line: line.time)
        gone_ms = round((stop.time - start.time) * (1 - part))
        for line in log.lines[log.at(start) + 1 :]:
            if line.record:
                line.time = max(start.time, line.time - gone_ms)
        return f"epoch {number} in {part} of its time"

    return in_each_log(change)


def rates_times(*factors: float) -> Forge:
    """Return a forgery that multiplies the throughput in tracked_stats."""

    def change(log: LogText, rng: random.Random) -> str:
        """Multiply, in the records of both keys."""
        factor = rng.choice(factors)
        for line in log.all("tracked_stats"):
            line.record["value"]["throughput"] *= factor
        for line in log.all("throughput"):
            line.record["value"] *= factor
        return f"throughput × {factor}"

    return in_each_log(change)


def sets(key: str, *values: Any) -> Forge:
    """Return a forgery that states another value in the header of all logs."""

    def change(log: LogText, rng: random.Random) -> str:
        """Set it."""
        return f"{key} {add_value(log, key, rng.choice(values)).record['value']}"

    return in_each_log(change)


def run_stops_at(change_number: Callable[[int], int]) -> Forge:
    """Return a forgery whose run_stop names another epoch than the last."""

    def change(log: LogText, rng: random.Random) -> str:
        """Change its number."""
        stop = log.last("run_stop")
        stop.number = change_number(log.numbers[-1])
        return f"epoch {stop.number}"

    return in_each_log(change)


SAMPLES = ("sample", "step", "iter", "batch")
F18 = [
    *on_each(
        "F18",
        "Dell deepcam, Clemson deepcam, built deepcam",
        "one epoch trained a tenth of the steps",
        STEPS,
        epoch_of_few_steps(1, 3, 5),
    ),
    *on_each("F18", "suite cosmoflow", "one epoch trained a tenth of the steps", STEPS, epoch_of_few_steps(2, 7)),
    *on_each(
        "F18",
        "Dell deepcam, CSCS oc20, built cosmoflow, suite deepcam",
        "one epoch takes a tenth of its time",
        ("epoch",),
        epoch_of_little_time(0.1),
    ),
]
OWN = [
    *on_each(
        "own",
        "Dell deepcam, suite cosmoflow, suite deepcam",
        "throughput that its times do not give",
        ("throughput", "samples"),
        rates_times(0.1, 5, 10),
    ),
    *on_each(
        "own",
        "TACC openfold, Clemson openfold",
        "a batch size that the numbers of samples do not give",
        SAMPLES,
        batch_times(0.5, 0.25, 2),
    ),
    *on_each(
        "own",
        "TACC openfold",
        "evaluations at another interval than stated",
        (*SAMPLES, "val_every"),
        sets("val_every_iters", 20, 80),
    ),
    *on_each(
        "own",
        "Dell deepcam",
        "one run on other accelerators per node",
        ("accelerators",),
        one_run_of("accelerators_per_node", 2, 8),
    ),
    *on_each("own", "suite cosmoflow", "run_stop names another epoch", ("epoch",), run_stops_at(lambda last: last + 9)),
]
FORGERIES: list[Forgery] = [*F06, *F07, *F18, *OWN]
