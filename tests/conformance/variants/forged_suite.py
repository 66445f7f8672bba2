"""Forged packages of this suite: machine, data and code; and blocks of epochs."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from common.provenance import ROOT
from compliance.model.judging import ERROR, NOTE, WARNING
from submission.assemble.implementation import record_package
from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_course import count_on
from tests.conformance.variants.forged_packages import STEPS, epoch_of_few_steps, rates_times, steps_times
from tests.conformance.variants.logtext import EVALUATION_KEYS, Line, LogText, require, take_arguments
from tests.conformance.variants.table import Random, alike, of_each_log, on_each

BOTH = "suite cosmoflow, suite deepcam"


def set_value(log: LogText, path: str, value: Any) -> None:
    """Set the value at a place in the provenance; ... leaves it out."""
    *folders, name = path.split("/")
    made = log.first("provenance").record["value"]
    for folder in folders:
        made = made[folder]
    made[name] = value
    if value is ...:
        del made[name]


@of_each_log
def states(log: LogText, rng: Random, path: str, *values: Any) -> None:
    """State another value at a place in the provenance."""
    set_value(log, path, rng.choice(values))


@take_arguments
def states_in_some(package: Submission, rng: Random, path: str, *values: Any) -> None:
    """Let it be that some runs, but not all, state another value."""
    count = len(package.log_paths)
    which = rng.sample(range(count), rng.randint(1, count // 2))
    value = rng.choice(values)
    package.edit(lambda log: set_value(log, path, value), *which)


def own_data_in_each(package: Submission, rng: Random) -> None:
    """Let every run state other data."""
    for at, log in enumerate(package.texts()):
        set_value(log, "data_sha256", hashlib.sha256(f"{at} {rng.random()}".encode()).hexdigest())


def mini_folder(package: Submission, rng: Random) -> None:
    """State the folder of the mini problem's data."""
    folder = rng.choice(("data/{}-mini", "{}-mini", "runs/demo/{}-mini")).format(package.benchmark)
    package.edit(lambda log: set_value(log, "config/data/data_dir", folder))


def mini_data(log: LogText, rng: Random) -> None:
    """State the digest of the mini problem's data, from a log of it."""
    text = (ROOT / "tests" / "compliance" / "logs_of_0_2_0" / f"{log.benchmark}-mini.txt").read_text()
    set_value(log, "data_sha256", text.partition('"data_sha256": "')[2][:64])


@of_each_log
def other_version(log: LogText, rng: Random, *removed: str) -> None:
    """Claim another version of the suite and leave out what would tell: keys, and places in the provenance."""
    set_value(log, "versions/mlperf-hpc-suite", rng.choice(("0.1.9", "9.0.0")))
    log.remove(log.all(*removed))
    for path in removed:
        if "/" in path:
            set_value(log, path, ...)


@of_each_log
def erased(log: LogText, rng: Random, *paths: str, file: str = "train.py") -> None:
    """Forge a small network in which the suite's name is erased and the configuration left."""
    for path in paths:
        set_value(log, path, ...)
    log.remove(log.all("dataset_variant", "number_of_parameters"))
    for line in log.timed:
        line.record["metadata"]["file"] = file
    name, value = ("conv_size", 4) if log.benchmark == "cosmoflow" else ("middle_blocks", 2)
    set_value(log, f"config/model/{name}", value)


DATA = ("data_sha256", "data set", "dataset", "mini")
NETWORK = ("conv_size", "middle_blocks", "model", "configuration", "version of")
F15 = [
    *on_each(
        "F15",
        BOTH,
        "two cores under 64 accelerators",
        ("core", "host"),
        states("host", {"cpu": "Intel Xeon", "cores": 2, "usable_cores": 2, "machine": "x86_64", "system": "Linux"}),
    ),
    *on_each("F15", BOTH, "a build of torch for CPUs", ("torch", "cpu"), states("versions/torch", "2.13.0+cpu")),
    *on_each("F15", BOTH, "the digest of the mini problem's data", DATA, alike(mini_data)),
    *on_each(
        "F15",
        BOTH,
        "data of the mini problem by its folder",
        ("data_dir", "mini"),
        mini_folder,
        (ERROR, WARNING, NOTE),  # a name proves nothing
    ),
    *on_each("F15", BOTH, "a digest of other data in each run", DATA, own_data_in_each),
    *on_each("F15", "suite deepcam", "other data in some runs", DATA, states_in_some("data_sha256", "a1" * 32)),
    *on_each("F15", BOTH, "a tenth of the steps", STEPS, steps_times(0.125, 0.1)),
    *on_each("F15", "suite deepcam", "few steps in one epoch", STEPS, epoch_of_few_steps(2, 4)),
    *on_each("F15", "suite cosmoflow", "230 samples/s", ("throughput", "samples"), rates_times(0.09)),
    *on_each(
        "F15",
        BOTH,
        "sources 0…0",
        ("source", "hash"),
        states("source_sha256", "0" * 64),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "changed sources",
        ("git_revision", "dirty", "source"),
        states("git_revision", "1" * 40 + "-dirty"),
        (ERROR, WARNING, NOTE),  # all runs alike: nothing is contradicted
    ),
    *on_each(
        "F15",
        "suite cosmoflow, suite deepcam",
        "other processors in some runs",
        ("host", "cpu", "processor", "core"),
        states_in_some("host", {"cpu": "AMD EPYC 9654", "cores": 384, "usable_cores": 384, "machine": "x86_64"}),
    ),
    *on_each(
        "F15",
        BOTH,
        "configured for fewer epochs than were trained",
        ("train.epochs", "epochs"),
        states("config/train/epochs", 5, 3),
    ),
    *on_each("F15", BOTH, "instances in a strong result", ("instance",), states("config/instances/count", 8, 2)),
    *on_each(
        "F15", BOTH, "configured for another batch size", ("batch",), states("config/train/global_batch_size", 16, 64)
    ),
    *on_each("F15", "suite cosmoflow", "configured for another seed", ("seed",), states("config/train/seed", 7, 77)),
    *on_each(
        "F15",
        "suite cosmoflow",
        "configured for fewer samples",
        ("train_samples", "samples"),
        states("config/data/train_samples", 1024, 65536),
    ),
    *on_each(
        "F15",
        "suite deepcam",
        "configured for CPUs",
        ("device", "cpu", "accelerator"),
        states("config/dist/device", "cpu"),
    ),
    *on_each(
        "F15",
        BOTH,
        "a network left out with another version",
        ("model",),
        other_version("config/model"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        BOTH,
        "parameters left out with another version",
        ("number_of_parameters",),
        other_version("number_of_parameters"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "augmentation and initial weights left out with another version",
        ("augment", "init_from"),
        other_version("config/data/augment", "config/train/init_from"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        BOTH,
        "the suite's version erased, and the configuration of a small network left",
        NETWORK,
        erased("versions/mlperf-hpc-suite"),
    ),
    *on_each(
        "F15",
        BOTH,
        "version and hash erased, and the configuration of a small network left",
        NETWORK,
        erased("versions/mlperf-hpc-suite", "source_sha256"),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "only the configuration of a small network left",
        NETWORK,
        erased("versions", "source_sha256", "git_revision", "host", "data_sha256", file="/opt/suite/mllog.py"),
    ),
    *on_each("F15", "suite deepcam", "trained from weights", ("init_from",), states("config/train/init_from", "a.pt")),
]

# -- F16: code ----------------------------------------------------------------------------------------------------

CODE = ("source", "hash", "sha256", "changed", "manifest", "provenance.json", "differ")
IMPLEMENTATION = "benchmarks/cosmoflow/implementations/mlperf-hpc-suite"
SCRIPTS = "benchmarks/cosmoflow/example_n64"
CHANGE = b"\nLESS=4\n"


@take_arguments
def edited(package: Submission, rng: Random, *paths: str) -> None:
    """Change a file of the package after it was assembled."""
    package.files[f"{package.root}/{rng.choice(paths)}"] += CHANGE


def emptied(package: Submission, rng: Random) -> None:
    """Leave nothing of a file of the code."""
    package.files[f"{package.root}/{IMPLEMENTATION}/cosmoflow/{rng.choice(('train.py', 'model.py'))}"] = b""


def one_line(package: Submission, rng: Random) -> None:
    """Replace the benchmark's code by one line."""
    inside = f"{package.root}/{IMPLEMENTATION}/cosmoflow/"
    package.files = {path: data for path, data in package.files.items() if not path.startswith(inside)}
    package.files[f"{inside}train.py"] = b"print('trained')\n"


def other_configuration(package: Submission, rng: Random) -> None:
    """Change the configuration that the package names for its runs."""
    paths = [path for path in package.files if path.endswith("config.yaml") and "/implementations/" not in path]
    package.files[paths[0]] = package.files[paths[0]].replace(b"conv_size: 32", b"conv_size: 4") + b"# as run\n"


def added(package: Submission, rng: Random) -> None:
    """Add a module to the code."""
    package.files[f"{package.root}/{IMPLEMENTATION}/cosmoflow/faster.py"] = b"SCALE = 4\n"


def other_recorded_log(package: Submission, rng: Random) -> None:
    """Change a log after the package recorded it: its results become better by a little."""
    for line in package.text(rng.choice(package.log_paths)).results[:-1]:
        line.record["value"] *= 0.9999


def record_again(package: Submission) -> None:
    """Let provenance.json be that of the package as it is."""
    with tempfile.TemporaryDirectory() as folder:
        package.write(Path(folder))
        root = Path(folder, "checked", package.root)
        (root / "provenance.json").unlink()
        package.files[f"{package.root}/provenance.json"] = record_package(root)


def other_record(package: Submission, rng: Random) -> None:
    """Change the code, and record the package as it is then."""
    package.files[f"{package.root}/{IMPLEMENTATION}/cosmoflow/model.py"] += CHANGE
    record_again(package)


def no_record(package: Submission, rng: Random) -> None:
    """Change the code and remove provenance.json."""
    package.files[f"{package.root}/{IMPLEMENTATION}/common/mllog.py"] += CHANGE
    del package.files[f"{package.root}/provenance.json"]


def logs_of_other_sources(package: Submission, rng: Random) -> None:
    """Let all logs state the hash of other sources, and record the package as it is then."""
    digest = rng.choice(("0" * 64, hashlib.sha256(b"other").hexdigest()))
    package.edit(lambda log: set_value(log, "source_sha256", digest))
    record_again(package)


F16 = [
    case
    for description, subject, edit in (
        ("the network's code changed", CODE, edited(f"{IMPLEMENTATION}/cosmoflow/model.py")),
        (
            "shared code changed",
            CODE,
            edited(f"{IMPLEMENTATION}/common/mllog.py", f"{IMPLEMENTATION}/common/files.py"),
        ),
        ("a script changed", CODE, edited(f"{SCRIPTS}/run_and_time.sh", f"{SCRIPTS}/setup.sh")),
        ("a file of the code emptied", CODE, emptied),
        ("the code replaced by one line", CODE, one_line),
        ("another configuration", (*CODE, "config.yaml"), other_configuration),
        ("a module added", CODE, added),
        ("a log changed", CODE, other_recorded_log),
        ("the code changed with its hash in provenance.json", CODE, other_record),
        ("the code changed and provenance.json removed", CODE, no_record),
        ("the logs are of other sources", CODE, logs_of_other_sources),
        ("one log is of other sources", CODE, states_in_some("source_sha256", "0" * 64, "ab" * 32)),
    )
    for case in on_each("F16", "assembled cosmoflow", description, subject, edit)
]

SUITE = (*F15, *F16)


# -- F05: blocks of epochs ---


def block_of(log: LogText, after: Line, first: int, count: int, took_ms: float) -> None:
    """Insert a block of epochs behind a line. What follows comes later by its time."""
    log.delay(after, took_ms)
    start = log.add(log.first("run_start"), after, 0, key="block_start", event_type="INTERVAL_START")
    stop = log.add(start, start, took_ms, key="block_stop", event_type="INTERVAL_END")
    for line in (start, stop):
        line.to_block(first, count)


def cut_epochs(log: LogText, first: int, last: int) -> Line:
    """Remove the epochs from one position to another with their time; of the very last one its evaluation stays.

    Return the line behind which they were.
    """
    numbers = log.numbers
    before = log.end_of(numbers[first - 1]) if first else log.last("run_start")
    if last == len(numbers) - 1:
        kept = log.of_epoch(numbers[last], *EVALUATION_KEYS, log.target.key)[0]
        until = log.at(kept)
    else:
        kept = log.first("epoch_start", numbers[last + 1])
        until = log.at(log.end_of(numbers[last])) + 1
    at = log.at(before) + 1
    gone_ms = kept.time - before.time
    log.remove(log.lines[at:until])
    log.remove(line for line in log.all("epoch_stop") if line.number in numbers[first : last + 1])
    log.delay(before, -gone_ms)
    return before


def block_at_the_end(log: LogText, rng: Random) -> None:
    """Replace the last epochs by one block of no time."""
    numbers = log.numbers
    keep = rng.randint(max(1, len(numbers) // 3), len(numbers) - 2)
    end, took_ms = cut_epochs(log, keep, len(numbers) - 1), rng.choice((2, 5, 20))
    block_of(log, end, numbers[keep], len(numbers) - keep, took_ms)


def block_in_the_middle(log: LogText, rng: Random) -> None:
    """Replace epochs of the middle by one block that takes the time of one epoch."""
    numbers = log.numbers
    first = rng.randint(1, len(numbers) // 2)
    count = rng.randint(3, max(3, len(numbers) - first - 2))
    require(first + count < len(numbers), "too short")
    one_ms = log.end_of(numbers[1]).time - log.first("epoch_start", numbers[1]).time
    block_of(log, cut_epochs(log, first, first + count - 1), numbers[first], count, one_ms)


def block_before_the_end(log: LogText, rng: Random) -> None:
    """Leave all epochs but count more: a block of no time before the last epoch."""
    numbers, more = log.numbers, rng.randint(2, 12)
    count_on_with_stop(log, len(numbers) - 1, more)
    block_of(log, log.end_of(numbers[-2]), numbers[-2] + 1, more, 5)


def block_at_the_start(log: LogText, rng: Random) -> None:
    """Count epochs before the first one, in a block of no time."""
    numbers, more = log.numbers, rng.randint(2, 12)
    count_on_with_stop(log, 0, more)
    block_of(log, log.before(log.first("epoch_start")), numbers[0], more, rng.choice((1, 5, 50)))


def two_blocks(log: LogText, rng: Random) -> None:
    """Write the first epochs as one block of their time, and all others as a second one of no time."""
    numbers = log.numbers
    keep = rng.randint(1, len(numbers) // 2)
    end = cut_epochs(log, keep, len(numbers) - 1)
    ends = ("epoch_start", numbers[0]), ("epoch_stop", numbers[keep - 1])
    for line in log.all("epoch_start", "epoch_stop"):
        if (line.key, line.number) in ends:
            line.to_block(numbers[0], keep)
        else:
            end = log.before(line) if line is end else end
            log.remove([line])
    block_of(log, end, numbers[keep], len(numbers) - keep, 5)


def block_around_epochs(log: LogText, rng: Random) -> None:
    """Write a block of several epochs around a single one, and count on from it."""
    numbers, more = log.numbers, rng.randint(2, 6)
    at = rng.randint(1, len(numbers) - 2)
    count_on_with_stop(log, at + 1, more)
    start, stop = log.first("epoch_start", numbers[at]), log.end_of(numbers[at])
    log.add(start, stop, 0, key="block_stop", event_type="INTERVAL_END").to_block(numbers[at], more + 1)
    log.put_before(start.copy(), start).to_block(numbers[at], more + 1)


def block_that_never_stops(log: LogText, rng: Random) -> None:
    """Replace the last epochs by the start of a block."""
    block_at_the_end(log, rng)
    log.remove(log.all("block_stop"))


def count_on_with_stop(log: LogText, at: int, more: int) -> None:
    """Add to the numbers of all epochs from a position on, and to another number that run_stop has."""
    count_on(log, at, more)
    stop = log.last("run_stop")
    if isinstance(stop.number, int) and stop.number not in log.numbers:
        stop.number += more


BLOCK = ("block",)
BLOCKS = [
    *on_each(
        "F05",
        "Dell deepcam, Clemson deepcam, NVIDIA cosmoflow, CSCS oc20, suite cosmoflow, built deepcam",
        "the last epochs are one block of no time",
        BLOCK,
        alike(block_at_the_end),
    ),
    *on_each(
        "F05",
        "NVIDIA cosmoflow, CSCS oc20, HelmholtzAI cosmoflow, built oc20",
        "epochs of the middle are one block that takes the time of one",
        BLOCK,
        alike(block_in_the_middle),
    ),
    *on_each(
        "F05",
        "Dell deepcam, NVIDIA oc20, suite deepcam",
        "a block of no time before the last epoch",
        BLOCK,
        alike(block_before_the_end),
    ),
    *on_each(
        "F05",
        "Clemson deepcam, CSCS oc20, built cosmoflow",
        "a block of no time before the first epoch",
        BLOCK,
        alike(block_at_the_start),
    ),
    *on_each(
        "F05",
        "Dell deepcam, NVIDIA cosmoflow, built oc20, suite cosmoflow",
        "two blocks and no epochs",
        BLOCK,
        alike(two_blocks),
    ),
    *on_each(
        "F05",
        "Dell deepcam, HelmholtzAI cosmoflow",
        "a block of several epochs around one",
        BLOCK,
        alike(block_around_epochs),
    ),
    *on_each(
        "F05",
        "NVIDIA cosmoflow, built deepcam",
        "the last epochs are a block that never stops",
        BLOCK,
        alike(block_that_never_stops),
    ),
]
