"""What is said of runs before and while they are made: how far they are, how long it takes and why, and the disk."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.ending import Ending, write_ending
from compliance.samples.log import SampleLog
from submission.runs.plan import RECORD, PlanError, PlannedRun
from submission.runs.processes import resolve_setup
from submission.runs.progress import Estimator, RunProgress, announce_runs, find_usual_minutes, read_progress, shutil


@pytest.fixture
def plan(tmp_path):
    """Return a function that returns a run of a benchmark in a folder, which has its record."""

    def make(benchmark, number, took_s=0.0):
        folder = tmp_path / benchmark / f"run_{number}"
        run = PlannedRun(benchmark=benchmark, kind="training", config="mini", folder=folder)
        run.write_record()
        if took_s:
            write_ending(folder, Ending("target_met"))
            end = run.result_file.stat().st_mtime
            os.utime(folder / RECORD, (end - took_s, end - took_s))
        return run

    return make


def test_an_active_run_says_its_epoch_and_quality_beside_the_target(plan):
    run = plan("cosmoflow", 0)
    assert "no output so far" in read_progress(run).line
    log = run.folder / "result_0.txt"
    log.write_bytes(SampleLog("cosmoflow", variant="mini", epochs=3).last_evaluation(0.5).drop("run_stop").bytes())
    (run.folder / "metrics.jsonl").write_text('{"kind": "step", "epoch": 3, "step": 41}\n')
    progress = read_progress(run)
    assert progress.epochs == 3 and progress.epoch_s > 0
    assert progress.line.startswith("cosmoflow/run_0: epoch 3, step 41, ") and " 0.5 (target: 0 < " in progress.line
    log.write_bytes(log.read_bytes()[:-40])  # while a line is being written
    assert read_progress(run).epochs in (2, 3)


def test_an_estimate_names_its_basis_and_takes_none_of_other_benchmarks(plan):
    first, second = plan("cosmoflow", 0, took_s=100), plan("cosmoflow", 1)
    other, third = plan("deepcam", 0), plan("oc20", 0)
    estimator = Estimator(usual_minutes={"oc20": 7})
    assert estimator.estimate_time([other], [first]).text == "no basis yet"
    estimate = estimator.estimate_time([second, other, third], [first])
    assert estimate.seconds == pytest.approx(100 + 7 * 60, abs=1) and estimate.unknown == ("deepcam",)
    for words in ("mean of 1 finished run of cosmoflow", "oc20: usually 7 minutes", "without deepcam (no basis yet)"):
        assert words in estimate.text
    waiting = plan("deepcam", 1)
    estimate = estimator.estimate_time(
        [other, waiting], [first], [RunProgress(other, "", epochs=3, epoch_s=10, most=10)]
    )
    assert (estimate.seconds, estimate.text) == (170, "at most 2:50 (3 epochs of this run)")


def test_runs_are_announced_and_a_full_disk_refused(plan, empty_folder, monkeypatch, capsys):
    runs = [plan("cosmoflow", 0, took_s=100), plan("cosmoflow", 1), plan("deepcam", 0)]
    setups = [resolve_setup(name, "mini", ()) for name in ("cosmoflow", "deepcam")]
    usual = find_usual_minutes(setups)
    assert set(usual) == {"cosmoflow", "deepcam"}
    assert not find_usual_minutes([replace(setups[0], overrides=("train.epochs=99",))]), "this is another run"
    announce_runs(runs, setups, 1, usual)
    out = capsys.readouterr().out
    for words in (
        "1 of 3 finished",
        "1 of cosmoflow, 1 of deepcam",
        "740 MB for data",
        " free",
        "usually 5 minutes",
    ):
        assert words in out
    announce_runs(runs[:1], setups, 1, usual)
    assert not capsys.readouterr().out, "nothing is to be made"
    full = [resolve_setup("cosmoflow", "config", ("data.data_dir=nowhere", "staging.stage_dir=null"))]
    announce_runs(runs[1:2], full, 1, find_usual_minutes(full))
    assert "without runs of cosmoflow (no basis yet)" in (out := capsys.readouterr().out) and "time: unknown" in out
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1e6))
    with pytest.raises(PlanError, match=r"MB are needed .* but 1 MB are free; nothing was started"):
        announce_runs(runs, setups, 1, usual)
    assert not Path("data").exists()
