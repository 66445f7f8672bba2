"""The machine on which a study runs, and the points that it cannot make."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command import counted
from common.processes import usable_cores
from submission.runs.plan import is_finished
from submission.study.plan import INTERFACES, RANKS, StudyPoint
from submission.system.describe import describe_system

RAPL_COUNTER = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
NVIDIA_DEVICE = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a machine. interfaces: names of those to the network. meter: the power.source that works, or ""."""

    cores: int
    accelerators: int
    processor: str
    accelerator: str
    interfaces: tuple[str, ...]
    meter: str

    @property
    def units(self) -> str:
        """How many ranks can work side by side, in words."""
        if self.accelerators:
            return counted(self.accelerators, "accelerator")
        return counted(self.cores, "core")

    def describe(self) -> dict[str, str | int]:
        """Return the facts for the record of a study."""
        facts: dict[str, str | int] = {
            "cores": self.cores,
            "processor": self.processor,
            "accelerators": self.accelerators,
        }
        if self.accelerators:
            facts["accelerator"] = self.accelerator
        return facts | {"interfaces": ", ".join(self.interfaces), "meter": self.meter or "none"}


def describe_machine() -> Machine:
    """Return the facts about this machine."""
    fields = describe_system({}).fields
    nvidia, rapl = NVIDIA_DEVICE.exists(), os.access(RAPL_COUNTER, os.R_OK)
    return Machine(
        cores=usable_cores(),
        accelerators=int(fields["accelerators_per_node"] or 0),
        processor=fields["host_processor_model_name"],
        accelerator=fields["accelerator_model_name"],
        interfaces=tuple(name for _, name in socket.if_nameindex()),
        meter="nvml" if nvidia else "rapl" if rapl else "",
    )


def leave_out(points: Sequence[StudyPoint], machine: Machine) -> tuple[list[StudyPoint], list[str]]:
    """Return the points that the machine can make, or that are made, and a note for each value that it cannot have."""
    most = machine.accelerators or machine.cores
    kept, notes = [], dict[str, None]()
    for point in points:
        lacking = [
            f"{name} is {value}: this machine has {', '.join(machine.interfaces)}"
            for name, value in point.run.environment.items()
            if name in INTERFACES and value not in machine.interfaces
        ]
        if point.run.ranks > most:
            lacking.append(f"{RANKS} is {point.run.ranks}: this machine has {machine.units}")
        if is_finished(point.run):  # made elsewhere
            lacking = []
        notes |= dict.fromkeys(f"left out: {reason}" for reason in lacking)
        kept += [] if lacking else [point]
    return kept, list(notes)
