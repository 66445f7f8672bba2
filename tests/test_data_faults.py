"""Numbers in the data that are not finite: the run fails with file, sample, place and number, and has no result."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from common.ending import read_ending
from tests.cosmoflow.case import CASE
from tests.problems import torchrun, write_config
from tests.test_values import change_frame, change_snapshot, change_universe, put

FAULTS = {
    "cosmoflow": [
        (change_universe(-1, lambda _, y: put(2, np.nan)(y)), r"labels\[2\] is nan"),
        (change_universe(-1, lambda x, _: put((0, 0, 0, 2), -5)(x)), r"counts\[0, 0, 0, 2\] is -5; expected 0 to"),
    ],
    "deepcam": [
        (change_snapshot(-1, lambda x, _: put((5, 7, 2), np.nan)(x)), r"data\[5, 7, 2\] \(.*\) is nan"),
        (change_snapshot(-1, lambda x, _: put((5, 7, 2), -np.inf)(x)), r"data\[5, 7, 2\] \(.*\) is -inf"),
    ],
    "oc20": [
        (change_frame(-1, "force", put((slice(None), 1), np.nan)), r"key (?:15|6): force has values that are NaN"),
        (change_frame(-1, "pos", put((slice(None), 1), np.inf)), r"key (?:15|6): pos has values that are NaN"),
    ],
}


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("fault", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_number_that_is_not_finite_has_a_file_and_is_no_result(case, data, config, split, fault, monkeypatch, capsys):
    monkeypatch.setattr("common.training.run.check_some_samples", lambda _: None)  # which tests/test_values.py shows
    shutil.copytree(data, "data")
    write_config(case, "data", Path())
    change, text = FAULTS[case.name][fault]
    path = Path("data", split, change(Path("data", split), monkeypatch))
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
    path = Path("data", split, change_universe(-1, lambda _, y: put(2, value)(y))(Path("data", split), monkeypatch))
    assert CASE.train.main(["small.yaml", "output_dir=run", "train.epochs=3", *words]) == 1
    assert re.search(rf"{path}: labels\[2\] is .*; expected -1.01 to 1.01", capsys.readouterr().err)
    assert read_ending(Path("run")).how == "failed"


def test_evaluate_and_predict_name_it(case, data, run_copy, monkeypatch, capsys):
    shutil.copytree(data, "data")
    change, text = FAULTS[case.name][0]
    path = Path("data/validation", change(Path("data/validation"), monkeypatch))
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
    name = change(Path("data", split), monkeypatch)
    process = start("output_dir=run", "train.epochs=2", *overrides, launcher=torchrun(2))
    message = process.communicate(timeout=300)[1]
    assert process.returncode == 1 and len(re.findall(text, message)) == 1, message
    assert f"data/{split}/{name}" in message
    assert read_ending(Path("run")).how == "failed"
