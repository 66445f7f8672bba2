"""Tracing a few steps: it changes neither weights nor log, and writes a trace and a table."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common.training import profile
from common.training.profile import TABLE, TRACE, ProfileConfig, Profiler
from tests.common.training.test_loop import DIST, run_of


def log_of(run):
    return re.findall(r'"key": "(\w+)", "value": ([^{]*?), "metadata".*?"epoch_num": (\d+)', run.log.path.read_text())


def test_a_traced_run_is_the_same_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profile, "ROWS", 1000)  # which ones are heaviest in so small a step, chance decides
    plain = run_of(tmp_path / "plain", target=1e-9, epochs=2)
    plain.fit()
    traced = run_of(tmp_path / "traced", target=1e-9, epochs=2, profile={"steps": 2})
    traced.fit()
    assert not (tmp_path / "plain/profile").exists()
    for name, tensor in plain.problem.model.state_dict().items():
        assert torch.equal(tensor, traced.problem.model.state_dict()[name]), name
    assert log_of(plain) == log_of(traced) and len(log_of(plain)) == 12
    folder = tmp_path / "traced/profile"
    with gzip.open(folder / TRACE) as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 2
    table = (folder / TABLE).read_text()
    assert table.startswith("2 step(s) of rank 0 of 1, after 3 others\n")
    calls = {name: int(count) for name, count in re.findall(r"^ +(\S[^%]*?)  .* (\d+)  +\S+ *$", table, re.M)}
    assert calls["ProfilerStep*"] == calls["waiting for data"] == 2 and calls["aten::addmm"] >= 2
    assert {path.name for path in folder.iterdir()} == {TABLE, TRACE}
    assert capsys.readouterr().out.count("profile: ") == 1


@pytest.mark.parametrize(
    ("config", "told", "files"),
    [
        ({"steps": 50}, "4 step(s) traced, fewer than profile.steps=50: there were no more; read ", 2),
        ({"steps": 1, "skip": 50}, "no step traced: 7 step(s) were made, and profile.skip=50", 0),
        ({"steps": 1, "skip": 1}, "1 step(s) traced; read ", 2),
    ],
)
def test_an_epoch_may_have_fewer_steps(tmp_path, capsys, config, told, files):
    run_of(tmp_path, target=1e-9, epochs=2, profile=config).fit()
    said = capsys.readouterr().out
    assert f"profile: {told}" in said and said.count("profile: ") == 1
    assert len(list((tmp_path / "profile").iterdir())) == files


def test_a_profile_that_cannot_be_written_does_not_end_the_run(tmp_path, capsys):
    run = run_of(tmp_path, target=1e-9, epochs=1, profile={"steps": 1})
    (tmp_path / "profile" / TRACE / "in the way").mkdir(parents=True)
    run.fit()
    assert len(run.state.history) == 1
    assert re.search(rf"profile: .*{TRACE}.*; going on without it", capsys.readouterr().out)


def test_a_run_that_fails_writes_no_profile(tmp_path):
    run = run_of(tmp_path, profile={"steps": 50})
    run.rate = lambda epoch, step, steps: 1e30
    with pytest.raises(FloatingPointError):
        run.fit()
    assert not list((tmp_path / "profile").iterdir())


@pytest.mark.one_benchmark
def test_a_folder_that_cannot_be_made_is_told_before_the_run(run, capsys):
    Path("run").mkdir()
    Path("run/profile").touch()
    assert run("profile.steps=2") == 1
    error = capsys.readouterr().err
    assert "run/profile" in error and error.count("\n") == 1 and not Path("run/result_0.txt").exists()


@pytest.mark.parametrize(("wrong", "least"), [({"steps": -1}, 0), ({"steps": 1, "skip": 0}, 1)])
def test_wrong_configurations(wrong, least):
    with pytest.raises(ValueError, match=rf"; expected at least {least}"):
        ProfileConfig(**wrong)


def test_other_ranks_trace_nothing(tmp_path):
    ranks = SimpleNamespace(is_main=False, device=torch.device("cpu"), world_size=2)
    batches = iter(())
    with Profiler(ProfileConfig(steps=1), tmp_path / "no", ranks, print) as profiler:
        assert profiler.watched(batches) is batches
        profiler.step_done()
    assert not (tmp_path / "no").exists() and DIST.is_main
