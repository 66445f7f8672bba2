"""Predictions from the command line: their file, its quality by any way, the summary and the picture."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.mutations import PUBLISHED
from tests.test_train import ROOT, case, config, data, one_thread, run  # noqa: F401  # some are fixtures

pytestmark = [pytest.mark.one_benchmark, pytest.mark.usefixtures("one_thread")]
JUDGED = {"oc20": ("forces", "force_targets")}
"""What is judged, and its truth; other benchmarks have the usual names."""
USUAL = ("predictions", "targets")


@pytest.fixture
def trained(case, run, data):  # noqa: F811  # fixtures
    """Train for two epochs; return what finds the data again."""
    assert run("train.epochs=2") == 4
    return f"data.data_dir={data}"


@pytest.fixture
def numbers(case):  # noqa: F811  # a fixture
    """Call evaluate; return its status and the numbers that it wrote."""

    def called(*arguments):
        Path("numbers.json").unlink(missing_ok=True)
        status = case.evaluate.main([*map(str, arguments), "-o", "numbers.json"])
        return status, json.loads(Path("numbers.json").read_text())["members"][0]

    return called


def arrays(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def written(path, columns):
    np.savez(path, **columns)
    return path


def floats(found):
    """Return the numbers in plain values that are not whole."""
    if isinstance(found, dict | list):
        return [one for part in (found.values() if isinstance(found, dict) else found) for one in floats(part)]
    return [found] if isinstance(found, float) else []


def test_all_ways_to_the_quality_agree_to_the_last_bit(case, trained, numbers, capsys):  # noqa: F811  # fixtures
    quality = numbers("run", trained)[1]["quality"]
    capsys.readouterr()
    for output in ("out.npz", "out.h5"):
        assert case.predict.main(["run", trained, "-o", output]) == 0
        said = capsys.readouterr().out
        on = "on 7 validation samples, after 2 epochs; target "
        assert f"epoch-0002-step-0000000.pt: {case.quality} {quality:.6g} {on}" in said
        status, alone = numbers("--predictions", output)
        assert status == 0 and alone["quality"] == quality and alone["truth"] == "file" and alone["samples"] == 7
        assert capsys.readouterr().out.splitlines()[1:] == said.splitlines()[1:-1]  # the same summary
        numbers_in_it = floats(alone["summary"])
        assert len(numbers_in_it) > 5
        assert all(any(f"{one:{form}}" in said for form in (".5f", ".4f", ".5g")) for one in numbers_in_it)
        status, by_data = numbers("--predictions", output, "run", trained)
        assert status == 1 and by_data["quality"] == quality and by_data["truth"] == "data"
        assert "not met" in capsys.readouterr().out


def test_a_file_has_every_sample_once_under_its_name(case, config, trained, capsys):  # noqa: F811  # fixtures
    for split, samples in (("train", 24), ("validation", 7)):
        assert case.predict.main(["run", trained, "-o", f"{split}.npz", "--split", split]) == 0
        found = arrays(f"{split}.npz")
        assert found["index"].tolist() == list(range(samples)) and len(set(found["names"])) == samples
        assert (found["benchmark"], found["split"], found["batch_size"]) == (case.name, split, 5)
        assert ("target" in capsys.readouterr().out) == (split == "validation")
        assert case.evaluate.main(["--predictions", f"{split}.npz", config]) == (split == "validation")
    predicted, true = JUDGED.get(case.name, USUAL)
    perfect = {**found, predicted: found[true]}
    best = 0 if case.train.BENCHMARK.reference.target.lower_is_better else 1
    assert case.evaluate.main(["--predictions", written("perfect.npz", perfect), config, "-o", "best.json"]) in (0, 1)
    assert json.loads(Path("best.json").read_text())["members"][0]["quality"] == best


def test_no_file_is_overwritten_and_no_folder_hides_a_configuration(case, trained, capsys):  # noqa: F811  # fixtures
    assert case.predict.main(["run", trained, "-o", "out.npz"]) == 0
    before = Path("out.npz").read_bytes()
    assert case.evaluate.main(["--predictions", "out.npz", "-o", "out.npz"]) == 2
    assert "-o out.npz: the file already exists" in capsys.readouterr().err and Path("out.npz").read_bytes() == before
    assert case.predict.main(["run", trained, case.other_network, "-o", "other.npz"]) == 1
    error = capsys.readouterr().err
    assert "these weights do not fit the network of the configuration" in error and not Path("other.npz").exists()
    assert case.evaluate.main(["run", trained, case.other_network]) == 1
    assert "these weights do not fit" in capsys.readouterr().err
    Path("mini").mkdir()
    assert case.evaluate.main(["--predictions", "out.npz", "mini", "data.data_dir=out.npz"]) == 1
    assert "no checkpoint" not in capsys.readouterr().err
    assert case.evaluate.main(["--predictions", "out.npz", "./mini"]) == 1
    assert "mini: no checkpoint in this folder" in capsys.readouterr().err


def test_two_ranks_write_the_file_of_one(case, trained):  # noqa: F811  # fixtures
    words = ["run", trained, "train.eval_batch_size=2", "-o"]
    assert case.predict.main([*words, "one.npz"]) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", f"{case.name}.predict"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*torchrun, *words, "two.npz"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()


def test_what_pads_a_batch_is_not_written(case, trained):  # noqa: F811  # fixtures
    if not case.recorded:
        pytest.skip("batches are not padded")
    assert case.predict.main(["run", trained, "-o", "plain.npz"]) == 0
    assert case.predict.main(["run", trained, "-o", "padded.npz", *case.recorded]) == 0
    plain, padded = arrays("plain.npz"), arrays("padded.npz")
    for name, values in plain.items():
        close = (
            np.allclose(values, padded[name], atol=1e-5) if values.dtype.kind == "f" else (values == padded[name]).all()
        )
        assert close and padded[name].dtype == values.dtype, name


def test_what_the_data_contradict_is_refused(case, config, trained, capsys):  # noqa: F811  # fixtures
    assert case.predict.main(["run", trained, "-o", "out.npz"]) == 0
    found, true = arrays("out.npz"), JUDGED.get(case.name, USUAL)[1]
    fewer = {name: values[:6] if values.shape[:1] == (7,) else values for name, values in found.items()}
    if "natoms" in found:
        atoms = fewer["natoms"].sum()
        fewer = {name: v[:atoms] if v.shape[:1] == (found["natoms"].sum(),) else v for name, v in fewer.items()}
    other = found[true].copy()
    other.flat[-1] = (other.flat[-1] + 1) % 3
    capsys.readouterr()
    for columns, expected in (
        (fewer, "6 samples, but 7 for validation in "),
        (found | {"names": np.roll(found["names"], 1)}, "`names` of sample 0 is "),
        (found | {true: other}, f"`{true}` of sample 6 is "),
        (found | {"split": np.array("train")}, "7 samples, but 24 for train in "),
    ):
        assert case.evaluate.main(["--predictions", written("wrong.npz", columns), config]) == 1
        error = capsys.readouterr().err
        assert expected in error and error.startswith("error: wrong.npz: ") and error.count("\n") == 1


def test_the_picture_is_drawn(case, trained, monkeypatch, capsys):  # noqa: F811  # fixtures
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


def test_large_predictions_do_not_go_to_npz(case, trained, monkeypatch, capsys):  # noqa: F811  # fixtures
    monkeypatch.setattr("common.training.predictions.file.MOST_NPZ_BYTES", 100)
    assert case.predict.main(["run", trained, "-o", "out.npz"]) == 1
    assert "name a file that ends in .h5" in capsys.readouterr().err and not list(Path().glob("out*"))


PAGE = ROOT / "docs" / "guide" / "predict.md"


def test_the_examples_of_the_page_run(case, trained):  # noqa: F811  # fixtures
    if case.name != "cosmoflow":
        pytest.skip("the examples are of cosmoflow")
    assert case.predict.main(["run", trained, "-o", "predictions.npz"]) == 0
    examples = re.findall(r"^```\n(import .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for example in examples:
        exec(example, {})
    assert len(examples) == 1


def test_the_page_lists_the_columns(case):  # noqa: F811  # a fixture
    if case.name not in PUBLISHED:
        pytest.skip("the page is about the official benchmarks")
    table = PAGE.read_text().partition("\n| | array |")[2].partition("\n\n")[0]
    rows, benchmark = [], ""
    for first, names, kind in re.findall(r"^\| (\w*) ?\| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE):
        benchmark = first or benchmark
        if benchmark == case.name:
            kinds = re.findall(r"(\w+) \(", kind)
            rows += zip(re.findall(r"`(\w+)`", names), kinds * 2, strict=False)
    columns = case.train.BENCHMARK.report.columns
    assert sorted(rows) == sorted((column.name, str(np.dtype(column.dtype))) for column in columns)
