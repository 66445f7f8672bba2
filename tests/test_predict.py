"""Predictions from the command line: their file, their quality, the summary and the picture."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.problems import ROOT, run_process, torchrun


@pytest.fixture
def trained(run_copy, data):
    """Return what finds the data of the finished run again."""
    return f"data.data_dir={data}"


def arrays(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.one_benchmark
def test_the_quality_is_that_of_evaluate(case, trained, capsys):
    assert case.evaluate.main(["run", trained, "-o", "numbers.json"]) in (0, 1)
    quality = json.loads(Path("numbers.json").read_text())["members"][0]["quality"]
    capsys.readouterr()
    for output in ("out.npz", "out.h5"):
        assert case.predict.main(["run", trained, "-o", output]) == 0
        said = capsys.readouterr().out
        on = "on 7 validation samples, after 4 epochs; target "
        assert f"epoch-0004-step-0000000.pt: {case.quality} {quality:.6g} {on}" in said
        assert said.endswith(f"{output}: predictions and truth of 7 samples\n") and len(said.splitlines()) > 4
    report = case.train.BENCHMARK.report()
    report.add(arrays("out.npz"))
    assert report.quality == pytest.approx(quality, rel=1e-6)


@pytest.mark.one_benchmark
def test_a_file_has_every_sample_once_under_its_name(case, trained, capsys):
    for split, samples in (("train", 24), ("validation", 7)):
        assert case.predict.main(["run", trained, "-o", f"{split}.npz", "--split", split]) == 0
        found = arrays(f"{split}.npz")
        assert found["index"].tolist() == list(range(samples)) and len(set(found["names"])) == samples
        assert (found["benchmark"], found["split"], found["batch_size"]) == (case.name, split, 5)
        assert all(found[column.name].dtype == column.dtype for column in case.train.BENCHMARK.report.columns)
        assert ("target" in capsys.readouterr().out) == (split == "validation")


@pytest.mark.one_benchmark
def test_nothing_is_overwritten_or_guessed(case, trained, capsys):
    Path("out.npz").write_bytes(b"before")
    for command in (case.predict.main, case.evaluate.main):
        assert command(["run", trained, "-o", "out.npz"]) == 2
        assert "-o out.npz: the file already exists" in capsys.readouterr().err
        assert command(["run", trained, case.other_network, "-o", "other.npz"]) == 1
        assert "these weights do not fit the network of the configuration" in capsys.readouterr().err
    assert Path("out.npz").read_bytes() == b"before" and not Path("other.npz").exists()
    with pytest.raises(SystemExit) as ended:
        case.evaluate.main(["--predictions", "out.npz", "run", trained])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "--predictions is no option any more: name the run" in error
    assert error.count("\n") == 1


@pytest.mark.one_benchmark
def test_two_ranks_write_the_file_of_one(case, trained):
    words = ["run", trained, "train.eval_batch_size=2", "-o"]
    assert case.predict.main([*words, "one.npz"]) == 0
    done = run_process(*torchrun(2), "-m", case.name, "predict", *words, "two.npz")
    assert done.returncode == 0, done.stderr
    assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()


@pytest.mark.one_benchmark
def test_what_pads_a_batch_is_not_written(case, trained):
    if not case.recorded:
        pytest.skip("batches are not padded")
    assert case.predict.main(["run", trained, "-o", "plain.npz"]) == 0
    assert case.predict.main(["run", trained, "-o", "padded.npz", *case.recorded]) == 0
    plain, padded = arrays("plain.npz"), arrays("padded.npz")
    for name, values in plain.items():
        close = np.allclose(values, padded[name], atol=1e-5) if values.dtype.kind == "f" else values == padded[name]
        assert np.all(close) and padded[name].dtype == values.dtype, name


def test_the_picture_is_drawn(case, trained, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    assert case.predict.main(["run", trained, "-o", "out.npz", "--plot", "out.png"]) == 0
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    for arguments, expected in (
        (["-o", "x.npz", "--plot", "out.png"], "--plot out.png: the file already exists"),
        (["-o", "x.npz", "--plot", "out.jpeg"], "expected a file that ends in .png, .svg, .pdf"),
        (["-o", "out.npz"], "-o out.npz: the file already exists"),
        (["-o", "nowhere/out.npz"], "there is no folder nowhere"),
        (["-o", "out.csv"], "expected a file that ends in .npz (numpy) or .h5 (HDF5)"),
    ):
        assert case.predict.main(["run", trained, *arguments]) == 2
        assert expected in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert case.predict.main(["run", trained, "-o", "x.npz", "--plot", "new.png"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err and not Path("x.npz").exists()


@pytest.mark.one_benchmark
def test_large_predictions_do_not_go_to_npz(case, trained, monkeypatch, capsys):
    monkeypatch.setattr("common.training.predictions.MOST_NPZ_BYTES", 100)
    assert case.predict.main(["run", trained, "-o", "out.npz"]) == 1
    assert "name a file that ends in .h5" in capsys.readouterr().err and not list(Path().glob("out*"))


@pytest.mark.one_benchmark
def test_the_examples_of_the_page_run(case, trained):
    if case.name != "cosmoflow":
        pytest.skip("the examples are of cosmoflow")
    assert case.predict.main(["run", trained, "-o", "predictions.npz"]) == 0
    (example,) = re.findall(
        r"^```\n(import .*?)^```", (ROOT / "docs/guide/predict.md").read_text(), re.MULTILINE | re.DOTALL
    )
    exec(example, {})
