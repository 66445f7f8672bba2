"""Valid variants of submissions: their files and packages, their power, and all runs together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from compliance.samples.package import SYSTEM, SamplePackage
from tests.conformance.variants import valid_logs as logs
from tests.conformance.variants.bases import ORGANISATION, Submission, number_of
from tests.conformance.variants.logtext import LogText, map_times, require, take_arguments
from tests.conformance.variants.table import Random

OWN = (
    logs.add_other_keys,
    logs.say_more_in_metadata,
    logs.write_with_a_point,
    logs.write_without_a_point,
    logs.write_seed_as_text,
)
SAME = (
    logs.round_results(5),
    logs.write_whole_seconds,
    logs.write_times_with_a_fraction,
    logs.move_results("eval_stop"),
)
MORE_FIELDS = {
    "cooling": "warm water, 45 °C",
    "commissioned": "2021",
    "host_vendor_id": "0x1002",
    "power_meter": "none",
}
SETTINGS = ("global_batch_size", "opt_name", "train_samples", "eval_samples")
SYSTEM_NAMES = ("pytorch-2.0", "runs_v1.0", "torch_1.0", "cluster_3.0", "A100-80GB_v0.7")


# -- all runs of a result together --------------------------------------------------------------------------------


def start_together(texts: list[LogText], rng: Random) -> None:
    """Start all runs in the same second, as an ensemble does."""
    first = texts[0].timed[0].time
    for log in texts[1:]:
        log.shift(first - log.timed[0].time + rng.randint(-300, 300))


def start_one_after_another(texts: list[LogText], rng: Random) -> None:
    """Start each run when the one before stops."""
    for before, log in pairwise(texts):
        log.shift(before.timed[-1].time + rng.randint(0, 2000) - log.timed[0].time)


def vary_each_by_its_own(texts: list[LogText], rng: Random) -> None:
    """Vary each log in its own way."""
    for log in texts:
        rng.choice(OWN)(log, rng)


def vary_all_alike(texts: list[LogText], rng: Random) -> None:
    """Vary all texts in one way."""
    change = rng.choice(SAME)
    for log in texts:
        change(log, rng)


def make_regular(texts: list[LogText], rng: Random) -> None:
    """Let the epochs of all runs take nearly the same time, as on a machine without other users."""
    for log in texts:
        log.keep_own_times()
    longest = max(texts, key=lambda log: len(log.course))
    model = [(line.key, line.time - longest.course[0].time) for line in longest.course]
    for log in texts:
        course = log.course
        if log is longest or any(line.key != key for line, (key, _) in zip(course, model, strict=False)):
            continue
        start = course[0].time
        for line, (_, offset) in zip(course, model, strict=False):
            line.time = start + offset * rng.uniform(0.9995, 1.0005)
        log.change_times(lambda time_ms: time_ms)


def share_first_results(texts: list[LogText], rng: Random) -> None:
    """Let all runs start from one checkpoint, or learn nothing at first: the first result is the same."""
    for log in texts[1:]:
        for mine, theirs in zip(log.results[:-3], texts[0].results[:1], strict=False):
            if not log.met(theirs):
                mine.record["value"] = theirs.record["value"]


def share_last_result(texts: list[LogText], rng: Random) -> None:
    """Let all runs reach the same rounded result at the end."""
    value = round(texts[0].results[-1].record["value"], 4)
    for log in texts:
        if log.target.met(value):
            log.change_result(log.results[-1], value)


# -- files and packages -------------------------------------------------------------------------------------------


def require_package(submission: Submission, *rounds: str) -> SamplePackage:
    """Return the package that a submission was built with. Raises Unsuitable for a published one."""
    built = submission.package is not None and submission.round in (rounds or ("1.0", "2.0", "3.0"))
    require(built, "published, or another round")
    return submission.package


@take_arguments
def add_files(
    submission: Submission, rng: Random, place: Callable[[Submission], str], content: bytes, *names: str
) -> None:
    """Add files in a folder."""
    submission.files |= {f"{place(submission)}/{name}": content for name in names}


def add_texts(submission: Submission, rng: Random) -> None:
    """Add what a repository has: README, licence, notes."""
    for name in rng.sample(("README.md", "LICENSE", "LICENSE.md", "CHANGELOG.md", "NOTES.txt"), 3):
        submission.files[f"{submission.root}/{name}"] = b"# Results\n"


def name_system(submission: Submission, rng: Random) -> None:
    """Name the system after the version of its framework."""
    name = rng.choice(SYSTEM_NAMES)
    submission.describe(submission.read_description() | {"system_name": name})
    submission.rename(submission.system, name)


def keep_runs_alone(submission: Submission, rng: Random) -> None:
    """Keep the runs in a folder of one's own, not in a submission."""
    require(submission.scaling == "strong" and submission.round != "0.7", "needs its package")
    name = rng.choice(("pytorch-2.0", "runs_v1.0", "torch-1.0", "results-3.0"))
    paths = {path: f"{name}/{submission.benchmark}/{path.rpartition('/')[2]}" for path in submission.log_paths}
    submission.files = {new: submission.files[path] for path, new in paths.items()}


def name_organisation(submission: Submission, rng: Random) -> None:
    """Name the folder of the organisation like a version, below one that names the round."""
    name = rng.choice(("NVIDIA-2.0", "Site 1.0", "Lab_v3.0"))
    submission.rename(submission.root, f"hpc_results_v{submission.round}/{name}")


def shuffle_description(submission: Submission, rng: Random) -> None:
    """Write the description of the system in another order and form."""
    fields = submission.read_description()
    submission.describe({name: fields[name] for name in rng.sample(list(fields), len(fields))}, 4)


def add_system(submission: Submission, rng: Random) -> None:
    """Submit results of a second system, with runs of its own."""
    package = require_package(submission)
    other = SamplePackage(package.benchmark, package.round, runs=0)
    other.folder = package.folder
    other._add_runs(package.folder, len(submission.log_paths), 300)
    other.system(system_name="second_n64").remove("benchmarks")
    other.files = {path.replace(SYSTEM, "second_n64"): data for path, data in other.files.items()}
    submission.add_package(other)
    code = [path for path in submission.files if path.startswith(f"{submission.root}/benchmarks/")]
    submission.files |= {path.replace(SYSTEM, "second_n64"): submission.files[path] for path in code}


def add_benchmarks(submission: Submission, rng: Random) -> None:
    """Submit results of all benchmarks for the system."""
    package = require_package(submission, "2.0", "3.0")
    for benchmark in {"cosmoflow", "deepcam"} - {package.benchmark}:
        submission.add_package(SamplePackage(benchmark, package.round))


@take_arguments
def become(
    submission: Submission, rng: Random, make: Callable[[str, Random], SamplePackage], choose: bool = True
) -> None:
    """Replace a submission by another package of the builder."""
    require_package(submission, "3.0")
    benchmark = rng.choice(("cosmoflow", "deepcam")) if choose else "cosmoflow"
    submission.replace_by(make(benchmark, rng))


def prune_instances(benchmark: str, rng: Random) -> SamplePackage:
    """Keep the instances of a throughput result that took longest as pruned ones."""
    package = SamplePackage(benchmark, scaling="weak", runs=rng.randint(8, 20)).with_time_to_train()
    return package.prune(rng.randint(1, 3))


def waive(submission: Submission, rng: Random) -> None:
    """Waive the convergence test of a result that converges too fast."""
    become(lambda benchmark, rng: SamplePackage(benchmark, epochs=16), choose=False)(submission, rng)
    name = f"3.0/{ORGANISATION}/{SYSTEM}/strong/cosmoflow"
    submission.waivers = {name: "the committee agreed in its meeting of 2023-10-12"}


@take_arguments
def number_runs(submission: Submission, rng: Random, *numbers: int, form: str = "result_{}.txt") -> None:
    """Give the logs other numbers, and names of another form."""
    names = [f"{submission.folder}/{form.format(number)}" for number in numbers]
    new = dict(zip(submission.log_paths, names, strict=True))
    submission.files = {new.get(path, path): data for path, data in submission.files.items()}


def number_from_zero(submission: Submission, rng: Random) -> None:
    """Count the logs from 0."""
    numbers = sorted(map(number_of, submission.log_paths))
    require(numbers == list(range(1, len(numbers) + 1)) and not submission.power_paths, "not numbered from 1")
    number_runs(*range(len(numbers)))(submission, rng)


@take_arguments
def fail_one(submission: Submission, rng: Random, damage: Callable[[bytes, Random], bytes]) -> None:
    """Let one run fail."""
    require(submission.scaling == "strong", "throughput")
    path = rng.choice(submission.log_paths)
    submission.files[path] = damage(submission.files[path], rng)


def add_code(submission: Submission, rng: Random) -> None:
    """Submit code in several folders and languages."""
    folder = f"{submission.root}/benchmarks/{require_package(submission).benchmark}/implementations/torch"
    for name in ("src/model.cu", "tests/test_model.py", "Dockerfile"):
        submission.files[f"{folder}/{name}"] = b"# code\n"


def slow_down_a_run(submission: Submission, rng: Random) -> None:
    """Let one run of the result take up to 1.4 times as long as the others."""
    log, factor = rng.choice(submission.texts()), rng.uniform(1.15, 1.4)
    log.keep_rates()
    start = log.last("run_start")
    map_times(log.behind(start), lambda time_ms: round(start.time + (time_ms - start.time) * factor))


# -- power --------------------------------------------------------------------------------------------------------

Records = list[dict[str, Any]]
Change = Callable[[dict[str, Any], Random], Any]
Choose = Callable[[Records], Records]


def measure_power(submission: Submission, nodes: int = 2) -> None:
    """Become a result whose power was measured."""
    require_package(submission, "3.0")
    submission.replace_by(SamplePackage("deepcam").power(nodes=nodes, margin_ms=3_000))


@take_arguments
def change_meters(submission: Submission, rng: Random, change: Callable[[Records, Random], Records | None]) -> None:
    """Measure the power, and change the records of each meter of a node."""
    measure_power(submission)
    submission.edit_meters(lambda name, records: change(records, rng), "node_")


@take_arguments
def change_readings(records: Records, rng: Random, change: Change, choose: Choose = lambda readings: readings) -> None:
    """Change the readings of a meter."""
    for record in choose(list(filter(is_reading, records))):
        change(record, rng)


def is_reading(record: dict[str, Any]) -> bool:
    """Tell whether a record is a reading of a meter."""
    return record["event_type"] == "POINT_IN_TIME" and "measurement_type" not in record["metadata"]


def lose_reading(records: Records, rng: Random) -> None:
    """Lose one reading of a meter."""
    del records[rng.randrange(10, len(records) - 10)]


def delay_readings(records: Records, rng: Random) -> None:
    """Read the meters by a clock that is late by up to 400 ms."""
    for record in filter(is_reading, records[3:-3]):
        record["time_ms"] += rng.randint(0, 400)


def start_earlier(records: Records, rng: Random) -> Records:
    """Start the meters some seconds before the run."""
    first = next(filter(is_reading, records))
    at, early = records.index(first), rng.randint(1, 3)
    for record in records[:at]:
        record["time_ms"] -= 1000 * early
    more = []
    for back in range(early, 0, -1):
        time_ms, watts = first["time_ms"] - 1000 * back, first["value"] * rng.uniform(0.9, 1)
        more.append(first | {"time_ms": time_ms, "value": watts})
    return records[:at] + more + records[at:]


def name_meters(records: Records, rng: Random) -> None:
    """Say more in the metadata of the readings."""
    for record in records:
        record["metadata"] |= {"meter": "PDU 7, outlet 3", "unit": "W", "firmware": "2.1.0"}


# -- what published logs have -------------------------------------------------------------------------------------


def state_size(submission: Submission, nodes: int, accelerators: int, ranks: int = 0) -> None:
    """State other nodes, accelerators and ranks, in logs and description."""
    sizes = {"number_of_nodes": nodes, "accelerators_per_node": accelerators}
    for log in submission.texts():
        for key, value in sizes.items():
            log.last(key).record["value"] = value
        if ranks:
            log.add(log.last("number_of_nodes"), log.last("number_of_nodes"), 0, key="number_of_ranks", value=ranks)
    submission.describe(submission.read_description() | {key: str(value) for key, value in sizes.items()})


def train_without_accelerators(submission: Submission, rng: Random) -> None:
    """Train on processors only."""
    require_package(submission)
    state_size(submission, rng.choice((16, 128, 512)), 0)
    submission.describe(submission.read_description() | {"accelerator_model_name": "N/A"})


def train_by_processor_ranks(submission: Submission, rng: Random) -> None:
    """Train on processors only, with one to eight ranks on each node."""
    nodes = rng.choice((16, 128, 512))
    require_package(submission)
    state_size(submission, nodes, 0, nodes * rng.choice((1, 2, 4, 8)))


def log_ranks(submission: Submission, rng: Random) -> None:
    """Log the ranks, one for each accelerator."""
    require_package(submission)
    state_size(submission, 16, 4, 64)
