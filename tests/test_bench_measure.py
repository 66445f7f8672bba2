"""bench/measure.py: what is left out is told, and what should not be."""

import pytest

from tests.bench_script import bench_script

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def measure():
    return bench_script("measure")


@pytest.fixture
def found():
    return bench_script("records").read_record("measure")


def test_the_page_is_of_the_machine_that_was_measured(measure, found):
    found["ceilings"]["ours"] |= {"units": 96, "unit_network": None}
    page = measure.page(found)
    assert "Ceilings of 96 ranks" in page and "iperf3 --bidir" not in page


def test_a_tool_that_is_left_out_is_told_with_the_reason(measure, found):
    found["ceilings"] |= {"left_out": {"hpcc": "uses the slow reference BLAS"}}
    del found["ceilings"]["peers"]["hpcc"]
    assert measure.page(found).count("| uses the slow reference BLAS |  |\n") == 2


@pytest.mark.parametrize(
    ("libraries", "reason"),
    [
        ("libblas.so.3", "uses the slow reference BLAS: apt-get install libopenblas0-pthread"),
        ("libopenblas.so.0", None),
    ],
)
def test_the_libraries_of_hpcc_are_looked_at(libraries, reason, measure, tmp_path, monkeypatch):
    for name, text in {"hpcc": "", "mpirun": "", "fio": "", "ldd": f"echo {libraries}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    left_out = measure.missing()
    assert left_out.pop("iperf3") == "iperf3 not installed"
    assert left_out == ({"hpcc": reason} if reason else {})


def test_slow_and_unsteady_measurements_are_told(measure, found):
    assert list(measure.faults(found["measurements"])) == []
    first, second, _ = found["measurements"]
    first["runs"][1]["wall_s"] = 301.0
    second["runs"][0]["cpu_ms_per_step"] *= 1.2
    slow, unsteady = measure.faults(found["measurements"])
    assert slow == f"{first['benchmark']}: a measurement took 301 s; expected at most 300 s"
    assert unsteady.startswith(f"{second['benchmark']}: CPU times of a step are 1")
