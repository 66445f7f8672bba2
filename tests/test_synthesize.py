"""The command behind every benchmark's synthesize.py: pictures, wrong use, and help that is true."""

import os
import re
import signal
import sys
from dataclasses import replace
from importlib import import_module
from unittest.mock import Mock

import pytest

pytest.importorskip("ase")
pytest.importorskip("lmdb")

import cosmoflow.synthesize
from common.data.build import Heading, Journal
from common.data.manifest import NAME, Manifest, read_manifest, write_manifest
from common.data.split import DatasetError
from common.stop import StopAsked
from cosmoflow.simulation import PRESETS

ANYWHERE = [
    ("--workers 0", "--workers: expected a whole number of at least 1"),
    ("--seed -1", "--seed: expected a whole number of at least 0"),
]


def test_a_picture_is_drawn_without_data_and_named_as_it_is_written(case, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    plot = [*case.small.split(), "--plot"]
    assert case.synthesize.main([*plot, str(tmp_path / "picture")]) == 0
    picture = tmp_path / "picture.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and os.listdir(tmp_path) == ["picture.png"]
    assert f"drew {picture}" in capsys.readouterr().out
    assert case.synthesize.main([*plot, str(tmp_path / "no/where.png")]) == 2
    assert case.synthesize.main([*plot, str(picture)]) == 2
    assert "picture.png: the file already exists" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert case.synthesize.main([*plot, str(tmp_path / "other.png")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


def test_data_that_cannot_be_made_for_a_training_are_one_line(case, tmp_path, capsys):
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    with pytest.raises(
        ValueError, match=r"the mini problem \(mini2?\) cannot be generated in .*broken.*: a file or a broken link"
    ):
        case.train.BENCHMARK.make_mini(tmp_path / "broken" / "data", case.synthesize.SYNTHESIS.mini)
    assert not capsys.readouterr().err


def test_arguments_that_do_not_fit_are_wrong_use(case, empty_folder, capsys):
    named = [(["out", *options.split()], message) for options, message in (*case.wrong_options, *ANYWHERE)]
    for arguments, message in [([], "give OUTPUT_DIR"), *named]:
        with pytest.raises(SystemExit) as stop:
            raise SystemExit(case.synthesize.main(arguments))
        assert stop.value.code == 2, arguments
        assert message in capsys.readouterr().err and not os.listdir(), arguments


@pytest.mark.parametrize("name", ["synthesize", "prepare"])
def test_help_teaches_and_its_examples_are_understood(case, name, capsys):
    command = import_module(f"{case.name}.{name}")
    for arguments in [[], *([word] for word in ("convert", "manifest", "verify") if name == "prepare")]:
        with pytest.raises(SystemExit, match="0"):
            command.main([*arguments, "--help"])
        assert f"usage: python -m {command.__name__}" in capsys.readouterr().out
    synthesis = getattr(command, "SYNTHESIS", None)
    examples, parser = (synthesis.examples, synthesis) if synthesis else (command.EXAMPLES, command.COMMAND)
    start = f"python -m {command.__name__} "
    lines = [line for line in examples.splitlines() if start in line and "--help" not in line]
    assert len(lines) >= 4
    for line in lines:
        parser.build_parser().parse_args(re.split(r"\s{3,}", line.partition(start)[2])[0].split())


def test_a_mini_problem_is_provided_once_and_asks_for_nothing(tmp_path, monkeypatch, capsys):
    """Training is under way: no command to give next is told."""
    small = {"mini2": replace(PRESETS["mini2"], grid=8, particles=8, train=4, validation=2)}
    monkeypatch.setattr(cosmoflow.synthesize.Synthesize, "presets", small)
    cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "data", "mini2")
    said = capsys.readouterr().out
    assert said.startswith(f"no data in {tmp_path / 'data'}; generating the dataset of the mini problem (mini2)")
    assert "next:" not in said
    cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "data", "mini2")
    assert capsys.readouterr().out == ""
    with pytest.raises(DatasetError, match=rf"is of other data \(data.data_dir={tmp_path / 'data'} would read them"):
        cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "data/train", "mini2")
    manifest = tmp_path / "data/manifest.json"
    manifest.write_text(manifest.read_text().replace('"mini2"', '"mini"'))
    with pytest.raises(DatasetError, match="has the mini dataset; expected mini2"):
        cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "data", "mini2")
    with pytest.raises(DatasetError, match="no longer generates the mini dataset: use mini2"):
        cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "data", "mini")
    monkeypatch.setattr(cosmoflow.synthesize.Synthesize, "_generate_data", Mock(side_effect=StopAsked(signal.SIGTERM)))
    with pytest.raises(StopAsked):
        cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "stopped", "mini2")
    assert "the same command completes the data" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"file is not a folder: data.data_dir must be one"):
        cosmoflow.synthesize.SYNTHESIS.provide_data(tmp_path / "file", "mini2")


@pytest.fixture
def few(case, monkeypatch):
    """Let the recipe of the current mini problem make a few small samples."""
    parser = case.synthesize.SYNTHESIS.build_parser()
    recipe = case.synthesize.SYNTHESIS._build_recipe(parser.parse_args(case.small.split()))
    monkeypatch.setattr(case.synthesize.Synthesize, "presets", {case.synthesize.SYNTHESIS.mini: recipe})
    return case.synthesize.SYNTHESIS


OTHERS = {
    "nested": (
        ["cosmoUniverse/train/a.tfrecord", "cosmoUniverse/validation/"],
        r"is of other data \(data.data_dir=.*cosmoUniverse would read them\)",
    ),
    "notes": (["notes.txt"], "notes.txt is of other data; nothing was changed"),
    "an archive": (["s2ef_train_200K.tar"], "s2ef_train_200K.tar is of other data"),
    "another split": (["train/", "val/"], "val is of other data"),
    "other samples": (["train/univ_1.tfrecord", "validation/"], "train/univ_1.tfrecord is of other data"),
    "beside an interrupted build": (["manifest.parts/task-0-of-1.jsonl", "train/mine.h5"], "train/mine.h5 is of other"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_mini_problem_is_not_generated_beside_other_data(case, few, tmp_path, capsys, other):
    files, says = OTHERS[other]
    for name in files:
        path = tmp_path / "data" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    before = sorted((tmp_path / "data").rglob("*"))
    with pytest.raises(DatasetError, match=rf"{says}.*choose another folder.*variant=own"):
        few.provide_data(tmp_path / "data", few.mini)
    assert case.synthesize.main([str(tmp_path / "data"), "--workers", "1"]) == 1
    assert re.search(says, capsys.readouterr().err)
    assert sorted((tmp_path / "data").rglob("*")) == before


@pytest.mark.one_benchmark
def test_an_interrupted_mini_problem_goes_on_also_beside_files_of_other_systems(case, few, tmp_path, capsys):
    folder = tmp_path / "data"
    for path in (folder / ".DS_Store", folder / "lost+found/x", folder / "train/._a", folder / "train/a.h5.77.tmp"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    few.provide_data(folder, few.mini)
    assert f"no data in {folder}; generating" in capsys.readouterr().out
    whole = read_manifest(folder / NAME)
    (folder / NAME).unlink()
    heading = Heading(whole.benchmark, whole.variant, whole.facts, len(whole.files))
    half = dict(list(whole.files.items())[: len(whole.files) // 2])
    with Journal(folder).open_part(heading, 0, 1) as part:  # as it is after a kill
        part.add_files(half)
    for name in set(whole.files) - set(half):
        (folder / name).unlink()
    few.provide_data(folder, few.mini)
    assert f"{folder} is not complete; completing" in capsys.readouterr().out
    assert read_manifest(folder / NAME) == whole


@pytest.mark.parametrize("variant", ["full", "own", "subset-small"])
def test_a_mini_problem_is_not_trained_on_data_of_another_variant(case, few, tmp_path, variant):
    write_manifest(tmp_path / NAME, Manifest(benchmark=case.name, variant=variant, files={}))
    for name in few.needed:
        (tmp_path / name).touch()
    with pytest.raises(DatasetError, match=f"has the {variant} dataset; expected {few.mini}: choose another folder"):
        few.provide_data(tmp_path, few.mini)


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("cosmoflow", ["data.sample_shape=[64,64,64,4]"], "sample_shape would be [32, 32, 32, 4], the config"),
        ("cosmoflow", ["data.train_samples=2049"], "number of samples in train would be 2048, the configuration asks"),
        ("deepcam", ["data.eval_samples=65"], "number of samples in validation would be 64"),
        ("cosmoflow", ["train.init_from=no.safetensors"], "no.safetensors: no such file"),
        ("cosmoflow", ["data.format=npy"], "format would be tfrecord, the configuration asks for npy"),
        ("deepcam", ["data.width=288"], "asks for [96, 288, 16]"),
        ("oc20", ["data.format=compact"], "format would be lmdb"),
    ],
)
def test_a_mini_problem_is_not_generated_for_a_configuration_that_cannot_read_it(name, words, says, tmp_path, capsys):
    case = import_module(f"tests.{name}.case").CASE
    places = [f"data.data_dir={tmp_path / 'misspelt'}", f"output_dir={tmp_path / 'run'}"]
    assert case.train.main(["mini", *places, *words]) == 1
    assert says in capsys.readouterr().err and not (tmp_path / "misspelt").exists()
    assert not list(tmp_path.glob("run/*"))
