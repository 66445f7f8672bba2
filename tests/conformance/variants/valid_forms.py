"""Valid variants that other tools write: forms of a file, units that nobody fixed, blocks of epochs, packages."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

from compliance.benchmarks import REFERENCES, benchmarks_of
from compliance.samples.package import SamplePackage
from tests.conformance.variants import valid_logs as logs
from tests.conformance.variants import valid_submissions as files
from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_evidence import (
    BASES,
    Change,
    change_all,
    label_dates,
    print_results,
    stage_longer,
    write_before,
)
from tests.conformance.variants.forged_packages import STEP_FIELDS, rates_times, states, steps_times
from tests.conformance.variants.logtext import EPOCH_KEYS, Line, LogText, map_times, take_arguments
from tests.conformance.variants.table import Case, Edit, Random, bytes_of, each, in_family, in_turn, of_each_log
from tests.conformance.variants.valid_runs import repeat_lines

CLEAN, ARGUABLE = ("PASS",), ("PASS", "WARN")
BAR = b"Epoch 3: 100%|##########| 512/512 [00:31<00:00, 16.5it/s]"


# -- V11: forms of a file -----------------------------------------------------------------------------------------


def before_lines(text: bytes, each_of: int = 1) -> Edit:
    """Return the edit that writes a text before some lines."""
    return bytes_of(logs.write_lines(lambda at, line, rng: text * (at % each_of == 0) + line + b"\n"))


def draw_capital_exponents(rng: Random) -> logs.Spell:
    """Return JSON with all numbers but seeds as 5.24288E+05."""

    def spell(record: dict[str, Any]) -> str:
        value = record["value"] if record["key"] == "seed" else logs.respell(record["value"], float)
        return logs.spell(record | {"value": value}, "{:.16E}")

    return spell


def log_environment(log: LogText, rng: Random) -> None:
    """Log 400 kB of environment in one record."""
    log.state("environment", {f"VARIABLE_{number}": "x" * 380 for number in range(1000)})


def log_own_keys(log: LogText, rng: Random) -> None:
    """Log 300 keys of one's own."""
    line = log.first("train_samples")
    for number in range(300):
        line = log.add(line, line, 0, key=f"own_{number}", value=number)


V11 = in_family(
    "V11",
    {"": BASES["CF"]},
    {
        "crlf": ("line ends CRLF", bytes_of(lambda data, rng: data.replace(b"\n", b"\r\n"))),
        "bom": ("a byte order mark", bytes_of(lambda data, rng: b"\xef\xbb\xbf" + data)),
        "no_last_newline": ("no line end at the end", bytes_of(lambda data, rng: data.rstrip(b"\n"))),
        "blank_lines": ("blank lines between", bytes_of(lambda data, rng: data.replace(b"\n", b"\n\n"))),
        "progress_same_line": ("a progress bar ends where the record begins", before_lines(BAR, 3)),
        "cr_progress": ("a progress bar with carriage returns", before_lines(logs.BAR)),
        "ansi": ("colours", before_lines(b"\x1b[36m[rank0]\x1b[0m ")),
        "escaped_unicode_keys": (
            "a letter of a member's name escaped",
            bytes_of(lambda data, rng: data.replace(b'"value"', b'"v\\u0061lue"')),
        ),
        "float_ints": ("whole numbers as 512.0", each(logs.write_with_a_point)),
        "exp_floats": ("5.0000000000000003e-02", bytes_of(logs.rewrite(logs.draw_floats("{:.16e}")))),
        "value_E": ("5.24288E+05", bytes_of(logs.rewrite(draw_capital_exponents))),
        "time_us": ("microseconds", each(logs.change_times(lambda time_ms: time_ms + 0.123))),
        "time_text_extra": (
            "more members of records",
            change_all(lambda line: line.record.update(time="07:44:53", host="n17", rank=0, schema=2)),
        ),
        "metadata_none_header": (
            "null, lists and objects in metadata",
            change_all(lambda line: line.record["metadata"].update(note=None, ranks=[0, 1], node={"name": "n17"})),
        ),
        "long_value": ("the whole environment in one record", each(log_environment)),
        "many_custom": ("300 own keys", each(log_own_keys)),
        "label_dates": ("times before the records, of another zone", label_dates(zone_s=20_700)),
        "printed_results": ("results are printed, too", print_results()),
        "local_batch": ("the text says the batch of a rank", write_before("run_start", "batch_size: 1")),
        "defaults": ("the text says defaults", write_before("run_start", "--global_batch_size N  (default: 64)")),
    },
    CLEAN,
)

# -- V15: units ---------------------------------------------------------------------------------------------------


def multiply_field(name: str, factor: float) -> Change:
    """Return the change that multiplies a field of the metadata."""
    return lambda line: line.record["metadata"].update({name: line.record["metadata"][name] * factor})


@of_each_log
def count_job_time(log: LogText, rng: Random) -> None:
    """Count the time of run_stop from the start of the log."""
    waited_s = (log.last("run_start").time - log.timed[0].time) / 1000
    log.last("run_stop").record["metadata"]["time"] += waited_s


def write_time_as_text(line: Line) -> None:
    """Write the time of run_stop as text."""
    line.record["metadata"]["time"] = str(line.record["metadata"]["time"])


@of_each_log
def multiply_latencies(log: LogText, rng: Random, *names: str, factor: float) -> None:
    """Multiply latencies of epochs."""
    for line in log.all("epoch_stop"):
        for name in names:
            multiply_field(name, factor)(line)


@of_each_log
def count_steps_within_epochs(log: LogText, rng: Random) -> None:
    """Count the steps of each epoch from 0."""
    for number in log.numbers:
        begin = log.first("epoch_start", number).record["metadata"]["step_num"]
        for line in log.timed:
            metadata = line.record["metadata"]
            if metadata.get("epoch_num", metadata.get("epoch")) == number:
                metadata |= {name: metadata[name] - begin for name in STEP_FIELDS if name in metadata}


TRAINING, EVALUATION = "training_epoch_latency", "eval_epoch_latency"
MICRO_STEPS = in_turn(steps_times(4), states("gradient_accumulation_frequency", 4))
HALF_IN_MS = in_turn(
    change_all(multiply_field("staging_duration", 500), "staging_stop"), change_all(stage_longer(500), "tracked_stats")
)
UNITS = {"": BASES["CN"], "staging": BASES["OC"]}
V15 = [
    *in_family(
        "V15",
        UNITS,
        {
            "time_minutes": ("time in minutes", change_all(multiply_field("time", 1 / 60), "run_stop")),
            "time_hours": ("time in hours", change_all(multiply_field("time", 1 / 3600), "run_stop")),
            "time_us": ("time in microseconds", change_all(multiply_field("time", 1e6), "run_stop")),
            "time_unix": (
                "seconds since 1970",
                change_all(lambda line: line.record["metadata"].update(time=line.time / 1000), "run_stop"),
            ),
            "time_text": ("time as text", change_all(write_time_as_text, "run_stop")),
            "throughput_per_gpu_CN": ("per accelerator", rates_times(1 / 512)),
            "latency_s": ("latencies in seconds", multiply_latencies(TRAINING, EVALUATION, factor=1e-3)),
            "staging_ms": ("milliseconds, of which half is counted as in openfold", HALF_IN_MS),
        },
        CLEAN,
    ),
    *in_family(
        "V15",
        UNITS,
        {
            "time_job": ("time since the job started", count_job_time()),
            "latency_compute_only": ("without waiting for data", multiply_latencies(TRAINING, factor=0.6)),
        },
        ARGUABLE,
    ),
    *in_family(
        "V15",
        BASES,
        {
            **{
                f"throughput_{name}{where}": (f"{unit}, {'everywhere' if where else 'in tracked_stats'}", edit)
                for name, unit, factor in (
                    ("per_gpu", "per accelerator", 1 / 128),
                    ("minute", "per minute", 60),
                    ("steps", "steps per second", 1 / 256),
                )
                for where, edit in (
                    ("", rates_times(factor, keys=("tracked_stats",))),
                    (" everywhere", rates_times(factor)),
                )
            },
            "step_within_epoch": ("steps from 0 in each epoch", count_steps_within_epochs()),
            "micro_steps": ("four to a step", MICRO_STEPS),
            "cache_clear_succes": ("a word", states("cache_clear", "success")),
            "cache_clear_echo 3": ("a command", states("cache_clear", "echo 3 > /proc/sys/vm/drop_caches")),
            "cache_clear_[True,": ("a list", states("cache_clear", [True, True])),
            "cache_clear_{'node": ("by node", states("cache_clear", {"node0": True})),
            "cache_clear_True": ("as text", states("cache_clear", "True")),
            "cache_clear_32": (
                "by each of 32 nodes",
                each(repeat_lines(lambda rng: 31, lambda rng: 0, "cache_clear")),
            ),
        },
        CLEAN,
    ),
    *in_family(
        "V15",
        BASES,
        {
            "throughput_compute_only": ("without waiting for data", rates_times(1.6)),
            "step_counts_samples": ("step_num counts samples", steps_times(256)),
            "cache_clear_0": ("as the return code of a command", states("cache_clear", 0)),
        },
        ARGUABLE,
    ),
]

# -- V13: blocks --------------------------------------------------------------------------------------------------


@of_each_log
def log_blocks(log: LogText, rng: Random, *sizes: int, first: int = 1) -> None:
    """Log blocks of so many epochs, the last size again and again, each evaluated at its end.

    first: how many times as long the first block takes.
    """
    numbers = log.numbers
    start, stop = log.first("epoch_start", numbers[0]), log.last("epoch_stop", numbers[: sizes[0]][-1])
    begin_ms, took_ms, more = start.time, stop.time - start.time, first - 1
    map_times(log.behind(start), lambda time_ms: time_ms + more * min(time_ms - begin_ms, took_ms))
    for size in chain(sizes, repeat(sizes[-1])):
        own, numbers = numbers[:size], numbers[size:]
        if not own:
            return
        start, stop = log.first("epoch_start", own[0]), log.last("epoch_stop", own[-1])
        kept = [start, stop, *(line for line in log.of_epoch(own[-1]) if line.key not in EPOCH_KEYS)]
        log.remove(line for number in own for line in log.of_epoch(number) if line not in kept)
        for line in (start, stop):
            line.to_block(own[0], len(own))


V13 = in_family(
    "V13",
    BASES,
    {
        f"CF_{at}{suffix}": (f"blocks of {sizes} epochs", log_blocks(*sizes, first=first))
        for at, sizes in enumerate(((4,), (14,), (1, 9)))
        for suffix, first in (("", 1), ("_first_slow", 3))
    },
    CLEAN,
)

# -- V17: packages ------------------------------------------------------------------------------------------------


@take_arguments
def name_organisation(submission: Submission, rng: Random, name: str) -> None:
    """Give the organisation another name, everywhere."""
    submission.edit(lambda log: log.state("submission_org", name))
    submission.describe(submission.read_description() | {"submitter": name})
    submission.rename(submission.root, f"v{submission.round}/{name}")


@take_arguments
def name_system(submission: Submission, rng: Random, name: str) -> None:
    """Give the system another name, everywhere."""
    submission.edit(lambda log: log.state("submission_platform", name))
    submission.describe(submission.read_description() | {"system_name": name})
    submission.rename(submission.system, name)


def share_seeds(submission: Submission, rng: Random) -> None:
    """Submit other runs of the same seeds for a second system."""
    files.add_system(submission, rng)
    for path in submission.log_paths:
        other = path.replace(submission.system, "second_n64")
        submission.text(other).state("seed", submission.text(path).value("seed"))


@take_arguments
def become(submission: Submission, rng: Random, *package: str, **runs: Any) -> None:
    """Become another package of the builder."""
    submission.replace_by(SamplePackage(*package, **runs))


ORGANISATIONS = {
    "Example_University": "Example University",
    "an organisation_RIKEN": "an organisation",
    "an organisation___an organisation": "an organisation & an organisation",
    "3M": "3M",
    "Zürich_ETH": "Zürich-ETH",
    "A_B_C__GmbH": "A.B.C. GmbH",
    "x": "x",
}
SYSTEMS = {
    "H100_2_0": "H100-2.0",
    "n64_v1_0_final": "n64_v1.0_final",
    "cluster_3_0": "cluster 3.0",
    "64xH100__SXM_": "64xH100 (SXM)",
    "système": "système",
    "aaaaaaaaaaaaaaaaaaaa": "a" * 30,
}
"""By how the cases call them."""
PACKAGE = {"": "built cosmoflow"}
V17 = [
    *in_family(
        "V17",
        PACKAGE | {"zero": "built deepcam"},
        {
            "same_seeds_two_systems": ("two systems with the same seeds", share_seeds),
            "zero_padded": ("result_00.txt and so on", files.number_runs(*range(5), form="result_{:02}.txt")),
            "padded_3": ("result_001.txt and so on", files.number_runs(*range(1, 11), form="result_{:03}.txt")),
            "more_files": (
                "what a repository has",
                files.add_files(
                    lambda submission: submission.root,
                    "# 結果 – результаты\n".encode(),
                    "README.md",
                    "README.ja.md",
                    "LICENSE",
                    ".gitignore",
                    "docs/guide.md",
                ),
            ),
            "with_code": ("in several folders and languages", files.add_code),
        }
        | {f"org_{short}": (f"organisation {name}", name_organisation(name)) for short, name in ORGANISATIONS.items()}
        | {
            f"sample_{name}_{round_}": ("as the builder makes it", become(name, round_))
            for round_ in ("1.0", "2.0", "3.0")
            for name in benchmarks_of(round_)
            if name in REFERENCES
        }
        | {
            f"open_{name}": (f"open: {name}", become("cosmoflow", "3.0", "open", **runs))
            for name, runs in {
                "2_epochs": {"epochs": 2},
                "1_epoch": {"epochs": 1},
                "batch_16384": {"settings": {"global_batch_size": 16384}},
                "muon": {"settings": {"opt_name": "muon"}},
            }.items()
        },
        CLEAN,
    ),
    *in_family(
        "V17",
        PACKAGE,
        {f"system_{short}": (f"system {name}", name_system(name)) for short, name in SYSTEMS.items()},
        ARGUABLE,
    ),
]

# -- V20: reports and numbers -------------------------------------------------------------------------------------


@of_each_log
def report_best(log: LogText, rng: Random) -> None:
    """Report the best result so far with each result, and the last one at the end."""
    best = None
    for line in log.results:
        value = line.record["value"]
        best = value if best is None or value > best else best
        log.add(line, line, 1, key="best_result", value=best)
    log.add(log.results[-1], log.before(log.last("run_stop")), 0, key="final_result")


@of_each_log
def slow_down(log: LogText, rng: Random, at: int, factor: float) -> None:
    """Let all that comes before an epoch, at a position, take longer."""
    start, end = log.last("run_start"), log.first("epoch_start", log.numbers[at])
    slow = [line for line in log.behind(start) if log.at(line) < log.at(end)]
    log.delay(log.before(end), round((end.time - start.time) * (factor - 1)))
    map_times(slow, lambda time_ms: round(start.time + (time_ms - start.time) * factor))


V20 = in_family(
    "V20",
    {"": "LBNL deepcam", "DC": "Dell deepcam"},
    {
        "best_result": ("results under further keys", report_best()),
        "DC_best_result": ("results under further keys", report_best()),
        "few_reports": ("reports are left out", each(lambda log, rng: log.remove(log.all("train_loss")[3::2]))),
        "steps_within_epochs": ("the steps of each epoch count from 0", count_steps_within_epochs()),
        "pause": ("an hour of pause", each(lambda log, rng: log.delay(log.all("train_loss")[60], 3_600_000))),
        "slow_start": ("the first epochs are three times as slow", slow_down(3, 3)),
    },
    ARGUABLE,
)
FORMS: tuple[Case, ...] = (*V11, *V13, *V15, *V17, *V20)
"""Valid variants that contradict nothing, or arguably nothing."""
