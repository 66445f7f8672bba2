"""Detect the fields of a system description; no host or user names, serial numbers or addresses.

Every program is optional. If one is installed and fails, a warning has its words, and what it alone would have told is
left to fill in. The power of a node while it is described is one reading of a meter of the whole node.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from common.errors import UsageError
from common.measure.power import TimedReader
from common.measure.power_sources import Clock, ReadingError, is_watts, open_source, parse_source, suggest_unit
from common.programs import QUOTED_LETTERS, Answer, ask_program
from common.provenance import list_versions
from common.record import PARTS_SCOPE
from submission.system import hardware
from submission.system.hardware import Disk, Fields

LARGEST_FILE: Final = 3 << 20
"""Linux refuses to read 4 MiB at once from files below /proc/sys."""
SECTOR_BYTES: Final = 512
"""The unit of /sys/block/*/size, for all disks."""
NOT_DISKS: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "zd")
"""Names of block devices that are not physical disks."""
STACK: Final = (
    ("mlperf-hpc-suite", ("mlperf-hpc-suite",), ""),
    ("mlperf-logging", ("mlperf-logging",), ""),
    ("numpy", ("numpy",), ""),
    ("mpi4py", ("mpi4py",), ""),
    ("CUDA", ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"), "CUDA_VERSION"),
    ("cuDNN", ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"), "CUDNN_VERSION"),
    ("NCCL", ("nvidia-nccl-cu13", "nvidia-nccl-cu12"), "NCCL_VERSION"),
    ("DALI", ("nvidia-dali-cuda130", "nvidia-dali-cuda120"), "DALI_VERSION"),
)
"""(name, distributions that contain it, variable with its version in NVIDIA's container images)."""
HOST: Final = "{host}"
"""Stands in a source for the host name of the node, without its domain."""
PATIENCE_S: Final = 3.0
"""For how long to try again: a file of watts counts once it has changed."""
PROCESSORS: Final = "lscpu -J"
MEMORY: Final = "lsmem --summary=only -b"
APPLE: Final = f"sysctl {' '.join(hardware.APPLE_KEYS)}"
NVIDIA: Final = f"nvidia-smi --query-gpu={hardware.NVIDIA_QUERY} --format=csv"
LINKS: Final = "nvidia-smi topo -m"
AMD: Final = "rocm-smi --showproductname --showmeminfo vram --json"
INTEL: Final = "xpu-smi discovery -j"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to describe: the files below a root, the programs on the path, the environment."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def read_text(self, *path: str) -> str:
        """Return the contents of a file, "" if it cannot be read."""
        try:
            with self.root.joinpath(*path).open("rb") as file:
                return file.read(LARGEST_FILE).decode(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def list_names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, [] if it cannot be read."""
        return sorted(path.name for path in (self.root / folder).glob("*"))

    def ask_programs(self, *commands: str) -> dict[str, Answer]:
        """Return the answers of programs, which run at the same time: several that hang take as long as one."""
        ask = partial(ask_program, environment=self.environment)
        with ThreadPoolExecutor(len(commands)) as pool:
            return dict(zip(commands, pool.map(lambda command: ask(*command.split()), commands), strict=True))


def probe_machine(machine: Machine) -> Fields:
    """Return the detected fields of a system description; all nodes of a cluster are assumed to be equal.

    A machine on which nothing that lists accelerators is installed counts as one without them. If one such program is,
    and lists none, there are no fields about accelerators, and a warning says why.
    """
    nodes = machine.environment.get("SLURM_JOB_NUM_NODES", "")
    answers = machine.ask_programs(PROCESSORS, MEMORY, APPLE, NVIDIA, LINKS, AMD, INTEL)
    return {
        "number_of_nodes": nodes if nodes.isdecimal() else "1",  # outside a job of Slurm, one
        **_probe_host(machine, answers),
        **hardware.describe_storage(_find_disks(machine)),
        **hardware.describe_network(_find_fabric_ports(machine), _find_ethernet_speeds(machine)),
        **_read_accelerators(answers),
        **_probe_software(machine),
    }


def _probe_host(machine: Machine, answers: Mapping[str, Answer]) -> Fields:
    cpuinfo = machine.read_text("proc/cpuinfo")
    if not cpuinfo:
        return _read_output(answers[APPLE], hardware.parse_apple)
    base_khz = machine.read_text("sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
    _read_output(answers[PROCESSORS], hardware.parse_processors)
    processors = hardware.parse_processors(answers[PROCESSORS].output, cpuinfo, base_khz)
    memory = _read_output(answers[MEMORY], hardware.parse_memory)
    return processors | (memory or hardware.parse_memory("", machine.read_text("proc/meminfo")))


def _read_output(answer: Answer, parse: Callable[[str], Fields]) -> Fields:
    """Return the fields in what a program printed; warn if there are none, unless it is not installed."""
    fields = parse(answer.output)
    if not fields:
        answer.warn_unread("repair it, or fill in what is missing")
    return fields


def _find_disks(machine: Machine) -> Iterator[Disk]:
    for name in machine.list_names("sys/block"):
        folder = f"sys/block/{name}"
        sectors = machine.read_text(folder, "size")
        fixed = machine.read_text(folder, "removable") != "1" and not name.startswith(NOT_DISKS)
        if fixed and sectors.isdecimal() and sectors != "0":
            yield Disk(
                name,
                int(sectors) * SECTOR_BYTES,
                machine.read_text(folder, "queue/rotational") == "1",
            )


def _find_fabric_ports(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield kind, rate and card of each active port of a fast network."""
    for name in machine.list_names("sys/class/infiniband"):
        card = f"sys/class/infiniband/{name}"
        for port in machine.list_names(f"{card}/ports"):
            # Ports with Ethernet as link layer (RoCE) are among the Ethernet ports.
            active = "ACTIVE" in machine.read_text(card, "ports", port, "state")
            if active and machine.read_text(card, "ports", port, "link_layer") == "InfiniBand":
                yield (
                    "Omni-Path" if name.startswith("hfi1") else "InfiniBand",
                    machine.read_text(card, "ports", port, "rate"),
                    machine.read_text(card, "hca_type"),
                )
    yield from [("HPE Slingshot", "", "")] * sum(name.startswith("hsn") for name in machine.list_names("sys/class/net"))


def _find_ethernet_speeds(machine: Machine) -> Iterator[int]:
    """Yield the speed in Mbit/s of each connected physical Ethernet port; 0 if unknown."""
    for name in machine.list_names("sys/class/net"):
        folder = f"sys/class/net/{name}"
        connected = machine.read_text(folder, "carrier") == "1" and (machine.root / folder / "device").exists()
        is_ethernet = machine.read_text(folder, "type") == "1"  # ARPHRD_ETHER
        if connected and is_ethernet and not name.startswith("hsn"):
            speed = machine.read_text(folder, "speed")
            yield int(speed) if speed.isdecimal() else 0


def _read_accelerators(answers: Mapping[str, Answer]) -> Fields:
    fields = hardware.parse_nvidia(answers[NVIDIA].output, answers[LINKS].output)
    if fields and "accelerator_interconnect" not in fields:
        answers[LINKS].warn_unread("repair it, or fill in what links the accelerators")
    fields = fields or hardware.parse_amd(answers[AMD].output) or hardware.parse_intel(answers[INTEL].output)
    installed = [answer for answer in (answers[NVIDIA], answers[AMD], answers[INTEL]) if answer.is_installed]
    for answer in () if fields else installed:
        answer.warn_unread(
            "so it is unknown whether this node has accelerators. Repair it, or fill in the fields: "
            "accelerators_per_node is 0 if there are none"
        )
    return fields or ({} if installed else hardware.NO_ACCELERATORS)


def _probe_software(machine: Machine) -> Fields:
    installed = list_versions(["torch", *(package for _, names, _ in STACK for package in names)])
    stack = [f"Python {installed['python']}"]
    for title, names, variable in STACK:
        # The variable of an image is the version that its torch was built with, whatever else is installed.
        packaged = (installed[package] for package in names if installed[package])
        version = machine.environment.get(variable) or next(packaged, None)
        stack += [f"{title} {version}"] if version else []
    driver = machine.read_text("sys/module/nvidia/version")
    stack += [f"NVIDIA driver {driver}"] if driver else []
    fields = {
        "other_software_stack": ", ".join(stack),
        "operating_system": _operating_system(machine),
    }
    if installed["torch"]:
        fields["framework"] = f"PyTorch {installed['torch']}"
    container = _detect_container(machine)
    return {**fields, "sw_notes": f"in a container ({container})"} if container else fields


def _operating_system(machine: Machine) -> str:
    lines = (line.partition("=") for line in machine.read_text("etc/os-release").splitlines())
    release = {key: value.strip("\"'") for key, _, value in lines}
    kernel = machine.read_text("proc/sys/kernel/osrelease")
    if kernel:
        return f"{release.get('PRETTY_NAME', 'Linux')}, Linux {kernel}"
    return f"macOS {platform.mac_ver()[0]}" if platform.mac_ver()[0] else platform.system()


def _detect_container(machine: Machine) -> str:
    """Return the type of the container, "" outside one."""
    signs = {
        "Apptainer": not {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}.isdisjoint(machine.environment),
        "Podman": (machine.root / "run/.containerenv").exists(),
        "Docker": (machine.root / ".dockerenv").exists(),
    }
    return next((name for name, is_there in signs.items() if is_there), machine.read_text("run/systemd/container"))


# -- power ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """The power of a node. watts: None if the source gave none, and `problem` says why; "" if none was asked for."""

    watts: float | None = None
    problem: str = ""


NO_READING: Final = Reading()


def check_source(text: str) -> None:
    """Raise UsageError unless a text names a source of the power of whole nodes."""
    _, _, scope, _ = parse_source(text, "--power")
    if scope == PARTS_SCOPE:
        raise UsageError(f"--power {text} reads parts of a node; expected command:node:… or file:node:…")


def read_node(text: str, host: str, clock: Clock | None = None) -> Reading:
    """Return the power of this node by a source; host: the name of the node."""
    clock = clock or Clock()
    try:
        source = TimedReader(open_source(text.replace(HOST, host.partition(".")[0]), clock)[1])
    except UsageError as error:
        return Reading(problem=str(error)[:QUOTED_LETTERS])
    end_s = clock.monotonic() + PATIENCE_S
    while True:
        try:
            watts = source.read_watts()
        except ReadingError as error:
            if clock.monotonic() >= end_s:
                return Reading(problem=str(error)[:QUOTED_LETTERS])
            clock.sleep(0.5)
        else:
            return (
                Reading(watts)
                if is_watts(watts)
                else Reading(problem=f"{watts} is not a power in watts{suggest_unit(watts)}")
            )


def power_note(readings: Sequence[Reading], source: str) -> str:
    """Return the text for the notes about the readings of all nodes, "" without any."""
    watts_known = sorted(round(reading.watts, 1) for reading in readings if reading.watts is not None)
    if not watts_known:
        return ""
    span = " to ".join(dict.fromkeys(f"{watts:g}" for watts in (watts_known[0], watts_known[-1])))
    nodes = "" if len(watts_known) == len(readings) else f", {len(watts_known)} of {len(readings)} nodes"
    return f"power of a node when described: {span} W ({source.partition(':')[0]}{nodes})"
