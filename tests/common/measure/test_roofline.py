"""`python -m common.measure roofline`: what it says of steps with known parts, its files, and wrong use."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from common.measure.__main__ import main
from common.measure.devices import ceilings_of, read_ceilings
from common.measure.fom import read_measurement
from common.measure.roofline import ceilings_file
from common.measure.roofline_report import Ceilings, build_report, draw_picture
from tests.measurement import STEPS

TOP = Ceilings(
    units=2, nodes=1, device="cpu", model="AMD EPYC 9B45 @ 2.1GHz", dtype="fp32", products=2e11, convolutions=1e11,
    memory=1e11, cold_files=1e8, cold_share=1.0, cached_files=1e9, unit_network=1e8, unit_input=None,
)  # fmt: skip


def test_each_ceiling_by_hand():
    found = build_report(replace(STEPS, stored_bytes_per_step=0.5e6), TOP)
    assert {roof.name: roof.seconds for roof in found.roofs} == pytest.approx(
        {
            "matrix products": 7e9 / 2e11,
            "convolutions": 7e9 / 1e11,
            "memory": 0.04,
            "files": 0.5e6 / 1e8 + 1.5e6 / 1e9,  # a quarter came from the disk
            "cached files": 0.002,
            "messages of a unit": 0.04,
        }
    )
    assert found.binds == "compute" and found.nearest.name == "memory"
    assert found.allowed_rate(found.nearest) == pytest.approx(16 / 0.04)
    assert re.match("compute limits .*: 70% .* 40% of the rate that memory alone ", [*found.format_lines()][2])
    assert json.loads(found.format_json())["roofs"][3]["reached"] == pytest.approx(0.065)


@pytest.mark.parametrize(("products", "convolutions"), [(1e11, 2e11), (2e11, 1e11)])
def test_the_slower_arithmetic_is_no_limit(products, convolutions):
    found = build_report(
        replace(STEPS, flop_per_step=1.5e10), replace(TOP, products=products, convolutions=convolutions)
    )
    assert found.nearest.name == ("convolutions" if convolutions > products else "matrix products")
    assert found.nearest.seconds == pytest.approx(0.075)


def test_files_whose_devices_the_kernel_does_not_count():
    for found, top in (
        (replace(STEPS, stored_bytes_per_step=None), TOP),
        (STEPS, replace(TOP, cold_share=0.0)),
        (STEPS, replace(TOP, cold_share=None)),
    ):
        assert {roof.name: roof.seconds for roof in build_report(found, top).roofs}["files"] == pytest.approx(0.02)
    cached = {roof.name: roof.seconds for roof in build_report(STEPS, TOP).roofs}
    assert cached["files"] == cached["cached files"] == pytest.approx(0.002)


def test_what_binds():
    network = build_report(replace(STEPS, computing_ms=30.0, communicating_ms=60.0), TOP)
    assert network.binds == "network" and network.nearest.name == "messages of a unit"
    files = build_report(replace(STEPS, computing_ms=30.0, waiting_ms=60.0, communicating_ms=10.0), TOP)
    assert files.binds == "I/O" and files.nearest.name == "files"
    assert "decompression, is the limit" in "\n".join(files.format_lines())  # the files allow five times as much
    slow = build_report(replace(files.measurement, stored_bytes_per_step=2e6), replace(TOP, cold_files=2.1e7))
    assert "decompression, is the limit" not in "\n".join(slow.format_lines())
    unknown = build_report(files.measurement, replace(TOP, cold_files=None, cached_files=None, unit_network=None))
    assert unknown.nearest is None and "--data" in "\n".join(unknown.format_lines()) and len(unknown.roofs) == 3


def test_the_roofline_has_a_line_for_each_ceiling_and_points_for_each_network():
    other = replace(STEPS, benchmark="deepcam", flop_per_step=7e11, median_step_ms=5000.0, computing_ms=0.0)
    svg = draw_picture(build_report(replace(STEPS, benchmark="<&>"), TOP, (other,)))
    tree = ElementTree.fromstring(svg)
    lines = [line.attrib for line in tree.iterfind(".//{*}line") if line.get("class") != "g"]
    assert [line["class"] for line in lines].count("c") == 3, "memory, products, convolutions"
    assert sum("limit" in line["class"] for line in lines) == 3, "files, cached files, messages"
    memory = next(line for line in lines if line["class"] == "c")
    assert float(memory["x1"]) < float(memory["x2"]) and float(memory["y1"]) > float(memory["y2"])
    assert svg.count('class="p o"') == 1 and len(tree.findall(".//{*}circle")) == 3
    texts = {text.text for text in tree.iterfind(".//{*}text")}
    assert texts >= {"GFLOP/s", "<&>, mini: 70 GFLOP/s", "deepcam, mini: 140 GFLOP/s", "memory 100 GB/s"}


def test_the_analysis_reads_the_ceilings(tmp_path):
    path = tmp_path / "ceilings.yaml"
    path.write_text(ceilings_file(TOP))
    (name,) = known = read_ceilings(path)
    assert known[name].peak_flop_per_s == 1e11 and known[name].network_bytes_per_s == 1e8
    assert ceilings_of("AMD EPYC 9B45", known) == name and not ceilings_of("Intel Xeon", known)


def test_measured_here(empty_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("common.measure.roofline.SECONDS", 0.01)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_bytes(bytes(100_000))
    (data / "link").symlink_to("/etc/passwd")
    steps = replace(STEPS, units=1, data=str(data))
    steps.write_file(tmp_path / "fom.json")
    assert read_measurement(tmp_path / "fom.json") == steps
    replace(steps, dtype="bf16").write_file(tmp_path / "other.json")
    assert main(["roofline", "fom.json", "--beside", "other.json", "-o", "out"]) == 2
    assert "other.json: expected the units" in capsys.readouterr().err
    assert main(["roofline", "fom.json", "--beside", "fom.json", "-o", "out"]) == 0
    told = capsys.readouterr().out
    assert "compute limits the steps" in told and "needs several ranks" in told
    found = json.loads((tmp_path / "out/roofline.json").read_text())
    assert found["ceilings"]["units"] == 1 and found["ceilings"]["cold_files"] > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["roofline.json", "roofline.svg"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ("{}", "has no measurement"),
        ('{"system_name": "n64"}', "this is a system description, not the fom.json"),
        ('{"kind": "training"}', "`python -m submission.summary . --runs`"),
        ("[" * 100_000, "not JSON"),
        ({"format": 99}, "format is '99'"),
        ({"units": 0}, "units: expected a number from 1 to 1e+30; got 0"),
        ({"batch": 10**400}, "batch: expected a number from 1 to 1e+30; got 10000000000000000000"),
        ({"median_step_ms": 1e-300}, "median_step_ms: expected a number from 1e-06"),
        ({"benchmark": "a\x1b[31m"}, "benchmark: expected text that can be printed"),
        ({"units": 1, "data": "a\0b"}, "data: expected text that can be printed"),
        ({"batch": "many"}, "batch"),
        ({"median_step_ms": float("nan")}, "median_step_ms: expected a number"),
        ({"nosuch": 1}, "nosuch"),
        ({"units": 4}, "measured with 4 rank(s) on 1 node(s) on cpu, this command runs with 1 rank(s)"),
        ({"units": 1, "data": "nowhere"}, "nowhere: no such folder"),
        ({"data": ""}, "data: expected text that can be printed"),
        ({"step_ms": []}, "step_ms: expected numbers; got none"),
        ({"step_ms": [1.0, -1.0]}, "step_ms: expected a number from 0"),
        ({"units": 1, "dtype": "fp99"}, "dtype"),
    ],
)
def test_wrong_use(change, told, empty_folder, tmp_path, capsys):
    path = tmp_path / "fom.json"
    if isinstance(change, dict):
        STEPS.write_file(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    elif change is not None:
        path.write_text(change)
    assert main(["roofline", "fom.json", "-o", "out"]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["roofline", "fom.json", "-o", "fom.json"], "fom.json: this is a file; expected a folder"),
        (
            ["power", "--source", "command:node:watts:echo 1", "-o", ".", "--append"],
            ". is a folder; expected a file",
        ),
    ],
)
def test_output_of_another_kind_is_refused_at_once(words, told, empty_folder, tmp_path, capsys):
    STEPS.write_file(tmp_path / "fom.json")
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("device", "told"), [("foo", "expected auto, cpu"), ("xpu", "no accelerator")])
def test_a_device_that_is_not_there(device, told, empty_folder, tmp_path, capsys):
    replace(STEPS, units=1).write_file(tmp_path / "fom.json")
    assert main(["roofline", "fom.json", "-o", "out", "--device", device]) == 1
    assert told in capsys.readouterr().err and not (tmp_path / "out").exists()
