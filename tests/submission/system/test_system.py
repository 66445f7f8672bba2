"""The system description: its fields, its check, and wrong use of the command."""

import json

import pytest

from compliance.engine import Options
from compliance.model.system import OPEN
from compliance.rules.package import FIELDS
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage
from submission.system.__main__ import main
from submission.system.describe import check_description, describe_system, render_description
from submission.system.machine import Machine, probe_machine

KNOWN = {"submitter": "Example University", "division": "closed", "status": "onprem", "system_name": SYSTEM}


@pytest.fixture
def bare(tmp_path):
    """Return what is detected on a machine on which nothing can be."""
    return probe_machine(Machine(tmp_path / "nowhere", {"PATH": str(tmp_path)}))


@pytest.fixture
def complete(tmp_path):
    """Return the file of a complete, valid description that agrees with the sample logs."""
    path = tmp_path / f"{SYSTEM}.json"
    path.write_text(json.dumps({**SamplePackage().fields, "system_type": "datacenter"}))
    return path


def changed(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def found(path, logs=()):
    report = check_description(str(path), [str(log) for log in logs], Options(allow_mini=True))
    return {(finding.rule, finding.severity) for finding in report.findings}


def test_all_fields_exist_and_unknown_ones_are_marked(bare):
    description = describe_system({**KNOWN, "number_of_nodes": "64"}, detected=bare)
    assert set(description.fields) == {*FIELDS, "system_type"} and len(FIELDS) == 33
    assert description.fields["number_of_nodes"] == "64" and description.fields["submitter"] == "Example University"
    assert description.fields["cooling"].startswith(f"{OPEN}: ")
    still_open = [name for name, value in description.fields.items() if OPEN in value]
    assert [point.split(":")[0] for point in description.open_points] == still_open and "cooling" in still_open
    assert json.loads(render_description(description.fields)) == description.fields


def test_accelerators_that_are_stated_are_described_by_the_user(bare):
    stated = {"accelerators_per_node": "4", "accelerator_model_name": "NVIDIA A100"}
    fields = describe_system({**KNOWN, **stated}, detected=bare).fields
    assert bare["accelerator_memory_capacity"] == "N/A" and fields["accelerator_memory_capacity"].startswith(OPEN)
    assert fields["accelerator_model_name"] == "NVIDIA A100"
    for fields, detected in ((KNOWN, bare), ({**KNOWN, "accelerators_per_node": "0"}, {})):  # {}: nvidia-smi failed
        assert describe_system(fields, detected=detected).fields["accelerator_memory_capacity"] == "N/A"


def test_another_description_fills_in_unknown_fields(bare):
    other = {"cooling": "Liquid", "number_of_nodes": "9", "hw_notes": "hot water", "sw_notes": "", "status": 3}
    fields = describe_system({"system_name": "Ours"}, other, bare).fields
    assert (fields["cooling"], fields["hw_notes"], fields["sw_notes"]) == ("Liquid", "hot water", "none")
    assert fields["number_of_nodes"] == "1" and fields["status"].startswith(OPEN)


@pytest.mark.parametrize("status", ["Available on-premise", "Research, Development, or Internal (RDI)"])
def test_a_description_of_mlperf_sysinfo_passes(complete, status):
    assert (
        found(changed(complete, status=status, framework_name="pytorch", mlperf_sysinfo={"profile": "training"}))
        == set()
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cooling": f"{OPEN}: air or liquid"}, ("PKG20", "warning")),
        ({"system_type": "laptop"}, ("PKG07", "note")),
        ({"status": "sometimes"}, ("PKG07", "warning")),
        ({"submitter": ""}, ("PKG07", "warning")),
        ({"division": "Closed"}, ("PKG07", "error")),
        ({"number_of_nodes": "many"}, ("PKG06", "error")),
        ({"host_memory_capacity": "512"}, ("PKG06", "warning")),
        ({"framework": ["torch"]}, ("PKG06", "error")),
    ],
)
def test_faults_are_found(complete, fields, expected):
    assert found(changed(complete, **fields)) == {expected}


def test_a_missing_value_is_reported_once(tmp_path, bare):
    path = tmp_path / "ours.json"
    path.write_text(render_description(describe_system({**KNOWN, "status": f"{OPEN}: which"}, detected=bare).fields))
    assert found(path) == {("PKG20", "warning"), ("PKG06", "error")}, "the number of processors must be a number"


def test_logs_are_compared_in_any_layout(complete, tmp_path):
    logs = tmp_path / "runs"
    for number in (1, 2):
        folder = logs / f"run_{number}"
        folder.mkdir(parents=True)
        (folder / "result_0.txt").write_bytes(SampleLog("cosmoflow", "3.0", "closed", number).bytes())
    package = SamplePackage(runs=2).write(tmp_path / "Example")
    for paths in ([logs], [logs / "run_1" / "result_0.txt"], [package]):
        assert found(complete, paths) == set()
    assert found(changed(complete, number_of_nodes="512"), [logs]) == {("RUN09", "error")}
    assert found(changed(complete, number_of_nodes="16", status="cloud"), [package]) == {("RUN09", "warning")}
    assert found(changed(complete, status="onprem", division="open"), [logs]) == {("RUN08", "error")}


def test_empty_logs_are_not_agreement(complete, tmp_path):
    (tmp_path / "empty").mkdir()
    assert ("FRM03", "error") in found(complete, [tmp_path / "empty"])
    (tmp_path / "result_0.txt").write_text("nothing")
    assert found(complete, [tmp_path / "result_0.txt"]) == {("RUN09", "skipped")}


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_writes_once(tmp_path, call):
    path = tmp_path / "ours.json"
    words = ["-o", path, "--set", "submitter=Example University", "status=onprem", "number_of_nodes=16 nodes"]
    words += ["--set", "cooling=a=b"]
    said = call(main, *words)
    assert said.out == "" and "written" in said.err and "system_name: the name" in said.err
    fields = json.loads(path.read_text())
    assert (
        fields["number_of_nodes"] == "16" and fields["cooling"] == "a=b" and fields["submitter"] == "Example University"
    )
    assert "unchanged" in call(main, *words).err
    before = path.read_bytes()
    assert f"keep what was filled in, add --from {path}" in call(main, *words, "cooling=water", status=2).err
    assert path.read_bytes() == before
    call(main, *words, "cooling=water", "--force")
    assert json.loads(path.read_text())["cooling"] == "water"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["ours.json"]


def test_the_command_takes_fields_from_another_description(complete, call):
    changed(complete, cooling="Air", host_networking_topology="TBD")
    fields = json.loads(call(main, "--from", complete).out)
    assert fields["cooling"] == "Air" and fields["host_networking_topology"].startswith(OPEN)


def test_the_command_checks(complete, tmp_path, call):
    assert "PASS: 0 errors, 0 warnings, 0 notes in 1 system description" in call(main, "--check", complete).out
    (tmp_path / "result_0.txt").write_bytes(SampleLog().bytes())
    changed(complete, number_of_nodes="512", cooling="TBD\x1b[31m")
    said = call(main, "--check", complete, "--logs", tmp_path / "result_0.txt", status=1).out
    assert "error RUN09" in said and "warning PKG20" in said and "\x1b" not in said
    complete.write_text("{")
    assert "error PKG04" in call(main, "--check", complete, status=1).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "cooling"], "expected FIELD=VALUE"),
        (["--set", "submitter="], "--set submitter=: expected FIELD=VALUE"),
        (["--set", "=x"], "--set =x: expected FIELD=VALUE"),
        (["--set", "number_of_nodes=many"], "number_of_nodes is 'many'; expected a number, such as 16"),
        (["--set", "accelerators_per_node=1,024"], "accelerators_per_node is '1,024'; expected a number, such as 4"),
        (["--set", "accelerator_memory_capacity=40"], "is '40'; expected a number, such as 80 GB"),
        (["--set", "host_processor_frequency=2.5"], "is '2.5'; expected a number, such as 2.45 GHz"),
        (["number_of_nodes=16"], "unexpected argument 'number_of_nodes=16'; write --set number_of_nodes=16"),
        (["--set", "coolnig=air"], "no field 'coolnig' (did you mean 'cooling'?)"),
        (["--set", "submitter=A", "B", "C", "cooling=air"], "quote a value with blanks: --set 'submitter=A B C'"),
        (["--set", "submitter", "=", "A"], "--set submitter: expected FIELD=VALUE without blanks around ="),
        (["--set", "division=clsoed"], "division is 'clsoed' (did you mean 'closed'?); expected closed or open"),
        (["-o", "nowhere/x.json"], "there is no folder nowhere"),
        (["--from", "missing.json"], "--from missing.json: No such file"),
        (["--check", "missing.json"], "no such file or folder: missing.json"),
        (["--check", __file__, "--logs", "missing"], "no such file or folder: missing"),
        (["--check", __file__, "-o", "x"], "--check only reads"),
        (["--logs", "."], "add --check FILE"),
    ],
)
def test_wrong_use(arguments, says, empty_folder, tmp_path, call):
    assert says in call(main, *arguments, status=2).err and list(tmp_path.iterdir()) == []


def test_published_descriptions_do_not_fail(corpus):
    paths = sorted(corpus.glob("v*/*/systems/*.json"))
    verdicts = [check_description(str(path), [], Options()).verdict for path in paths]
    assert len(verdicts) > 40 and set(verdicts) == {"PASS"}
