"""Logs of benchmarks from outside the suite: judged by their own facts, never as MLPerf's, without risk."""

import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import compliance
from common import benchmarks
from common.benchmarks import PLUGINS_VARIABLE, PluginError, use_folders
from common.provenance import collect_provenance
from common.version import FOLDERS_VARIABLE
from compliance import check_logs
from compliance.benchmarks import list_references, load_plugin, reference_of, refuse_plugins_in
from compliance.check import main
from compliance.engine import log_checker
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.logs.course import Course
from compliance.logs.log import LogReader
from compliance.rcp.__main__ import main as rcp
from compliance.rcp.points import load_points
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from submission.summary import main as summarize

ROOT = Path(compliance.__file__).parents[1]
FACTS = """
from dataclasses import replace
from common.reference import COUNT, Setting, Target, mini_of
from cosmoflow.reference import REFERENCE as COSMOFLOW
print("a plug-in speaks")
example = {"3.0": COSMOFLOW.example.settings["3.0"] | {"wave_count": 3}}
REFERENCE = replace(
    COSMOFLOW, name="waves", target=Target("eval_loss", 0.2, True), points="waves/rcps.yaml", rounds=("3.0",),
    settings=(*COSMOFLOW.settings, Setting("wave_count", COUNT)), example=replace(COSMOFLOW.example, settings=example),
)
MINIS = (mini_of(REFERENCE, "mini", 0.3, (64, 8), "generated"),)
"""
POINTS = "benchmark: waves\nunit: epochs\npoints: []"
ENTRY = "[mlperf_hpc.benchmarks]\nwaves = waves\n"
MARK = "import pathlib, sys; pathlib.Path({!r}).touch()"


def forget():
    """Forget what was found and read of plug-ins."""
    benchmarks.find_plugins.cache_clear()
    for cached in (load_plugin, list_references, reference_of, load_points):
        cached.cache_clear()
    importlib.invalidate_caches()
    for name in [module for module in sys.modules if module.partition(".")[0] == "waves"]:
        del sys.modules[name]


def write_plugin(folder: Path, facts: str = FACTS, metadata: bool = True) -> Path:
    """Write the package waves, and what an installation of it leaves."""
    (folder / "waves").mkdir(parents=True)
    (folder / "waves" / "__init__.py").touch()
    (folder / "waves" / "reference.py").write_text(facts)
    (folder / "waves" / "rcps.yaml").write_text(POINTS)
    if metadata:
        information = folder / "wave_makers-0.1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wave-makers\nVersion: 0.1.0\n")
        (information / "entry_points.txt").write_text(ENTRY)
    return folder


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install the plug-in with these facts, for this test."""
    for variable in (FOLDERS_VARIABLE, "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setenv(PLUGINS_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [*sys.path])

    def install(facts=FACTS):
        monkeypatch.setattr(sys, "path", [*sys.path, str(write_plugin(tmp_path / "site", facts))])
        forget()

    yield install
    refuse_plugins_in([])
    forget()


@pytest.fixture
def wave_log(install, tmp_path):
    """Write logs of the plug-in; return their paths."""
    install()

    def write(name="result_0.txt", change=lambda log: log, **options):
        path = tmp_path / "logs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(change(SampleLog("waves", **options)).bytes())
        return str(path)

    return write


NOT_MLPERF = "waves of wave-makers 0.1.0: not an MLPerf benchmark"


def rules_of(report, *severities):
    return {finding.rule for finding in report.findings if finding.severity in severities}


def test_a_log_is_judged_by_the_facts_of_its_plugin(wave_log):
    report = check_logs(wave_log(), allow_mini=True)
    (run,) = report.runs
    assert (run.benchmark, run.converged, report.verdict) == ("waves", True, "PASS")
    assert rules_of(report, "note") == {"SET07"} and report.official is None


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda log: log.drop("wave_count"), "SET03"),
        (lambda log: log.set("wave_count", "3"), "SET04"),
        (lambda log: log.last_evaluation(0.4), "QUA01"),
    ],
)
def test_a_log_that_departs_from_the_facts_of_its_plugin_fails(change, rule, wave_log):
    assert rules_of(check_logs(wave_log(change=change), allow_mini=True), "error") == {rule}


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
def test_records_of_a_plugin_are_kept_in_pieces_of_any_size(size, wave_log):
    data = Path(wave_log(change=lambda log: log.move("wave_count", after="init_start"))).read_bytes()
    reader = LogReader("log")
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    log = reader.close()
    assert log.value("wave_count") == 3 and log["eval_loss"] and log.derive(Course, "eval_loss").results
    assert log["eval_loss"][0] in log.events and "wave_count" not in log.others
    assert [record.order for record in log.events] == sorted(record.order for record in log.events)


@pytest.mark.parametrize("variant", ["full", "mini"])
@pytest.mark.parametrize("allow_mini", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_no_format_shows_it_as_a_result_of_mlperf(name, allow_mini, variant, wave_log):
    report = check_logs(wave_log(division="open", variant=variant), allow_mini=allow_mini)
    text = FORMATS[name](report, Style())
    assert NOT_MLPERF in text
    assert (report.verdict == "PASS") is allow_mini
    if name == "json":
        document = json.loads(text)
        assert document["logs"][0]["plugin"] == NOT_MLPERF and document["mlperf_result"] is False
    if name == "markdown":
        assert text.splitlines()[0].endswith(f"{report.verdict} (not an MLPerf benchmark)")


def test_the_official_profile_does_not_know_it(wave_log):
    report = check_logs(wave_log(), profile="official", allow_mini=True)
    assert report.verdict == "FAIL" and any(NOT_MLPERF in finding.message for finding in report.findings)


def test_a_package_of_a_plugin_is_never_one_of_mlperf(install, tmp_path):
    install()
    package = SamplePackage("waves", epochs=25).write(tmp_path / "Example")
    report = check_logs(package)
    assert {finding.cause or finding.rule for finding in report.findings if finding.severity == "error"} == {"SET07"}
    report = check_logs(package, allow_mini=True)
    assert report.verdict == "PASS" and report.sets[0].plugin == NOT_MLPERF
    assert "(not MLPerf)" in FORMATS["text"](report, Style())


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ("1 / 0", "division by zero"),
        ("import os, sys; print('{'); sys.exit(0)", "SystemExit"),
        ("class Odd(BaseException): ...\nraise Odd('odd')", "odd"),
        ("import torch", "without|do without"),
        (FACTS + "REFERENCE = replace(REFERENCE, settings=None)", "NoneType"),
        (FACTS + "REFERENCE = replace(REFERENCE, target=None)", "Reference"),
        (FACTS + "MINIS = (3,)", "found 3"),
        (FACTS + "REFERENCE = replace(REFERENCE, trained_by='waves.settings')", "waves.settings"),
    ],
)
def test_a_broken_plugin_is_one_warning(facts, cause, install, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    install(facts)
    logs = [tmp_path / f"result_{number}.txt" for number in range(3)]
    for number, path in enumerate(logs):
        path.write_bytes(SampleLog(run=number).set("submission_benchmark", "waves").bytes())
    assert main([*map(str, logs), "--no-config", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (warning,) = [finding for finding in report["findings"] if finding["severity"] == "warning"]
    assert warning["rule"] == "SET02" and "'waves' of wave-makers 0.1.0" in warning["message"] and warning["fix"]
    assert re.search(cause, warning["message"])
    assert [run["benchmark"] for run in report["logs"]] == [None] * 3


@pytest.mark.parametrize("arguments", [(), ("--quiet",)])
def test_every_command_warns_of_a_broken_plugin(arguments, install, tmp_path, capsys):
    install("1 / 0")
    log = tmp_path / "result_0.txt"
    log.write_bytes(SampleLog().set("submission_benchmark", "waves").bytes())
    main([str(log), "--no-config", *arguments])
    assert "ZeroDivisionError" in capsys.readouterr().out
    summarize([str(log)])
    assert "warning: benchmark 'waves' of wave-makers 0.1.0" in capsys.readouterr().err


def test_a_log_of_another_benchmark_is_noted(wave_log):
    report = check_logs(wave_log(change=lambda log: log.set("submission_benchmark", "cosmoflow")), benchmark="waves")
    assert any('but the log names "cosmoflow"' in finding.message for finding in report.findings)
    report = check_logs(wave_log(), benchmark="cosmoflow", allow_mini=True)
    assert any(NOT_MLPERF in finding.message and finding.rule == "SET02" for finding in report.findings)


@pytest.mark.parametrize("record", ["", "waves/reference.py,,\n"])
def test_a_name_of_two_distributions_is_refused(record, install, tmp_path):
    install()
    other = tmp_path / "site" / "dup-2.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: dup\nVersion: 2\n")
    (other / "entry_points.txt").write_text(ENTRY)
    (other / "RECORD").write_text(record or "dup/__init__.py,,\n")
    forget()
    with pytest.raises(PluginError, match=r"(?=.*wave-makers 0.1.0)(?=.*dup 2).*several have that name"):
        load_plugin("waves")
    if not record:
        (tmp_path / "site" / "wave_makers-0.1.0.dist-info" / "METADATA").unlink()
        forget()
        with pytest.raises(PluginError, match=r"dup 2 cannot be used: that distribution has no package waves"):
            load_plugin("waves")


@pytest.mark.parametrize("editable", [True, False])
def test_an_editable_installation_is_found_where_it_is(editable, install, tmp_path, monkeypatch):
    install()
    site, project = tmp_path / "site", tmp_path / "project"
    project.mkdir()
    (site / "waves").rename(project / "waves")
    information = site / "wave_makers-0.1.0.dist-info"
    (information / "direct_url.json").write_text(
        json.dumps({"url": project.as_uri(), "dir_info": {"editable": editable}})
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    monkeypatch.chdir(project)
    forget()
    assert bool(benchmarks.find_package("waves").problem) is not editable


def test_damaged_metadata_name_no_benchmark(install, tmp_path):
    for number, (metadata, entries) in enumerate(((None, ENTRY), ("\xff\0", ENTRY), ("Name: x", "\x00=[:"))):
        folder = tmp_path / "site" / f"odd{number}-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "entry_points.txt").write_bytes(b"\xff" + entries.encode() if metadata else entries.encode())
        if metadata:
            (folder / "METADATA").write_text(metadata)
    install()
    assert benchmarks.find_plugins()["waves"].origin in ("wave-makers 0.1.0", "None None")


def test_reference_points_that_cannot_be_read_are_one_warning(install, tmp_path):
    install()
    (tmp_path / "site" / "waves" / "rcps.yaml").write_text("benchmark: [")
    report = check_logs(SamplePackage("waves", epochs=25).write(tmp_path / "Example"), allow_mini=True)
    assert "no reference points" in report.own[0].message and report.own[0].severity == "warning"


# -- what is judged brings no code -------------------------------------------------------------------------


def run_check(*arguments, folder, **environment):
    """Run the command in a folder; return the report, and what it wrote on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "compliance.check", "--no-config", "--format", "json", *arguments],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def attack(tmp_path):
    """Write a judged folder with logs, a package and its metadata, which leave a mark when they are imported."""
    mark = tmp_path / "mark"
    judged = write_plugin(tmp_path / "judged", MARK.format(str(mark)) + FACTS)
    (judged / "waves" / "__init__.py").write_text(MARK.format(str(mark)))
    information = judged / "wave_makers-0.1.0.dist-info"
    (information / "entry_points.txt").write_text(f"{ENTRY}\n[mlperf_hpc.rules]\nown = waves\n")
    for number in range(2):
        log = SampleLog(run=number).set("submission_benchmark", "waves").bytes()
        (judged / f"result_{number}.txt").write_bytes(log)
    return judged, mark


@pytest.mark.parametrize(
    "way",
    ["folder", "log", "option", "variable", "link", "linked package", "outside metadata", "around a result", "above"],
)
def test_no_code_comes_from_what_is_judged(way, attack, tmp_path):
    judged, mark = attack
    site, information = tmp_path / "site", judged / "wave_makers-0.1.0.dist-info"
    site.mkdir()
    folder, target, options, environment = judged, ".", [], {"PYTHONPATH": str(ROOT)}
    if way in ("option", "log"):
        options = ["--benchmarks-from", str(judged)]
        target = "result_0.txt" if way == "log" else "."
    elif way == "variable":
        environment |= {FOLDERS_VARIABLE: str(judged), "PYTHONPATH": f"{ROOT}{os.pathsep}{judged}"}
    elif way == "link":
        (tmp_path / "link").symlink_to(judged)
        options = ["--benchmarks-from", str(tmp_path / "link")]
    elif way == "linked package":
        (site / "waves").symlink_to(judged / "waves")
        options = ["--benchmarks-from", str(site)]
    elif way == "around a result":
        (judged / "result_0.txt").unlink()
        SamplePackage().edit(1, lambda log: log.set("submission_benchmark", "waves")).write(judged)
        environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{judged}"}
        (information / "entry_points.txt").write_text(ENTRY)
        folder, target = tmp_path, "judged/results/example_n64/strong/cosmoflow"
    elif way == "above":
        (judged / "logs").mkdir()
        (judged / "result_0.txt").rename(judged / "logs" / "result_0.txt")
        target, environment = "logs", {"PYTHONPATH": f"{ROOT}{os.pathsep}."}
    elif way == "outside metadata":
        (information / "entry_points.txt").write_text(ENTRY)
        information.rename(site / information.name)
        environment = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(site), str(judged)))}
    report = run_check(target, *options, folder=folder, **environment)
    assert not mark.exists()
    warnings = [finding["message"] for finding in report["findings"] if finding["severity"] == "warning"]
    refusals = [message for message in warnings if "which is judged: its code is not run" in message]
    assert len(refusals) == (way not in ("folder", "above", "outside metadata"))
    assert way in ("folder", "above") or any("'waves' of " in message for message in warnings)
    assert not any(run["plugin"] for run in report["logs"])


def test_worker_processes_refuse_it_too(attack, monkeypatch, capsys, install):
    judged, mark = attack
    monkeypatch.setattr(log_checker, "PARALLEL_BYTES", 0)
    use_folders([str(judged)])
    main([str(judged), "--no-config", "--jobs", "2", "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert not mark.exists() and len(report["findings"]) == 1


# -- options -----------------------------------------------------------------------------------------------


def test_nothing_is_looked_for_while_all_names_are_of_the_suite(tmp_path, monkeypatch):
    forget()

    def fail(**_):
        raise AssertionError("entry points were looked for")

    monkeypatch.setattr(importlib.metadata, "distributions", fail)
    (tmp_path / "result_1.txt").write_bytes(SampleLog().drop("submission_benchmark").bytes())
    (tmp_path / "result_0.txt").write_bytes(SampleLog().bytes())
    assert len(check_logs(tmp_path).runs) == 2
    assert main([str(tmp_path / "result_0.txt"), "--no-config"]) == 0


def test_options_find_and_forbid_plugins(tmp_path, install, monkeypatch, capsys):
    folder = write_plugin(tmp_path / "plugins", metadata=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["--benchmark", "waves", "--list-rules"]) == 0
    options = ["--no-config", "--allow-mini", "--benchmark", "waves", "--benchmarks-from", str(folder)]
    install()
    (tmp_path / "log.txt").write_bytes(SampleLog("waves").drop("submission_benchmark").bytes())
    forget()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("site")])
    main([str(tmp_path / "log.txt"), *options])
    assert "waves closed" in capsys.readouterr().out
    for others, message in ((options, "give one of them"), (options[:-2], "'waves'")):
        with pytest.raises(SystemExit):
            main([str(tmp_path / "log.txt"), *others, "--no-plugins"])
        assert message in capsys.readouterr().err


def test_points_of_a_plugin_are_recorded_and_shown(wave_log, tmp_path, capsys):
    for number in range(3):
        wave_log(f"result_{number}.txt", run=number)
    table = tmp_path / "own.yaml"
    assert rcp(["record", str(tmp_path / "logs"), "-o", str(table)]) == 0
    assert rcp(["show", "--table", str(table)]) == 0
    assert "waves, full, round 3.0" in capsys.readouterr().out
    (tmp_path / "site" / "waves" / "rcps.yaml").write_text(table.read_text())
    assert rcp(["show", "waves"]) == 0
    assert "waves, full, round 3.0" in capsys.readouterr().out


def test_provenance_states_the_version_of_the_distribution(install):
    install()
    assert collect_provenance(("common", "waves"))["versions"]["wave-makers"] == "0.1.0"
