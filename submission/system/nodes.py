"""The nodes of a job: each prints lines about itself, and the lines of all nodes are read together; without torch."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from common.command import counted
from common.measure.power_sources import is_watts
from common.ranks.launch import LaunchError, RankPosition
from common.tree import NAMED
from compliance.model.finding import listed
from submission.system.hardware import Fields
from submission.system.machine import NO_READING, Machine, Reading, probe_machine, read_node, source_name

START: Final = '{"mlperf_hpc_node":'
"""Start of a line about a node; what a launcher writes before it, such as the rank, is skipped."""
LONGEST_LINE: Final = 1000
"""Characters. srun passes on at most 1024 bytes at once, between those of other nodes: it cuts longer lines."""
MOST_BYTES: Final = 1 << 28
"""Of a file of lines."""
MOST_NAMED: Final = 10
"""Nodes that an error names."""


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
    return Node(host, launch.rank, parts, total, len(fields), fields, reading, source_name(power or ""))


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
        hosts = listed([node.host for node in nodes], MOST_NAMED)
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
