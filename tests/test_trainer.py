"""Training from Python: as the command trains, with exceptions, in threads and beside other work of the process."""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import compliance
from common.config import ConfigError
from common.record import read_value
from common.training.checkpoint import CheckpointError
from common.training.trainer import BusyError
from cosmoflow import train
from cosmoflow.__main__ import main as run_cosmoflow
from tests.cosmoflow.case import CASE
from tests.problems import run_process, write_config


@pytest.fixture
def case():
    return CASE


def curve(run):
    return [(epoch.loss, epoch.quality) for epoch in run.history]


def when_trained(folder, action):
    """Call an action in a thread once the first epoch of a run is done."""

    def wait():
        while not (Path(folder) / "history.csv").exists():
            time.sleep(0.002)
        action()

    threading.Thread(target=wait, daemon=True).start()


def test_a_run_is_that_of_the_command(config, finished_run, capsys):
    options = {"output_dir": "python", "quiet": True}
    run = train.run(config, {"train.epochs": np.int64(2)}, **options)
    assert capsys.readouterr() == ("", "")
    assert curve(run) == curve(train.load(finished_run))[:2] and len(run.history) == 2
    assert (run.target.key, run.target_met, run.ending.how) == (CASE.quality, False, "target_not_met")
    assert run.log.is_file() and run.history_csv.is_file() and len(run.checkpoints) == 2
    more = train.run(config, "train.epochs=3", resume=True, **options)
    assert curve(more)[:2] == curve(run)[:2] and len(more.history) == 3
    for resume in (False, True):  # trained, and then found as it ended
        met = train.run(config, f"train.target={CASE.met}", resume=resume, output_dir="met")
        assert met.target_met and met.target.value == float(CASE.met) and len(met.history) == 1


def test_a_run_without_a_target_trains_past_it(config, data, capsys):
    """Through all epochs, also more of them; the checker says only that there is no result."""
    options = ("variant=own", "submission.division=open", "train.epochs=2", "train.target=none")
    run = train.run(config, *options, output_dir="own")
    assert (run.ending.how, run.ending.exit_status, run.target.range_text) == ("completed", 0, "none")
    assert "completed without a target" in capsys.readouterr().out
    assert (
        run_cosmoflow(["evaluate", "own", f"data.data_dir={data}"]) == 0
        and "; the run had no target" in capsys.readouterr().out
    )
    run = train.run(config, "train.target=none", "train.epochs=2", output_dir="past")
    longer = train.run(config, "train.target=none", "train.epochs=3", output_dir="past", resume=True)
    assert curve(longer)[:2] == curve(run)[:2] and len(longer.history) == 3 and longer.ending.how == "completed"
    figure = json.loads((longer.folder / "fom.json").read_text())
    assert figure["target"] is None and figure["target_met"] is False
    findings = compliance.check_logs([str(longer.log)]).findings
    said = [finding.message for finding in findings if finding.rule.startswith("QUA")]
    assert said == ["no MLPerf result: no target (train.target: none)"]
    with pytest.raises(CheckpointError, match=r'train.target is 0.1, but "none" in .*cannot be changed'):
        train.run(config, "train.target=0.1", "train.epochs=4", output_dir="past", resume=True)
    with pytest.raises(ConfigError, match=r'(?s)train.target is "none" .*closed: null or 0.124'):
        train.run(config, "train.target=none", "submission.division=closed")


def test_a_run_ends_after_the_operations_that_it_may_make(config, capsys):
    """Two epochs of five steps, the second cut after one: six steps and a half of its operations are six."""
    whole = train.run(config, "train.steps=6", output_dir="steps")
    step = 5 * read_value(whole.log, "flop_per_sample")["training"]
    capsys.readouterr()
    run = train.run(config, {"train.flop": 6.5 * step})
    assert "train.flop: at most 6 steps" in capsys.readouterr().out
    assert curve(run) == curve(whole) and len(run.history) == 2
    assert len((run.folder / "metrics.jsonl").read_text().splitlines()) == 6 + 2
    log = run.log.read_bytes()
    again = train.run(config, {"train.flop": 6.5 * step}, resume=True)
    assert again.ending.how == "target_not_met" and run.log.read_bytes() == log
    assert train.main([config, f"train.flop={6.5 * step}", "--resume"]) == 4
    assert "this run has ended" in capsys.readouterr().out and run.log.read_bytes() == log
    with pytest.raises(ValueError, match=r"train.steps is 9, but null in .*train.steps cannot be changed"):
        train.run(config, "train.steps=9", resume="run")


def test_an_evaluation_asks_for_the_folder_that_a_checkpoint_does_not_name(run_copy, data, monkeypatch, capsys):
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert (
        run_cosmoflow(["evaluate", "../run"]) == 2
        and "give all of it, data.data_dir=/…/cosmoflow" in capsys.readouterr().err
    )
    assert run_cosmoflow(["evaluate", "../run", f"data.data_dir={data}"]) == 1


def test_predictions_are_those_of_the_evaluation(finished_run, data):
    run = train.load(finished_run, {"data.data_dir": data})
    assert not run.network().training
    wrong = [(predicted - batch.y).abs().mean(dim=1) for batch, predicted in run.predictions(7)]
    assert np.concatenate(wrong).mean() == pytest.approx(run.history[-1].quality, rel=1e-5)
    assert sum(len(batch.y) for batch, _ in run.predictions(3, "train")) == 3


def test_errors_are_exceptions_and_leave_nothing_behind(config):
    for changes, error, message in (
        ({"optim.momentum": 2}, ConfigError, r"override optim.momentum=2: optim: momentum has 2"),
        ("optim.momentun=0.5", ConfigError, r"unknown key optim.momentun"),
        ("data.height=16", ConfigError, r"data.height, which is of deepcam, not of cosmoflow"),
        ("instances.count=2", ConfigError, "`run` trains one network"),
        ("data.train_samples=1000", ValueError, r"has 24 .*asks for 1,000"),
    ):
        with pytest.raises(error, match=message):
            train.run(config, changes)
    assert sorted(path.name for path in Path().iterdir()) == ["small.yaml"]
    with pytest.raises(FloatingPointError, match=r"lower schedule.base_lr"):
        train.run(config, "schedule.base_lr=1e30", output_dir="diverged")
    assert train.run(config, "train.epochs=2", output_dir="next").history[-1].epoch == 2


def test_an_interrupted_run_continues_to_the_same_curve(config, finished_run):
    before = signal.getsignal(signal.SIGINT)
    when_trained("run", lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        train.run(config)
    assert signal.getsignal(signal.SIGINT) is before
    stopped = train.load("run")
    assert stopped.ending.cause == "SIGINT" and stopped.checkpoints
    assert curve(train.run(config, resume=True)) == curve(train.load(finished_run))


def test_a_signal_that_the_program_handles_returns_the_stopped_run(config):
    got = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: got.append(number))
    try:
        when_trained("run", lambda: os.kill(os.getpid(), signal.SIGUSR1))
        run = train.run(config, "train.epochs=200")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == [signal.SIGUSR1] and run.ending.how == "stopped" and len(run.history) < 200


def test_a_thread_trains_while_the_main_thread_goes_on(config, capsys):
    """As a widget of a notebook does it: the main thread prints, and starts no second training."""
    options = {"train.epochs": 20, "train.seed": 3, "schedule.decay": {}}
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train.run, config, options, output_dir="thread", quiet=True)
        while not Path("thread/history.csv").exists() and not training.done():
            time.sleep(0.002)
        with pytest.raises(BusyError, match="another training is active in this process"):
            train.run(config, output_dir="second")
        print("the main thread prints")
    assert capsys.readouterr().out == "the main thread prints\n"
    assert curve(training.result()) == curve(train.run(config, options, output_dir="main"))
    assert not Path("second").exists()


SCRIPT = """
from cosmoflow import synthesize, train
print("started")
synthesize.main("data --grid 16 --particles 16 --train 24 --validation 7 --workers 2".split())
run = train.run("small.yaml", "train.epochs=1")
print(run.ending.text)
"""


def test_a_script_needs_no_guard(tmp_path):
    """The processes that make data do not run it again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    write_config(CASE, "data", tmp_path)
    done = run_process(sys.executable, "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("started") == 1 and done.stdout.endswith("target not met\n")


def test_the_former_flag_of_sweeps_names_the_command_for_studies(config, capsys):
    with pytest.raises(SystemExit, match="2"):
        train.main([config, "--sweep", "train.seed=1,2"])
    assert "submission.study --benchmark cosmoflow" in capsys.readouterr().err
