"""What is in integrations/ reads the figure of merit, and the tools themselves report what a measurement found."""

import csv
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from common.benchmarks import PACKAGES
from compliance.benchmarks import MINIS
from submission.integrations import main
from tests.measurement import STEPS
from tests.problems import ROOT, run_process

FOLDER = ROOT / "integrations"
TOOLS = sorted(path.name for path in FOLDER.iterdir())
JUBE_FILE = FOLDER / "jube/mlperf_hpc.yaml"
JUBE_PATTERNS = {
    "$jube_pat_fp": r"([+-]?(?:\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\.))",
    "$jube_pat_int": r"([+-]?\d+)",
    "$jube_pat_wrd": r"(\S+)",
}
REFRAME = shutil.which("reframe", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
needs_reframe = pytest.mark.needs("reframe", REFRAME, "ReFrame: pip install reframe-hpc")
needs_jube = pytest.mark.needs("jube", shutil.which("jube"), "JUBE: apt install jube")


def expressions(path):
    """Return the regular expressions in a file, with JUBE's own patterns spelled out."""
    found = re.findall(r"""["'](\^FOM [^"']*)["']""", path.read_text())
    for name, pattern in JUBE_PATTERNS.items():
        found = [text.replace(name, pattern) for text in found]
    return found


@pytest.mark.parametrize("name", ["reframe/mlperf_hpc.py", "jube/mlperf_hpc.yaml", "ramble/application.py"])
@pytest.mark.parametrize("rate", [160.0, 123.456789, 4.2e7, 3.1e-5])
def test_expressions_match_the_line(name, rate):
    measured = replace(STEPS, samples_per_s=rate)
    found = [re.search(text, f"before\n{measured.line}\nafter", re.MULTILINE) for text in expressions(FOLDER / name)]
    assert found and all(found)
    groups = {value for match in found for value in match.groups()}
    assert {f"{rate:.6g}", f"{measured.units}", f"{measured.spread:.3f}"} <= groups


def test_benchmarks_are_those_of_the_suite():
    what = yaml.safe_load(JUBE_FILE.read_text())["parameterset"][0]["parameter"]
    assert what[0] == {"name": "benchmark", "_": ",".join(PACKAGES)}
    workloads = re.findall(r' workload\(\s*"(\w+)"', (FOLDER / "ramble/application.py").read_text())
    assert workloads == list(PACKAGES)
    assert f"BENCHMARKS = {json.dumps(PACKAGES)}\n" in (FOLDER / "reframe/mlperf_hpc.py").read_text()


def test_the_command_writes_the_files_of_the_tools_that_are_named(tmp_path, capsys):
    assert main([]) == 0 and [line.split()[0] for line in capsys.readouterr().out.splitlines()] == TOOLS
    assert main([f"{tmp_path}", "jube", "ramble"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jube", "ramble"]
    assert (tmp_path / "jube" / JUBE_FILE.name).read_bytes() == JUBE_FILE.read_bytes()
    (tmp_path / "jube" / JUBE_FILE.name).write_text("edited")
    for words, problem in ((["reframe", "jube"], "jube exists"), (["refram"], "did you mean 'reframe'")):
        assert main([f"{tmp_path}", *words]) == 2 and problem in capsys.readouterr().err
    assert not (tmp_path / "reframe").exists() and (tmp_path / "jube" / JUBE_FILE.name).read_text() == "edited"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder for generated samples, which the tools share."""
    return tmp_path_factory.mktemp("data")


def run_reframe(folder, tests, *words):
    """Let ReFrame run tests of its file, with all that it writes in a folder; return how it ended."""
    command = [REFRAME, "-c", "integrations/reframe", "-r", "-n", tests, "--prefix", folder, *words]
    return run_process(*command, cwd=ROOT, timeout=300)


def run_jube(folder, *words, **variables):
    """Let JUBE run its file, with the results in a folder; return how it ended."""
    command = ["jube", "run", JUBE_FILE.relative_to(ROOT), "--result", "--hide-animation", "--outpath", folder, *words]
    return run_process(*command, variables=variables, cwd=ROOT, timeout=300)


def line_of(folder, output):
    """Return benchmark, samples/s and spread of the line that a run printed; fom.json beside it must agree."""
    (line,) = re.findall(r"^FOM (\w+) samples/s (\S+) .* spread (\S+)$", (folder / output).read_text(), re.MULTILINE)
    found = json.loads((folder / "fom.json").read_text())
    assert (found["benchmark"], f"{found['samples_per_s']:.6g}", f"{found['spread']:.3f}") == line
    assert found["network"] == MINIS[found["benchmark"]][0].variant and len(found["step_ms"]) == 3
    return line


@pytest.mark.exhaustive
@needs_reframe
def test_reframe_reports_the_line(tmp_path, data):
    words = ["--exec-policy", "serial", "--report-file", tmp_path / "report.json", "-S", "steps=3"]
    words += ["-S", f"interpreter={sys.executable}", "-S", f"data={data}"]
    done = run_reframe(tmp_path, "MLPerfHPC.*mini", *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    lines = []
    for case in run["testcases"]:
        lines.append(line_of(Path(case["outputdir"]), "rfm_job.out"))
        reported = {key.rpartition(":")[2]: value[0] for key, value in case["perfvalues"].items()}
        assert case["result"] == "pass"
        assert reported == {"samples_per_s": float(lines[-1][1]), "spread": float(lines[-1][2])}
    assert sorted(name for name, *_ in lines) == sorted(PACKAGES)
    folders = [f"{name}-measure-{MINIS[name][0].variant}" for name in sorted(PACKAGES)]
    assert sorted(path.name for path in data.iterdir()) == folders


@pytest.mark.exhaustive
@needs_reframe
def test_reframe_fails_without_the_line(tmp_path):
    words = ["-S", "interpreter=true", "-S", f"data={tmp_path}"]
    done = run_reframe(tmp_path, "benchmark=cosmoflow.*mini", *words)
    assert done.returncode == 1 and "sanity" in done.stdout


ENSEMBLE = (
    "FOM cosmoflow samples/s 53.4 units 2 batch 32 dtype bf16 spread 0.022 models {} models/min 0.1667 flop/s 4e+10"
)
VERDICT = {"verdict": "PASS", "workloads": [{"name": "cosmoflow mini2, bf16", "ratio": 1.02}]}


@pytest.mark.exhaustive
@needs_reframe
@pytest.mark.parametrize(
    ("test", "line", "measured"),
    [
        ("InstanceThroughput.*cosmoflow", ENSEMBLE.format(2), {"models_per_min": 0.1667, "samples_per_s": 53.4}),
        ("InstanceThroughput.*cosmoflow", ENSEMBLE.format(1), None),
        ("MachineAcceptance", "PASS", {"cosmoflow_mini2,_bf16": 1.02}),
        ("MachineAcceptance", "UNDECIDED", None),
    ],
)
def test_reframe_judges_throughput_and_acceptance(test, line, measured, tmp_path):
    """The commands themselves take minutes: a program prints what they print."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(VERDICT)}' > accept.json\necho '{line}'\n")
    program.chmod(0o755)
    words = ["-S", f"interpreter={program}", "-S", f"data={tmp_path / 'data'}", "--report-file", tmp_path / "report"]
    done = run_reframe(tmp_path, test, *words, "-S", "MachineAcceptance.baseline=base.json")
    assert done.returncode == (measured is None), done.stdout
    (case,) = json.loads((tmp_path / "report").read_text())["runs"][0]["testcases"]
    if measured:
        assert {key.rpartition(":")[2]: value[0] for key, value in case["perfvalues"].items()} == measured


@pytest.mark.exhaustive
@needs_jube
def test_jube_reports_the_line(tmp_path, data):
    done = run_jube(tmp_path, "--error", PYTHON=sys.executable, DATA=str(data), STEPS="3")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with (tmp_path / "000000/result/result.dat").open(newline="") as file:
        table = [(row["benchmark"], row["samples_per_s[samples/s]"], row["spread"]) for row in csv.DictReader(file)]
    lines = [line_of(path, "stdout") for path in tmp_path.glob("*/*_measure/work")]
    assert [(name, float(rate), float(spread)) for name, rate, spread in table] == [
        (name, float(rate), float(spread)) for name, rate, spread in sorted(lines)
    ]
    assert [name for name, *_ in table] == sorted(PACKAGES)


@pytest.mark.exhaustive
@needs_jube
@pytest.mark.parametrize("python", ["true", "false"])
def test_jube_fails_without_the_line(python, tmp_path):
    variables = {"PYTHON": python, "DATA": str(tmp_path / "data")}
    done = run_jube(tmp_path, **variables)
    assert done.returncode == 0 and re.search(r"measure \| +3 \| +0 \| +0 \| +3 \| +0 \|", done.stdout)
    assert run_jube(tmp_path, "--error", **variables).returncode == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(("required", "outcome"), [("jube", "error"), ("dali", "skipped")])
def test_a_tool_that_is_required_is_not_silently_missing(required, outcome, tmp_path):
    variables = {"MLPERF_HPC_REQUIRE": required, "PATH": str(tmp_path)}
    words = "-m pytest -p no:cacheprovider -k jube_reports --exhaustive all".split()
    done = run_process(sys.executable, *words, __file__, variables=variables, cwd=ROOT, timeout=300)
    assert f"1 {outcome}" in done.stdout and "needs JUBE: apt install jube" in done.stdout
    assert done.returncode == (1 if outcome == "error" else 0)
