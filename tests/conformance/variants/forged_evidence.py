"""Forged logs that contradict themselves: by times, rates, learning rates, losses, steps, marks and endings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_packages import STEP_FIELDS, ends, rates_times, states
from tests.conformance.variants.logtext import EVALUATION_KEYS, POINT, Line, LogText, map_times, take_arguments
from tests.conformance.variants.table import (
    Case,
    Edit,
    LogEdit,
    Random,
    alike,
    bytes_of,
    in_family,
    in_turn,
    of_each_log,
)
from tests.conformance.variants.valid_logs import change_lines

BASES = {
    "CF": "Fujitsu cosmoflow",
    "CN": "NVIDIA cosmoflow",
    "DC": "Dell deepcam",
    "H2": "NVIDIA cosmoflow",
    "H2D": "Clemson deepcam",
    "ND": "NVIDIA deepcam",
    "OC": "NVIDIA oc20",
    "OF": "TACC openfold",
    "": "Dell deepcam",
}
"""By their short names in the families; "": of a row that names none."""

Change = Callable[[Line], Any]


# -- what edits are made of ---------------------------------------------------------------------------------------


@of_each_log
def change_all(log: LogText, rng: Random, change: Change, *keys: str) -> None:
    """Change all records in all logs, or those of some keys."""
    change_lines(change, *keys)(log, rng)


@take_arguments
def in_runs(package: Submission, rng: Random, which: slice, edit: LogEdit) -> None:
    """Edit some of the logs."""
    for path in package.log_paths[which]:
        edit(package.text(path), rng)


ONE, HALF = slice(2, 3), slice(0, None, 2)


def set_value(value: Any) -> Change:
    """Return the change of a record's value."""
    return lambda line: line.record.update(value=value)


def multiply(factor: float) -> Change:
    """Return the change that multiplies a record's value."""
    return lambda line: line.record.update(value=line.record["value"] * factor)


@of_each_log
def shrink(log: LogText, rng: Random, factor: float) -> None:
    """Multiply all times after run_start by a number; what the log states of them is left."""
    start = log.last("run_start")
    map_times(log.behind(start), lambda time_ms: round(start.time + (time_ms - start.time) * factor))


@of_each_log
def state_rates_once(log: LogText, rng: Random) -> None:
    """State rates as throughput alone, not in tracked_stats."""
    stats = log.all("tracked_stats")
    if log.all("throughput"):
        log.remove(stats)
    for line in stats:
        line.record |= {"key": "throughput", "value": line.record["value"]["throughput"]}


def shrink_with_rates_once(factor: float) -> Edit:
    """Return the same edit of logs that state rates as throughput alone, not in tracked_stats."""
    return in_turn(state_rates_once(), shrink(factor))


# -- G01: the clock -----------------------------------------------------------------------------------------------

STATED = {
    "CN": ("time, latencies and tracked_stats are left", shrink),
    "H2": ("time, latencies and throughput are left", shrink_with_rates_once),
    "DC": ("throughput and tracked_stats are left", shrink),
    "ND": ("throughput and tracked_stats are left", shrink),
    "H2D": ("throughput is left", shrink_with_rates_once),
}
"""By base, what states the times beside them, and the edit."""
G01 = [
    *in_family(
        "G01",
        BASES,
        {
            f"{base}_{factor}": (f"times x {factor}: {stated}", edit(factor))
            for base, (stated, edit) in STATED.items()
            for factor in (0.97, 0.95, 0.92, 0.88)
        },
        subject=("time", "latenc", "throughput", "samples"),
    ),
    *in_family(
        "G01",
        BASES | {"OC": "CSCS oc20"},
        {
            f"{base}_{factor}": (f"times x {factor}: nothing else states them", shrink(factor))
            for factor in (0.95, 0.9)
            for base in ("OC", "CF")
        },
        accepted=("PASS", "WARN", "FAIL"),
    ),
]

# -- G02: the learning rate ---------------------------------------------------------------------------------------

G02 = in_family(
    "G02",
    BASES,
    {
        "DC_lr_x2": ("opt_lr is twice what was trained with", states("opt_lr", 0.005)),
        "DC_lr_half": ("opt_lr is half", states("opt_lr", 0.00125)),
        "DC_milestones": ("rates should fall at 1000 steps", states("scheduler_milestones", [1000, 2000])),
        "DC_warmup": ("rates should rise for 2000 steps", states("scheduler_lr_warmup_steps", 2000)),
        "DC_decay": ("rates should fall by a tenth", states("scheduler_decay_rate", 0.9)),
        "ND_lr_x4": ("opt_lr is four times", states("opt_lr", 0.022)),
        "ND_warmup_0": ("rates rise for seven epochs", states("scheduler_lr_warmup_steps", 0)),
        "ND_milestones": ("rates fall at 800 steps", states("scheduler_milestones", [8000])),
        "CN_base_half": ("the base rate is half", change_all(multiply(0.5), "opt_base_learning_rate")),
        "CN_boundaries": (
            "rates fall at 19 epochs",
            in_turn(
                states("opt_learning_rate_decay_boundary_epochs", [30, 40]),
                states("opt_learning_rate_decay_factor", [0.5, 0.25]),
            ),
        ),
        "CN_warmup_epochs": ("rates rise for six epochs", states("opt_learning_rate_warmup_epochs", 1)),
        "H2_factor": (
            "rates fall to a sixteenth",
            states("opt_learning_rate_decay_factor", [0.99, 0.98, 0.97, 0.96]),
        ),
        "DC_records_x10": ("the records are ten times the rate", change_all(multiply(10), "learning_rate")),
        "CN_lr_half": (
            "the records are many times the rate",
            change_all(lambda line: line.record["metadata"].update(lr=0.5), "epoch_start"),
        ),
    },
    subject=("learning rate", "learning_rate", "opt_lr", "lr ", "milestone", "warm", "decay", "boundar"),
)

# -- G08: facts ---------------------------------------------------------------------------------------------------


@of_each_log
def grow_losses(log: LogText, rng: Random) -> None:
    """Let eval_loss grow from 3 to 11."""
    lines = log.all("eval_loss")
    for at, line in enumerate(lines):
        line.record["value"] = 3 + 8 * at / (len(lines) - 1)


def divide_steps(by: int) -> Change:
    """Return the change that divides a record's steps."""

    def divide(line: Line) -> None:
        metadata = line.record["metadata"]
        metadata |= {name: metadata[name] // by for name in STEP_FIELDS if name in metadata}

    return divide


def stage_longer(factor: float) -> Change:
    """Return the change that multiplies the time of staging, where a record has it in its value."""

    def stage(line: Line) -> None:
        value = line.record["value"]
        value |= {name: seconds * factor for name, seconds in value.items() if name == "staging_duration"}

    return stage


G08 = in_family(
    "G08",
    BASES,
    {
        "DC_opt_step": ("the optimizer was resumed", states("opt_step", 5000), "opt_step"),
        "ND_opt_step": ("the optimizer was resumed", states("opt_step", 800), "opt_step"),
        "OF_lddt_07": ("an easier target", states("target_avg_lddt_ca_value", 0.7), "target_avg"),
        "OF_parameters": ("a smaller network", states("model_parameters_count", 9_322_908), "parameters"),
        "OF_sha": ("another initial checkpoint", states("init_checkpoint_sha256sum", "ab" * 32), "checkpoint"),
        "OF_date": ("data up to 2023", states("train_max_pdb_release_date", "2023-09-16"), "pdb_release"),
        "OF_recycling": ("a cheaper step", states("num_recycling_iters", 0), "recycling"),
        "OF_val_len": ("a cheaper evaluation", states("val_max_sequence_length", 70), "sequence_length"),
        "DC_eval_loss_up": ("eval_loss grows while the accuracy rises", grow_losses(), "loss"),
        "DC_eval_loss_nan": ("losses are NaN", change_all(set_value(float("nan")), "train_loss", "eval_loss"), "loss"),
        "DC_train_loss_const": (
            "train_loss and train_accuracy are constant",
            in_turn(states("train_loss", 0.7), states("train_accuracy", 0.1)),
            "loss",
            "train_accuracy",
        ),
        "DC_throughput_record": (
            "a tenth of that of tracked_stats",
            rates_times(0.1, keys=("throughput",)),
            "throughput",
        ),
        "DC_result_step": ("half the steps of their epochs", change_all(divide_steps(2), "eval_accuracy"), "step"),
        "DC_stats_step": (
            "a third of the steps",
            change_all(divide_steps(3), "learning_rate", "train_loss", "tracked_stats"),
            "step",
        ),
        "ND_mmap": ("half of the data", states("data_oversampling_factor", 0.5), "oversampl"),
        "H2D_no_shuffle": ("a fixed order", states("shuffle_mode", "none"), "shuffle"),
        "DC_reached_early": ("above all results", states("target_accuracy_reached", 0.9), "target_accuracy_reached"),
        "OC_staging_stats": (
            "tracked_stats states longer staging",
            change_all(stage_longer(100), "tracked_stats"),
            "staging",
        ),
    },
)

# -- G09: file and line -------------------------------------------------------------------------------------------


def move_marks(log: LogText, rng: Random) -> None:
    """Let all records come from other lines of the same files."""
    for line in log.timed:
        line.record["metadata"]["lineno"] += 7


def rename_marks(log: LogText, rng: Random) -> None:
    """Let all records come from other files."""
    for line in log.timed:
        line.record["metadata"]["file"] = line.record["metadata"]["file"].replace(".py", "_fast.py")


def write_by_editor(log: LogText, rng: Random) -> None:
    """Let all records of evaluations come from an editor of logs."""
    for line in log.all(*EVALUATION_KEYS, log.target.key):
        line.record["metadata"] |= {"file": "/home/x/edit_logs.py", "lineno": 12}


def move_late_results(log: LogText, rng: Random) -> None:
    """Let the second half of the results come from another line."""
    for line in log.results[len(log.results) // 2 :]:
        line.record["metadata"]["lineno"] += 31


G09 = in_family(
    "G09",
    BASES,
    {
        f"{base}_{name}": row
        for base in ("DC", "CF", "OC", "CN")
        for name, row in {
            "one_run_other_lines": ("one run comes from other lines", in_runs(ONE, move_marks)),
            "half_other_files": ("half of the runs come from other files", in_runs(HALF, rename_marks)),
        }.items()
    }
    | {
        "DC_results_by_editor": ("the results of one run come from another file", in_runs(ONE, write_by_editor)),
        "DC_within_one_log": ("late results of one run come from another line", in_runs(ONE, move_late_results)),
    },
    subject=("file", "line", ".py"),
)

# -- G11: resumption ----------------------------------------------------------------------------------------------


@take_arguments
def resume(log: LogText, rng: Random, at: int, pause_ms: int, number: int | None = None) -> None:
    """Resume behind the epoch at a position (from 1, 0: before all), and go on so much later.

    number: that of the epoch from which it says to go on, if not that one.
    """
    start = log.first("epoch_start", log.numbers[at])
    behind = log.before(start)
    number = log.numbers[at - 1] if number is None else number
    line = log.add(start, behind, 20, key="run_resumed", event_type=POINT, number=number)
    for key, kind, later_ms in (("staging_start", "INTERVAL_START", 0), ("staging_stop", "INTERVAL_END", 1)):
        line = log.add(line, line, later_ms, key=key, event_type=kind)
        line.record["metadata"].pop("epoch_num", None)
    log.delay(line, line.time + pause_ms - start.time)


SUITE = {"": "suite cosmoflow"}
MINUTES_MS = 600_000
G11 = [
    *in_family(
        "G11",
        SUITE,
        {
            "resumed_5ms": ("no job restarts so soon", alike(resume(6, 5))),
            "resumed_1s": ("no job restarts so soon", alike(resume(6, 1000))),
            "resumed_one_of_ten_5ms": ("one of ten restarts so soon", in_runs(ONE, resume(6, 5))),
            "resumed_before_first": ("twelve epochs were trained elsewhere", alike(resume(0, 5, 12))),
        },
        subject=("resum", "restart", "pause"),
    ),
    *in_family(
        "G11",
        SUITE,
        {
            "resumed_4_times": (
                "every run resumes four times",
                alike(in_turn(*(resume(at, MINUTES_MS) for at in (4, 8, 12, 16)))),
            )
        },
        accepted=("PASS", "WARN"),
    ),
]

# -- G19: run_stop ------------------------------------------------------------------------------------------------

G19 = in_family(
    "G19",
    BASES,
    {
        "value_failed": ("its value is failed", states("run_stop", "failed")),
        "value_error_object": ("its value is an error", states("run_stop", {"error": "RuntimeError: NCCL timeout"})),
        "value_nan": ("its value is NaN", states("run_stop", float("nan"))),
        "exit_code_137": ("killed", ends(exit_code=(137,))),
        "returncode": ("failed", ends(returncode=(1,))),
        "signal": ("killed", ends(signal=("SIGKILL",))),
        "error_text": ("failed", ends(error=("CUDA error",))),
        "exception": ("interrupted", ends(exception=("KeyboardInterrupt",))),
        "target_reached_false": ("did not reach the target", ends(target_reached=(False,))),
        "success_false": ("no success", ends(success=(False,))),
        "final_accuracy": ("ended below the target", ends(eval_accuracy=(0.71,))),
        "state_cancelled": ("cancelled", ends(state=("CANCELLED",))),
        "ended_de": ("timed out", ends(ended=("timeout",))),
        "status2": ("aborted", ends(Status=("aborted",))),
        "cause_oom": ("killed", ends(cause=("oom-kill",))),
        "cause_success_word": ("failed", ends(cause=("failed before the target was reached successfully",))),
    },
    subject=("run_stop", "value", "status", "ended", "cause"),
)

# -- G20: reports and numbers -------------------------------------------------------------------------------------


@of_each_log
def repeat_value(log: LogText, rng: Random, key: str, at: int, of: str, first: int) -> None:
    """Give a record of a key, at a position, the value that one of a key has."""
    log.all(key)[at].record["value"] = log.all(of)[first].record["value"]


@of_each_log
def cut_time(log: LogText, rng: Random, key: str, at: int) -> None:
    """Take the time out that passes before a record of a key, at a position."""
    line = log.all(key)[at]
    log.delay(log.before(line), log.before(line).time + 5 - line.time)


@of_each_log
def skip_steps(log: LogText, rng: Random, number: int) -> None:
    """Count so many steps more in the second half of the log."""
    half = log.first("epoch_start", log.numbers[len(log.numbers) // 2])
    for line in log.behind(log.before(half)):
        metadata = line.record["metadata"]
        metadata |= {name: metadata[name] + number for name in STEP_FIELDS if name in metadata}


@of_each_log
def hasten_epochs(log: LogText, rng: Random) -> None:
    """Let epochs start and stop sooner than their reports, and sort the lines by time."""
    start = log.last("run_start")
    lines = log.all("epoch_start", "epoch_stop", *EVALUATION_KEYS, log.target.key, "run_stop")
    map_times(lines, lambda time_ms: round(start.time + (time_ms - start.time) * 0.7))
    log.lines.sort(key=lambda line: line.time if line.record else 0)


G20 = in_family(
    "G20",
    BASES | {"LB": "LBNL deepcam"},
    {
        "DC_result_twice": ("the result of another epoch", repeat_value("eval_accuracy", -2, "eval_accuracy", 1)),
        "CF_result_twice": ("the result of another epoch", repeat_value("eval_error", -2, "eval_error", 1)),
        "DC_loss_twice": ("the loss of another epoch", repeat_value("eval_loss", -1, "eval_loss", 2)),
        "DC_train_accuracy": ("the result is one of training", repeat_value("eval_accuracy", 4, "train_accuracy", -1)),
        "DC_cut_time": ("an epoch of training takes no time", cut_time("learning_rate", 4)),
        "LB_skip_steps": ("a thousand steps take no time", skip_steps(1000)),
        "LB_hasten_epochs": ("reports come after their epochs", hasten_epochs()),
        "DC_batch_of_ranks": ("128 ranks cannot share it", states("global_batch_size", 300)),
        "DC_group_of_ranks": ("128 ranks make no groups of 3", states("batchnorm_group_size", 3)),
    },
    subject=("also", "steps", "epoch", "ranks"),
)

EVIDENCE: tuple[Case, ...] = (*G01, *G02, *G08, *G09, *G11, *G19, *G20)
# -- G30: what is around the records ------------------------------------------------------------------------------


def write_around(write: Callable[[dict[str, Any], bytes], bytes]) -> Edit:
    """Return the edit that writes each line of a log without text anew, by its record."""
    return bytes_of(
        lambda data, rng: b"".join(
            write(json.loads(line.partition(b":::MLLOG")[2]), line) + b"\n" for line in data.splitlines()
        )
    )


def write_before(key: str, text: str) -> Edit:
    """Return the edit that writes a line of text before the records of a key."""
    return write_around(lambda record, line: text.encode() + b"\n" + line if record["key"] == key else line)


def label_dates(speed: float = 1.0, zone_s: int = 0) -> Edit:
    """Return the edit that writes a time before each record, by a clock that goes at this speed from run_start on."""
    starts = [0.0]

    def label(record: dict[str, Any], line: bytes) -> bytes:
        seconds = record["time_ms"] / 1000
        starts[0] = seconds if record["key"] in ("submission_benchmark", "run_start") else starts[0]
        clock = starts[0] + zone_s + (seconds - starts[0]) * speed
        return time.strftime("[%H:%M:%S] ", time.gmtime(clock)).encode() + line

    return write_around(label)


def print_results(last: float = 1.0) -> Edit:
    """Return the edit that prints results after their records, the one that meets the target times a number."""

    def print_result(record: dict[str, Any], line: bytes) -> bytes:
        if record["key"] != "eval_error":
            return line
        return line + b"\nval_mae: %.6f" % (record["value"] * (last if record["value"] <= 0.124 else 1))

    return write_around(print_result)


G30 = in_family(
    "G30",
    {"": BASES["CF"]},
    {
        "unlabelled": (
            "results lack the label",
            write_around(lambda record, line: b"0: " * (record["key"] not in ("run_start", "run_stop")) + line),
        ),
        "slower_labels": ("by the labels the run took longer", label_dates(speed=1.2)),
        "printed_result": ("the last result printed is worse", print_results(1.1)),
        "other_batch": ("the text says another batch", write_before("run_start", "--global-batch-size 96")),
        "longer_in_all": ("the text says a longer time", write_before("run_stop", "Total training time: 99999.5 s")),
    },
    subject=("label", "text"),
)

EVIDENCE: tuple[Case, ...] = (*G01, *G02, *G08, *G09, *G11, *G19, *G30)
"""Forged results whose logs say what contradicts them, and some that nothing contradicts."""
