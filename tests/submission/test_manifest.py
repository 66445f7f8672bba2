"""provenance.json: differences from it are found, and a damaged one is reported."""

import json
from pathlib import Path

import pytest

from compliance.samples.log import SampleLog
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package
from submission.manifest import main

LOG = "results/laptop/strong/cosmoflow/result_0.txt"


@pytest.fixture
def package(empty_folder):
    """Return a package of one log, in the current folder."""
    log = SampleLog(variant="mini").set("submission_platform", "laptop")
    value = {
        "versions": {"mlperf-hpc-suite": "0.1.0"},
        "data_sha256": "5" * 64,
        "config": {"data": {"data_dir": "data"}},
    }
    Path("result_0.txt").write_bytes(log.add("provenance", value, before="submission_benchmark").bytes())
    Path("laptop.json").write_text("{}")
    Path("code").mkdir()
    Path("code/main.c").write_text("int main() {}\n")
    return make().root


def make(system=Path("laptop.json")):
    return assemble_package(
        Assembly(runs=(Path("result_0.txt"),), output=Path("out"), system=system, sources=Path("code"))
    )


def test_an_unchanged_package_matches(package, call):
    assert "files match provenance.json; INCOMPLETE" in call(main, package).out


def test_differences_are_listed(package, call):
    (package / LOG).write_bytes((package / LOG).read_bytes().replace(b"0", b"1"))
    (package / "benchmarks/cosmoflow/implementations/code/main.c").unlink()
    (package / "results/laptop/strong/cosmoflow/notes.txt").touch()
    (package / "other").mkdir()
    (package / "other/x\x1b[2J").touch()
    (package / "README").touch()
    said, hint = call(main, package, status=1)
    assert "repeat" in hint and "--system out/Example_University/systems/laptop.json" in hint
    assert said.count("\n") == 5 and "\x1b" not in said
    for line in (
        "result_0.txt differs from",
        "main.c is missing",
        "notes.txt was added",
        "README was added",
        "2J was added",
    ):
        assert said.count(line) == 1, line


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"files": 3}', "\xff", "[" * 100_000])
def test_a_damaged_record_is_an_error(package, call, text):
    (package / "provenance.json").write_bytes(text.encode("latin-1"))
    assert "is not a valid provenance.json" in call(main, package, status=1).err


def test_a_repeated_assembly_records_intended_changes(package):
    system = package / "systems/laptop.json"
    system.write_text('{"cooling": "air"}')
    (package / "README").touch()
    assert main([str(package)]) == 1
    make(system)
    assert main([str(package)]) == 0


def test_a_path_outside_the_package_is_an_error(package, call):
    record = json.loads((package / "provenance.json").read_text())
    record["files"]["../secret"] = {"bytes": 1, "sha256": "0" * 64}
    (package / "provenance.json").write_text(json.dumps(record))
    assert "expected the name of a file below" in call(main, package, status=1).err


def test_a_link_to_nothing_is_told_with_its_target(package, call):
    (package / LOG).unlink()
    (package / LOG).symlink_to("/purged/log")
    assert f"{LOG} is lost: this is a link to /purged/log" in call(main, package, status=1).out


def test_wrong_use(tmp_path, call):
    call(main, tmp_path / "nowhere", status=2)
    assert "a file; give the folder" in call(main, __file__, status=2).err
    assert "provenance.json is missing" in call(main, tmp_path, status=1).err


def test_the_record_contains_the_facts_in_the_log_about_its_data(package):
    record = json.loads((package / "provenance.json").read_text())["logs"][LOG]
    assert record["data"] == {"variant": "mini", "sha256": "5" * 64, "data_dir": "data"} | {
        name: record["data"][name] for name in ("train_samples", "eval_samples")
    }
