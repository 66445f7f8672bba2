"""docs/guide/library.md as printed, and what it promises: own code is recorded, and never run unasked."""

import contextlib
import json
import pickle
import re
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from common import own_code
from common.config import ConfigError
from common.data.prefetch import list_tensors
from common.ending import read_ending
from common.errors import UsageError
from common.ranks.dist import make_single_dist
from common.record import read_value
from common.training.callbacks import Callback
from common.training.checkpoint import load
from common.training.resolve import resolve_config
from common.training.trainer import Trainer
from common.training.weights import load_network
from common.training.weights import main as export
from compliance import check_logs
from cosmoflow import synthesize, train
from cosmoflow.__main__ import main as run_cosmoflow
from oc20.graphs import build_graph
from tests.problems import ROOT, run_process, torchrun

GUIDE = (ROOT / "docs/guide/library.md").read_text()
TINY = """
variant: mini2
output_dir: run
data: {data_dir: data/tiny, sample_shape: [32, 32, 32, 4], workers: 1}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.0}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 0}
train: {epochs: 2, global_batch_size: 8, target: 0.01, seed: 3}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1, status: research}
"""
IMPORTED = ["train.imports=[mine.py, lars.py]", "train.problem=means", "optim.name=lars"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "tiny"
    assert synthesize.main([str(folder), "--train", "32", "--validation", "8"]) == 0
    return folder


def forget_own_code(monkeypatch):
    """Be as another process, which has imported nothing."""
    monkeypatch.setattr(own_code, "_REGISTERED", {})
    for name in [name for name in sys.modules if name.startswith(own_code.FILE) or name == "mine"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def folder(data, tmp_path, monkeypatch):
    """Make a folder with the files of the guide, a configuration, and data; go there."""
    forget_own_code(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL):
        Path(name).write_text(code)
    Path("tiny.yaml").write_text(TINY)
    Path("data").mkdir()
    Path("data/tiny").symlink_to(data)
    return tmp_path


def run(*words):
    return train.main(["tiny.yaml", *words])


def test_own_code_is_found_by_name_recorded_and_not_the_reference(folder, capsys):
    assert run(*IMPORTED, "--callback", "ema.py:Ema") == 4
    codes = read_value(Path("run/result_0.txt"), "provenance")["own_code"]
    assert [(code["kind"], code["name"], code["file"]) for code in codes] == [
        ("problem", "Means", "mine.py"),
        ("optimizer", "lars", "lars.py"),
        ("callback", "Ema", "ema.py"),
    ]
    # A product of 4 means and 4 × 4 weights, forward and for the gradients of the weights, in `predictions`' layout.
    assert read_value(Path("run/result_0.txt"), "flop_per_sample") == {"training": 64, "evaluation": 32}
    text = ", ".join(f"{code['kind']} {code['name']} of {code['file']} ({code['sha256'][:8]})" for code in codes)
    assert f"{text}: this run is not the reference" in capsys.readouterr().out
    assert json.loads(Path("run/fom.json").read_text())["own_code"] == text
    (finding,) = (each for each in check_logs("run/result_0.txt", allow_mini=True).findings if each.rule == "SET19")
    assert finding.severity == "note" and "mine.py" in finding.message
    with pytest.raises(UsageError, match=r"submission\.division is closed"):
        Trainer(replace(train.BENCHMARK, problem=import_module("mine").Means)).run(
            "config", {"data.data_dir": "data/tiny", "submission.division": "closed"}, output_dir="closed"
        )


def test_a_run_with_own_code_is_evaluated_and_exported_but_not_by_what_it_names(folder, capsys, monkeypatch):
    run(*IMPORTED, "--callback", "ema.py:Ema")
    quality = float(Path("run/history.csv").read_text().splitlines()[-1].split(",")[2])
    assert export(["run", "w.safetensors"]) == 0
    capsys.readouterr()
    forget_own_code(monkeypatch)
    assert run_cosmoflow(["evaluate", "run"]) == 2
    assert "add train.imports=[FOLDER/mine.py]" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"Means of mine\.py"):
        load_network(train.BENCHMARK, "w.safetensors")
    assert run_cosmoflow(["evaluate", "run", "train.imports=[mine.py]"]) == 1  # the target is not met
    assert f"eval_error {quality:.6g} on 8" in capsys.readouterr().out, "of the means, as trained"
    assert load_network(train.BENCHMARK, "w.safetensors").model[2].weight.shape == (4, 4)
    with Path("mine.py").open("a") as file:
        file.write("# changed\n")
    assert run_cosmoflow(["evaluate", "run", "train.imports=[mine.py]"]) == 1
    assert "mine.py has changed since" in capsys.readouterr().err


def test_means_of_weights_go_on_as_if_the_run_had_not_stopped(folder, capsys):
    ema = ("--callback", "ema.py:Ema")
    run("train.epochs=3", "output_dir=whole", *ema)
    run("output_dir=parts", *ema)
    assert run("train.epochs=3", "output_dir=parts", "--resume") == 1
    assert "callback Ema of ema.py" in capsys.readouterr().err
    run("train.epochs=3", "output_dir=parts", "--resume", *ema)
    assert [line.split(",")[:3] for line in Path("parts/history.csv").read_text().splitlines()] == [
        line.split(",")[:3] for line in Path("whole/history.csv").read_text().splitlines()
    ]
    run("train.epochs=3", "output_dir=plain")
    plain, means = (load(Path(name)).content["state"] for name in ("plain", "whole"))
    trained = dict(zip(plain["model"], means["callbacks"]["Ema"]["trained"], strict=True))
    assert all(torch.equal(trained[name], weight) for name, weight in plain["model"].items())
    assert not all(torch.equal(means["model"][name], weight) for name, weight in plain["model"].items())


class Stops(Callback):
    """Asks for the end after a step of the second epoch."""

    def step(self, step):
        if step.global_step == 6:
            self.stop("enough")


def test_a_callback_stops_a_run_which_is_then_over(folder, capsys):
    run_ = train.run("tiny.yaml", output_dir="run", callbacks=[Stops])
    ending = read_ending(Path("run"))
    assert (ending.how, ending.cause, ending.epochs, ending.exit_status) == ("stopped_early", "Stops: enough", 1, 4)
    assert [path.name for path in run_.checkpoints][-1] == "epoch-0001-step-0000002.pt" and not run_.target_met
    assert "own_code" not in read_value(Path("run/result_0.txt"), "provenance"), "it has not acted"
    assert run("--auto-resume") == 4
    assert "has ended: stopped early by Stops: enough" in capsys.readouterr().out
    report = check_logs("run/result_0.txt", allow_mini=True)
    assert report.verdict == "FAIL" and any(finding.rule == "QUA03" for finding in report.findings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optim.name=larz"], "optim.name is 'larz'; expected sgd, adam, adamw, lamb, muon"),
        (["train.problem=mine"], "train.problem is 'mine'"),
        (["train.imports=[absent.py]"], "absent.py: cannot be read"),
        (["train.imports=[os..path]"], "is neither a Python file nor the name of a module"),
    ],
)
def test_names_that_nothing_registers_are_refused(folder, words, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        train.run("tiny.yaml", *words)
    assert not Path("run").exists()


BAD = """
import torch
from common.api import Callback, register_optimizer


class Unloadable(Callback):
    def state_dict(self):
        return {"a": [1, {"x": object()}]}


class Attached(Callback):
    def attach(self, model, optimizer):
        raise RuntimeError("attach boom")


class Stepped(Callback):
    def after_step(self):
        raise ValueError("step boom")


@register_optimizer("no")
class No:
    def __init__(self, parameters, lr, config): ...


@register_optimizer("none")
def make_none(parameters, lr, config): ...


@register_optimizer("fails")
class Fails(torch.optim.Optimizer):
    def __init__(self, parameters, lr, config):
        super().__init__(parameters, {"lr": lr})

    def step(self):
        torch.zeros(1) @ torch.zeros(2)
"""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--callback", "bad.py:Unloadable"], 1, "callback Unloadable: state_dict()['a'][1]['x'] is of type object"),
        (["--callback", "bad.py:Attached"], 1, "callback Attached of bad.py, line 13: RuntimeError: attach boom"),
        (["--callback", "bad.py:Stepped"], 1, "callback Stepped of bad.py, line 18: ValueError: step boom"),
        (["optim.name=no"], 2, "optimizer no of bad.py: No is no torch.optim.Optimizer"),
        (["optim.name=none"], 2, "optimizer none of bad.py: NoneType is no torch.optim.Optimizer"),
        (["optim.name=fails"], 1, "optimizer fails of bad.py, line 36: RuntimeError: inconsistent tensor size"),
    ],
)
def test_an_error_of_own_code_names_it(folder, capsys, words, status, message):
    Path("bad.py").write_text(BAD)
    assert run("train.imports=[bad.py]", *words) == status
    assert message in capsys.readouterr().err
    # Only a run that has begun leaves a record.
    endings = [message in read_ending(path).cause for path in Path().glob("run")]
    assert endings == ([True] if "step" in message or "fails" in message else [])


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", [["train.imports=[odd.py]"], ["--callback", "odd.py:Odd"]])
def test_a_file_that_fails_on_a_rank_is_named_by_that_rank(folder, words):
    """Ten seconds, as two processes start."""
    imports = "import os\nfrom common.api import Callback\n"
    Path("odd.py").write_text(f"{imports}assert os.environ['RANK'] == '0', 'odd boom'\nclass Odd(Callback): ...\n")
    ran = run_process(*torchrun(2), "-m", "cosmoflow.train", "tiny.yaml", *words)
    errors = [line for line in ran.stderr.splitlines() if line.startswith("rank ")]
    assert (
        len(errors) == 1 and errors[0].startswith("rank 1: error: ") and "line 3: AssertionError: odd boom" in errors[0]
    )
    assert "stopped by" not in ran.stderr and not Path("run").exists()


@pytest.mark.parametrize(
    ("name", "made", "message"),
    [("adam", dict, "adam is one of the suite's"), ("own", lambda parameters: 0, "(parameters, lr, config): too many")],
)
def test_what_cannot_be_an_optimizer_is_not_registered(name, made, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        own_code.register_optimizer(name)(made)


@pytest.mark.parametrize(
    ("reason", "text"), [(None, "no reason stated"), ("a\n b\x1b", "a b\\x1b"), ("x" * 300, "x" * 200)]
)
def test_the_reason_of_a_stop_is_a_short_line(reason, text):
    callback = Callback()
    callback.stop(reason)
    assert callback.stop_reason == text


@pytest.mark.exhaustive
@pytest.mark.needs("optuna", bool(find_spec("optuna")), "Optuna: pip install optuna")
def test_the_search_prunes(folder):
    code = Path("search.py").read_text()
    small = 'options = {"model": {"conv_size": 2, "conv_layers": 2}, "data.data_dir": "data/tiny", '
    for old, new in (("options = {", small), ("n_trials=10", "n_trials=5"), ('"train.epochs": 8', '"train.epochs": 3')):
        assert old in code
        code = code.replace(old, new)
    names = {}
    exec(compile(code, "search.py", "exec"), names)
    states = [trial.state.name for trial in names["study"].trials]
    assert len(states) == 5 and set(states) <= {"COMPLETE", "PRUNED"} and "COMPLETE" in states


# -- the data in a loop of one's own ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cosmoflow", ()),
        # Half a minute each, as a process is started.
        pytest.param("deepcam", ("--test", "0"), marks=pytest.mark.exhaustive),
        pytest.param("oc20", (), marks=pytest.mark.exhaustive),
    ],
)
def test_samples_are_what_a_step_reads_in_any_process(name, sizes, tmp_path):
    modules = {part: import_module(f"{name}.{part}") for part in ("synthesize", "settings", "train")}
    dataset = import_module(f"{name}.data.dataset")
    assert modules["synthesize"].main([str(tmp_path / "d"), "--train", "4", "--validation", "2", *sizes]) == 0
    overrides = {"data.data_dir": tmp_path / "d", "data.train_samples": None, "data.eval_samples": None}
    config = resolve_config(modules["settings"].Config, "mini", [overrides, "precision.dtype=fp32"])
    samples = dataset.Dataset(str(tmp_path / "d/train"), config.data)
    with contextlib.closing(modules["train"].BENCHMARK.problem(config, make_single_dist(), 0)) as problem:
        (batch,) = map(problem.prepared, problem.read(problem.sets["train"], [np.arange(len(samples))]))
    expected = list(list_tensors(batch))
    options = {"batch_size": len(samples), "collate_fn": build_graph if name == "oc20" else None}
    for workers, context in ((0, None), (1, "spawn")):
        (read,) = DataLoader(samples, num_workers=workers, multiprocessing_context=context, **options)
        assert all(map(torch.equal, list_tensors(tuple(read) if isinstance(read, list) else read), expected))
    assert str(samples[-1]) == str(pickle.loads(pickle.dumps(samples))[len(samples) - 1])
    with pytest.raises(IndexError, match=f"no sample {len(samples)}: the split has {len(samples)}"):
        samples[len(samples)]
