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
        devices = {"devices": f"{self.accelerators} x {self.accelerator}"} if self.accelerators else {}
        others = {"interfaces": ", ".join(self.interfaces), "meter": self.meter or "none"}
        return {"processor": self.processor, "cores": self.cores, **devices, **others}


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
    kept: list[StudyPoint] = []
    values: dict[tuple[str, str], dict[str, None]] = {}
    for point in points:
        lacking = [
            (name, value, f"this machine has {', '.join(machine.interfaces)}")
            for name, value in point.run.environment.items()
            if name in INTERFACES and value not in machine.interfaces
        ]
        if point.run.ranks > most:
            lacking.append((RANKS, str(point.run.ranks), f"this machine has {machine.units}"))
        if not lacking or is_finished(point.run):  # made elsewhere
            kept.append(point)
            continue
        for name, value, reason in lacking:
            values.setdefault((name, reason), {})[value] = None
    return kept, [f"left out: {name} {', '.join(each)}: {reason}" for (name, reason), each in values.items()]
