"""Programs that fail, hang, print rubbish or are not there: what is said of them, and what stays unknown."""

import shutil
import time

import pytest

from common import programs
from common.measure import power_sources
from common.measure.devices import read_gpus
from common.measure.power_sources import Clock, ReadingError, open_source
from common.programs import ask_program
from common.provenance import git_revision
from submission.system.hardware import NO_ACCELERATORS
from submission.system.machine import Machine, probe_machine
from tests.common.files import write_files, write_program

CPUINFO = (
    b"processor: 0\nvendor_id: GenuineIntel\nmodel name: Xeon\nphysical id: 0\ncpu cores: 1\n\n"
    b"processor: 1\nvendor_id: GenuineIntel\nmodel name: Xeon\nphysical id: 1\ncpu cores: 1\n"
)
SHORT_S = 0.3
FAULTS = {
    "fails": ("#!/bin/sh\necho 'Driver/library version mismatch'; exit 18\n", "exit status 18: Driver/library version"),
    "is killed": ("#!/bin/sh\necho 'GPU is lost' >&2; kill -9 $$\n", "killed by signal 9: GPU is lost"),
    "hangs": ("#!/bin/sh\necho loading >&2\nexec sleep 60\n", f"no answer within {SHORT_S} s: loading"),
    "ignores SIGTERM": ("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n", f"no answer within {SHORT_S} s"),
    "leaves a child with its output": ("#!/bin/sh\nsleep 60 &\necho 250\n", f"no answer within {SHORT_S} s: 250"),
    "leaves a child in a session of its own": ("#!/bin/sh\nsetsid sleep 3 &\n", f"no answer within {SHORT_S} s"),
    "prints rubbish": ("#!/bin/sh\necho '<html>'\n", "<html>"),
    "lists nothing": ("#!/bin/sh\necho 'No devices were found'\n", "No devices were found"),
    "prints no text": ("#!/bin/sh\nprintf '\\377\\376\\n'\n", "no text"),
    "prints nothing": ("#!/bin/sh\n", "nothing"),
    "prints without end": ("#!/bin/sh\nexec yes 1\n", "printed 1,048,576 bytes or more: "),
    "has no interpreter": ("#!/nowhere\n", "cannot be run: No such file or directory"),
    "is absent": (None, ""),
}


def describe(folder):
    root = folder / "root"
    write_files(root, {"proc/cpuinfo": CPUINFO, "proc/meminfo": b"MemTotal: 8388608 kB\n"})
    return probe_machine(Machine(root))


def find_accelerators(folder):
    fields = {name: value for name, value in describe(folder).items() if name.startswith("accelerator")}
    assert fields in ({}, NO_ACCELERATORS)
    return "none" if fields else "unknown"


def find_caches(folder):
    fields = describe(folder)
    assert fields["host_processors_per_node"] == "2", "from /proc/cpuinfo"
    return fields.get("host_processor_caches", "unknown")


def find_memory(folder):
    return describe(folder)["host_memory_capacity"]


def find_limits(folder):
    return read_gpus({"1"}) or "unknown"


def find_power(folder):
    with pytest.raises(ReadingError) as raised:
        open_source("command:node:watts:ipmitool dcmi power reading", Clock())[1].read_watts()
    return raised.value


def find_commit(folder):
    return git_revision(folder) or "unknown"


PROBES = {
    "lscpu": (find_caches, "unknown"),
    "lsmem": (find_memory, "8 GiB usable"),
    "nvidia-smi": (find_accelerators, "none"),
    "rocm-smi": (find_accelerators, "none"),
    "xpu-smi": (find_accelerators, "none"),
    "nvidia-smi (limits)": (find_limits, "unknown"),
    "git": (find_commit, "unknown"),
    "ipmitool": (find_power, "not found"),
}
"""What asks a program, and what is known without it."""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a program on a path that has little else; one that hangs has little time."""
    (tmp_path / "bin").mkdir()
    for name in ("sh", "sleep", "setsid", "yes"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install_program(name, fault):
        script, words = FAULTS[fault]
        if script is not None:
            write_program(tmp_path / "bin" / name, script)
        if "no answer" in words:
            monkeypatch.setattr(programs, "LIMIT_S", SHORT_S)
            monkeypatch.setattr(power_sources, "COMMAND_TIMEOUT_S", SHORT_S)

    return install_program


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PROBES)
def test_a_program_without_an_answer_leaves_its_fields_open(name, fault, install, tmp_path, capsys):
    (find, without), program, words = PROBES[name], name.partition(" ")[0], FAULTS[fault][1]
    install(program, fault)
    found, said = find(tmp_path), capsys.readouterr().err
    if isinstance(found, ReadingError):  # of a shell, which tells in its own words what it cannot run
        assert (words.rpartition(": ")[2] in str(found) or without in str(found)) and not said
    elif fault == "is absent" or program == "git":  # outside a repository git always fails
        assert (found, said) == (without, "")
    else:
        assert found == ("unknown" if without == "none" else without)
        assert f"warning: {program} is installed, but " in said and words in said and said.count("warning: ") == 1


def test_programs_that_hang_take_as_long_as_one(install, tmp_path, monkeypatch):
    for name in ("lscpu", "lsmem", "nvidia-smi", "rocm-smi", "xpu-smi"):
        install(name, "ignores SIGTERM")
    monkeypatch.setattr(programs, "LIMIT_S", 2.0)
    begin_s = time.monotonic()
    assert find_accelerators(tmp_path) == "unknown"
    assert time.monotonic() - begin_s < 8


def test_a_folder_of_the_path_that_cannot_be_read_has_no_program(tmp_path, monkeypatch):
    write_files(tmp_path, {"bin/nvidia-smi": b"not a program"})
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{tmp_path}/none")
    assert not ask_program("nvidia-smi").is_installed
