"""The folder of a run in the hands of schedulers: started, killed, resumed, given twice, out of space, signalled."""

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from common.ending import Ending, read_ending
from common.training import folder
from common.training.step import Step
from tests.cosmoflow.case import CASE
from tests.problems import ROOT, STAGED, curve, run_process, torchrun
from tests.test_metrics import lines


@pytest.fixture
def case():
    return CASE


def wait_for(pattern, process):
    while not list(Path().glob(pattern)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def left():
    return sorted(str(path) for pattern in ("**/*.tmp", "**/lease*", "**/*.part") for path in Path().glob(pattern))


def test_auto_resume_begins_goes_on_and_says_how_the_run_ended(start, run, finished_run, capsys):
    first = start("output_dir=run", "--auto-resume")
    wait_for("run/checkpoints/epoch-0001*", first)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    interrupted = Path("run/result_0.txt").read_bytes()
    assert run("output_dir=run", "--auto-resume") == 4
    assert curve("run") == curve(finished_run) and lines("run") == lines(finished_run) and not left()
    before = Path("run/result_0.txt").read_bytes()
    assert before.count(b'"key": "run_start"') == before.count(b'"key": "run_stop"') == 1
    assert before.count(b'"key": "epoch_start"') == 4
    assert Path("run/result_0.txt.interrupted-1").read_bytes() == interrupted
    capsys.readouterr()
    assert run("output_dir=run", "--auto-resume") == 4
    assert capsys.readouterr().out == "run: this run has ended: target not met\n"
    assert Path("run/result_0.txt").read_bytes() == before
    record = Path("run/ended.json").read_bytes()
    assert run("output_dir=run", "--auto-resume", "train.epochs=5", "model.fc1=32") == 1
    assert Path("run/ended.json").read_bytes() == record, "a call that changed nothing left another record"
    assert run("output_dir=run", "--auto-resume", "train.epochs=5") == 4 and len(curve("run")) == 5


@pytest.mark.parametrize("damage", ["nothing", "all"])
def test_auto_resume_starts_over_where_no_checkpoint_is_whole(run, damage, capsys):
    """The run was killed before its first checkpoint, or the disk has damaged all of them."""
    assert run("output_dir=run", f"checkpoint.every_epochs={int(damage == 'all')}", "train.epochs=1") == 4
    for path in Path("run/checkpoints").glob("*"):
        path.write_bytes(b"")
    Path("run/ended.json").unlink()
    Path("run/result_0.txt").write_text(Path("run/result_0.txt").read_text().rpartition(":::MLLOG")[0])
    assert run("output_dir=run", "--auto-resume") == 4 and len(curve("run")) == 4
    said = capsys.readouterr()
    assert "no usable checkpoint; starting over, with result_0.txt" in said.out
    kept = Path("run/checkpoints.interrupted-1")
    assert kept.exists() == ("result_0.txt and checkpoints of the first start set aside" in said.out)
    assert kept.exists() == (damage == "all") and all(path.stat().st_size for path in Path("run/checkpoints").glob("*"))
    assert ("half-written or damaged" in said.err) == (damage == "all")
    assert len(list(Path("run").glob("result_0.txt.interrupted-*"))) == 1


@pytest.mark.parametrize("flag", ["--auto-resume", "--resume"])
def test_a_run_goes_on_from_the_newest_checkpoint_whose_log_is_there(run, finished_run, flag, capsys):
    """A disk has lost the end of the log, which the two newest of three checkpoints state."""
    arguments = ["output_dir=run", "checkpoint.keep=9"]
    assert run(*arguments) == 4
    Path("run/ended.json").unlink()
    log, checkpoints = Path("run/result_0.txt"), sorted(Path("run/checkpoints").iterdir())
    kept = log.read_bytes()[: torch.load(checkpoints[2])["state"]["log_bytes"] - 1]
    log.write_bytes(kept)
    capsys.readouterr()
    assert run(*arguments, flag) == 4 and curve("run") == curve(finished_run)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert "using epoch-0002" in said and "only" in said and "result_0.txt" in said
    assert Path("run/result_0.txt.interrupted-1").read_bytes() == kept and not left()


def test_a_run_whose_log_is_gone_or_of_another_says_what_to_do(run, run_copy, capsys):
    Path("run/ended.json").unlink()
    log = Path("run/result_0.txt").rename("log")

    def files():
        paths = [path for path in Path("run").rglob("*") if path.is_file() and path.name != "ended.json"]
        return {path: path.read_bytes() for path in paths}

    for content in (None, log.read_bytes()[:2000], log.read_bytes().replace(b"Example", b"example")):
        if content is not None:
            Path("run/result_0.txt").write_bytes(content)
        before = files()
        capsys.readouterr()
        assert run("output_dir=run", "--auto-resume") == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert "put the log of the interrupted run there" in said
        assert files() == before, "a file was lost"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
def test_a_second_training_leaves_the_folder_to_its_owner(start, run, capsys, number):
    """The owner saves and stops at a signal."""
    first = start("output_dir=run", "train.epochs=100000")
    wait_for("run/checkpoints/epoch-0002*", first)
    for flag in ("--resume", "--auto-resume", "train.seed=5"):
        assert run("output_dir=run", flag) == 3
        assert capsys.readouterr().err.startswith(f"run is in use by process {first.pid} on ")
    assert not list(Path("run").glob("*.interrupted*")) and first.poll() is None
    first.send_signal(number)
    status, out, _ = ended(first)
    assert status == 3 and f"stopped by {number.name}" in out and "--resume" in out
    stop = f'"status": "aborted", "ended": "stopped", "cause": "{number.name}"'
    assert stop in Path("run/result_0.txt").read_text()
    assert read_ending(Path("run")).how == "stopped" and not left()


def test_a_signal_while_staging_stops_in_order(start, run):
    staged = [*STAGED, "staging.workers=1"]
    process = start("output_dir=run", *staged, "train.epochs=100000")
    wait_for("node/staging.jsonl", process)
    process.send_signal(signal.SIGUSR1)
    assert ended(process)[0] == 3 and read_ending(Path("run")).how == "stopped"
    assert not [path for path in Path("node").rglob("*") if path.is_file()] and not left()
    assert run("output_dir=run", *staged, "--auto-resume") == 4 and len(curve("run")) == 4


@pytest.mark.parametrize("staging_round", ["2.0", "3.0"])
def test_a_signal_when_all_is_staged_leaves_no_files(run, monkeypatch, staging_round):
    """The data are staged, but the training does not know it yet."""
    monkeypatch.setattr(CASE.train.CosmoFlow, "read_from", lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
    assert run("output_dir=run", *STAGED, f"submission.round='{staging_round}'") == 3
    assert read_ending(Path("run")).how == "stopped"
    assert not [path for path in Path("node").rglob("*") if path.is_file()] and not left()


@pytest.mark.parametrize("fault", ["lease-1.json", "*.tfrecord", "lock", "write_ending", "close"])
def test_an_error_after_the_target_was_met_is_a_warning(run, monkeypatch, capsys, fault):
    """One in removing what is of no more use, in writing the record, or in closing what has trained."""

    def fails(*_):
        raise OSError(5, "Input/output error", "x")

    remove = Path.unlink
    if fault == "write_ending":
        monkeypatch.setattr(folder, fault, fails)
    elif fault == "close":
        monkeypatch.setattr(Step, fault, fails)
    else:
        monkeypatch.setattr(Path, "unlink", lambda path, **how: fails() if path.match(fault) else remove(path, **how))
    assert run("output_dir=run", *STAGED, f"train.target={CASE.met}") == 0
    said = capsys.readouterr()
    assert said.err.count("Input/output error") == said.err.count("warning") == 1
    assert "reached after 1 epoch" in said.out and read_ending(Path("run")) == Ending("target_met", epochs=1)
    kept = {path.suffix for path in Path("node").rglob("*") if path.is_file()}
    assert kept == {"*.tfrecord": {".tfrecord", ".jsonl"}, "lock": {""}}.get(fault, set())


def test_a_run_that_died_before_its_record_goes_on_with_more_epochs(run):
    """Its log alone says how it ended, and after how many epochs."""
    assert run("output_dir=run", "train.epochs=1") == 4
    Path("run/ended.json").unlink()
    assert run("output_dir=run", "train.epochs=2", "--auto-resume") == 4 and len(curve("run")) == 2


CONSOLES = ("> /dev/full 2>&-", "| head -1", ">&-", "2>&1 | head -0")


@pytest.mark.parametrize(
    "console",
    [
        console if console == CONSOLES[0] else pytest.param(console, marks=pytest.mark.exhaustive)
        for console in CONSOLES
    ],
)
def test_a_run_ends_without_its_console(start, console):
    """Its reader has ended, its disk is full, or there is none; what is left of it has no character beyond ASCII."""
    command = f'set -o pipefail; PYTHONUTF8=0 PYTHONIOENCODING=ascii "$@" {console}'
    status, _, err = ended(
        start("output_dir=run", f"train.target={CASE.met}", launcher=("bash", "-c", command, "bash", sys.executable))
    )
    assert status == 0 and "Traceback" not in err and read_ending(Path("run")).how == "target_met"
    assert 1 <= len(Path("run/console.txt").read_text().splitlines()) <= 2 and not left()


@pytest.mark.exhaustive
def test_ranks_without_a_console_still_tell_why_they_fail(start, data, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(data, damaged)
    next((damaged / "train").iterdir()).write_bytes(b"damaged")
    launcher = ("bash", "-c", '"$@" > /dev/full 2>&-', "bash", *torchrun(2))
    status, *_ = ended(start("output_dir=run", f"data.data_dir={damaged}", launcher=launcher))
    assert status == 1 and "damaged/train" in read_ending(Path("run")).cause and not left()


@pytest.mark.exhaustive
def test_two_ranks_stop_as_one(start):
    """Only one rank gets the signal, while both are still starting; both end with the status `to be continued`."""
    process = start("output_dir=run", "train.epochs=100000", launcher=torchrun(2))
    wait_for("run/lease-1.json", process)
    os.kill(json.loads(Path("run/lease-1.json").read_text())["pid"], signal.SIGUSR1)
    _, out, err = ended(process)
    assert read_ending(Path("run")) == Ending("stopped", "SIGUSR1", read_ending(Path("run")).epochs)
    assert (out + err).count("stopped by SIGUSR1") == 1 and "exitcode  : 3" in err


@pytest.mark.exhaustive
def test_a_signal_to_a_rank_that_evaluates_stops_the_run(start):
    process = start("output_dir=run", "train.epochs=100000", "train.eval_ranks=1", launcher=torchrun(2))
    wait_for("run/checkpoints/epoch-0002*", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    owner = json.loads(Path("run/lease-1.json").read_text())["pid"]
    (evaluating,) = set(map(int, children)) - {owner}
    os.kill(evaluating, signal.SIGTERM)
    ended(process)
    ending = read_ending(Path("run"))
    assert (ending.how, ending.cause) == ("stopped", "SIGTERM") and ending.epochs >= 2


@pytest.mark.exhaustive
def test_an_error_on_several_ranks_is_one_message(start):
    _, _, err = ended(start("output_dir=run", "data.train_samples=25", launcher=torchrun(2)))
    assert err.count("the configuration asks for 25") == 1 and "Traceback" not in err.partition("torch/distributed")[0]
    assert not Path("run").exists()


@pytest.mark.parametrize(("rate", "steps"), [("1e30", "2"), ("1e6", "[3-6]")])
def test_what_diverged_is_a_result_of_the_training(run, rate, steps, capsys):
    assert run("output_dir=run", f"schedule.base_lr={rate}") == 1
    error = capsys.readouterr().err
    assert re.match(f"error: the loss is (nan|inf) at epoch 1, step {steps}", error), error
    grown = re.search(r"gradients grew most: \S+ from (\S+) to (\S+),", error)
    assert bool(grown) == (steps != "2") and (not grown or 1e3 * float(grown[1]) < float(grown[2])), error
    ending = read_ending(Path("run"))
    assert ending.how == "diverged" and ending.final
    assert '"ended": "diverged"' in Path("run/result_0.txt").read_text()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("script", ["kills.py --kills 20", "kill_rounds.py --kills 2"])
def test_what_is_killed_at_random_moments_goes_on(script):
    done = run_process(sys.executable, *f"bench/{script}".split(), cwd=ROOT)
    wrong = [line for line in done.stdout.splitlines() if line.startswith(("WRONG", "seed"))]
    assert done.returncode == 0 and " 0 faults" in done.stdout, "\n".join([*wrong, done.stdout[-3000:], done.stderr])
