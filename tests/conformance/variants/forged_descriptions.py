"""Forged packages: instances, descriptions, power, records that no reader sees, and other runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from common.record import POWER_READING
from compliance.logs.power import ESTIMATE
from compliance.model.judging import ERROR, NOTE, WARNING
from tests.conformance.variants import forged_copies as copies
from tests.conformance.variants import forged_packages
from tests.conformance.variants.bases import Submission, number_of, read_records, write_records
from tests.conformance.variants.forged_packages import states
from tests.conformance.variants.forged_suite import BLOCKS, SUITE
from tests.conformance.variants.logtext import Line, LogText, take_arguments
from tests.conformance.variants.table import Edit, Random, number_cases, of_each_log, on_each

NOISE = 3e-5


# -- F10, F10b, F30: copies moved by a little ---------------------------------------------------------------------


def draw_seed(log: LogText, rng: Random) -> None:
    """Give a log a seed of its own."""
    seed = rng.randint(10**6, 10**9)
    for line in log.all("seed"):
        line.record["value"] = str(seed) if isinstance(line.record["value"], str) else seed
    for line in log.all("provenance"):
        line.record["value"]["config"]["train"]["seed"] = seed


def slow_down(log: LogText, rng: Random, later_ms: int) -> None:
    """Make another, slower run of a log: every interval and every result is its own."""
    slower = rng.uniform(1.3, 1.8)
    log.change_intervals(lambda interval_ms: interval_ms * slower * rng.uniform(0.9, 1.1))
    log.shift(later_ms)
    for line in log.results:
        log.change_result(line, line.record["value"] * (1 + rng.uniform(-0.02, 0.02)))
    draw_seed(log, rng)


def copy_run(package: Submission, source: str, rng: Random, most_ms: int) -> LogText:
    """Return a copy of a run: times moved by up to so much, all by days; results changed a little; another seed."""
    log = package.read(source)
    copies.disguise(copies.shift, copies.each_time(copies.jitter(most_ms)), copies.noise(NOISE))(log, log, rng)
    draw_seed(log, rng)
    return log


@take_arguments
def all_of_one(package: Submission, rng: Random, *most_ms: int) -> None:
    """Let all runs be copies of the first one."""
    (first, *others), most = package.log_paths, rng.choice(most_ms)
    package.files |= {path: copy_run(package, first, rng, most).bytes() for path in others}


@take_arguments
def one_of_another(package: Submission, rng: Random, *most_ms: int) -> None:
    """Let one run be a copy of another."""
    source, target = rng.sample(package.log_paths, 2)
    package.files[target] = copy_run(package, source, rng, rng.choice(most_ms)).bytes()


@take_arguments
def second_system(package: Submission, rng: Random, *most_ms: int, division: str = "") -> None:
    """Let copies of all runs be the result of another system; division: theirs."""
    most, system = rng.choice(most_ms), f"{package.system}_{division or 'second'}"
    folder, description = package.locate(system=system)
    for path in package.log_paths:
        log = copy_run(package, path, rng, most)
        if division:
            log.first("submission_division").record["value"] = division
        package.files[path.replace(package.folder, folder)] = log.bytes()
    own = {"system_name": system} | ({"division": division} if division else {})
    package.files[description] = json.dumps(package.read_description() | own, indent=1).encode()


COPIES = ("duplicate", "cop", "same run", "one run", "alike", "the same", "identical", "equal")
F10 = [
    *on_each(
        "F10",
        "Dell deepcam, Clemson deepcam, TACC openfold, built deepcam",
        "all runs are one, moved by milliseconds",
        COPIES,
        all_of_one(60, 80),
    ),
    *on_each(
        "F10",
        "NVIDIA cosmoflow, CSCS oc20, NVIDIA oc20, suite cosmoflow",
        "all runs are one, moved by milliseconds",
        COPIES,
        all_of_one(100, 150, 200),
    ),
    *on_each(
        "F10",
        "Dell deepcam, LBNL deepcam, Clemson openfold, built oc20",
        "all runs are one, moved by up to a second",
        COPIES,
        all_of_one(400, 700, 1000),
    ),
    *on_each(
        "F10",
        "Clemson deepcam, NVIDIA cosmoflow, TACC openfold, built cosmoflow",
        "one run is another, moved by milliseconds",
        COPIES,
        one_of_another(60, 100, 250, 1000),
    ),
    *on_each(
        "F10b",
        "Dell deepcam, Clemson deepcam, NVIDIA deepcam, TACC openfold, Clemson openfold, built openfold",
        "the runs again for a second system, moved by milliseconds",
        COPIES,
        second_system(60, 100, 150),
    ),
    *on_each(
        "F10b",
        "NVIDIA cosmoflow, NVIDIA oc20, CSCS oc20, LBNL deepcam, Dell deepcam, suite deepcam",
        "the runs again for a second system, moved by up to a second",
        COPIES,
        second_system(200, 500, 1000),
    ),
    *on_each(
        "F30",
        "Dell deepcam, Clemson deepcam, NVIDIA deepcam, TACC openfold, Clemson openfold, built cosmoflow",
        "the runs again in the open division, moved by milliseconds",
        COPIES,
        second_system(100, 200, division="open"),
    ),
    *on_each(
        "F30",
        "NVIDIA cosmoflow, NVIDIA oc20, CSCS oc20, LBNL deepcam, TACC openfold, built deepcam",
        "the runs again in the open division, moved by up to a second",
        COPIES,
        second_system(400, 1000, division="open"),
    ),
]

# -- F03: pruned runs of a time-to-train result -------------------------------------------------------------------


def add_slower(package: Submission, rng: Random, source: str, path: str, days: int) -> None:
    """Add another, slower run than one of the package."""
    log = package.read(source)
    slow_down(log, rng, days * copies.DAY_MS)
    package.files[path] = log.bytes()


def prune_slow(package: Submission, rng: Random) -> None:
    """Put complete, slower runs into pruned_results."""
    paths = package.log_paths
    for number in range(rng.randint(1, 6)):
        add_slower(package, rng, rng.choice(paths), f"{package.folder}/pruned_results/result_{number}.txt", number + 1)


F03 = on_each(
    "F03",
    "Dell deepcam, Clemson openfold, NVIDIA cosmoflow, CSCS oc20, built cosmoflow, suite deepcam",
    "slower runs are pruned in a time-to-train result",
    ("pruned",),
    prune_slow,
)

# -- F02: a submission inside another -----------------------------------------------------------------------------


@take_arguments
def another_inside(package: Submission, rng: Random, *folders: str) -> None:
    """Put a second submission into a folder of the first one: slower runs."""
    root = package.root
    inside = f"{root}/{rng.choice(folders)}"
    copied = [path for path in package.files if path.startswith((f"{root}/results/", f"{root}/systems/"))]
    package.files |= {path.replace(root, inside, 1): package.files[path] for path in copied}
    for path in package.log_paths:
        add_slower(package, rng, path, path.replace(root, inside, 1), 3)


INSIDE = ("submission", "not checked", "not judged", "logs", "results")
F02 = [
    *on_each("F02", "Dell deepcam, built cosmoflow", "a submission inside", INSIDE, another_inside("more", "attic")),
    *on_each(
        "F02",
        "Clemson openfold, built deepcam",
        "a submission two folders inside",
        INSIDE,
        another_inside("more/second", "attic/second"),
    ),
    *on_each(
        "F02",
        "NVIDIA cosmoflow, built oc20",
        "a submission inside benchmarks/",
        INSIDE,
        another_inside("benchmarks/more", "benchmarks/second"),
    ),
]

RUNS = (*F02, *F03, *F10)


# -- F14: throughput ----------------------------------------------------------------------------------------------


@take_arguments
def description_of(package: Submission, rng: Random, field: str, *factors: float) -> None:
    """Let it be that its description has other numbers than the logs."""
    fields = package.read_description()
    count = int(fields[field]) * rng.choice(factors)
    package.describe(fields | {field: str(max(1, int(count)))})


@take_arguments
def without_instances(package: Submission, rng: Random, choose: Callable[[list[str], Random], list[str]]) -> None:
    """Remove the chosen instances."""
    for path in choose(package.log_paths, rng):
        del package.files[path]


ACCELERATORS = ("accelerators_per_node", "accelerators per node", "accelerators")
GAPS = ("missing", "gap", "not there", "skip", "left out", "between", "lacks", "without")
INSTANCES = "LBNL cosmoflow instances, LBNL deepcam instances, built instances"
TOLD_APART = "built instances, LBNL deepcam instances"  # more of them than must be
F14 = [
    *on_each(
        "F14",
        INSTANCES,
        "the description has more accelerators per node than the logs",
        ACCELERATORS,
        description_of("accelerators_per_node", 2, 4),
    ),
    *on_each(
        "F14",
        INSTANCES,
        "the description has fewer accelerators per node than the logs",
        ACCELERATORS,
        description_of("accelerators_per_node", 0.5, 0.25),
    ),
    *on_each(
        "F14",
        TOLD_APART,
        "the logs state other accelerators per node than the description",
        ACCELERATORS,
        states("accelerators_per_node", 0, 2, 8),
    ),
    *on_each(
        "F14",
        TOLD_APART,
        "every second number is missing",
        GAPS,
        without_instances(lambda all_, rng: all_[1::2]),
    ),
    *on_each(
        "F14",
        TOLD_APART,
        "some numbers are missing",
        GAPS,
        without_instances(lambda all_, rng: rng.sample(all_[1:-1], rng.randint(2, 4))),
    ),
    *on_each(
        "F14", TOLD_APART, "one number is missing", GAPS, without_instances(lambda all_, rng: [rng.choice(all_[1:-1])])
    ),
    *on_each(
        "F14",
        TOLD_APART,
        "the first numbers are missing",
        GAPS,
        without_instances(lambda all_, rng: all_[: rng.randint(3, 4)]),
    ),
]

# -- F17: counts in the description -------------------------------------------------------------------------------


@take_arguments
def count_as(package: Submission, rng: Random, field: str, text: str) -> None:
    """Write a count as no number; {} is the count."""
    fields = package.read_description()
    package.describe(fields | {field: text.format(fields[field])})


NODES, PER_NODE = "number_of_nodes", "accelerators_per_node"
F17 = [
    case
    for field, text, bases in (
        (NODES, "{},000", "Dell deepcam, built cosmoflow"),
        (NODES, "{}e3", "Clemson deepcam"),
        (NODES, "{}k", "TACC openfold, built deepcam"),
        (NODES, "{} 000", "Dell deepcam, built oc20"),
        (NODES, "{}.9", "NVIDIA cosmoflow"),
        (NODES, "{}x100", "CSCS oc20"),
        (PER_NODE, "{},000", "Dell deepcam"),
        (PER_NODE, "{}e1", "built openfold"),
        (PER_NODE, "{} 000", "Clemson openfold"),
    )
    for case in on_each(
        "F17", bases, "a count that is no whole number", (field, field.replace("_", " ")), count_as(field, text)
    )
]

# -- F24: power ---------------------------------------------------------------------------------------------------


Meter = Callable[[dict[str, Any], str, Random], Any]


@take_arguments
def in_meters(package: Submission, rng: Random, change: Meter, key: str = "", part: str = "") -> None:
    """Change the records of every power file, or of some keys and files, all by the same draw."""
    seed = rng.random()

    def change_all(name: str, records: list[dict[str, Any]]) -> None:
        own = Random(seed)
        for record in records:
            if key in ("", record["key"]):
                change(record, name, own)

    package.edit_meters(change_all, part)


def interconnect_of(*watts: float) -> Edit:
    """Return the edit after which switches draw so much."""
    return in_meters(lambda record, name, rng: record.update(value=rng.choice(watts)), ESTIMATE)


def readings_of(value: Callable[[float, str], float]) -> Edit:
    """Return the edit of the readings of nodes."""
    return in_meters(
        lambda record, name, rng: record.update(value=value(record["value"], name)), POWER_READING, "node_"
    )


@take_arguments
def readings_of_node_0(package: Submission, rng: Random, jitter_ms: int = 0, digits: int = 9) -> None:
    """Let all nodes have the readings of node 0."""
    for path in package.power_paths:
        folder, _, name = path.rpartition("/")
        if name.startswith("node_") and name != "node_0.txt":
            records = read_records(package.files[f"{folder}/node_0.txt"])
            for record in records:
                record["metadata"]["host"] = name.removesuffix(".txt")
                if record["key"] == POWER_READING:
                    record["time_ms"] += rng.randint(-jitter_ms, jitter_ms)
                    record["value"] = round(record["value"], digits)
            package.files[path] = write_records(records)


BOTH = "measured deepcam, measured cosmoflow"
WATTS, READINGS = ("interconnect", "power_est", " w", "watt"), ("reading", " w", "watt", "node")
F24 = [
    *on_each("F24", BOTH, "switches draw nothing", WATTS, interconnect_of(0, 0.0)),
    *on_each("F24", "measured deepcam", "switches draw a nanowatt", WATTS, interconnect_of(1e-9, 1e-6)),
    *on_each("F24", BOTH, "switches draw a gigawatt", WATTS, interconnect_of(1e9, 1e8)),
    *on_each("F24", "measured cosmoflow", "switches draw a milliwatt", WATTS, interconnect_of(1e-3)),
    *on_each("F24", BOTH, "the readings of node 0 for all nodes", READINGS, readings_of_node_0()),
    *on_each(
        "F24", BOTH, "the readings of node 0 for all nodes, at other times", READINGS, readings_of_node_0(jitter_ms=40)
    ),
    *on_each(
        "F24", "measured deepcam", "the readings of node 0 for all nodes, rounded", READINGS, readings_of_node_0(0, 1)
    ),
    *on_each("F24", BOTH, "constant watts", (*READINGS, "constant"), readings_of(lambda watts, name: 400.0)),
    *on_each(
        "F24",
        "measured cosmoflow",
        "constant watts, others in each node",
        (*READINGS, "constant"),
        readings_of(lambda watts, name: 400.0 + 10 * number_of(name.replace("node", "result"))),
    ),
    *on_each(
        "F24",
        BOTH,
        "all files are of one host",
        ("host",),
        in_meters(lambda record, name, rng: record["metadata"].update(host="node_0")),
    ),
    *on_each("F24", BOTH, "kilowatts for watts", (*READINGS, "low"), readings_of(lambda watts, name: watts / 1000)),
]

# -- F22: records that no reader sees -----------------------------------------------------------------------------

TOKENS = (
    ":::MLLOG",
    ":::MLLOG\t",
    ":::mllog ",
    ":::\uff2dLLOG ",
    ":::\u200bMLLOG ",
    "::MLLOG ",
    ":::MLLog ",
    "::: MLLOG ",
)
TOKEN_BASES = (
    "Dell deepcam",
    "built cosmoflow",
    "NVIDIA cosmoflow",
    "built deepcam",
    "CSCS oc20",
    "suite cosmoflow",
    "TACC openfold",
    "built oc20",
)


@of_each_log
def hidden(log: LogText, rng: Random, token: str) -> None:
    """Write records behind a token that no reader knows: other batch size, an earlier start."""
    start = log.last("run_start")
    batch = log.first("global_batch_size").record | {"value": 4}
    earlier = start.record | {"time_ms": start.time - copies.DAY_MS}
    at = log.at(start)
    log.lines[at:at] = [Line(token.encode() + json.dumps(record).encode(), {}) for record in (batch, earlier)]


F22 = [
    case
    for token, base in zip(TOKENS, TOKEN_BASES, strict=True)
    for case in on_each(
        "F22", base, "records behind another token", ("record", "mllog", "token"), hidden(token), (ERROR, WARNING, NOTE)
    )
]

FILES = (*F14, *F17, *F22, *F24)
PACKAGES = number_cases(
    (*BLOCKS, *forged_packages.COURSE, *forged_packages.AMOUNTS, *SUITE, *RUNS, *FILES),
)
"""All forged packages."""
