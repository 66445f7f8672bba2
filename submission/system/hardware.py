"""Parse the output of system programs and files into fields of a system description.

The functions run no program and read no file. Unknown fields are left out.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.values import group_pairs

Fields = dict[str, str]

NONE: Final = "N/A"
"""The value of a field that does not apply, as in published descriptions."""
ARM_PARTS: Final = {
    ("0x46", "0x001"): ("FUJITSU", "A64FX"),
    ("0x41", "0xd0c"): ("ARM", "Neoverse-N1"),
    ("0x41", "0xd40"): ("ARM", "Neoverse-V1"),
    ("0x41", "0xd4f"): ("ARM", "Neoverse-V2"),
}
"""(implementer, part) of /proc/cpuinfo to (vendor, model), for versions of lscpu that do not know them."""
APPLE_NAMES: Final = ("packages", "physicalcpu", "logicalcpu", "memsize")
APPLE_BRAND: Final = "machdep.cpu.brand_string"
APPLE_KEYS: Final = (*(f"hw.{name}" for name in APPLE_NAMES), APPLE_BRAND)
ACCELERATOR_DETAILS: Final = (
    "accelerator_model_name accelerator_host_interconnect accelerator_frequency accelerator_on-chip_memories "
    "accelerator_memory_configuration accelerator_memory_capacity accelerator_interconnect "
    "accelerator_interconnect_topology".split()
)
NO_ACCELERATORS: Final[Fields] = {
    "accelerators_per_node": "0",
    **dict.fromkeys(ACCELERATOR_DETAILS, NONE),
}


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk in /sys/block."""

    name: str
    bytes: int
    rotates: bool


# -- host processors ---------------------------------------------------------------------------------------


def parse_processors(lscpu: str, cpuinfo: str = "", base_khz: str = "") -> Fields:
    """Return the processor fields from `lscpu -J`, or else /proc/cpuinfo; base_khz: cpufreq/base_frequency."""
    facts = {**_parse_cpuinfo(cpuinfo), **_parse_lscpu(lscpu)}
    model, count = _model_name(facts), _count_sockets(facts)
    cpus, threads = _parse_integer(facts.get("CPU(s)")), _parse_integer(facts.get("Thread(s) per core")) or 1
    cores = _parse_integer(facts.get("Core(s) per socket")) if count == _parse_integer(facts.get("Socket(s)")) else 0
    if not cores and cpus and count:
        cores = cpus // threads // count
    caches = [name for name in ("L1d cache", "L1i cache", "L2 cache", "L3 cache") if name in facts]
    return _clean_fields(
        {
            "host_processors_per_node": str(count or ""),
            "host_processor_model_name": model,
            "host_processor_core_count": str(cores or ""),
            "host_processor_vcpu_count": str(cpus or ""),
            "host_processor_frequency": _format_frequency(facts, base_khz),
            "host_processor_caches": ", ".join(f"{name.removesuffix(' cache')} {facts[name]}" for name in caches),
            "host_processor_interconnect": NONE if count == 1 else "",
            "hw_notes": f"virtual machine ({facts['Hypervisor vendor']})" if "Hypervisor vendor" in facts else "",
        }
    )


def parse_apple(sysctl: str) -> Fields:
    """Return the processor and memory fields from `sysctl` on macOS, called with APPLE_KEYS."""
    facts = dict(re.findall(r"^([\w.]+): (.+)$", sysctl, re.MULTILINE))
    packages, cores, cpus, size = (_parse_integer(facts.get(f"hw.{name}")) for name in APPLE_NAMES)
    return _clean_fields(
        {
            "host_processors_per_node": str(packages or ""),
            "host_processor_model_name": facts.get(APPLE_BRAND, ""),
            "host_processor_core_count": str(cores // packages if packages and cores else ""),
            "host_processor_vcpu_count": str(cpus or ""),
            "host_processor_interconnect": NONE if packages == 1 else "",
            "host_memory_capacity": f"{round(size / 2**30)} GiB" if size else "",
        }
    )


def _parse_lscpu(text: str) -> Fields:
    """Return the values of `lscpu -J`, without empty ones (`-`) and bare vendor numbers (`0x46`)."""
    try:
        stack = list(json.loads(text)["lscpu"])
        facts: Fields = {}
        while stack:
            entry = stack.pop()
            stack += entry.get("children") or []
            value = str(entry.get("data") or "").strip()
            if value not in ("", "-") and not value.startswith("0x"):
                facts.setdefault(str(entry["field"]).strip().rstrip(":"), value)
        return facts
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _parse_cpuinfo(text: str) -> Fields:
    """Return the values of /proc/cpuinfo, under the names of lscpu."""
    lines = (line.partition(":") for line in text.splitlines())
    values = group_pairs((name.strip(), value.strip()) for name, colon, value in lines if colon)
    first = {name: texts[0] for name, texts in values.items()}
    vendor, model = ARM_PARTS.get((first.get("CPU implementer", ""), first.get("CPU part", "")), ("", ""))
    sockets, cores = len(set(values.get("physical id", ()))), _parse_integer(first.get("cpu cores"))
    cpus = len(values.get("processor", ()))
    return _clean_fields(
        {
            "Vendor ID": first.get("vendor_id", vendor),
            "Model name": first.get("model name", model),
            "CPU(s)": str(cpus or ""),
            "Socket(s)": str(sockets or ""),
            "Core(s) per socket": str(cores or ""),
            "Thread(s) per core": str(cpus // (sockets * cores)) if sockets and cores else "",
        }
    )


def _model_name(facts: Fields) -> str:
    """Return the model's name; an ARM core's name alone does not tell the processor, its maker in the BIOS may."""
    name, vendor = facts.get("Model name", ""), facts.get("Vendor ID", "")
    if vendor in ("ARM", "FUJITSU") and name and vendor not in name:
        name = f"{vendor} {name}"
        bios = facts.get("BIOS Model name", "").split(" CPU @")[0].strip()
        if vendor == "ARM" and bios:
            maker = facts.get("BIOS Vendor ID", "")
            name = f"{bios if maker in bios else f'{maker} {bios}'} ({name})"
    return name


def _count_sockets(facts: Fields) -> int:
    """Return the number of processors, 0 where it is unknown: some firmware tells clusters instead of sockets."""
    if "A64FX" in facts.get("Model name", ""):  # one processor, whose four memory groups look like four sockets
        return 1
    return _parse_integer(facts.get("Socket(s)")) or (1 if facts.get("NUMA node(s)") == "1" else 0)


def _format_frequency(facts: Fields, base_khz: str) -> str:
    stated = re.search(r"@ ([\d.]+) ?GHz", facts.get("Model name", ""))
    base = _parse_integer(base_khz.strip()) / 1e6 or (float(stated[1]) if stated else 0)
    highest = re.match(r"\d{1,15}(\.\d{1,15})?", facts.get("CPU max MHz", ""))
    most = float(highest[0]) / 1e3 if highest else 0.0
    parts = [f"{base:.2f} GHz base" if base else "", f"{most:.2f} GHz maximum" if most else ""]
    return ", ".join(filter(None, parts))


# -- memory, storage, network ------------------------------------------------------------------------------


def parse_memory(lsmem: str, meminfo: str = "") -> Fields:
    """Return what `lsmem --summary=only -b` tells of the memory; else /proc/meminfo, which leaves out the kernel's."""
    online = re.search(r"^Total online memory:\s*(\d+)", lsmem, re.MULTILINE)
    usable = re.search(r"^MemTotal:\s*(\d+) kB", meminfo, re.MULTILINE)
    if online:
        return {"host_memory_capacity": f"{round(int(online[1]) / 2**30)} GiB"}
    return {"host_memory_capacity": f"{round(int(usable[1]) / 2**20)} GiB usable"} if usable else {}


def describe_storage(disks: Iterable[Disk]) -> Fields:
    """Return types and sizes of the disks, equal ones counted; the type of a virtual disk is unknown."""
    kinds: Counter[tuple[str, str]] = Counter()
    for disk in disks:
        if disk.name.startswith(("vd", "xvd")):
            kind = "virtual disk"
        elif disk.name.startswith("nvme"):
            kind = "NVMe SSD"
        else:
            kind = "hard disk" if disk.rotates else "SSD"
        kinds[kind, _format_size(disk.bytes)] += 1
    return _clean_fields(
        {
            "host_storage_type": " + ".join(dict.fromkeys(kind for kind, _ in kinds)),
            "host_storage_capacity": " + ".join(f"{count}x {size} {kind}" for (kind, size), count in kinds.items()),
        }
    )


def describe_network(fabric: Iterable[tuple[str, str, str]], ethernet_mbits: Iterable[int] = ()) -> Fields:
    """Return the network ports. fabric: (type, rate, card), "" for unknown; ethernet_mbits: speed, 0 for unknown."""
    ports = Counter(" ".join((kind, rate, f"({card})" if card else "")).strip() for kind, rate, card in fabric)
    ports.update(f"Ethernet {speed / 1000:g} Gb/s" if speed > 0 else "Ethernet" for speed in ethernet_mbits)
    return _clean_fields({"host_networking": ", ".join(f"{count}x {port}" for port, count in ports.items())})


# -- accelerators ------------------------------------------------------------------------------------------

NVIDIA_QUERY: Final = "name,memory.total,clocks.max.sm,pcie.link.gen.max,pcie.link.width.max"


def parse_nvidia(listing: str, topology: str = "") -> Fields:
    """Return the accelerator fields from `nvidia-smi --query-gpu=… --format=csv` and `nvidia-smi topo -m`."""
    # In brackets it says why a value is missing: [N/A], [Not Supported], [Unknown Error].
    rows = [[re.sub(r"^\[.*|N/A", "", cell.strip()) for cell in row] for row in csv.reader(listing.splitlines()) if row]
    if len(rows) < 2 or rows[0][0] != "name":
        return {}
    table = [dict(zip((name.split(" [")[0] for name in rows[0]), row, strict=False)) for row in rows[1:]]
    first = table[0]
    name, generation, width = (first.get(k, "") for k in ("name", "pcie.link.gen.max", "pcie.link.width.max"))
    pcie = f"PCIe {generation}.0 x{width}" if generation and width else ""
    mebibytes = _parse_integer(first.get("memory.total"))
    fields = {
        "accelerators_per_node": str(len(table)),
        "accelerator_model_name": _count_names(row.get("name", "") for row in table),
        "accelerator_host_interconnect": "NVLink-C2C" if re.search(r"\bG[HB]\d{3}\b", name) else pcie,
        "accelerator_frequency": f"{first['clocks.max.sm']} maximum" if first.get("clocks.max.sm") else "",
        "accelerator_memory_capacity": f"{round(mebibytes / 1024)} GiB" if mebibytes else "",
    }
    return _clean_fields(fields | _parse_links(topology, len(table)))


def _parse_links(topology: str, count: int) -> Fields:
    """Return the interconnect fields from the matrix of `nvidia-smi topo -m`."""
    if count == 1:
        return {"accelerator_interconnect": NONE, "accelerator_interconnect_topology": NONE}
    plain = re.sub(r"\x1b\[[\d;]*m", "", topology)  # the heading has escape codes for underlining
    rows = [line.split()[1 : count + 1] for line in plain.splitlines() if re.match(r"GPU\d+\s", line)]
    pairs = {cell for at, row in enumerate(rows) for to, cell in enumerate(row) if at != to}
    if len(rows) != count or not pairs:
        return {}
    links = sorted({cell for cell in pairs if re.fullmatch(r"NV\d+", cell)}, key=lambda cell: int(cell[2:]))
    if not links:
        return {"accelerator_interconnect": "PCIe"}
    lanes = " or ".join(cell[2:] for cell in links)
    return {
        "accelerator_interconnect": f"NVLink, {lanes} links between two accelerators",
        "accelerator_interconnect_topology": "fully connected" if len(links) == len(pairs) else "",
    }


def parse_amd(listing: str) -> Fields:
    """Return the accelerator fields from `rocm-smi --showproductname --showmeminfo vram --json`."""
    try:
        parsed = json.loads(listing)
        cards = [card for key, card in parsed.items() if key.startswith("card") and isinstance(card, dict)]
        vram = _parse_integer(str(cards[0].get("VRAM Total Memory (B)", "")))
    except (ValueError, AttributeError, IndexError, RecursionError):
        return {}
    return _clean_fields(
        {
            "accelerators_per_node": str(len(cards)),
            "accelerator_model_name": _count_names(map(_card_name, cards)),
            "accelerator_memory_capacity": f"{round(vram / 2**30)} GiB" if vram else "",
        }
    )


def parse_intel(listing: str) -> Fields:
    """Return the accelerator fields from `xpu-smi discovery -j`, as Intel documents it."""
    try:
        names = [str(device["device_name"]) for device in json.loads(listing)["device_list"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return _clean_fields(
        {"accelerators_per_node": str(len(names) or ""), "accelerator_model_name": _count_names(names)}
    )


def _card_name(card: Mapping[str, Any]) -> str:
    names = (card.get(key) for key in ("Card Series", "Card series", "Device Name"))
    name = str(next((name for name in names if name and name != NONE), ""))
    return f"AMD {name}" if name and not name.startswith("AMD") else name


def _count_names(names: Iterable[str]) -> str:
    """Return the names, with counts if they differ; "" if one is unknown."""
    counts = Counter(names)
    if "" in counts:
        return ""
    return "".join(counts) if len(counts) < 2 else ", ".join(f"{count}x {name}" for name, count in counts.items())


# -- numbers -----------------------------------------------------------------------------------------------


def _clean_fields(fields: Mapping[str, str]) -> Fields:
    """Return the non-empty fields, without line breaks and unprintable characters."""
    plain = {name: "".join(c for c in value if c.isprintable()).strip() for name, value in fields.items()}
    return {name: value for name, value in plain.items() if value}


def _parse_integer(text: str | None) -> int:
    """Return the integer at the start of a text, 0 without one."""
    match = re.match(r"\d{1,15}", text or "")
    return int(match[0]) if match else 0


def _format_size(size: int) -> str:
    """Return a size in bytes as disk vendors write it: in powers of 1000, with three digits."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= scale:
            return f"{float(f'{size / scale:.3g}'):g} {unit}"
    return f"{size / 1e6:.3g} MB"
