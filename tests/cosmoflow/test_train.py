"""Training from the command line: the same curve however it is started or interrupted, and clear errors."""

import csv
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import compliance
from common.config import load
from cosmoflow import evaluate, synthesize, train
from cosmoflow.train import BENCHMARK, Config
from tests.conformance import official

ROOT = Path(__file__).parents[2]
CONFIG = """
output_dir: run
data: {data_dir: DATA, sample_shape: [16, 16, 16, 4], augment: symmetries, roll_step: 1, workers: 2}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.0, l2: 0.001}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 1, decay: {2: 0.5}}
train: {epochs: 4, global_batch_size: 5, seed: 11}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1}
"""
# What differs between one process and two: the order in which float32 numbers are added.
SAME = {"rel": 2e-4}


@pytest.fixture(scope="session")
def universes(tmp_path_factory):
    """24 + 7 universes of 16³ voxels: no number of ranks or batch size here divides them."""
    folder = tmp_path_factory.mktemp("data") / "universes"
    counts = ["--grid", "16", "--particles", "16", "--train", "24", "--validation", "7"]
    assert synthesize.main([str(folder), *counts, "--workers", "1"]) == 0
    return folder


@pytest.fixture
def config(universes, tmp_path, monkeypatch):
    """A configuration file in an empty working directory; `copy` in its name has data of its own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG.replace("DATA", str(universes)))
    return str(path)


@pytest.fixture(autouse=True)
def one_thread():
    """As the processes that `start` starts: another number of threads adds in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(config, *arguments):
    return train.main([config, *arguments])


def start(config, *arguments, launcher=(sys.executable, "-m", "cosmoflow.train"), **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*launcher, config, *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def curve(folder):
    with (Path(folder) / "history.csv").open() as file:
        return [(float(row["loss"]), float(row["quality"])) for row in csv.DictReader(file)]


def flat(pairs):
    return list(itertools.chain.from_iterable(pairs))


def test_a_run_writes_a_log_that_the_checker_understands(config, capsys):
    assert run(config, "train.target=0.9", "output_dir=met") == 0
    assert "reached after 1 epochs" in capsys.readouterr().out
    report = compliance.check(["met/result_0.txt"])
    # 24 universes are not the dataset, and 0.9 is not the target: nothing else is wrong.
    assert {finding.rule for finding in report.findings if finding.severity == "error"} == {"QUA01"}
    with official.official_tool():
        assert set(official.check("met/result_0.txt", "3.0").keys) == {"eval_error"}


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_two_ranks_have_the_curve_of_one(config, launcher):
    """Also when they are stopped and resumed on the way."""
    here = Path(sys.executable).parent
    if launcher == "mpirun":
        pytest.importorskip("mpi4py")
        command = [str(here / "mpirun"), "-n", "2", sys.executable, "-m", "cosmoflow.train"]
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "cosmoflow.train"]
    if not Path(command[0]).exists():
        pytest.skip("no mpirun beside this Python")
    assert run(config, "output_dir=one") == 1
    for arguments in (["train.epochs=2"], ["train.epochs=4", "--resume"]):
        started = start(config, "output_dir=two", *arguments, launcher=command)
        out, err = started.communicate(timeout=120)
        assert started.returncode != 0 and "NOT reached after" in out, err
    assert flat(curve("two")) == pytest.approx(flat(curve("one")), **SAME)


def test_a_killed_run_goes_on_with_the_same_curve(config):
    assert run(config, "output_dir=whole") == 1
    started = start(config, "output_dir=killed", "train.epochs=4")
    deadline = time.monotonic() + 60
    while not list(Path("killed/checkpoints").glob("epoch-0002*.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    interrupted = Path("killed/result_0.txt").read_text()
    assert run(config, "output_dir=killed", "--resume") == 1
    assert curve("killed") == curve("whole")
    text = Path("killed/result_0.txt").read_text()
    assert text.count('"key": "run_start"') == text.count('"key": "run_stop"') == 1
    assert text.count('"key": "epoch_start"') == 4
    assert Path("killed/result_0.txt.interrupted-1").read_text() == interrupted


def test_a_checkpoint_is_evaluated(config, universes, capsys):
    run(config, "train.epochs=2")
    checkpoint = "run/checkpoints/epoch-0002-step-0000000.pt"
    assert evaluate.main([checkpoint, f"data.data_dir={universes}"]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"eval_error {curve('run')[-1][1]:.6g} on 7 validation samples, after 2 epochs; target ")
    assert evaluate.main([checkpoint]) == 1
    assert "universes/train is no folder" in capsys.readouterr().err
    assert evaluate.main(["nowhere.pt"]) == 1 and "no such checkpoint" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_settings(config, capsys):
    run(config, "train.epochs=1")
    assert run(config, "train.epochs=2", "schedule.base_lr=0.5", "--resume") == 1
    assert "schedule.base_lr was 0.01 when the checkpoint was written and is 0.5 now" in capsys.readouterr().err
    assert run(config, "train.epochs=2", "data.workers=1", "--resume") == 1 and len(curve("run")) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(config, number):
    started = start(config, "output_dir=stopped", "train.epochs=100000")
    while not Path("stopped/history.csv").exists():
        assert started.poll() is None, started.communicate()
        time.sleep(0.02)
    started.send_signal(number)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 3 and f"stopped by {number.name}" in out and "--resume" in out
    assert '"status": "aborted"' in Path("stopped/result_0.txt").read_text()


def keys(folder):
    return [line.split('"key": "')[1].split('"')[0] for line in (Path(folder) / "result_0.txt").open()]


@pytest.mark.parametrize("round_", ["2.0", "3.0"])
def test_staged_data_give_the_same_curve(config, round_):
    """The clock starts before staging until round 2.0; what was staged is gone after the run."""
    run(config, "output_dir=plain", "train.epochs=2")
    staged = ["staging.mode=replicate", "staging.stage_dir=node", "staging.inflate=true", "data.verify_crc=true"]
    run(config, "output_dir=staged", "train.epochs=2", f"submission.round='{round_}'", *staged)
    assert curve("staged") == curve("plain")
    found = keys("staged")
    assert (found.index("run_start") < found.index("staging_start")) == (round_ == "2.0")
    assert not list(Path("node").rglob("*.tfrecord"))


def test_nothing_is_overwritten(config, capsys):
    assert run(config, "train.epochs=1") == 1
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert run(config, "train.epochs=1") == 1
    assert "a log is there already; choose another output_dir" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before


def test_a_seed_is_drawn_and_logged_once(config):
    seeds = set()
    for number in (1, 2):
        run(config, f"output_dir=run-{number}", "train.seed=null", "train.epochs=1")
        lines = [
            line for line in Path(f"run-{number}/result_0.txt").read_text().splitlines() if '"key": "seed"' in line
        ]
        assert len(lines) == 1
        seeds.add(lines[0].split('"value": ')[1].split(",")[0])
    assert len(seeds) == 2


# -- what can be wrong ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(config, universes, tmp_path):
    """The configuration with a copy of the data, to be damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(universes, copy)
    Path(config).write_text(CONFIG.replace("DATA", str(copy)))
    return config, copy


def cut(folder):
    path = sorted((folder / "train").iterdir())[3]
    path.write_bytes(path.read_bytes()[:1000])
    return path.name


def missing(folder):
    sorted((folder / "validation").iterdir())[2].unlink()
    return "validation"


def not_a_folder(folder):
    shutil.rmtree(folder / "validation")
    return "validation is no folder"


@pytest.mark.parametrize("damage", [cut, missing, not_a_folder])
def test_damaged_data_have_a_clear_error(damaged, capsys, damage):
    config, folder = damaged
    name = damage(folder)
    assert run(config, "data.eval_samples=7", "data.train_samples=24") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and name in error and "Traceback" not in error
    log = Path("run/result_0.txt")
    assert not log.exists() or '"status": "aborted"' in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["optim.momntum=0.5"], 2, "did you mean optim.momentum"),
        (["data.train_samples=25"], 1, "holds 24 samples, and the configuration asks for 25"),
        (["data.sample_shape=[32, 32, 32, 4]"], 1, "data.sample_shape is 32"),
        (["submission.org=''"], 1, "submission.org is empty"),
        (["--resume"], 1, "no checkpoint to resume from"),
        (["model.conv_layers=5"], 1, "too small for model.conv_layers"),
    ],
)
def test_wrong_values_have_a_clear_error(config, capsys, arguments, code, message):
    assert run(config, *arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error
    # The mistake mended, the same output_dir will do.
    assert run(config, "train.epochs=1") == 1 and curve("run")


def test_a_full_disk_leaves_the_earlier_checkpoint(config, capsys, monkeypatch):
    save, calls = torch.save, []

    def second_time_full(content, file):
        calls.append(file)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        save(content, file)

    monkeypatch.setattr(torch, "save", second_time_full)
    assert run(config) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in Path("run/checkpoints").iterdir()] == ["epoch-0001-step-0000000.pt"]
    assert '"status": "aborted"' in Path("run/result_0.txt").read_text()
    assert run(config, "--resume") == 1 and len(curve("run")) == 4


def test_the_printed_configuration_is_the_same_configuration(config, capsys, tmp_path):
    assert run(config, "train.epochs=7", "--print-config") == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert load(Config, tmp_path / "printed.yaml") == load(BENCHMARK.config, Path(config), ["train.epochs=7"])


@pytest.mark.slow
def test_the_closed_configuration_fails_only_what_it_must(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = ["--train", "2", "--validation", "1"]
    assert synthesize.main(["data", "--preset", "full-size", *counts]) == 0
    few = ["data.data_dir=data", "data.train_samples=2", "data.eval_samples=1", "train.epochs=1"]
    assert run(str(ROOT / "cosmoflow" / "config.yaml"), *few, "output_dir=run") == 1
    report = compliance.check(["run/result_0.txt"])
    errors = {(found.rule, found.key) for found in report.findings if found.severity == "error"}
    assert errors == {
        ("QUA01", "eval_error"),
        ("QUA03", "run_stop"),
        ("SET05", "train_samples"),
        ("SET05", "eval_samples"),
    }
