"""Numbers in the data that are not finite: the run fails with file, sample, place and number, and has no result."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from common.data.split import Sample
from common.ending import read_ending
from cosmoflow.data import tfrecord
from deepcam.data.snapshot import DATA
from oc20.data import records
from tests.cosmoflow.case import CASE
from tests.problems import write_config


def change_universe(folder, x_or_y, value):
    """Change a number of the last sample, in a record whose checksums are right."""
    path = max(folder.glob("*.tfrecord"))
    x, y = np.empty((16, 16, 16, 4), np.int16), np.empty(4, np.float32)
    tfrecord.read_sample(path, Sample(x, y))
    {"x": x, "y": y}[x_or_y].flat[2] = value
    tfrecord.write_sample(path, x, y)
    return path


def change_snapshot(folder, value):
    path = max(folder.glob("data-*.h5"))
    with h5py.File(path, "r+") as file:
        file[DATA][5, 7, 2] = value
    return path


def change_frame(folder, name, value, monkeypatch):
    """Change a number of the last frame, whatever the writer says of it."""
    path = max(folder.glob("data.*.lmdb"))
    shard = records.LmdbShard(path)
    *frames, last = [shard.read_frame(number) for number in range(len(shard))]
    numbers = getattr(last, name).copy()
    numbers[~last.fixed, 1] = value
    with monkeypatch.context() as patch:
        patch.setattr(records, "check_frame", lambda _: None)
        path.unlink()
        records.write_frames(path, [*frames, replace(last, **{name: numbers})])
    return path


FAULTS = {
    "cosmoflow": [
        (lambda folder, _: change_universe(folder, "y", np.nan), r"labels\[2\] is nan"),
        (lambda folder, _: change_universe(folder, "x", -5), r"counts\[0, 0, 0, 2\] is -5; expected 0 to"),
    ],
    "deepcam": [
        (lambda folder, _: change_snapshot(folder, np.nan), r"data\[5, 7, 2\] \(.*\) is nan"),
        (lambda folder, _: change_snapshot(folder, -np.inf), r"data\[5, 7, 2\] \(.*\) is -inf"),
    ],
    "oc20": [
        (lambda folder, patch: change_frame(folder, "force", np.nan, patch), "key [67]: force has values that are NaN"),
        (lambda folder, patch: change_frame(folder, "pos", np.inf, patch), "key [67]: pos has values that are NaN"),
    ],
}


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("fault", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_number_that_is_not_finite_has_a_file_and_is_no_result(
    case,
    data,
    config,
    split,
    fault,
    monkeypatch,
    capsys,
):
    monkeypatch.setattr("common.training.run.check_some_samples", lambda _: None)  # which tests/test_values.py shows
    shutil.copytree(data, "data")
    write_config(case, "data", Path())
    change, text = FAULTS[case.name][fault]
    path = change(Path("data", split), monkeypatch)
    for number, words in enumerate([(), ("train.accumulation=5",)] if case.name != "deepcam" else [()]):
        folder = Path(f"run{number}")
        assert case.train.main([config, f"output_dir={folder}", "train.epochs=3", *words]) == 1
        message = capsys.readouterr().err
        assert "error: " in message and "base_lr" not in message
        assert str(path) in message and split in message and re.search(text, message), message
        ending = read_ending(folder)
        assert (ending.how, ending.epochs) == ("failed", 0), ending
        *_, stop = map(json.loads, (line.removeprefix(":::MLLOG ") for line in (folder / "result_0.txt").open()))
        assert stop["metadata"]["ended"] == "failed" and path.name in stop["metadata"]["cause"]


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    ("split", "value", "words"),
    [("train", 1e12, ("train.global_batch_size=1",)), ("train", 1e4, ()), ("validation", 1e5, ())],
)
def test_a_finite_number_that_is_wrong_is_no_result_either(problems, monkeypatch, capsys, split, value, words):
    """In training it ruins the weights in a step before that whose loss is not finite."""
    monkeypatch.setattr("common.training.run.check_some_samples", lambda _: None)
    shutil.copytree(problems.make_data(CASE), "data")
    write_config(CASE, "data", Path())
    path = change_universe(Path("data", split), "y", value)
    assert CASE.train.main(["small.yaml", "output_dir=run", "train.epochs=3", *words]) == 1
    assert re.search(rf"{path}: labels\[2\] is .*; expected -1.01 to 1.01", capsys.readouterr().err)
    assert read_ending(Path("run")).how == "failed"


def test_evaluate_and_predict_name_it(case, data, run_copy, monkeypatch, capsys):
    shutil.copytree(data, "data")
    change, text = FAULTS[case.name][0]
    path = change(Path("data", "validation"), monkeypatch)
    for command in (case.evaluate, case.predict):
        capsys.readouterr()
        output = ["-o", "predictions.h5"] if command is case.predict else []
        assert command.main(["run", *output, "data.data_dir=data"]) == 1
        message = capsys.readouterr().err
        assert f"error: {path}" in message and re.search(text, message), message
    assert not Path("predictions.h5").exists()


@pytest.mark.exhaustive
@pytest.mark.one_benchmark
@pytest.mark.parametrize("words", [("train",), ("validation", "train.eval_ranks=1")])
def test_of_two_ranks_says_it_once(case, data, config, start, words, monkeypatch):
    shutil.copytree(data, "data")
    write_config(case, "data", Path())
    split, *overrides = words
    change, text = FAULTS[case.name][0]
    path = change(Path("data", split), monkeypatch)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    process = start("output_dir=run", "train.epochs=2", *overrides, launcher=launcher)
    message = process.communicate(timeout=300)[1]
    assert process.returncode == 1 and len(re.findall(text, message)) == 1 and str(path) in message, message
    assert read_ending(Path("run")).how == "failed"
