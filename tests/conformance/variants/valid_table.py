"""The table of valid variants: the rows, by group; what is done stands in `valid_logs`, `valid_runs` and beside."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from compliance.samples.package import SamplePackage
from tests.conformance.variants import valid_logs as logs
from tests.conformance.variants import valid_runs as runs
from tests.conformance.variants import valid_submissions as files
from tests.conformance.variants.damaged_logs import FILE_EDITS
from tests.conformance.variants.logtext import COURSE
from tests.conformance.variants.table import Case, Edit, LogEdit, bytes_of, each, in_turn, some, together


def valid(name: str, edit: Edit, reason: str = "", **columns: Any) -> Case:
    """Return the row of a variant of a submission."""
    return Case(name, edit, (), "submission", reason, **columns)


def in_each(name: str, edit: LogEdit, reason: str = "", **columns: Any) -> Case:
    """Return the row of a variant of all logs of a result, each by draws of its own."""
    return valid(name, each(edit), reason, **columns)


def in_some(name: str, edit: LogEdit, reason: str = "", **columns: Any) -> Case:
    """Return the row of a variant of one to three logs of a result."""
    return valid(name, some(edit), reason, **columns)


def in_bytes(name: str, edit: logs.BytesEdit, reason: str = "") -> Case:
    """Return the row of a variant of the bytes of all logs of a result."""
    return valid(name, bytes_of(edit), reason)


def of_logs(base: str, lift: Callable[[Any], Edit], edits: dict[str, Any], **columns: Any) -> tuple[Case, ...]:
    """Return rows of variants of single logs, or of a few runs."""
    return tuple(Case(name, lift(edit), (), base, "", **columns) for name, edit in edits.items())


LAUNCHERS = (
    in_bytes("numbered_ranks", logs.number_ranks, "as srun -l does"),
    valid(
        "times_before_lines",
        bytes_of(
            logs.write_lines(
                lambda at, line, rng: b"Wed Sep  6 10:%02d:%02d 2023[1,0]<stdout>:%s\n" % (at // 60 % 60, at % 60, line)
            )
        ),
        "mpirun --timestamp-output",
        allowed=("FRM14",),  # the times are those of no run
    ),
    in_bytes(
        "lines_of_kubernetes",
        logs.write_lines(
            lambda at, line, rng: b"2023-09-06T10:%02d:%02d.%09dZ stdout F %s\n" % (at // 60 % 60, at % 60, at, line)
        ),
        "a container's log",
    ),
    in_bytes(
        "progress_bars",
        logs.write_lines(lambda at, line, rng: (logs.BAR if rng.random() < 0.3 else b"") + line + b"\n"),
        "drawn before some records",
    ),
    in_bytes(
        "output_of_other_ranks",
        logs.write_lines(lambda at, line, rng: line + b"\n" + (logs.WARNED if rng.random() < 0.2 else b"")),
        "warnings between the records",
    ),
    in_bytes(
        "coloured_lines",
        logs.write_lines(lambda at, line, rng: b"\x1b[36m(train pid=9%d, ip=10.0.0.7)\x1b[0m %s\n" % (at % 9, line)),
        "before each record",
    ),
    in_bytes("output_of_the_job", lambda data, rng: logs.MODULES + data + logs.TIMING, "of its script"),
    in_bytes(
        "byte_order_mark",
        lambda data, rng: b"\xef\xbb\xbf" + logs.write_lines(lambda at, line, rng: line + b"\r\n")(data, rng),
        "and line ends as editors of Windows write them",
    ),
    in_bytes(
        "members_before_records",
        logs.write_lines(lambda at, line, rng: b'{"rank": 0, "level": "INFO", "key": "x"} ' + line + b"\n"),
        "fields of a logging library",
    ),
    in_bytes(
        "some_lines_prefixed",
        logs.write_lines(lambda at, line, rng: (b"[1,0]<stdout>: " if rng.random() < 0.5 else b"") + line + b"\n"),
        "those that came through the launcher",
    ),
    in_bytes(
        "text_before_records",
        logs.write_lines(lambda at, line, rng: b"INFO:mlperf:step %d of 4096 done; %s\n" % (at, line)),
        "in the same line",
    ),
)
EMITTERS = (
    in_bytes("members_in_another_order", logs.rewrite(logs.draw_order), "in each record"),
    in_bytes(
        "compact_json",
        logs.rewrite(lambda rng: lambda record: json.dumps(record, separators=(",", ":"), sort_keys=True)),
        "no space, members sorted",
    ),
    in_bytes(
        "spaced_json",
        logs.rewrite(lambda rng: lambda record: json.dumps(record, separators=("  ,  ", "  :  "))),
        "many spaces",
    ),
    in_bytes(
        "floats_with_exponents",
        logs.rewrite(logs.draw_floats("{:.16e}", "{:.16E}")),
        "5.0000000000000003e-02, as C does",
    ),
    in_bytes("floats_of_seventeen_digits", logs.rewrite(logs.draw_floats("{:.17g}")), "0.050000000000000003"),
    valid(
        "escaped_texts",
        bytes_of(logs.rewrite(lambda rng: logs.escape_letters)),
        "letters of texts",
        open="PRV01 reads bytes, not records",
    ),
    in_each("more_members", logs.add_members, "of records and metadata"),
    in_each("no_file_and_line", logs.leave_out_places, "but for the seed"),
    in_each("times_as_floats", logs.change_times(lambda time_ms: float(time_ms) + 0.125), "with microseconds"),
    in_each(
        "epochs_and_settings_as_floats",
        in_turn(logs.write_with_a_point, logs.write_epochs_with_a_point),
        "all whole numbers",
    ),
    in_each("more_keys", logs.log_much, "that no rule asks for"),
)
INTERLEAVING = (
    in_each("starts_by_several_ranks", runs.by_ranks("epoch_start", "eval_start")),
    in_each("epoch_starts_by_several_ranks", runs.by_ranks("epoch_start", spread_ms=500), "some half a second late"),
    in_each("evaluations_by_several_ranks", runs.by_ranks("eval_start", "eval_stop")),
    in_each("stops_by_several_ranks", runs.by_ranks("epoch_stop", "eval_stop")),
    in_each("results_by_several_ranks", runs.by_ranks(), "the same result"),
    in_each(
        "results_of_ranks_apart",
        in_turn(runs.require_far_from_the_target, runs.by_ranks(change=runs.differ_by_rounding)),
        "by rounding",
    ),
    in_each("everything_by_several_ranks", runs.by_ranks(*COURSE), "all of the course"),
    in_each("stop_of_a_late_rank", runs.stop_late, "when the next epoch has begun"),
    in_each("losses_of_each_rank", runs.log_losses, "by clocks that are some milliseconds apart"),
    in_each("lines_of_ranks_swapped", runs.swap_lines, "within two milliseconds"),
)
CLOCKS = (
    in_some("clock_set_back", runs.set_clock(1, 900, -1), "by less than a second within training"),
    in_some("clock_set_forward", runs.set_clock(1, 900), "by less than a second within training"),
    in_each("clock_set_often", runs.set_clock_often, "by some milliseconds"),
    in_each("clock_that_drifts", runs.drift, "up to a second in an hour"),
    in_each(
        "times_in_tens_of_milliseconds", logs.change_times(lambda time_ms: time_ms // 10 * 10), "as some kernels do"
    ),
    in_each("times_in_whole_seconds", logs.write_whole_seconds),
    in_each("run_start_before_init_stop", runs.start_run_before_init_stop, "another rank wrote it first"),
    in_each("clock_of_another_node", runs.log_by_another_clock, "late by some 100 ms, for what no rule asks for"),
)
EVALUATIONS = (
    in_each("asynchronous_evaluations", logs.evaluate_late(lambda rng: rng.randint(1, 3)), "one to three epochs late"),
    in_each("five_evaluations_in_flight", logs.evaluate_late(lambda rng: 5), "when the run stops"),
    in_each(
        "evaluations_never_started",
        logs.evaluate_late(lambda rng: rng.randint(1, 4), in_flight=False),
        "since the target is met",
    ),
    in_each("last_evaluation_without_a_stop", lambda log, rng: log.remove([log.last("eval_stop")]), "at the result"),
    in_each("long_evaluations", logs.evaluate_long, "as long as an epoch"),
    in_each("target_met_in_the_next_epoch", logs.meet_target_in_the_next_epoch, "as soon as there is a result"),
    in_each("result_behind_eval_stop", logs.move_results("eval_stop")),
    in_each("result_behind_epoch_stop", logs.move_results("epoch_stop")),
    in_each("evaluation_within_the_epoch", logs.evaluate_within_epochs),
    in_each("next_epoch_starts_early", logs.start_next_epochs_early),
    in_each("epoch_stop_of_the_last_missing", logs.drop_last_epoch_stop),
    in_each("few_evaluations", logs.evaluate_some_epochs),
    in_each("goes_on_after_the_target", logs.go_on_after_the_target),
)
PACE = (
    in_some(
        "slow_epoch",
        runs.slow(
            lambda numbers, rng: [rng.choice(numbers)],
            lambda _: lambda rng, at, count: rng.choice((2, 4, 6, 13, 30, 60)),
        ),
        "2 to 60 times as long",
    ),
    in_some("slow_epochs", runs.slow(runs.two_or_three, runs.evenly(4, 6)), "as a file system that stalls"),
    in_some(
        "slow_epochs_of_a_short_run",
        runs.slow(runs.two_or_three, runs.evenly(4, 6), few=True),
        "of 9 to 14 epochs",
    ),
    in_some("very_slow_epochs", runs.slow(runs.two_or_three, runs.evenly(20, 60)), "20 to 60 times as long"),
    in_each(
        "cold_first_epochs",
        runs.slow(lambda numbers, rng: numbers[: rng.randint(1, 3)], runs.cool_down),
        "the data are read for the first time",
    ),
    in_each(
        "machine_that_slows_down",
        runs.slow(runs.all_epochs, runs.heat_up),
        "each epoch by 2 to 10 %",
        open="ORD18, in round 0.7",
    ),
    in_each(
        "machine_that_speeds_up",
        runs.slow(runs.all_epochs, lambda _: lambda rng, at, count: 1 + rng.uniform(0.05, 0.1) * (count - at)),
        "as neighbours leave",
    ),
    in_some(
        "slow_for_a_while",
        runs.slow_for_a_while,
        "half of the epochs",
    ),
    in_each("machine_with_neighbours", runs.slow(runs.all_epochs, runs.evenly(1, 1.6)), "up to 1.6 times as long"),
    in_each(
        "fast_and_slow_in_turn",
        runs.slow(lambda numbers, rng: numbers[:: rng.choice((2, 3))], runs.by_one_factor),
        "half of the data lies on a slower disk",
    ),
    in_each("checkpoints_between", runs.write_checkpoints, "some epochs, 1 to 300 s"),
    in_some("hour_between_epochs", runs.suspend, "the machine is suspended"),
    in_some(
        "slow_evaluation",
        lambda log, rng: log.delay(rng.choice(log.all("eval_start")), rng.randint(60_000, 1_800_000)),
        "its data are read for the first time",
    ),
    valid("slow_run", files.slow_down_a_run, "up to 1.4 times as long as the others"),
    in_each("pause_before_run_start", runs.wait_for_ranks, "up to 4 s"),
)
SUBMISSIONS = (
    valid("text_files_at_the_top", files.add_texts, "README, licence, notes"),
    valid(
        "readme_beside_logs",
        files.add_files(lambda submission: submission.folder, b"# How these were made\n", "README.md"),
        "the committee's tool refuses it",
        allowed=("PKG03",),
    ),
    valid(
        "plots_beside_logs",
        files.add_files(lambda submission: submission.folder, b"\x89PNG\r\n\x1a\n", "curves.png"),
        "the committee's tool refuses them",
        allowed=("PKG03",),
    ),
    valid(
        "readme_of_the_system",
        files.add_files(lambda submission: submission.folder.rpartition("/")[0], b"# This system\n", "README.md"),
    ),
    valid(
        "documentation",
        files.add_files(
            lambda submission: f"{submission.root}/documentation",
            b"%PDF-1.4\n",
            "calibration.md",
            "system.pdf",
            "plots/curve.png",
        ),
    ),
    valid("system_with_a_version", files.name_system, "that of its framework"),
    valid("runs_in_a_folder_with_a_version", files.keep_runs_alone, "not in a submission"),
    valid("organisation_with_a_version", files.name_organisation, "below a folder that names the round"),
    valid(
        "results_repository",
        lambda submission, rng: submission.rename(
            f"v{submission.round}/", f"clones-1.0/hpc_results_v{submission.round}/"
        ),
        "in a folder of a user",
    ),
    valid("description_in_another_order", files.shuffle_description, "and form"),
    valid(
        "description_with_more",
        lambda submission, rng: submission.describe(submission.read_description() | files.MORE_FIELDS),
        "than the rules ask for",
    ),
    valid("several_systems", files.add_system, "each with runs of its own"),
    valid("several_benchmarks", files.add_benchmarks),
    valid("pruned_instances", files.become(files.prune_instances), "those that took longest"),
    valid(
        "many_instances",
        files.become(
            lambda name, rng: SamplePackage(name, scaling="weak", runs=rng.randint(20, 48)).with_time_to_train(),
        ),
    ),
    valid(
        "throughput_and_time_to_train",
        files.become(lambda name, rng: SamplePackage(name, scaling="weak", runs=12).with_time_to_train(), choose=False),
    ),
    valid("waived_result", files.waive, "it converges too fast", allowed=("RCP01",)),
    valid(
        "open_division",
        files.become(lambda name, rng: SamplePackage(name, "3.0", "open", settings={"opt_weight_decay": 0.02})),
    ),
    valid("numbered_from_zero", files.number_from_zero),
    valid(
        "failed_run_without_a_seed",
        files.fail_one(lambda data, rng: b"".join(data.splitlines(keepends=True)[: rng.randint(1, 5)])),
        "one run may fail",
        verdict="FAIL",
    ),
    valid(
        "failed_run_without_a_record",
        files.fail_one(lambda data, rng: rng.choice((b"", b"+ srun python train.py\nsrun: error: node failure\n"))),
        "one run may fail",
        verdict="FAIL",
    ),
    valid(
        "failed_run_cut_off",
        files.fail_one(lambda data, rng: data[: data.rfind(b"\n", 0, len(data) // 2) + 1]),
        "one run may fail",
        verdict="FAIL",
    ),
    valid("runs_at_once", together(files.start_together), "as an ensemble"),
    valid("runs_one_after_another", together(files.start_one_after_another)),
    valid("runs_from_one_checkpoint", together(files.share_first_results)),
    valid("very_regular_runs", together(files.make_regular), "a machine without other users"),
    valid("same_last_result", together(files.share_last_result)),
    in_each("results_of_few_digits", logs.round_results(4), "four behind the point"),
    valid("more_code", files.add_code),
)
RESTARTS = (
    in_some("epoch_starts_again", runs.start_again("epoch_start"), "as elastic training does"),
    in_some("epoch_starts_again_elsewhere", runs.start_again("epoch_start", host="spare-03", restart=1)),
    in_some("epoch_starts_three_times", runs.start_again("epoch_start", times=2)),
    in_some("evaluation_starts_again", runs.start_again("eval_start")),
    in_some("run_resumed", runs.resume, "behind the last epoch that is in the log"),
    in_some("data_staged_again", runs.start_again("epoch_start", staged=True)),
    in_some("data_staged_again_between_epochs", runs.resume_and_stage),
    in_some(
        "evaluated_after_a_restart",
        lambda log, rng: log.delay(rng.choice(log.all("epoch_stop")[1:-1]), rng.randint(60_000, 3_600_000)),
        "between an epoch and its evaluation, up to an hour is lost",
    ),
)
POWER = (
    valid("meters_without_change", lambda submission, rng: files.measure_power(submission)),
    valid("more_nodes", lambda submission, rng: files.measure_power(submission, rng.randint(3, 8))),
    valid("one_reading_missing", files.change_meters(files.lose_reading)),
    valid("meters_start_earlier", files.change_meters(files.start_earlier)),
    valid(
        "whole_watts",
        files.change_meters(files.change_readings(lambda record, rng: record.update(value=round(record["value"])))),
    ),
    valid(
        "coarse_watts",
        files.change_meters(
            files.change_readings(lambda record, rng: record.update(value=5 * round(record["value"] / 5)))
        ),
    ),
    valid("uneven_readings", files.change_meters(files.delay_readings)),
    valid("meters_name_themselves", files.change_meters(files.name_meters)),
    valid(
        "idle_at_both_ends",
        files.change_meters(
            files.change_readings(
                lambda record, rng: record.update(value=record["value"] * 0.4),
                lambda readings: [*readings[:2], *readings[-2:]],
            )
        ),
    ),
)
PUBLISHED = (
    in_each("counted_from_the_other", logs.count_from_the_other, "epochs from 0 or 1", allowed=("RCP01",)),
    in_each("steps_rounded_down", lambda log, rng: runs.set_steps(log, math.floor(runs.steps_of(log)))),
    in_each("steps_rounded_up", lambda log, rng: runs.set_steps(log, math.ceil(runs.steps_of(log)))),
    in_each("last_epoch_cut", runs.cut_last_epoch),
    in_each(
        "tracked_stats_of_other_meaning", runs.add_stats("oc20", lambda log: 0, runs.count_something_else), "NVIDIA"
    ),
    in_each("tracked_stats_of_an_epoch", runs.add_stats("deepcam", runs.steps_of, runs.count_samples), "Dell"),
    in_each("samples_in_the_metadata", runs.log_samples),
    in_each("batch_size_of_a_rank", runs.log_rank_batch),
    valid("no_accelerators", files.train_without_accelerators),
    valid("ranks_of_processors", files.train_by_processor_ranks),
    valid("ranks_of_accelerators", files.log_ranks),
    in_each("staged_before_run_start", runs.stage_before_run_start, "by up to 158 ms, as openfold"),
    in_each("caches_cleared", logs.change_lines(lambda line: line.record.update(value=True), "cache_clear")),
)
GROUPS = {
    "launchers": LAUNCHERS,
    "emitters": EMITTERS,
    "interleaving": INTERLEAVING,
    "clocks": CLOCKS,
    "evaluations": EVALUATIONS,
    "pace": PACE,
    "submissions": SUBMISSIONS,
    "restarts": RESTARTS,
    "power": POWER,
    "published": PUBLISHED,
}
"""Variants of whole submissions."""
VARIATIONS = (
    *of_logs(
        "log",
        bytes_of,
        {
            "one_prefix": logs.prefix_lines,
            "output_between": logs.write_between,
            "other_line_ends": lambda data, rng: FILE_EDITS[rng.choice(logs.LINE_ENDS)](data.rstrip(b"\n") + b"\n"),
            "text_around": lambda data, rng: b"+ srun python train.py\n" + data + b"slurmstepd: done\nreal 12m3.1s\n",
            "compressed": logs.compress,
            "other_json": logs.rewrite(logs.draw_form),
        },
    ),
    *of_logs(
        "log",
        each,
        {
            "other_keys": logs.add_other_keys,
            "other_metadata": logs.say_more_in_metadata,
            "without_optional_members": logs.leave_out_members,
            "namespace_of_a_worker": logs.change_lines(lambda line: line.record.update(namespace="worker1")),
            "numbers_with_a_point": logs.write_with_a_point,
            "numbers_without_a_point": logs.write_without_a_point,
            "epochs_with_a_point": logs.write_epochs_with_a_point,
            "times_with_a_fraction": logs.write_times_with_a_fraction,
            "times_in_seconds": logs.write_whole_seconds,
            "counted_from_the_other": logs.count_from_the_other,
            "result_behind_eval_stop": logs.move_results("eval_stop"),
            "result_behind_epoch_stop": logs.move_results("epoch_stop"),
            "result_within_its_evaluation": logs.move_results_into_evaluations,
            "evaluation_within_the_epoch": logs.evaluate_within_epochs,
            "next_epoch_starts_early": logs.start_next_epochs_early,
            "epoch_stop_of_the_last_missing": logs.drop_last_epoch_stop,
            "few_evaluations": logs.evaluate_some_epochs,
            "clock_steps_back": lambda log, rng: log.delay(rng.choice(log.timed[5:-5]), -rng.randint(1, 5)),
            "goes_on_after_the_target": logs.go_on_after_the_target,
            "steps_in_the_metadata": logs.log_steps,
            "header_in_another_order": logs.shuffle_header,
            "cache_clear_first": lambda log, rng: log.put_before(log.first("cache_clear"), log.timed[0]),
            "seed_as_text": logs.write_seed_as_text,
            "values_of_few_digits": logs.round_results(5),
            "several_epoch_stops": runs.repeat_lines(lambda rng: rng.randint(1, 3), lambda rng: 0, "epoch_stop"),
            "several_starts": runs.repeat_lines(
                lambda rng: 2, lambda rng: rng.randint(0, 3), "epoch_start", "eval_start"
            ),
            "results_of_two_ranks": runs.log_results_of_two_ranks,
            "slow_epochs": runs.slow_some_epochs,
            "epoch_started_again": runs.start_epoch_again,
            "staged_again": runs.stage_between_epochs,
            "evaluations_in_flight": logs.fly_evaluations,
            "blocks": logs.log_blocks,
        },
    ),
    *of_logs(
        "log",
        each,
        {"settings_by_each_rank": runs.repeat_lines(lambda rng: 3, lambda rng: 0, *files.SETTINGS)},
        allowed=("SET03",),
    ),
    *of_logs("log", each, {"busy_machine": runs.disturb_all_the_time}),
    *of_logs(
        "result",
        together,
        {
            "started_together": files.start_together,
            "right_after_each_other": files.start_one_after_another,
            "each_by_its_own": files.vary_each_by_its_own,
            "all_with_the_same": files.vary_all_alike,
            "very_regular": files.make_regular,
            "first_results_equal": files.share_first_results,
            "same_last_result": files.share_last_result,
        },
    ),
)
"""Variants of single logs and of a few runs."""
