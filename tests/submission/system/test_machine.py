"""Fields detected from the programs and files of several machines, each of which may be missing or damaged."""

import json

import pytest

from submission.system import hardware
from submission.system.hardware import Disk
from submission.system.machine import Machine, probe_machine


def lscpu(**changes):
    """Return the output of `lscpu -J` with these fields."""
    return json.dumps({"lscpu": [{"field": f"{name}:", "data": value} for name, value in changes.items()]})


INTEL = lscpu(
    **{
        "Architecture": "x86_64",
        "CPU(s)": "112",
        "Vendor ID": "GenuineIntel",
        "Model name": "Intel(R) Xeon(R) Platinum 8462Y+",
        "Thread(s) per core": "2",
        "Core(s) per socket": "28",
        "Socket(s)": "2",
        "CPU max MHz": "4100.0000",
        "L1d cache": "2.6 MiB (56 instances)",
        "L2 cache": "112 MiB (56 instances)",
        "L3 cache": "120 MiB (2 instances)",
        "NUMA node(s)": "2",
    }
)
OLD_INTEL = lscpu(
    **{
        "CPU(s)": "80",
        "Thread(s) per core": "2",
        "Core(s) per socket": "20",
        "Socket(s)": "2",
        "Vendor ID": "GenuineIntel",
        "Model name": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
        "CPU MHz": "1000.117",
        "CPU max MHz": "3700.0000",
        "L1d cache": "32K",
        "L3 cache": "28160K",
    }
)
GRACE_HOPPER = lscpu(
    **{
        "Architecture": "aarch64",
        "CPU(s)": "72",
        "Vendor ID": "ARM",
        "Model name": "Neoverse-V2",
        "Thread(s) per core": "1",
        "Core(s) per socket": "72",
        "Socket(s)": "1",
        "CPU max MHz": "3474.0000",
        "L3 cache": "114 MiB (1 instance)",
        "NUMA node(s)": "9",
    }
)
A64FX = {
    "with clusters": lscpu(
        **{
            "CPU(s)": "48",
            "Thread(s) per core": "1",
            "Core(s) per cluster": "12",
            "Socket(s)": "-",
            "Cluster(s)": "4",
            "NUMA node(s)": "4",
            "Vendor ID": "FUJITSU",
            "Model name": "A64FX",
        }
    ),
    "four sockets, no name": lscpu(
        **{
            "CPU(s)": "48",
            "Thread(s) per core": "1",
            "Core(s) per socket": "12",
            "Socket(s)": "4",
            "Vendor ID": "0x46",
        }
    ),
}
A64FX_CPUINFO = "".join(
    f"processor\t: {n}\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x46\nCPU part\t: 0x001\n\n" for n in range(48)
)
EPYC_CPUINFO = "".join(
    f"processor\t: {n}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763 64-Core Processor\n"
    f"physical id\t: {n // 64 % 2}\nsiblings\t: 128\ncore id\t\t: {n % 64}\ncpu cores\t: 64\n\n"
    for n in range(256)
)


def test_two_intel_sockets():
    assert hardware.parse_processors(INTEL, "", "2800000\n") == {
        "host_processors_per_node": "2",
        "host_processor_model_name": "Intel(R) Xeon(R) Platinum 8462Y+",
        "host_processor_core_count": "28",
        "host_processor_vcpu_count": "112",
        "host_processor_frequency": "2.80 GHz base, 4.10 GHz maximum",
        "host_processor_caches": "L1d 2.6 MiB (56 instances), L2 112 MiB (56 instances), L3 120 MiB (2 instances)",
    }
    old = hardware.parse_processors(OLD_INTEL)
    assert old["host_processor_frequency"] == "2.40 GHz base, 3.70 GHz maximum"
    assert old["host_processor_caches"] == "L1d 32K, L3 28160K"


def test_grace_is_named_after_its_cores_unless_the_bios_has_a_name():
    fields = hardware.parse_processors(GRACE_HOPPER)
    assert fields["host_processor_model_name"] == "ARM Neoverse-V2"
    assert fields["host_processors_per_node"] == "1" and fields["host_processor_interconnect"] == "N/A"
    assert fields["host_processor_frequency"] == "3.47 GHz maximum"
    entries = json.loads(GRACE_HOPPER)["lscpu"]
    entries[2]["children"] = [
        {"field": "BIOS Vendor ID:", "data": "NVIDIA"},
        {"field": "BIOS Model name:", "data": "Grace A02 CPU @ 3.4GHz"},
    ]
    named = hardware.parse_processors(json.dumps({"lscpu": entries}))
    assert named["host_processor_model_name"] == "NVIDIA Grace A02 (ARM Neoverse-V2)"


@pytest.mark.parametrize("listing", A64FX.values(), ids=A64FX)
def test_the_memory_groups_of_an_a64fx_are_one_processor(listing):
    fields = hardware.parse_processors(listing, A64FX_CPUINFO)
    assert fields["host_processor_model_name"] == "FUJITSU A64FX"
    assert [fields[f"host_processor{name}"] for name in ("s_per_node", "_core_count", "_vcpu_count")] == [
        "1",
        "48",
        "48",
    ]


def test_cpuinfo_replaces_a_missing_lscpu():
    fields = hardware.parse_processors("", EPYC_CPUINFO)
    assert fields["host_processor_model_name"] == "AMD EPYC 7763 64-Core Processor"
    assert [fields[f"host_processor{name}"] for name in ("s_per_node", "_core_count", "_vcpu_count")] == [
        "2",
        "64",
        "256",
    ]
    assert "host_processor_interconnect" not in fields and "host_processor_caches" not in fields


def test_processor_and_memory_of_a_mac():
    said = (
        "hw.packages: 1\nhw.physicalcpu: 8\nhw.logicalcpu: 8\nhw.memsize: 17179869184\n"
        "machdep.cpu.brand_string: Apple M2\n"
    )
    fields = hardware.parse_apple(said)
    assert fields["host_processor_model_name"] == "Apple M2" and fields["host_memory_capacity"] == "16 GiB"
    assert fields["host_processors_per_node"] == "1" and fields["host_processor_core_count"] == "8"


def test_memory_is_the_installed_one_if_known():
    total = "Memory block size:       2147483648\nTotal online memory:   549755813888\nTotal offline memory: 0\n"
    meminfo = "MemTotal:       527951348 kB\nMemFree:        1 kB\n"
    assert hardware.parse_memory(total, meminfo) == {"host_memory_capacity": "512 GiB"}
    assert hardware.parse_memory("", meminfo) == {"host_memory_capacity": "503 GiB usable"}


def test_equal_disks_and_ports_are_counted():
    disks = [Disk("nvme0n1", 1_920_383_410_176, False), Disk("nvme1n1", 1_920_383_410_176, False)]
    fields = hardware.describe_storage(
        [*disks, Disk("sda", 480_103_981_056, False), Disk("sdb", 16_000_900_661_248, True)]
    )
    assert fields["host_storage_capacity"] == "2x 1.92 TB NVMe SSD + 1x 480 GB SSD + 1x 16 TB hard disk"
    assert fields["host_storage_type"] == "NVMe SSD + SSD + hard disk"
    ports = [("InfiniBand", "200 Gb/sec (4X HDR)", "MT4123")] * 4
    assert hardware.describe_network(ports, [25_000, 25_000, 0])["host_networking"] == (
        "4x InfiniBand 200 Gb/sec (4X HDR) (MT4123), 2x Ethernet 25 Gb/s, 1x Ethernet"
    )


HEADING = "name, memory.total [MiB], clocks.max.sm [MHz], pcie.link.gen.max, pcie.link.width.max\n"
A100 = "NVIDIA A100-SXM4-40GB, 40960 MiB, 1410 MHz, 4, 16\n"


def topology(count, link, more="NIC0"):
    """Return what `nvidia-smi topo -m` writes for GPUs that are all linked alike, with its underlined heading."""
    names = [f"GPU{n}" for n in range(count)]
    lines = ["\x1b[4m\t" + "\t".join([*names, more, "CPU Affinity"]) + "\x1b[0m"]
    for row in range(count):
        cells = [" X " if row == column else link for column in range(count)]
        lines.append("\t".join([f"GPU{row}", *cells, "PXB", "48-63,176-191"]))
    return "\n".join([*lines, "NIC0\t" + "PXB\t" * count + " X ", "", "Legend:", "", "  X    = Self"])


def test_nvidia_accelerators():
    assert hardware.parse_nvidia(HEADING + A100 * 8, topology(8, "NV12")) == {
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA A100-SXM4-40GB",
        "accelerator_host_interconnect": "PCIe 4.0 x16",
        "accelerator_frequency": "1410 MHz maximum",
        "accelerator_memory_capacity": "40 GiB",
        "accelerator_interconnect": "NVLink, 12 links between two accelerators",
        "accelerator_interconnect_topology": "fully connected",
    }
    assert hardware.parse_nvidia(HEADING + A100 * 2, topology(2, "SYS"))["accelerator_interconnect"] == "PCIe"


def test_one_superchip_and_different_cards():
    hopper = "NVIDIA GH200 120GB, 97871 MiB, 1980 MHz, 4, 1\n"
    fields = hardware.parse_nvidia(HEADING + hopper)
    assert fields["accelerator_host_interconnect"] == "NVLink-C2C" and fields["accelerator_interconnect"] == "N/A"
    assert fields["accelerator_memory_capacity"] == "96 GiB"
    mixed = hardware.parse_nvidia(HEADING + A100 + "Tesla V100-PCIE-16GB, 16384 MiB, [N/A], [N/A], [N/A]\n")
    assert mixed["accelerator_model_name"] == "1x NVIDIA A100-SXM4-40GB, 1x Tesla V100-PCIE-16GB"
    assert "accelerator_interconnect" not in mixed
    broken = hardware.parse_nvidia(HEADING + A100 + "[Unknown Error], [GPU requires reset], [N/A], 4, 16\n")
    assert broken["accelerators_per_node"] == "2" and "accelerator_model_name" not in broken


def test_amd_accelerators():
    card = {"Card Series": "Instinct MI250X", "VRAM Total Memory (B)": "68702699520"}
    said = json.dumps({"card0": card, "card1": card, "system": {"Driver version": "6.3"}})
    assert hardware.parse_amd(said) == {
        "accelerators_per_node": "2",
        "accelerator_model_name": "AMD Instinct MI250X",
        "accelerator_memory_capacity": "64 GiB",
    }


def test_intel_accelerators():
    device = {"device_id": 0, "device_name": "Intel(R) Data Center GPU Max 1550", "device_type": "GPU"}
    assert hardware.parse_intel(json.dumps({"device_list": [device, {**device, "device_id": 1}]})) == {
        "accelerators_per_node": "2",
        "accelerator_model_name": "Intel(R) Data Center GPU Max 1550",
    }


@pytest.mark.parametrize(
    "text", ["", "garbage\n", "[1]", "{}", '{"lscpu": [1]}', '{"lscpu": 3}', "[" * 100_000, "No devices were found"]
)
def test_unreadable_output_gives_no_fields(text):
    for parse in (
        hardware.parse_processors,
        hardware.parse_memory,
        hardware.parse_nvidia,
        hardware.parse_amd,
        hardware.parse_intel,
        hardware.parse_apple,
    ):
        assert parse(text) == {}
    assert hardware.parse_nvidia(HEADING + A100 * 4, text).get("accelerator_interconnect") is None


# -- a whole machine ---------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path):
    """Return a folder that stands in for a cluster node: its files, and programs with typical output."""
    files = {
        "proc/cpuinfo": EPYC_CPUINFO,
        "proc/meminfo": "MemTotal: 527951348 kB",
        "proc/sys/kernel/osrelease": "5.14.0-362.el9.x86_64\n",
        "etc/os-release": 'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 9.3 (Blue Onyx)"\n',
        "sys/block/nvme0n1/size": "3750748848",
        "sys/block/nvme0n1/queue/rotational": "0",
        "sys/block/loop0/size": "8",
        "sys/block/sr0/size": "2097151",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "sys/class/infiniband/mlx5_0/hca_type": "MT4129",
        "sys/class/infiniband/mlx5_1/ports/1/link_layer": "InfiniBand",
        "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN",
        "sys/module/nvidia/version": "550.54.15",
        "proc/sys/kernel/hostname": "secret-host",
        "etc/machine-id": "secret-id",
        "sys/block/nvme0n1/device/serial": "secret-serial",
        "sys/class/net/eno1/address": "secret-address",
        "sys/class/infiniband/mlx5_0/node_guid": "secret-guid",
    }
    for name, connected in {"eno1": "1", "eno2": "0"}.items():
        net = f"sys/class/net/{name}"
        files |= {f"{net}/carrier": connected, f"{net}/type": "1", f"{net}/speed": "25000", f"{net}/device/vendor": "x"}
    files |= {"sys/class/net/lo/carrier": "1", "sys/class/net/lo/type": "772"}
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(node, name, body):
    path = node / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def machine(node, **environment):
    return Machine(node / "root", {"PATH": str(node / "bin"), **environment})


def test_a_node_is_probed(node):
    program(node, "lsmem", "echo 'Total online memory:   549755813888'")
    program(
        node,
        "nvidia-smi",
        f"if [ $1 = topo ]; then printf '{topology(4, 'NV4')}'; else printf '{HEADING + A100 * 4}'; fi",
    )
    fields = probe_machine(
        machine(node, SLURM_JOB_NUM_NODES="16", CUDA_VERSION="12.4.1", APPTAINER_CONTAINER="/home/secret/x.sif")
    )
    assert fields["number_of_nodes"] == "16" and fields["accelerators_per_node"] == "4"
    assert fields["host_memory_capacity"] == "512 GiB" and fields["host_storage_capacity"] == "1x 1.92 TB NVMe SSD"
    assert fields["host_networking"] == "1x InfiniBand 400 Gb/sec (4X NDR) (MT4129), 1x Ethernet 25 Gb/s"
    assert fields["accelerator_interconnect"] == "NVLink, 4 links between two accelerators"
    assert fields["operating_system"] == "Rocky Linux 9.3 (Blue Onyx), Linux 5.14.0-362.el9.x86_64"
    assert "CUDA 12.4.1" in fields["other_software_stack"]
    assert "NVIDIA driver 550.54.15" in fields["other_software_stack"]
    assert fields["sw_notes"] == "in a container (Apptainer)"
    assert "secret" not in json.dumps(fields), "no user or host name, no serial number, no address"


def test_a_machine_without_information(tmp_path):
    fields = probe_machine(machine(tmp_path))
    assert fields["number_of_nodes"] == "1" and not [name for name in fields if name.startswith("host_")]


def test_this_machine():
    fields = probe_machine(Machine())
    assert fields["operating_system"] and "Python 3." in fields["other_software_stack"]
    assert all(isinstance(value, str) and value == value.strip() for value in fields.values())
