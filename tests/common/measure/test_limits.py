"""Limits of devices: what nvidia-smi and the kernel tell, and nothing where they do not."""

import pytest

from common.measure.devices import QUERY, Limits, find_lowest, read_gpus, read_processors
from tests.common.files import write_files, write_program

UUIDS = ("6e5b1f34-0001", "6e5b1f34-0002")
ROW = "GPU-{}, {}, 700.00, 1755, 1980"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that puts a tool with this script in front of others."""

    def write(script):
        text = f'#!/bin/sh\n[ "$1" = "--query-gpu={QUERY}" ] || exit 2\n{script}\n'
        write_program(tmp_path / "nvidia-smi", text)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return write


def test_gpus_of_this_run_are_read(nvidia_smi):
    rows = [ROW.format(UUIDS[0], "400.00"), ROW.format("other", "100.00"), ROW.format(UUIDS[1], "500.00")]
    nvidia_smi("\n".join(f"echo '{row}'" for row in rows))
    assert read_gpus(UUIDS) == (Limits(400, 700, 1755, 1980), Limits(500, 700, 1755, 1980))
    assert find_lowest(read_gpus(UUIDS)) == Limits(400, 700, 1755, 1980)


def test_what_one_gpu_does_not_tell_is_unknown(nvidia_smi):
    nvidia_smi(f"echo '{ROW.format(UUIDS[0], '[N/A]')}'; echo '{ROW.format(UUIDS[1], '500.00')}'")
    assert find_lowest(read_gpus(UUIDS)) == Limits(None, 700, 1755, 1980)


def test_processors_are_read_from_the_kernel(tmp_path):
    files = {
        "powercap/intel-rapl:0/constraint_0_power_limit_uw": b"250000000\n",
        "powercap/intel-rapl:0/constraint_0_max_power_uw": b"350000000\n",
        "powercap/intel-rapl:1/constraint_0_power_limit_uw": b"200000000\n",
        "powercap/intel-rapl:0:0/constraint_0_power_limit_uw": b"1\n",  # a part of package 0
        "cpufreq/scaling_cur_freq": b"2100000\n",
        "cpufreq/cpuinfo_max_freq": b"3800000\n",
    }
    write_files(tmp_path, files)
    found = read_processors(tmp_path / "powercap", str(tmp_path / "cpufreq"))
    assert found == (Limits(250, 350, 2100, 3800), Limits(200, None, 2100, 3800))
    assert read_processors(tmp_path, str(tmp_path / "cpufreq")) == (Limits(None, None, 2100, 3800),)
    assert read_processors(tmp_path, str(tmp_path)) == ()
