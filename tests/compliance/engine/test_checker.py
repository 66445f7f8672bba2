"""The check as a whole: read-only, the same twice, on one core and on many, and in the hands of a program."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import compliance
from common import processes
from compliance.engine import Options, check_paths, log_checker
from compliance.rules.catalog import all_rules
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

ROOT = Path(__file__).resolve().parents[3]


def snapshot(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_checking_writes_nothing_and_says_the_same_twice(empty_folder, tmp_path):
    SamplePackage().file("scaling.json", '{"scaling_factor": 2}').edit(2, lambda log: log.drop("seed")).write("Example")
    before = snapshot(tmp_path)
    first, second = (check_paths(["Example"], Options()) for _ in range(2))
    assert first.findings == second.findings and first.findings
    assert snapshot(tmp_path) == before


def in_two_processes(path, change="pass"):
    """Return what a process that has no other thread prints of a check in two more. change: what these run first."""
    script = f"""
import os, signal
from compliance.engine import Options, check_paths, log_checker

plain, parent = log_checker.check_log, os.getpid()

def changed(task):
    if os.getpid() != parent:
        os.write(1, b"in another process\\n")
        {change}
    return plain(task)

log_checker.PARALLEL_BYTES, log_checker.check_log = 0, changed
report = check_paths([{str(path)!r}], Options(jobs=2))
print(*report.findings, *(run.fingerprint for run in report.runs), sep="\\n")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert "in another process" in lines and not done.stderr
    return [line for line in lines if line != "in another process"]


@pytest.mark.parametrize("change", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_many_processes_find_the_same_also_if_one_is_killed(tmp_path, change):
    SamplePackage().edit(2, lambda log: log.set("opt_name", "adam")).write(tmp_path / "Example")
    alone = check_paths([tmp_path], Options(jobs=1))
    assert in_two_processes(tmp_path, change) == [
        str(x) for x in (*alone.findings, *(r.fingerprint for r in alone.runs))
    ]


def test_beside_other_threads_no_process_is_forked(tmp_path, monkeypatch):
    SamplePackage().write(tmp_path / "Example")
    monkeypatch.setattr(log_checker, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(processes, "in_processes", None)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert check_paths([tmp_path], Options(jobs=2)).verdict == "PASS"
    ended.set()
    thread.join()


def test_the_package_is_callable(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(SampleLog().set("opt_name", "adam").bytes())
    report = compliance.check_logs(path)
    assert report.verdict == "FAIL" and report.exit_code == 1
    assert compliance.check_logs([str(path)], division="open").exit_code == 0
    with pytest.raises(TypeError):
        compliance.check_logs(path, colour="red")
    with pytest.raises(AttributeError):
        compliance.nothing  # noqa: B018  (the access is the test)


def test_selecting_and_ignoring(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(SampleLog().set("opt_name", "adam").drop("cache_clear").drop("seed").bytes())

    def found(**options):
        return [finding.rule for finding in check_paths([path], Options(**options)).findings]

    assert found() == ["ORD02", "SET04", "SET08"]
    assert found(select=("SET",)) == ["SET04", "SET08"]
    assert found(select=("SET04", "ORD")) == ["ORD02", "SET04"]
    assert set(found(ignore={"ORD02": "why", "SET": "why"})) == {"OFFICIAL"}
    ignored = {"ORD02": "the caches were cleared by hand", "SET": "a test", "OFFICIAL": "also"}
    report = check_paths([path], Options(ignore=ignored))
    assert report.findings == [] and (report.verdict, report.exit_code) == ("PARTIAL", 0)
    assert (report.strict_verdict, report.official.verdict) == ("PARTIAL", "FAIL")
    assert [(finding.rule, why) for finding, why in report.ignored] == [
        ("ORD02", "the caches were cleared by hand"),
        ("SET04", "a test"),
        ("SET08", "a test"),
        ("OFFICIAL", "also"),  # ORD02, SET04
        ("OFFICIAL", "also"),
    ]


@pytest.mark.parametrize("rule", ["SET04", "RUN01", "PKG01", "RUN12"])
def test_a_broken_rule_is_an_error_not_silence(rule, tmp_path, monkeypatch):
    def broken(self, *subjects):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(all_rules()[rule], "check", broken)
    report = check_paths([SamplePackage().write(tmp_path / "Example")], Options())
    assert report.verdict == "FAIL"
    assert {f.rule for f in report.findings if "the rule itself failed" in f.message} == {rule}


def test_what_could_not_be_checked_is_skipped_visibly(tmp_path):
    package = SamplePackage().replace("systems/example_n64.json", b"{").write(tmp_path / "Example")
    report = check_paths([package], Options())
    assert {finding.rule for finding in report.findings if finding.severity == "skipped"} == {"RUN09"}


@pytest.mark.parametrize(
    ("said", "division"), [("Closed", "closed"), ("open ", "open"), ("opne", "closed"), (7, "closed")]
)
def test_a_mistyped_division_does_not_switch_rules_off(said, division, tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(SampleLog().set("submission_division", said).bytes())
    run = check_paths([path], Options()).runs[0]
    assert run.division == division and run.verdict == "FAIL"
