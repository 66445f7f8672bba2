"""What a training tells of itself: each step and epoch, once, whoever listens, and however often it was interrupted."""

import errno
import json
import re
import struct
import sys
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from common.files import follow_no_link
from common.training import tracking, weights
from common.training.callbacks import Epoch, RunStart, load_callback
from common.training.checkpoint import START, load
from common.training.tracking import History, read_history
from cosmoflow.reference import MINIS
from tests.cosmoflow.case import CASE
from tests.problems import ROOT, SAME, curve, run_process, torchrun

TIMES = ("samples_per_s", "wait_s", "train_s", "eval_s")
MINE = """
import os
import re
import signal
from pathlib import Path
from common.training.callbacks import Callback


class Told(Callback):
    def _note(self, *words):
        with Path(f"told-{os.environ.get('RANK', 0)}.txt").open("a") as file:
            print(*words, file=file)

    def begin(self, run):
        self._note("begin", run.benchmark, run.folder, run.resumed, run.global_step, len(run.history), run.seed)

    def step(self, step):
        self._note("step", step.global_step)

    def epoch(self, epoch):
        self._note("epoch", epoch.epoch)

    def saving(self):
        self._note("saving")

    def end(self, ending):
        self._note("end", ending.how)


class Asks(Callback):
    def step(self, step):
        if step.global_step == 8 and not Path("done").exists():
            Path("done").touch()
            os.kill(os.getpid(), signal.SIGUSR1)


class Fails(Callback):
    def step(self, step):
        raise KeyError("no such key")
"""


@pytest.fixture
def case():
    return CASE


@pytest.fixture
def run(config, tmp_path, monkeypatch):
    """Train in this process, in a working directory with a module `mine`; return the exit status."""
    Path("mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return lambda *arguments: CASE.train.main([config, *arguments])


def lines(folder, *, without=TIMES):
    """Return the records of metrics.jsonl, without what depends on the clock."""
    records = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in one.items() if name not in without} for one in records]


def test_each_step_and_epoch_has_a_line(finished_run):
    found = lines(finished_run, without=())
    steps = [one for one in found if one["kind"] == "step"]
    assert [(one["epoch"], one["step"], one["global_step"]) for one in steps] == [
        (epoch + 1, step + 1, 5 * epoch + step + 1) for epoch in range(4) for step in range(5)
    ]
    epochs = [one for one in found if one["kind"] == "epoch"]
    header, *rows = (line.split(",") for line in (finished_run / "history.csv").read_text().splitlines())
    assert [[str(one[name]) for name in header] for one in epochs] == rows
    mean = sum(one["loss"] * samples for one, samples in zip(steps[:5], (5, 5, 5, 5, 4), strict=True)) / 24
    assert epochs[0]["loss"] == pytest.approx(mean, rel=1e-12)
    assert all(one["gradient_norm"] > 0 and one["samples_per_s"] > 0 <= one["wait_s"] for one in steps)
    assert [one["learning_rate"] for one in steps[-5:]] == [0.005] * 5
    assert [one["kind"] for one in found] == (["step"] * 5 + ["epoch"]) * 4


def test_metrics_change_nothing_that_is_computed(run, finished_run):
    run("output_dir=none", "track.every_steps=0")
    run("output_dir=some", "track.every_steps=3")
    assert curve("none") == curve(finished_run) == curve("some")
    assert [one["kind"] for one in lines("none")] == ["epoch"] * 4
    told = [one for one in lines(finished_run) if one["kind"] == "epoch" or one["global_step"] % 3 == 0]
    assert lines("some") == told and len(told) == 4 + 6


def test_a_stopped_run_goes_on_with_the_same_lines(run, finished_run):
    assert run("output_dir=parts", "--callback", "mine:Asks", "--callback", "mine:Told") == 3
    assert lines("parts")[-1]["global_step"] == 9  # in the middle of an epoch
    with Path("parts/metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "epoch": 2, "step": 5, "global_step": 10}\n{"kind": "st')  # of a killed process
    assert run("output_dir=parts", "--resume", "--callback", "mine:Told") == 4
    assert lines("parts") == lines(finished_run) and curve("parts") == curve(finished_run)
    told = Path("told-0.txt").read_text().splitlines()
    first, second = told[: told.index("end stopped") + 1], told[told.index("end stopped") + 1 :]
    assert first[0] == "begin cosmoflow parts False 0 0 11" and first[-2:] == ["saving", "end stopped"]
    assert second[:2] == ["begin cosmoflow parts True 9 1 11", "step 10"]
    assert second[-3:] == ["epoch 4", "saving", "end target_not_met"]


def test_a_run_that_starts_over_keeps_the_earlier_lines_apart(run):
    run("output_dir=run", "train.epochs=1")
    before = Path("run/metrics.jsonl").read_bytes()
    Path("run/checkpoints/epoch-0001-step-0000000.pt").write_bytes(b"damaged")
    assert run("output_dir=run", "--auto-resume") == 4
    assert Path("run/metrics.jsonl.interrupted-1").read_bytes() == before and len(lines("run")) == 24


def test_a_callback_that_fails_is_left_out_after_a_warning(run, finished_run, capsys):
    assert run("output_dir=run", "--callback", "mine:Fails", "--callback", "mine:Told") == 4
    warning = "warning: Fails: KeyError: 'no such key' (mine.py:39); training goes on without it\n"
    assert capsys.readouterr().err == warning
    assert lines("run") == lines(finished_run) and Path("told-0.txt").read_text().count("step") == 20


def test_files_that_an_error_has_interrupted_are_whole_at_the_end(run, finished_run, monkeypatch, capsys):
    """Each second time that one is opened, after a part of it was written; and each second time that one is renamed."""
    calls = Counter()

    def fails_in_turn(path):
        calls[Path(path).name] += 1
        if calls[Path(path).name] % 2:
            with Path(path).open("a") as file:
                file.write("torn")
            raise OSError(errno.ESTALE, "Stale file handle", str(path))

    def rename(part, path):
        if path.name == "history.csv":
            fails_in_turn(path)
        return named(part, path)

    named = Path.replace
    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr(
        tracking, "follow_no_link", lambda path, flags: fails_in_turn(path) or follow_no_link(path, flags)
    )
    capsys.readouterr()
    assert run("output_dir=run") == 4
    warnings = capsys.readouterr().err.splitlines()
    assert sorted(warning.split(":")[1] for warning in warnings) == [" history.csv", " metrics.jsonl"]
    assert min(calls.values()) > 3 and lines("run") == lines(finished_run) and curve("run") == curve(finished_run)
    assert len(read_history(Path("run"))) == 4


def test_a_row_is_added_to_the_history_and_removed_ones_come_back(tmp_path):
    first, history = Epoch(1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5), History(lambda: None)
    history.begin(RunStart("cosmoflow", tmp_path, {}, 1, MINIS[0].target, START, 0, ()))
    table = tmp_path / "history.csv"
    history.epoch(first)
    inode = table.stat().st_ino
    for number in range(2, 5):
        history.epoch(replace(first, epoch=number))
    assert table.stat().st_ino == inode, "the table was written again"
    with table.open("a") as file:
        file.write("5,0.5")
    assert [epoch.epoch for epoch in read_history(tmp_path)] == [1, 2, 3, 4]
    history.epoch(replace(first, epoch=5))
    table.unlink()
    history.epoch(replace(first, epoch=6))
    assert [epoch.epoch for epoch in read_history(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_the_callback_of_the_guide_works_as_printed(run, capsys):
    guide = (ROOT / "docs/guide/train.md").read_text()
    (code,) = re.findall(r"```python\n(# mine.py\n.*?)```", guide, re.DOTALL)
    (option,) = re.findall(r"mini (--callback .*)", guide)
    Path("mine.py").write_text(code.replace("> 100", "> 3"))
    assert run("train.epochs=1", *option.split()) == 4
    norms = [one["gradient_norm"] for one in lines("run") if one["kind"] == "step"]
    said = [f"step {number}: gradient norm {norm:.3g}" for number, norm in enumerate(norms, 1) if norm > 3]
    said.append("the run ended: target not met")
    assert len(said) > 1 and [one for one in capsys.readouterr().out.splitlines() if one in said] == said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine", "'mine': expected FILE.py:CLASS or MODULE:CLASS"),
        ("os.system('x'):y", "is neither a Python file nor the name of a module"),
        ("mine2:Told", "mine2: no such module"),
        ("mine:Tell", "expected a class derived from common.api.Callback"),
        ("mine:Path", "expected a class derived from"),
        ("broken:Told", "broken: broken.py, line 1: ZeroDivisionError: division by zero"),
    ],
)
def test_a_callback_that_cannot_be_is_refused(run, name, message, capsys):
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=re.escape(message)):
        load_callback(name)
    assert run("--callback", name) == 2
    assert message in capsys.readouterr().err and not Path("run").exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("run")
def test_only_rank_0_of_several_tells(finished_run):
    options = ["output_dir=three", "train.eval_ranks=1", "checkpoint.best=true", "--callback", "mine:Told"]
    done = run_process(*torchrun(3), "-m", "cosmoflow.train", "small.yaml", *options, timeout=120)
    assert "NOT reached after 4 epochs" in done.stdout, done.stderr
    assert [path.name for path in Path().glob("told-*")] == ["told-0.txt"]
    qualities = [quality for _, quality in curve("three")]
    best = load(Path("three/checkpoints/best.pt")).content
    assert best["position"] == [1 + qualities.index(min(qualities)), 0]
    for kind, names in (("step", ("loss", "gradient_norm")), ("epoch", ("loss", "quality"))):
        one, three = ([each for each in lines(at) if each["kind"] == kind] for at in (finished_run, "three"))
        assert [each["epoch"] for each in three] == [each["epoch"] for each in one]
        for name in names:
            assert [each[name] for each in three] == pytest.approx([each[name] for each in one], **SAME)


def test_the_best_checkpoint_is_evaluated_and_exported(run, data, finished_run, capsys):
    assert run("output_dir=run", "checkpoint.best=true", "checkpoint.keep=1", "checkpoint.every_epochs=0") == 4
    qualities = [quality for _, quality in curve("run")]
    best = min(qualities)
    capsys.readouterr()
    assert CASE.evaluate.main(["run", "--best", f"data.data_dir={data}"]) == 1
    said = f"run/checkpoints/best.pt: eval_error {best:.6g} on 7 validation samples, after {qualities.index(best) + 1} "
    assert said in capsys.readouterr().out
    assert weights.main(["run", "best.safetensors", "--best"]) == 0
    assert CASE.evaluate.main([str(finished_run), "--best"]) == 1
    assert f"{finished_run}: there is no checkpoints/best.pt" in capsys.readouterr().err


# -- the trackers, where they are installed ------------------------------------------------------------------

needs_tensorboard = pytest.mark.needs("tensorboard", find_spec("tensorboard"), "TensorBoard: pip install tensorboard")
needs_wandb = pytest.mark.needs("wandb", find_spec("wandb"), "Weights & Biases: pip install '.[wandb]'")
needs_mlflow = pytest.mark.needs("mlflow", find_spec("mlflow"), "MLflow: pip install '.[mlflow]'")


@needs_tensorboard
@pytest.mark.exhaustive
def test_tensorboard_shows_each_step_once(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run("output_dir=run", "--callback", "mine:Asks")
    run("output_dir=run", "--resume")
    board = EventAccumulator("run/tensorboard").Reload()
    found = lines("run")
    for name in ("loss", "gradient_norm", "learning_rate"):
        shown = [(event.step, event.value) for event in board.Scalars(f"step/{name}")]
        written = [(one["global_step"], one[name]) for one in found if one["kind"] == "step"]
        assert [step for step, _ in shown] == [step for step, _ in written]
        assert [value for _, value in shown] == pytest.approx([value for _, value in written], rel=1e-6)
    assert [event.step for event in board.Scalars("epoch/quality")] == [1, 2, 3, 4]


def offline_records(path):
    """Yield the records in a file of an offline run: a log as LevelDB writes it, of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    content, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        part, at = part + content[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # the whole of a record, or the last part of it
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


@needs_wandb
@pytest.mark.exhaustive
def test_weights_and_biases_continue_a_run(run, monkeypatch, capsys):
    """Offline: a folder for each process, of one run."""
    for name, value in {"MODE": "offline", "CONFIG_DIR": "c", "CACHE_DIR": "c", "DATA_DIR": "c"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    options = ["output_dir=run", "track.to=[wandb]", "track.name=first", "track.project=universes"]
    assert run(*options, "--callback", "mine:Asks") == 3
    assert run(*options, "--resume") == 4
    id_ = json.loads(Path("run/tracked.json").read_text())["wandb"]
    kept = sorted(Path("run/wandb").glob(f"offline-run-*/run-{id_}.wandb"))
    records = [one for path in kept for one in offline_records(path)]
    runs = [one.run for one in records if one.WhichOneof("record_type") == "run"]
    assert [(one.run_id, one.display_name, one.project) for one in runs] == [(id_, "first", "universes")] * 2
    settings = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    assert settings["train"]["global_batch_size"] == 5 and settings["seed"] == 11
    items = [one.history.item for one in records if one.HasField("history")]
    told = [{item.nested_key[0]: item.value_json for item in each} for each in items]
    written = [(str(one["global_step"]), str(one["loss"])) for one in lines("run") if one["kind"] == "step"]
    assert [(one["step/global_step"], one["step/loss"]) for one in told if "step/loss" in one] == written
    assert [one["epoch/epoch"] for one in told if "epoch/quality" in one] == ["1", "2", "3", "4"]
    assert "wandb: offline, in run/wandb" in capsys.readouterr().out


@needs_wandb
@pytest.mark.exhaustive
def test_weights_and_biases_out_of_reach_do_not_end_a_run(run):
    away = {"BASE_URL": "http://127.0.0.1:9", "INIT_TIMEOUT": "2", "CONFIG_DIR": "c", "CACHE_DIR": "c", "DATA_DIR": "c"}
    with_key = {"WANDB_API_KEY": "0" * 40, **{f"WANDB_{name}": value for name, value in away.items()}}
    words = ["-m", "cosmoflow.train", "small.yaml", "output_dir=run", "track.to=[wandb]"]
    done = run_process(sys.executable, *words, variables=with_key, timeout=120)
    assert done.returncode == 4 and done.stderr.count("warning: wandb: CommError: ") == 1, done.stderr
    assert len(lines("run")) == 24


@needs_mlflow
@pytest.mark.exhaustive
def test_mlflow_continues_a_run(run, tmp_path, monkeypatch, capsys):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert run("output_dir=run", "track.to=[mlflow]", "--callback", "mine:Asks") == 3
    client = MlflowClient()
    (experiment,) = [one for one in client.search_experiments() if one.name == "cosmoflow"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "KILLED" and found.info.run_name == "run"
    assert found.data.params["train.global_batch_size"] == "5" and found.data.params["seed"] == "11"
    assert run("output_dir=run", "track.to=[mlflow]", "--resume", "train.epochs=5") == 4
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.tags["ended"] == "target not met"
    told = client.get_metric_history(found.info.run_id, "step/loss")
    written = [(one["global_step"], one["loss"]) for one in lines("run") if one["kind"] == "step"]
    assert [(one.step, one.value) for one in told] == written
    assert [one.step for one in client.get_metric_history(found.info.run_id, "epoch/quality")] == [1, 2, 3, 4, 5]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    capsys.readouterr()
    assert run("output_dir=other", "track.to=[mlflow]") == 4
    assert capsys.readouterr().err.count("warning: mlflow: ") == 1


@pytest.mark.parametrize("tracker", [name for name in ("wandb", "mlflow") if not find_spec(name)])
def test_a_tracker_that_is_not_installed_is_refused(run, tracker, capsys):
    assert run(f"track.to=[{tracker}]") == 2
    said = f"track.to names {tracker}, which is not installed: pip install '.[{tracker}]'"
    assert said in capsys.readouterr().err and not Path("run").exists()
