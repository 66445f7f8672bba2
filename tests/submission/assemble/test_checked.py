"""What is edited in a package after it was assembled is found by the checker, with provenance.json and without."""

import json
import shutil
from pathlib import Path

import pytest

from common.provenance import source_hash
from compliance.engine import Options, check_paths
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package

NAME = "provenance.json"
CODE = "benchmarks/cosmoflow/implementations/mlperf-hpc-suite"
SYSTEM = "benchmarks/cosmoflow/example_n64"
LOGS = "results/example_n64/strong/cosmoflow"


@pytest.fixture(scope="module")
def assembled(tmp_path_factory):
    """Return a package of ten closed logs with this suite's code; made once, as copying the code takes a while."""
    folder = tmp_path_factory.mktemp("assembled")
    for run in range(1, 11):
        path = folder / "runs" / f"run_{run}" / "result_0.txt"
        path.parent.mkdir(parents=True)
        log = SampleLog(run=run).by_suite().provenance(source_sha256=source_hash(("common", "cosmoflow")))
        path.write_bytes(log.bytes())
    system = folder / "example_n64.json"
    system.write_text(json.dumps(SamplePackage().fields))
    return assemble_package(Assembly(runs=(folder / "runs",), output=folder / "out", system=system)).root


@pytest.fixture
def package(assembled, tmp_path):
    return Path(shutil.copytree(assembled, tmp_path / assembled.name))


def findings(package):
    """Return rule and severity of the errors and warnings, and all messages."""
    report = check_paths([package], Options())
    serious = [finding for finding in report.findings if finding.severity in ("error", "warning")]
    return {(finding.rule, finding.severity) for finding in serious}, "\n".join(f.message for f in serious)


def state_other_hash(package):
    for path in (package / LOGS).iterdir():
        path.write_text(path.read_text().replace(source_hash(("common", "cosmoflow")), "7" * 64))


def replace_code(package):
    shutil.rmtree(package / CODE / "cosmoflow")
    (package / CODE / "cosmoflow").write_text("the code is elsewhere\n")


EDITS = {
    "model": lambda package: (package / CODE / "cosmoflow/model.py").write_text("CONV_SIZE = 4\n"),
    "empty": lambda package: (package / CODE / "cosmoflow/train.py").write_text(""),
    "added": lambda package: (package / CODE / "common/faster.py").write_text("import torch\n"),
    "removed": lambda package: (package / CODE / "common/mllog.py").unlink(),
    "replaced": replace_code,
    "hash": state_other_hash,
}


def test_an_assembled_package_is_as_recorded(package):
    assert findings(package) == (set(), "")


@pytest.mark.parametrize("name", EDITS)
def test_code_that_did_not_make_the_logs_is_an_error(name, package):
    (package / NAME).unlink()
    EDITS[name](package)
    found, messages = findings(package)
    assert found == {("PKG37", "error")} and "is not the code that made the logs" in messages


@pytest.mark.parametrize(
    ("file", "severity"),
    [(f"{SYSTEM}/config.yaml", "warning"), (f"{CODE}/constraints.txt", "warning"), (f"{LOGS}/result_3.txt", "error")],
)
def test_an_edited_file_is_named(file, severity, package):
    (package / file).write_text((package / file).read_text() + "\n")
    found, messages = findings(package)
    assert found == {("PKG38", severity)} and file in messages


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "../../secret", "/etc/passwd", "benchmarks"])
def test_a_record_with_impossible_names_does_not_stop_the_checker(name, package):
    record = json.loads((package / NAME).read_text())
    record["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    (package / NAME).write_text(json.dumps(record))
    assert findings(package)[0] <= {("PKG38", "warning")}


def test_a_huge_file_is_not_hashed(package):
    record = json.loads((package / NAME).read_text())
    for name, recorded in (("README.md", 1), ("data.bin", 1 << 40)):
        with (package / name).open("ab") as file:
            file.truncate(1 << 40)
        record["files"][name] = {"bytes": recorded, "sha256": "0" * 64}
    (package / NAME).write_text(json.dumps(record))
    messages = findings(package)[1]
    assert "README.md differs from provenance.json (1,099,511,627,776 bytes, recorded 1)" in messages
    assert "data.bin cannot be compared: it is larger than 50 MiB" in messages


def test_an_added_log_is_a_warning(package):
    record = json.loads((package / NAME).read_text())
    del record["files"][f"{LOGS}/result_3.txt"]
    (package / NAME).write_text(json.dumps(record))
    found, messages = findings(package)
    assert found == {("PKG38", "warning")} and "result_3.txt was added after the package was assembled" in messages
