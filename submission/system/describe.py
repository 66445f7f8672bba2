"""The description of a system: detected fields, those that the user must add, and where the nodes of a job differ.

Each node of a job prints lines about itself, and the lines of all nodes are read together; without torch.

Check a system description by itself, without a submission, and whether logs agree with it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import structs

from common.command import counted, list_some, suggest_name
from common.errors import LaunchError, UsageError
from common.measure.power_sources import is_watts
from common.ranks.launch import RankPosition
from common.tree import NAMED
from common.values import group_pairs
from compliance.engine.checker import check_paths
from compliance.engine.inputs import initial_case
from compliance.engine.judging import start_judging
from compliance.engine.log_checker import Options
from compliance.logs.run import Run
from compliance.model.judging import Case, JudgedRun, add_judgement
from compliance.model.layout import STRONG
from compliance.model.package import Package
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.system import NUMBERS, OPEN, STATUSES, SystemDescription, is_placeholder, read_description
from compliance.rules.catalog import import_all_rules
from compliance.rules.package import FIELDS, SYSTEM_TYPE, SYSTEM_TYPES
from compliance.rules.rule import PackageRule, SetRule, rules_of
from compliance.rules.system import DescribedSystem
from submission.system.hardware import ACCELERATOR_DETAILS, NO_ACCELERATORS, Fields
from submission.system.machine import NO_READING, Machine, Reading, probe_machine, read_node

ALL_FIELDS: Final = (*FIELDS[:3], SYSTEM_TYPE, *FIELDS[3:])
"""The fields of a description, in order: the 33 that the official tools require, and the type from the policy."""
QUESTIONS: Final = {
    "submitter": "the organisation, as in the logs",
    "division": "closed or open",
    "status": "cloud, onprem, preview or research",
    SYSTEM_TYPE: "datacenter or edge",
    "system_name": "the name of the system",
    "host_processors_per_node": "how many processors a node has",
    "host_processor_interconnect": "what links the processors, such as UPI or Infinity Fabric",
    "host_memory_configuration": "modules and kind, such as 16x 32 GB DDR5-4800",
    "host_networking_topology": "such as fat tree or dragonfly",
    "accelerator_on-chip_memories": "caches, such as L1 256 KB per SM, L2 50 MB",
    "accelerator_memory_configuration": "such as HBM3",
    "accelerator_interconnect_topology": "such as fully connected",
    "cooling": "such as air or liquid",
    "framework": "such as PyTorch and its version",
}
"""What to fill in, where the name of the field does not say it."""
NOTHING: Final = "none"
"""The value of empty notes."""
NOTES_OF: Final = dict.fromkeys(("framework", "other_software_stack", "operating_system"), "sw_notes")
"""The notes that tell that a field differs; those of the others are the hardware's."""
NOTES: Final = ("hw_notes", "sw_notes")
CHOICES: Final = {
    "division": ("closed", "open"),
    "status": tuple(STATUSES),
    SYSTEM_TYPE: SYSTEM_TYPES,
}
"""The values of the fields that have few."""
MOST_LISTED: Final = 5
"""Values of a field, and nodes of a value, that a message lists."""


@dataclass(frozen=True, slots=True)
class Description:
    """A system description. fields: all, in order. open_points: `field: what`, for the user to fill in."""

    fields: dict[str, str]
    open_points: list[str]


def explain_unread(description: SystemDescription) -> str:
    """Return where and why a description could not be read, and what to do."""
    place = f"{description.path}:{description.line}".removesuffix(":0")
    verb = "" if description.problem[:1].islower() else ":"
    fix = description.fix or "`python -m submission.system` writes one"
    return f"{place}{verb} {description.problem}. {fix}"


def describe_system(
    set_fields: Mapping[str, str],
    other: Mapping[str, object] | None = None,
    detected: Fields | None = None,
    added_notes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Description:
    """Return the description of a system.

    set_fields: by the user; they take precedence over detected ones. other: another description, for fields that cannot
    be detected. detected: the detected fields; None: those of this machine. If it has no accelerators, but the user
    states some, all about them is to be filled in; if the user states none, nothing. added_notes: texts to add to
    notes, as `subject: text`.
    """
    detected = probe_machine(Machine()) if detected is None else detected
    stated = set_fields.get("accelerators_per_node")
    if stated == "0":
        detected = detected | NO_ACCELERATORS
    elif stated and detected.get("accelerators_per_node") == "0":
        detected = {name: value for name, value in detected.items() if name not in ACCELERATOR_DETAILS}
    other_fields = {name: value for name, value in (other or {}).items() if isinstance(value, str) and value.strip()}
    # Notes by people are better than detected ones.
    notes = {name: other_fields[name] for name in NOTES if other_fields.get(name, NOTHING) != NOTHING}
    values = {**other_fields, **detected, **notes}
    for name, texts in added_notes.items():  # in place of earlier ones of the same subjects
        subjects = {text.partition(": ")[0] for text in texts}
        parts = values.get(name, NOTHING).split("; ")
        kept = [part for part in parts if part != NOTHING and part.partition(": ")[0] not in subjects]
        values[name] = "; ".join([*kept, *texts])
    values |= set_fields
    fields, open_points = {}, []
    for name in ALL_FIELDS:
        question = QUESTIONS.get(name, name.replace("_", " "))
        value = values.get(name, NOTHING if name in NOTES else f"{OPEN}: {question}")
        if is_placeholder(value):
            open_points.append(f"{name}: {question}")
        fields[name] = value
    return Description(fields, open_points)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for the first name that is not a field of a description."""
    unknown = next((name for name in names if name not in ALL_FIELDS), None)
    if unknown is not None:
        near = suggest_name(unknown, ALL_FIELDS) or f"; expected one of {', '.join(ALL_FIELDS)}"
        raise UsageError(f"a system description has no field {unknown!r}{near}")


def check_values(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields as they are written: 16 for `16 nodes`; UsageError for a value that its field cannot have.

    Numbers are read as the checker reads them.
    """
    for name, choices in CHOICES.items():
        value = fields.get(name)
        if value is not None and value.lower() not in choices:
            raise UsageError(f"{name} is {value!r}{suggest_name(value, choices)}; expected {' or '.join(choices)}")
    description = SystemDescription("", "", dict(fields))
    for name in NUMBERS:
        if not description.has_number(name):
            raise UsageError(f"{name} is {fields[name]!r}; expected a number, such as {NUMBERS[name]}")
    counts = {name: description.count(name) for name, value in fields.items() if name in NUMBERS and "(" not in value}
    return {**fields, **{name: str(count) for name, count in counts.items() if count is not None}}


def render_description(fields: Mapping[str, str]) -> str:
    """Return the description as the text of its file: JSON in ASCII."""
    return json.dumps(dict(fields), indent=2) + "\n"


# -- the nodes of a job --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not the same on all nodes. values: each with its nodes, the written one first; "": unknown."""

    name: str
    values: Mapping[str, Sequence[int]]

    def format_warning(self, names: Sequence[str]) -> str:
        """Return the difference as a line. names: of the nodes."""
        parts = [
            f"{value or 'not detected'} on {_list_nodes([names[node] for node in nodes], len(names))}"
            for value, nodes in list(self.values.items())[:MOST_LISTED]
        ]
        return f"{self.name}: {'; '.join([*parts, *_count_rest(len(self.values))])}"

    def format_note(self, nodes: int) -> str:
        """Return the difference as a text for the notes, "" if the other nodes only lack the value."""
        others = [(value, len(having)) for value, having in self.values.items() if value][1:]
        parts = [f"{value} on {count} of {nodes} nodes" for value, count in others[:MOST_LISTED]]
        return f"{self.name}: {', '.join([*parts, *_count_rest(len(others))])}" if parts else ""


def merge_fields(nodes: Sequence[Fields]) -> tuple[Fields, list[Difference]]:
    """Return the fields of the whole system, and where its nodes differ.

    A field has the value of most nodes that know it, of the first such value in a tie. The number of nodes is counted.
    """
    names = dict.fromkeys(name for fields in nodes for name in fields if name != "number_of_nodes")
    by_value = {name: _by_value([fields.get(name, "") for fields in nodes]) for name in names}
    differences = [Difference(name, values) for name, values in by_value.items() if len(values) > 1]
    merged = {name: next(iter(values)) for name, values in by_value.items()}
    return {"number_of_nodes": str(len(nodes)), **merged}, differences


def collect_notes(differences: Sequence[Difference], nodes: int) -> dict[str, list[str]]:
    """Return the texts about the differences for each field of notes."""
    texts = ((difference.name, difference.format_note(nodes)) for difference in differences)
    return group_pairs((NOTES_OF.get(name, "hw_notes"), text) for name, text in texts if text and name not in NOTES)


def _by_value(values: Sequence[str]) -> dict[str, list[int]]:
    """Return the nodes with each value, the most frequent value first; that it is unknown comes last."""
    nodes = group_pairs((value, node) for node, value in enumerate(values))
    return dict(sorted(nodes.items(), key=lambda item: (not item[0], -len(item[1]))))


def _list_nodes(names: Sequence[str], total: int) -> str:
    if len(names) > MOST_LISTED:
        return f"{len(names)} of {total} nodes"
    return f"node{'s' * (len(names) > 1)} {', '.join(names)}"


def _count_rest(values: int) -> list[str]:
    return [f"{values - MOST_LISTED} more values"] if values > MOST_LISTED else []


START: Final = '{"mlperf_hpc_node":'
"""Start of a line about a node; what a launcher writes before it, such as the rank, is skipped."""
LONGEST_LINE: Final = 1000
"""Characters. srun passes on at most 1024 bytes at once, between those of other nodes: it cuts longer lines."""
MOST_BYTES: Final = 1 << 28
"""Of a file of lines."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as one of its processes describes it; in a line, perhaps only some of its fields. count: of all fields.

    parts: the number of nodes or ranks it answers for, of a total; 0 if the launcher does not say who shares a node.
    power: the reading, if requested. source: the name of its source, "" if no reading was requested.
    """

    host: str
    rank: int
    parts: int
    total: int
    count: int
    fields: Fields
    power: Reading = NO_READING
    source: str = ""


def count_parts(launch: RankPosition) -> tuple[int, int]:
    """Return the number of nodes or ranks that this process answers for, and their total.

    0: another process of the node answers. Counted are nodes, or ranks if the launcher does not number the nodes; each
    rank answers for itself if the launcher does not say which ranks share a node.
    Raises LaunchError if the launcher does not say how many ranks there are.
    """
    if launch.nodes is not None and launch.local_rank is not None:
        return int(launch.local_rank == 0), launch.nodes
    if launch.world_size is None:
        raise LaunchError(f"{launch.launcher} does not say how many ranks there are: use srun, mpirun or torchrun")
    if launch.local_size is not None and launch.local_rank is not None:
        return (0 if launch.local_rank else launch.local_size), launch.world_size
    return 1, launch.world_size


def describe_node(launch: RankPosition, power: str | None) -> Node:
    """Describe the node of this process. power: the source to read its power from, None for no reading."""
    host, (parts, total) = socket.gethostname(), count_parts(launch)
    reading = read_node(power, host) if power else NO_READING
    total, fields = 0 if launch.local_rank is None else total, probe_machine(Machine())
    return Node(host, launch.rank, parts, total, len(fields), fields, reading, (power or "").partition(":")[0])


def format_lines(node: Node) -> Iterator[str]:
    """Yield the line about a node; several with a part of the fields each where it would be too long."""
    line, items = f"{START}{msgspec.json.encode(node).decode()}}}", list(node.fields.items())
    if len(line.encode()) <= LONGEST_LINE or len(items) < 2:
        yield line
    else:
        for part in (items[::2], items[1::2]):
            yield from format_lines(replace(node, fields=dict(part)))


def read_nodes(paths: Sequence[Path]) -> list[Node]:
    """Return the nodes in lines of files, each once, in the order of their ranks; other lines are skipped.

    Raises LaunchError if a line is damaged, lines differ about a node, or nodes are missing.
    """
    by_host: dict[str, Node] = {}
    for path in paths:
        for number, line in enumerate(NAMED.read(path, MOST_BYTES).decode(errors="replace").split("\n"), 1):
            _, start, rest = line.partition(START)
            if start:
                node = _parse_line(start + rest, f"{path}:{number}")
                first = by_host.setdefault(node.host, node)
                differing = [
                    name for name, value in node.fields.items() if first.fields.setdefault(name, value) != value
                ]
                if (node.total, node.count) != (first.total, first.count):
                    differing.append("number of nodes or fields")
                if differing:
                    raise LaunchError(
                        f"{path}:{number}: an earlier line about {node.host} has another {differing[0]}; remove the "
                        "lines that are out of date, or give each node a host name of its own"
                    )
    nodes = sorted(by_host.values(), key=lambda node: (node.rank, node.host))
    files, total = ", ".join(map(str, paths)), max((node.total for node in nodes), default=0)
    if not nodes:
        raise LaunchError(f"{files}: no lines about a node; `python -m submission.system --this-node` prints them")
    for node in nodes:
        if len(node.fields) != node.count:
            raise LaunchError(
                f"{files}: {len(node.fields)} of the {node.count} fields of {node.host}: a line is missing; repeat "
                "--this-node there. Nothing is written"
            )
    if (parts := sum(node.parts for node in nodes)) < total:
        hosts = list_some([node.host for node in nodes], 10)
        raise LaunchError(
            f"{files}: {counted(len(nodes), 'node')} ({hosts}), which are {parts} of the {total} nodes or ranks that "
            "the launcher started; add the lines of the others. Nothing is written"
        )
    return nodes


def _parse_line(text: str, where: str) -> Node:
    try:
        [node] = msgspec.json.decode(text, type=dict[str, Node]).values()
        watts = node.power.watts
        if node.parts < 1 or not (watts is None or is_watts(watts)):
            raise ValueError(f"{node.parts} parts, {watts} W")
    except (ValueError, RecursionError) as error:
        raise LaunchError(
            f"{where}: not the description of a node ({error}): run --this-node on all nodes with this version of the "
            "suite; nothing is written"
        ) from error
    return node


ALONE = ("PKG04", "PKG05", "PKG06", "PKG07", "PKG20")
"""Rules about a system description by itself."""
WITH_LOGS = ("RUN08", "RUN09", "RUN10")
"""Rules about a system description and the logs of the system."""


def check_description(path: str, logs: Sequence[str], options: Options) -> Report:
    """Return the report on a system description, and on whether the logs agree with it.

    The logs themselves are neither judged nor listed: `check_paths` does that. If they belong to a submission, its own
    descriptions are ignored. Never raises; a file that cannot be read is a finding.
    """
    if not logs:
        return compare_description(path, (), options)
    seen = check_paths(logs, options)
    scalings = {run.path: results.scaling for results in seen.sets for run in (*results.runs, *results.pruned)}
    report = compare_description(path, [(run, scalings.get(run.path, STRONG)) for run in seen.runs], options)
    report.own.extend([] if seen.runs else seen.own)
    return report


def compare_description(path: str, runs: Sequence[tuple[Run, str]], options: Options) -> Report:
    """Return the report on a system description, and on whether runs that were read agree with it.

    runs: each with its scaling, "strong" or "weak".
    """
    case = initial_case(path, options, [run.path for run, _ in runs])
    judging = start_judging(options)
    judging.report.rounds.append((path, case.round, case.round_why, "system description"))
    description = read_description(path, NAMED)
    package = Package(path, "", case.round, case.profile, flat=False, descriptions={description.name: description})
    import_all_rules()
    rules = tuple(rule for rule in rules_of(PackageRule, case.round, None, case.profile) if rule.id in ALONE)
    findings = judging.apply_rules(rules, package)
    for results in _make_results(runs, description, options):
        applicable = rules_of(SetRule, results.round, results.division, options.profile)
        findings += judging.apply_rules(tuple(rule for rule in applicable if rule.id in WITH_LOGS), results)
    silent = (run.path for run, _ in runs if run.benchmark is None)
    findings += [DescribedSystem().skipped(path, "the log does not name its benchmark") for path in silent]
    judging.report.packages.append(structs.replace(package, findings=findings))
    return judging.report


def _make_results(
    runs: Sequence[tuple[Run, str]], description: SystemDescription, options: Options
) -> Iterator[ResultSet]:
    """Yield the runs as results of the described system, by benchmark and scaling; skip runs without a benchmark."""
    judged = [
        (
            run if isinstance(run, JudgedRun) else add_judgement(run, initial_case(run.path, options)),
            scaling,
        )
        for run, scaling in runs
        if run.benchmark is not None
    ]
    groups = group_pairs(((run.round, run.benchmark, scaling), run) for run, scaling in judged)
    for (round_, benchmark, scaling), members in groups.items():
        case = Case(round_, options.profile, description.division, benchmark)
        folder = os.path.dirname(members[0].path)
        yield ResultSet(folder, case, scaling, runs=members, description=description, loose=True)
