"""The command that runs a round: from configurations to a checked package, and its errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cosmoflow.synthesize
from common.benchmarks import PACKAGES
from common.errors import UsageError
from compliance.benchmarks import REFERENCES
from compliance.model.judging import PASSING
from compliance.samples.log import SampleLog
from submission.round.__main__ import main
from submission.round.make import RoundInputs, RoundPackage
from submission.round.plan import Series, check_series, plan_runs, read_logs, read_plan
from submission.runs.processes import Setup

ROOT = Path(__file__).parents[3]
SUBMISSION = {
    "org": "Example University",
    "division": "open",
    "status": "research",
    "platform": "two_cores",
    "round": "3.0",
}
BATCHES = {"cosmoflow": 16, "deepcam": 8}
CONFIG = """
variant: mini2
output_dir: run
data: {data_dir: DATA, sample_shape: [16, 16, 16, 4], workers: 1}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.0}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 1}
train: {epochs: 2, global_batch_size: 8, target: 0.9}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1, status: research}
"""


def setup(benchmark, **changed):
    return Setup(benchmark, f"{benchmark}.yaml", (), "", "mini", Path("data"), SUBMISSION | changed)


def finished(folder, counts, edit=lambda log, number: None):
    """Write the logs of valid mini runs into a round; return them as read."""
    runs = plan_runs(folder, counts)
    for run in runs:
        batch = {"global_batch_size": BATCHES[run.benchmark]}
        number = int(run.folder.name.removeprefix("run_"))
        log = SampleLog(run.benchmark, "3.0", "open", variant="mini", run=number, epochs=12, settings=batch)
        log.set("seed", run.seed).set("submission_status", "research").set("submission_platform", "two_cores")
        log.set("number_of_nodes", 1).set("accelerators_per_node", 0)
        edit(log, number)
        run.write_record()
        (run.folder / "result_0.txt").write_bytes(log.bytes())
    return read_logs(runs)


def test_few_runs_make_an_incomplete_package(tmp_path, capsys):
    runs = finished(tmp_path, {"cosmoflow": 2, "deepcam": 1})
    verdict = RoundPackage(tmp_path, [setup("cosmoflow"), setup("deepcam")], RoundInputs()).write_package(runs)
    out = capsys.readouterr().out
    assert verdict == "INCOMPLETE", out
    root = tmp_path / "package/Example_University"
    assert "INCOMPLETE: Example_University/two_cores/strong/cosmoflow has 2 of 10 runs\n" in out
    assert "INCOMPLETE: Example_University/two_cores/strong/deepcam has 1 of 5 runs\n" in out
    assert out.endswith("INCOMPLETE: 2 of 10 runs of cosmoflow, 1 of 5 runs of deepcam\n")
    assert "FAIL" not in out and "RCP test failed" not in out
    assert json.loads((root / "provenance.json").read_text())["complete"] is False
    assert json.loads((root / "systems/two_cores.json").read_text())["submitter"] == "Example University"
    assert "INCOMPLETE" in (tmp_path / "report.html").read_text().upper()


def test_a_completed_system_description_is_kept(tmp_path, capsys):
    runs = finished(tmp_path, {"cosmoflow": 10})
    assert RoundPackage(tmp_path, [setup("cosmoflow")], RoundInputs()).write_package(runs) in PASSING
    assert "INCOMPLETE" not in capsys.readouterr().out
    path = tmp_path / "package/Example_University/systems/two_cores.json"
    fields = json.loads(path.read_text()) | {"cooling": "air"}
    path.write_text(json.dumps(fields))
    assert RoundPackage(tmp_path, [setup("cosmoflow")], RoundInputs()).write_package(runs) in PASSING
    assert json.loads(path.read_text()) == fields


def test_more_than_missing_runs_is_a_failure(tmp_path, capsys):
    """Two of three runs missed the target: they are in the package, and it fails."""

    def miss(log, number):
        if number:
            log.last_evaluation(0.5)

    runs = finished(tmp_path, {"cosmoflow": 3}, miss)
    assert RoundPackage(tmp_path, [setup("cosmoflow")], RoundInputs()).write_package(runs) == "FAIL"
    assert len(list((tmp_path / "package").rglob("result_*.txt"))) == 3
    assert "RUN02" in capsys.readouterr().out


def test_a_package_has_one_submitter():
    with pytest.raises(ValueError, match=r"submission\.org is 'Example University' in .* and 'X' in oc20\.yaml"):
        RoundPackage(Path(), [setup("cosmoflow"), setup("oc20", org="X")], RoundInputs())


def test_the_plan_of_a_round(tmp_path):
    plan = [(series.benchmark, series.runs) for series in read_plan("mini")]
    assert plan == [(name, REFERENCES[name].runs) for name in PACKAGES]
    (tmp_path / "round.yaml").write_text("oc20: {config: a.yaml, runs: 3, overrides: [train.epochs=1]}")
    assert read_plan(str(tmp_path / "round.yaml")) == [Series("oc20", str(tmp_path / "a.yaml"), 3, ("train.epochs=1",))]
    (tmp_path / "round.yaml").write_text("oc20: {config: gbs256}")
    assert read_plan(str(tmp_path / "round.yaml")) == [Series("oc20", "gbs256", 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosmoflwo: {config: a.yaml}", "unknown key cosmoflwo; did you mean"),
        ("cosmoflow: {config: a.yaml, runs: 0}", "runs is 0; expected at least 1"),
        ("cosmoflow: {runs: 2}", "config is missing"),
        ("oc20: {config: a.yaml}", "has no cosmoflow; it has oc20"),
    ],
)
def test_an_invalid_round_file_is_wrong_use(empty_folder, call, text, message):
    Path("round.yaml").write_text(text)
    said = call(main, "--config", "round.yaml", "--benchmarks", "cosmoflow", "-o", "out", status=2).err
    assert message in said and not Path("out").exists()


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("mini", ["--set", "optim.momntum=1"], "cosmoflow: override 'optim.momntum=1': unknown key"),
        ("closed", ["--set", "model.conv_size=4"], "cosmoflow: submission.division is closed"),
        ("closed", ["--set", "model.conv_size=4"], "is 4 (override 'model.conv_size=4'); closed: 32"),
        ("mini", ["--set", "variant=own", "--set", "train.target=1"], "cosmoflow: variant is own; a round is of"),
        ("mini", ["--set", "train.target=none"], "train.target is none, but the runs of a round"),
        ("mini", ["--runs", "11"], "cosmoflow: 11 runs, but a time-to-train result has 10; ask for fewer"),
        ("mini", ["--system", "nowhere.json"], "no such file"),
    ],
)
def test_a_wrong_value_is_reported_before_any_run(empty_folder, call, config, options, message):
    said = call(main, "--config", config, "--benchmarks", "cosmoflow", *options, "-o", "out", status=2).err
    assert message in said and not Path("out").exists()


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ("instances.count=2", [], "cosmoflow: instances.count is 2, but each run of this round trains one network"),
        ("instances.first=0", [], "cosmoflow: instances.first is 0, but each run"),
        ("'instances={count: 2}'", ["--emit", "plain"], "instances.count is 2"),
        ("instances.first=1", ["--throughput", "2"], "instances.first is 1; expected none"),
        ("instances.first=1", ["--throughput", "2", "--nodes", "2", "--emit", "slurm"], "are 0 to M-1"),
    ],
)
def test_instances_are_a_throughput_result(empty_folder, call, settings, arguments, message):
    Path("round.yaml").write_text(f"cosmoflow: {{config: mini, overrides: [{settings}]}}")
    said = call(main, "--config", "round.yaml", "-o", "out", *arguments, status=2).err
    assert message in said and "--throughput M" in said and not Path("out").exists()


def test_instances_of_an_own_configuration_are_a_throughput_result(tmp_path):
    (tmp_path / "base.yaml").write_text("instances: {count: 3}\n")
    (tmp_path / "own.yaml").write_text("base: base.yaml\n")
    series = Series("cosmoflow", str(tmp_path / "own.yaml"), 1)
    with pytest.raises(UsageError, match=r"instances\.count is 3"):
        check_series(series, throughput=False)
    check_series(series, throughput=True)
    check_series(series.set("instances.count=1", "instances.first=null"), throughput=False)


def test_incomplete_code_is_reported_before_any_run(empty_folder, call):
    for package in ("common", "cosmoflow"):
        Path("code", package).mkdir(parents=True)
        Path("code", package, "__init__.py").touch()
    Path("code/cosmoflow/train.py").touch()
    words = ["--config", "mini", "--benchmarks", "cosmoflow", "-o", "out", "--sources"]
    assert "lacks LICENSE" in call(main, *words, "code", status=1).err and not Path("out").exists()
    call(main, *words, "nowhere", status=2)
    assert "--config is missing: mini, closed" in call(main, "-o", "out", status=2).err


def test_two_runs_of_a_tiny_problem(tmp_path):
    """The real training; it has too few data and too easy a target, and the check says so."""
    data = tmp_path / "data/tiny"
    made = "--grid 16 --particles 16 --train 24 --validation 7 --workers 1"
    assert cosmoflow.synthesize.main([str(data), *made.split()]) == 0
    (tmp_path / "tiny.yaml").write_text(CONFIG.replace("DATA", "elsewhere/tiny"))
    (tmp_path / "round.yaml").write_text("cosmoflow: {config: tiny.yaml}")
    command = [sys.executable, "-m", "submission.round", "--config", "round.yaml", "-o", "out", "--data", "data"]

    def call(*arguments):
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    done = call("--runs", "2", "--threads", "1")
    assert done.returncode == 1, done.stderr
    assert "[2/2] cosmoflow/run_1 met the target after 1 evaluations" in done.stdout
    assert "has 2 of 10 runs" in done.stdout and (tmp_path / "out/report.html").exists()
    logs = {path: path.read_bytes() for path in (tmp_path / "out/package").rglob("result_*.txt")}
    assert len(logs) == 2 and len({re.search(rb'"key": "seed", "value": (\d+)', log)[1] for log in logs.values()}) == 2
    again = call("--runs", "2", "--set", "train.epochs=3")
    assert again.returncode == 1 and "all runs of a round use the same configuration" in again.stderr
    again = call("--runs", "2")
    assert again.returncode == 1 and "/run_" not in again.stdout
    assert {path: path.read_bytes() for path in (tmp_path / "out/package").rglob("result_*.txt")} == logs


def test_a_stopped_round_names_the_command_that_continues_it(tmp_path, monkeypatch, call):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("submission.round.__main__.make_round", stop)
    monkeypatch.setattr("submission.round.__main__.interrupt_by_signals", lambda: None)
    out = tmp_path / "my round"
    said = call(main, "--config", "mini", "--benchmarks", "cosmoflow", "-o", out, status=130).err
    assert f"round --config mini --benchmarks cosmoflow -o '{out}'` continues" in said
