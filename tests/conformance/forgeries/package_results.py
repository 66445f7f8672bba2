"""Forgeries of instances, descriptions, power, and by records that no reader sees."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from common.measure.power.keys import READING
from compliance.logs.power import ESTIMATE
from compliance.model.finding import ERROR, NOTE, WARNING
from tests.conformance.forgeries.package_bases import Package, number_of
from tests.conformance.forgeries.package_course import states
from tests.conformance.forgeries.package_forgery import Forge, Forgery, on_each
from tests.conformance.variants.logtext import LogText

DAY_MS = 86_400_000


# -- F14: throughput ----------------------------------------------------------------------------------------------


def description_of(field: str, *factors: float) -> Forge:
    """Return a forgery whose description has other numbers than the logs."""

    def forge(package: Package, rng: random.Random) -> str:
        value = int(json.loads(package.files[f"systems/{package.system}.json"])[field])
        value = max(1, int(value * rng.choice(factors)))
        package.describe(**{field: str(value)})
        return f"{field} {value}"

    return forge


def without_instances(choose: Callable[[list[int], random.Random], list[int]]) -> Forge:
    """Return a forgery without the instances at the chosen positions."""

    def forge(package: Package, rng: random.Random) -> str:
        names = package.logs
        gone = [names[at] for at in choose(list(range(len(names))), rng)]
        for name in gone:
            del package.files[name]
        return f"without {[number_of(name) for name in gone]}"

    return forge


def accelerators_of_logs(*values: int) -> Forge:
    """Return a forgery whose logs state other accelerators per node."""
    return states("accelerators_per_node", *values)


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
        accelerators_of_logs(0, 2, 8),
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


def count_as(field: str, *texts: str) -> Forge:
    """Return a forgery that writes a count as no number; {} is the count."""

    def forge(package: Package, rng: random.Random) -> str:
        value = json.loads(package.files[f"systems/{package.system}.json"])[field]
        text = rng.choice(texts).format(value)
        package.describe(**{field: text})
        return f"{field} {text!r}"

    return forge


NODES, PER_NODE = "number_of_nodes", "accelerators_per_node"
F17 = [
    Forgery(
        "F17", base.strip(), "a count that is no whole number", (field, field.replace("_", " ")), count_as(field, text)
    )
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
    for base in bases.split(",")
]

# -- F24: power ---------------------------------------------------------------------------------------------------


def in_power_files(change: Callable[[list[dict[str, Any]], str, random.Random], None]) -> Forge:
    """Return a forgery that changes the records of every power file, all by the same draw."""

    def forge(package: Package, rng: random.Random) -> str:
        seed = rng.random()
        for name, data in package.files.items():
            if "/power/" in name:
                records = [json.loads(line.partition(b" ")[2]) for line in data.splitlines()]
                change(records, name.rpartition("/")[2], random.Random(seed))
                lines = [b":::MLLOG " + json.dumps(record).encode() + b"\n" for record in records]
                package.files[name] = b"".join(lines)
        return ""

    return forge


def interconnect_of(*watts: float) -> Forge:
    """Return a forgery whose switches draw so much."""

    def change(records: list[dict[str, Any]], name: str, rng: random.Random) -> None:
        """Set the estimate."""
        value = rng.choice(watts)
        for record in records:
            if record["key"] == ESTIMATE:
                record["value"] = value

    return in_power_files(change)


def readings_of(value: Callable[[float, str, random.Random], float]) -> Forge:
    """Return a forgery that changes the readings of nodes."""

    def change(records: list[dict[str, Any]], name: str, rng: random.Random) -> None:
        """Set each."""
        for record in records:
            if record["key"] == READING and name.startswith("node_"):
                record["value"] = value(record["value"], name, rng)

    return in_power_files(change)


def readings_of_node_0(jitter_ms: int = 0, digits: int = 9) -> Forge:
    """Return a forgery in which all nodes have the readings of node 0."""

    def forge(package: Package, rng: random.Random) -> str:
        for name in package.files:
            folder, _, file = name.rpartition("/")
            if "/power/" in name and file.startswith("node_") and file != "node_0.txt":
                lines = []
                for line in package.files[f"{folder}/node_0.txt"].splitlines():
                    record = json.loads(line.partition(b" ")[2])
                    record["metadata"]["host"] = file.removesuffix(".txt")
                    if record["key"] == READING:
                        record["time_ms"] += rng.randint(-jitter_ms, jitter_ms)
                        record["value"] = round(record["value"], digits)
                    lines.append(b":::MLLOG " + json.dumps(record).encode() + b"\n")
                package.files[name] = b"".join(lines)
        return ""

    return forge


def one_host(records: list[dict[str, Any]], name: str, rng: random.Random) -> None:
    """Let every file be of the same host."""
    for record in records:
        record["metadata"]["host"] = "node_0"


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
    *on_each("F24", BOTH, "constant watts", (*READINGS, "constant"), readings_of(lambda watts, name, rng: 400.0)),
    *on_each(
        "F24",
        "measured cosmoflow",
        "constant watts, others in each node",
        (*READINGS, "constant"),
        readings_of(lambda watts, name, rng: 400.0 + 10 * number_of(name.replace("node", "result"))),
    ),
    *on_each("F24", BOTH, "all files are of one host", ("host",), in_power_files(one_host)),
    *on_each(
        "F24", BOTH, "kilowatts for watts", (*READINGS, "low"), readings_of(lambda watts, name, rng: watts / 1000)
    ),
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


def hidden(token: str) -> Forge:
    """Return a forgery with records behind a token that no reader knows: other batch size, an earlier start."""

    def forge(package: Package, rng: random.Random) -> str:
        def hide(log: LogText) -> None:
            """Insert the lines."""
            at = log.at(log.last("run_start"))
            record = log.first("global_batch_size").copy().record
            record["value"] = 4
            start = log.last("run_start").copy().record
            start["time_ms"] -= DAY_MS
            other = LogText(b"", package.benchmark, package.round)
            for made in (record, start):
                line = log.last("run_start").copy()
                line.record, line.prefix = {}, token.encode() + json.dumps(made).encode()
                other.lines.append(line)
            log.lines[at:at] = other.lines[1:]

        package.edit(hide)
        return repr(token)

    return forge


F22 = [
    Forgery(
        "F22", base, "records behind another token", ("record", "mllog", "token"), hidden(token), (ERROR, WARNING, NOTE)
    )
    for token, base in zip(
        TOKENS,
        (
            "Dell deepcam",
            "built cosmoflow",
            "NVIDIA cosmoflow",
            "built deepcam",
            "CSCS oc20",
            "suite cosmoflow",
            "TACC openfold",
            "built oc20",
        ),
        strict=True,
    )
]

FORGERIES = [*F14, *F17, *F22, *F24]
