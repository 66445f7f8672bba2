"""The machine on which a study runs, and the points that it cannot make."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command import counted
from common.measure.devices import POWERCAP
from common.processes import usable_cores
from submission.runs.plan import is_finished
from submission.study.plan import INTERFACES, RANKS, StudyPoint
from submission.system.machine import Machine, probe_machine


@dataclass(frozen=True, slots=True)
class StudyMachine:
    """The facts of a machine. devices: model names. interfaces: of the network. meter: a power.source, or ""."""

    cores: int
    accelerators: int
    interfaces: tuple[str, ...]
    processor: str = ""
    devices: str = ""
    meter: str = ""

    def describe(self) -> dict[str, str | int]:
        """Return the facts for the record of a study."""
        devices = {"devices": f"{self.accelerators} x {self.devices}"} if self.accelerators else {}
        others = {"interfaces": ", ".join(self.interfaces), "meter": self.meter or "none"}
        return {"processor": self.processor, "cores": self.cores, **devices, **others}


def probe_study_machine() -> StudyMachine:
    """Return the facts about this machine."""
    fields = probe_machine(Machine())
    has_rapl = os.access(f"{POWERCAP}/intel-rapl:0/energy_uj", os.R_OK)
    return StudyMachine(
        cores=usable_cores(),
        accelerators=int(fields.get("accelerators_per_node", 0)),
        interfaces=tuple(name for _, name in socket.if_nameindex()),
        processor=fields.get("host_processor_model_name", ""),
        devices=fields.get("accelerator_model_name", ""),
        meter="nvml" if Path("/dev/nvidiactl").exists() else "rapl" if has_rapl else "",
    )


def split_points(points: Sequence[StudyPoint], machine: StudyMachine) -> tuple[list[StudyPoint], list[str]]:
    """Return the points that the machine can make, or that are made, and a note for each value that it cannot have."""
    kept: list[StudyPoint] = []
    excluded: dict[tuple[str, str], dict[str, None]] = {}
    units = counted(machine.accelerators, "accelerator") if machine.accelerators else counted(machine.cores, "core")
    for point in points:
        run = point.run
        missing = [
            (name, value, ", ".join(machine.interfaces))
            for name, value in run.environment.items()
            if name in INTERFACES and value not in machine.interfaces
        ]
        if run.ranks > (machine.accelerators or machine.cores):
            missing.append((RANKS, str(run.ranks), units))
        if not missing or is_finished(run):  # made elsewhere
            kept.append(point)
            continue
        for name, value, available in missing:
            excluded.setdefault((name, available), {})[value] = None
    return kept, [
        f"left out: {name} {', '.join(values)}: this machine has {available}"
        for (name, available), values in excluded.items()
    ]
