"""Which cores a rank runs on: those near its accelerator, shared out among the ranks that are near them too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import torch

from common.processes import bound_cores

SYS: Final = Path("/sys")
"""Where Linux shows its devices."""


def bind_process(cores: frozenset[int]) -> bool:
    """Bind this thread, and those that it starts from now on, to the cores; return whether that changes anything."""
    if not hasattr(os, "sched_setaffinity") or cores == bound_cores():
        return False
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(min(torch.get_num_threads(), len(cores)))
    return True


def find_near_cores(device: torch.device, bound: frozenset[int]) -> frozenset[int]:
    """Return the cores among `bound` that are in the NUMA node of an accelerator; all if none are known to be."""
    if device.type == "cpu":
        return bound
    properties = torch.get_device_module(device).get_device_properties(device)
    try:
        domain, bus, number = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
        at = SYS / f"bus/pci/devices/{domain:04x}:{bus:02x}:{number:02x}.0/numa_node"
        node = int(at.read_text())  # -1: unknown, or there is only one
        near = parse_cores((SYS / f"devices/system/node/node{node}/cpulist").read_text())
    except (AttributeError, OSError, ValueError):
        return bound
    return bound & near or bound


def share_cores(cores: Sequence[frozenset[int]], number: int) -> frozenset[int]:
    """Return the cores of a rank that no other rank of its node gets, if there are enough.

    cores: that each rank of the node may use; those that may use the same ones divide them, the hardware threads of a
    core staying together. number: of the rank among them.
    """
    mine = cores[number]
    sharing = [other for other, its in enumerate(cores) if its == mine]
    if len(mine) < len(sharing):
        return mine
    ordered = sorted(mine, key=lambda core: (_first_thread(core), core))
    own, parts = sharing.index(number), len(sharing)
    return frozenset(ordered[len(ordered) * own // parts : len(ordered) * (own + 1) // parts])


def _first_thread(core: int) -> int:
    """Return the first hardware thread of the core that this one belongs to."""
    try:
        return min(parse_cores((SYS / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()))
    except (OSError, ValueError):
        return core


def parse_cores(text: str) -> frozenset[int]:
    """Return the numbers in a list of Linux, such as 0-3,8."""
    ends = (part.split("-") for part in text.strip().split(",") if part)
    return frozenset(core for end in ends for core in range(int(end[0]), int(end[-1]) + 1))


def format_cores(cores: frozenset[int]) -> str:
    """Return cores as such a list."""
    runs = ([core for _, core in run] for _, run in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0]))
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
