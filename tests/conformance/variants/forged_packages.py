"""Forged packages: the course of their runs, and amounts: batch size, steps, samples, ranks, accelerators, rates."""

from __future__ import annotations

from typing import Any

from compliance.model.judging import ERROR, NOTE, WARNING
from tests.conformance.variants.bases import Submission
from tests.conformance.variants.logtext import LogText, map_times, take_arguments
from tests.conformance.variants.table import Random, alike, of_each_log, on_each

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


# -- F08: run_start and run_stop moved by less than a second -------------------------------------------------------


def start_by_time(log: LogText, rng: Random) -> None:
    """Let run_start have a time after that of the first epoch; its place stays."""
    log.last("run_start").time = log.first("epoch_start").time + rng.choice((60, 180, 400, 700, 995))


def start_by_place(log: LogText, rng: Random) -> None:
    """Move run_start behind the first epoch_start."""
    first, late_ms = log.first("epoch_start"), rng.choice((40, 200, 500, 900, 990))
    after = next((line for line in log.behind(first) if line.time > first.time + late_ms), None)
    log.put(log.last("run_start"), log.before(after) if after else first, first.time + late_ms)


def stop_by_time(log: LogText, rng: Random) -> None:
    """Let run_stop have a time before that of the result that meets the target; its place stays."""
    log.last("run_stop").time = log.results[-1].time - rng.choice((30, 150, 450, 800, 995))


def stop_in_order(log: LogText, rng: Random) -> None:
    """Write run_stop before the last result and let the result come up to a second later."""
    result = log.results[-1]
    stop_ms = result.time - rng.choice((30, 150, 450, 800, 995))
    earlier = [line for line in log.timed if log.at(line) < log.at(result)]
    map_times(earlier, lambda time_ms: min(time_ms, stop_ms))
    log.put_before(log.last("run_stop"), result).time = stop_ms


def stop_before_evaluation_ends(log: LogText, rng: Random) -> None:
    """Let run_stop have a time before eval_stop and the result."""
    ends = [line.time for line in (*log.all("eval_stop")[-1:], log.results[-1])]
    log.last("run_stop").time = min(ends) - rng.choice((100, 300, 950))


SCORE = ("run_start", "run_stop")
NAMED = (ERROR, WARNING, NOTE)
F08 = [
    *on_each(
        "F08",
        "Dell deepcam, NVIDIA cosmoflow, CSCS oc20, TACC openfold, built cosmoflow, suite deepcam",
        "run_start has a time within the first epoch",
        SCORE,
        alike(start_by_time),
        NAMED,  # up to half a second is a note
    ),
    *on_each(
        "F08",
        "Clemson deepcam, NVIDIA oc20, HelmholtzAI cosmoflow, Clemson openfold, built deepcam",
        "run_start is written after the first epoch_start",
        SCORE,
        alike(start_by_place),
        NAMED,
    ),
    *on_each(
        "F08",
        "Dell deepcam, NVIDIA cosmoflow, CSCS oc20, TACC openfold, built oc20, suite cosmoflow",
        "run_stop has a time before that of the result that meets the target",
        SCORE,
        alike(stop_by_time),
        NAMED,
    ),
    *on_each(
        "F08",
        "Clemson deepcam, HelmholtzAI cosmoflow, NVIDIA oc20, built openfold",
        "run_stop is written before the result that meets the target",
        SCORE,
        alike(stop_in_order),
    ),
    *on_each(
        "F08",
        "NVIDIA deepcam, Clemson openfold, built cosmoflow",
        "run_stop has a time before the end of the last evaluation",
        SCORE,
        alike(stop_before_evaluation_ends),
        NAMED,
    ),
]

# -- F32: hours without a clock -----------------------------------------------------------------------------------


@of_each_log
def gap(log: LogText, rng: Random, low_ms: float, high_ms: float) -> None:
    """Write this much time between init_stop and run_start."""
    log.delay(log.last("init_stop"), round(rng.uniform(low_ms, high_ms)))


def gap_by_early_start(log: LogText, rng: Random) -> None:
    """Move all records up to init_stop back in time."""
    by_ms, stop = round(rng.uniform(3, 200) * MINUTE_MS), log.last("init_stop")
    map_times([line for line in log.timed if log.at(line) <= log.at(stop)], lambda time_ms: time_ms - by_ms)


def cache_cleared_long_ago(log: LogText, rng: Random) -> None:
    """Clear the caches hours before the run."""
    log.put_before(log.first("cache_clear"), log.timed[0]).time -= rng.choice((9, 30, 100)) * HOUR_MS


@of_each_log
def states(log: LogText, rng: Random, key: str, *values: Any) -> None:
    """State a value wherever the key is, or in the header."""
    value = rng.choice(values)
    log.state(key, value)
    for line in log.all(key):
        line.record["value"] = value


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
        alike(gap_by_early_start),
    ),
    *on_each(
        "F32",
        "Dell deepcam, TACC openfold, suite cosmoflow",
        "cache_clear is false",
        CACHE,
        states("cache_clear", False),
    ),
    *on_each(
        "F32",
        "Clemson deepcam, NVIDIA cosmoflow, built oc20",
        "the caches were cleared long ago",
        CACHE,
        alike(cache_cleared_long_ago),
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


@of_each_log
def ends(log: LogText, rng: Random, **fields: Any) -> None:
    """Let it be that its run_stop has status success, and these fields."""
    log.last("run_stop").record["metadata"] |= {name: rng.choice(values) for name, values in fields.items()}


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


def two_runs_end(package: Submission, rng: Random) -> None:
    """Let two of the runs say that they failed."""
    which = rng.sample(range(len(package.log_paths)), 2)
    package.edit(lambda log: log.last("run_stop").record["metadata"].update(ended="failed", cause=CAUSES[0]), *which)


F36 += on_each("F36", "suite deepcam", "two runs say that they failed", ENDED, two_runs_end)

COURSE = (*F08, *F32, *F36)


STEP_FIELDS = ("step_num", "step")
STEPS, RANKS = ("step",), ("rank",)
NUMBER_OF_RANKS = "number_of_ranks"


# -- F06: steps and batch size ------------------------------------------------------------------------------------


@of_each_log
def steps_times(log: LogText, rng: Random, *factors: float, first: int = 0) -> None:
    """Multiply all numbers of steps, from the epoch at a position on."""
    factor, start = rng.choice(factors), log.first("epoch_start", log.numbers[first])
    before = start.record["metadata"].get("step_num", 0) if first else 0
    for line in (start, *log.behind(start)):
        for name in STEP_FIELDS:
            steps = line.record["metadata"].get(name)
            if isinstance(steps, int):
                kept = before if name == "step_num" or "epoch" in line.record["metadata"] else 0
                line.record["metadata"][name] = int(kept + (steps - kept) * factor)


@of_each_log
def batch_times(log: LogText, rng: Random, *factors: float) -> None:
    """Claim another batch size; the steps stay."""
    line = log.first("global_batch_size")
    line.record["value"] = batch = int(line.record["value"] * rng.choice(factors))
    for made in log.all("provenance"):
        made.record["value"]["config"]["train"]["global_batch_size"] = batch


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


@take_arguments
def one_run_of(package: Submission, rng: Random, key: str, *values: Any) -> None:
    """Let it be that one run states another value."""
    value, at = rng.choice(values), rng.randrange(len(package.log_paths))
    package.edit(lambda log: log.state(key, value), at)


F07 = [
    *on_each("F07", "Dell deepcam, suite cosmoflow, suite deepcam", "one rank", RANKS, states(NUMBER_OF_RANKS, 1)),
    *on_each("F07", "suite cosmoflow", "ranks that no batch is divided by", RANKS, states(NUMBER_OF_RANKS, 63, 60, 48)),
    *on_each(
        "F07",
        "Dell deepcam, suite deepcam",
        "more ranks than samples in a batch",
        RANKS,
        states(NUMBER_OF_RANKS, 512, 1024, 4096),
    ),
    *on_each(
        "F07",
        "Clemson deepcam, suite cosmoflow",
        "more ranks than accelerators",
        RANKS,
        states(NUMBER_OF_RANKS, 256, 192, 128),
    ),
    *on_each(
        "F07",
        "Dell deepcam, Clemson deepcam",
        "one run has another number of ranks",
        RANKS,
        one_run_of("number_of_ranks", 64, 8, 32),
    ),
]

# -- F18 and others: parts of epochs, rates -----------------------------------------------------------------------


@of_each_log
def epoch_of_few_steps(log: LogText, rng: Random, *which: int) -> None:
    """Let it be that epochs at some positions trained a tenth of the steps."""
    number = log.numbers[rng.choice(which)]
    if not any("step_num" in line.record["metadata"] for line in log.timed):
        for line in log.of_epoch(number, "learning_rate", "tracked_stats"):
            line.record["metadata"]["step"] //= 10
        return
    begin = log.first("epoch_start", number).record["metadata"]["step_num"]
    steps = log.last("epoch_stop", number).record["metadata"]["step_num"] - begin
    gone = steps - steps // 10
    for line in log.timed:
        for name in STEP_FIELDS:
            if isinstance(count := line.record["metadata"].get(name), int) and count > begin:
                line.record["metadata"][name] = max(begin + 1, count - gone)


@of_each_log
def epoch_of_little_time(log: LogText, rng: Random, part: float) -> None:
    """Let it be that an epoch of the middle takes a part of its time."""
    number = log.numbers[log.inner(rng, 2, 2)]
    start = log.first("epoch_start", number)
    stop_ms = min(line.time for line in log.of_epoch(number, "epoch_stop", "eval_start"))
    gone_ms = round((stop_ms - start.time) * (1 - part))
    map_times(log.behind(start), lambda time_ms: max(start.time, time_ms - gone_ms))


@of_each_log
def rates_times(
    log: LogText, rng: Random, *factors: float, keys: tuple[str, ...] = ("tracked_stats", "throughput")
) -> None:
    """Multiply the throughput in tracked_stats and in records of its own, or that of some keys."""
    factor = rng.choice(factors)
    for line in log.all(*keys):
        value = line.record["value"]
        fields, name = (value, "throughput") if isinstance(value, dict) else (line.record, "value")
        fields[name] *= factor


@of_each_log
def run_stops_later(log: LogText, rng: Random, epochs: int) -> None:
    """Let it be that its run_stop names a later epoch than the last."""
    log.last("run_stop").number = log.numbers[-1] + epochs


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
        rates_times(0.1, 0.2, 0.4),
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
        states("val_every_iters", 20, 80),
    ),
    *on_each(
        "own",
        "Dell deepcam",
        "one run on other accelerators per node",
        ("accelerators",),
        one_run_of("accelerators_per_node", 2, 8),
    ),
    *on_each("own", "suite cosmoflow", "run_stop names another epoch", ("epoch",), run_stops_later(9)),
]
AMOUNTS = (*F06, *F07, *F18, *OWN)
