"""Values that break their contract, or are unlikely: `prepare verify --values`, and the start of training."""

import os
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pytest

from common.data import manifest
from common.data.split import Sample
from common.ending import read_ending
from cosmoflow.data import tfrecord
from deepcam.data import snapshot
from deepcam.reference import CHANNELS
from oc20.data import records
from tests.problems import write_config

PS = [channel.name for channel in CHANNELS].index("PS")


def change_universe(number, change):
    """Return what changes the voxels and labels of a sample; its checksums are right."""

    def plant(folder, _):
        path = sorted(folder.glob("*.tfrecord"))[number]
        x, y = np.empty((16, 16, 16, 4), np.int16), np.empty(4, np.float32)
        tfrecord.read_sample(path, Sample(x, y))
        change(x, y)
        tfrecord.write_sample(path, x, y)
        return path.name

    return plant


def change_snapshot(number, change):
    """Return what changes the data and labels of a snapshot, or of all."""

    def plant(folder, _):
        paths = sorted(folder.glob("data-*.h5"))
        for path in paths if number is None else [paths[number]]:
            with h5py.File(path, "r+") as file:
                change(file[snapshot.DATA], file[snapshot.LABELS])
        return "" if number is None else paths[number].name

    return plant


def lose_a_column(_, labels):
    """Make the labels of a snapshot narrower than its data."""
    file, narrower = labels.file, labels[:, :-1]
    del file[snapshot.LABELS]
    file[snapshot.LABELS] = narrower


def change_frame(number, names, change):
    """Return what changes arrays of a frame, whatever the writer says of it."""

    def plant(folder, monkeypatch):
        path = min(folder.glob("data.*.lmdb"))
        shard = records.LmdbShard(path)
        frames = [*map(shard.read_frame, range(len(shard)))]
        changed = {name: change(getattr(frames[number], name).copy()) for name in names.split()}
        frames[number] = replace(frames[number], **changed)
        with monkeypatch.context() as patch:
            patch.setattr(records, "check_frame", lambda _: None)
            path.unlink()
            records.write_frames(path, frames)
        return path.name

    return plant


def copy_sample(number, split):
    """Return what copies a file of train into a split under another name."""

    def plant(folder, _):
        path = sorted(path for path in folder.glob("*") if re.match(r"data-|.*\.tfrecord$", path.name))[number]
        copy = folder.parent / split / path.name.replace("data-1980", "data-1999").replace("univ", "zuniv")
        shutil.copyfile(path, copy)
        return min(f"{folder.name}/{path.name}", f"{split}/{copy.name}")

    return plant


def copy_frame(folder, _):
    source, target = min(folder.glob("data.*.lmdb")), min((folder.parent / "validation").glob("data.*.lmdb"))
    frame, shard = records.LmdbShard(source).read_frame(3), records.LmdbShard(target)
    frames = [frame, *map(shard.read_frame, range(1, len(shard)))]
    target.unlink()
    records.write_frames(target, frames)
    return f"{source.name}, too, such as frame {frame.sid}_{frame.fid}, of another split"


def put(place, number):
    """Return what sets a number of an array."""

    def change(array):
        array[place] = number
        return array

    return change


def put_atom_beside_neighbour(pos):
    pos[0] = pos[1] + np.float32([0.1, 0, 0])
    return pos


FAULTS = {
    "cosmoflow": [
        (
            "train",
            change_universe(0, lambda _, y: put(2, 1.5)(y)),
            r"error: .*labels\[2\] is 1.5; expected -1.01 to 1.01",
        ),
        ("train", change_universe(1, lambda _, y: put(0, np.nan)(y)), r"error: .*labels\[0\] is nan"),
        ("train", change_universe(2, lambda x, _: put((3, 0, 1, 2), -5)(x)), r"error: .*counts\[3, 0, 1, 2\] is -5;"),
        (
            "train",
            change_universe(3, lambda x, _: x.byteswap(inplace=True)),
            r"error: .*counts\[.*\] is 256,.*byte order",
        ),
        ("validation", change_universe(4, lambda x, _: x.fill(0)), "error: .*all counts are 0"),
        (
            "validation",
            change_universe(5, lambda x, _: put((..., 1), 3)(x)),
            r"warning: .*counts\[\.\.\., 1\] is 3 every",
        ),
        ("train", copy_sample(7, "validation"), "error: .* of another split"),
        ("train", copy_sample(8, "train"), "warning: .* of the same split"),
    ],
    "deepcam": [
        (
            "train",
            change_snapshot(0, lambda x, _: put((5, 7, 2), 1e20)(x)),
            r"error: .*data\[5, 7, 2\] \(V850.* is 1e\+20",
        ),
        (
            "train",
            change_snapshot(1, lambda x, _: put((9, 0, 0), np.nan)(x)),
            r"error: .*data\[9, 0, 0\] \(TMQ.* is nan",
        ),
        (
            "train",
            change_snapshot(2, lambda x, _: put((..., PS), x[..., PS] / 100)(x)),
            rf"error: .*data\[\.\.\., {PS}\] \(PS, Pa\) is [0-9.]+ to 1\d\d\d",
        ),
        (
            "train",
            change_snapshot(3, lambda x, _: put((..., 1), 0)(x)),
            r"warning: .*data\[\.\.\., 1\] \(U850.* is 0 every",
        ),
        ("train", change_snapshot(4, lambda _, y: put((3, 4), 7)(y)), "error: .*has the label 7"),
        ("train", change_snapshot(5, lose_a_column), "error: .*expected a label for each pixel"),
        (
            "validation",
            change_snapshot(None, lambda _, y: put(..., 0)(y)),
            "warning: validation: labels is 0 in all 7 samp",
        ),
        ("validation", copy_sample(3, "train"), "error: .* of another split"),
        ("train", copy_sample(8, "train"), "warning: .* of the same split"),
    ],
    "oc20": [
        ("train", change_frame(1, "force", put((4, 1), 1e9)), r"error: .*frame \d+_\d+: force\[4, 1\] is 1e\+09"),
        ("train", change_frame(2, "force", put((4, 1), 900)), r"warning: .*frame \d+_\d+: force\[4, 1\] is 900"),
        (
            "train",
            change_frame(4, "force", put(..., 0)),
            r"warning: .*frame \d+_\d+: force is 0, 0, 0 on all free atoms",
        ),
        (
            "train",
            change_frame(5, "pos", put_atom_beside_neighbour),
            r"warning: .*frame \d+_\d+: atoms (0 and 1|1 and 0) are 0.(1|09)",
        ),
        ("train", change_frame(6, "fixed", put(..., True)), r"error: .*frame \d+_\d+: no atom is free"),
        (
            "train",
            change_frame(7, "edges offsets", lambda array: array[:0]),
            r"warning: .*frame \d+_\d+: no atom has a n",
        ),
        ("train", copy_frame, "error: .* 1 samples are in "),
        (
            "train",
            change_frame(0, "force", put((slice(None), 1), np.nan)),
            "error: .*key 0: force has values that are NaN",
        ),
    ],
}


def describe_again(folder, **facts):
    """Write the manifest of changed files."""
    old = manifest.read_manifest(folder / manifest.NAME)
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != manifest.NAME]
    files = {str(path.relative_to(folder)): manifest.describe_file(path) for path in paths}
    new = manifest.Manifest(benchmark=old.benchmark, variant=old.variant, facts={**old.facts, **facts}, files=files)
    manifest.write_manifest(folder / manifest.NAME, new)


def verify(case, *arguments):
    return import_module(f"{case.name}.prepare").main(["verify", "data", "--workers", "1", *arguments])


def test_verify_finds_all_faults_and_reads_each_file_once(case, data, config, monkeypatch, capsys):
    shutil.copytree(data, "data")
    assert verify(case, "--values") == 0
    captured = capsys.readouterr()
    assert ", 0 warnings" in captured.out and "warning: " not in captured.err
    other = next(name for name in FAULTS if name != case.name)
    assert import_module(f"{other}.prepare").main(["verify", "data"]) == 1
    assert f"has data of {case.name}: python -m {case.name}.prepare" in capsys.readouterr().err
    where = [plant(Path("data", split), monkeypatch) for split, plant, _ in FAULTS[case.name]]
    describe_again(Path("data"), generator_sha256="0" * 64)
    assert verify(case) == 0  # the form is right
    capsys.readouterr()
    opened, open_file, open_hdf5 = [], os.open, h5py.File
    monkeypatch.setattr(os, "open", lambda path, *rest: (opened.append(os.fspath(path)), open_file(path, *rest))[1])
    monkeypatch.setattr(
        h5py, "File", lambda file, *rest, **more: (opened.append(file), open_hdf5(file, *rest, **more))[1]
    )
    assert verify(case, "--values") == 1
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    for (split, _, text), name in zip(FAULTS[case.name], where, strict=True):
        assert any(re.search(text, line) and name in line and split in line for line in lines), (text, lines)
    assert any("generated by another version of" in line for line in lines)
    reported = [line for line in lines if line.startswith(("error: ", "warning: "))]
    assert len(reported) == len(where) + 1, reported
    assert f"{sum(line.startswith('error: ') for line in reported)} problems" in captured.out
    samples = [str(path) for path in Path("data").glob("*/*")]
    assert {path: opened.count(path) for path in samples} == dict.fromkeys(samples, 1)


@pytest.mark.parametrize("is_error", [True, False])
def test_the_first_samples_are_looked_at_before_the_first_step(case, data, config, is_error, monkeypatch, capsys):
    shutil.copytree(data, "data")
    write_config(case, "data", Path())
    plant, text = {
        ("cosmoflow", True): (
            change_universe(0, lambda _, y: put(2, 63)(y)),
            r"labels\[2\] is 63; expected -1.01 to 1.01",
        ),
        ("cosmoflow", False): (change_universe(0, lambda x, _: put((..., 1), 3)(x)), r"counts\[\.\.\., 1\] is 3 every"),
        ("deepcam", True): (change_snapshot(0, lambda x, _: put((5, 7, 2), 1e20)(x)), r"data\[5, 7, 2\] .* is 1e\+20"),
        ("deepcam", False): (change_snapshot(None, lambda _, y: put(..., 0)(y)), "labels is 0 in all 4 samples"),
        ("oc20", True): (change_frame(0, "force", put((4, 1), 1e9)), r"force\[4, 1\] is 1e\+09"),
        ("oc20", False): (change_frame(0, "force", put((4, 1), 900)), r"force\[4, 1\] is 900"),
    }[case.name, is_error]
    name = plant(Path("data/validation"), monkeypatch)
    code = case.train.main([config, "output_dir=run", "train.epochs=1"])
    message = capsys.readouterr().err
    assert re.search(f"^{'error' if is_error else 'warning'}: .*{text}", message, re.MULTILINE), message
    assert name in message and "validation" in message
    assert (code, read_ending(Path("run")).how) == ((1, "failed") if is_error else (4, "target_not_met"))
    assert ('"epoch_stop"' in Path("run/result_0.txt").read_text()) != is_error


@pytest.mark.one_benchmark
def test_a_training_says_that_two_splits_share_files(case, data, config, capsys):
    shutil.copytree(data, "data")
    write_config(case, "data", Path())
    if case.name == "oc20":
        pytest.skip("its files are compared frame by frame")
    for number in (3, 4):
        copy_sample(number, "validation")(Path("data/train"), None)
    describe_again(Path("data"))
    assert case.train.main([config, "output_dir=run", "train.epochs=1"]) == 4
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: "))
    assert "has the content of" in line and "another split" in line and "2 such files" in line
    Path("data/manifest.json").unlink()
    copy = min(path for path in Path("data/validation").iterdir() if path.is_file())
    shutil.copy(copy, "data/train")
    assert case.train.main([config, "output_dir=run2", "train.epochs=1"]) == 4
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: "))
    assert f"data/train/{copy.name} has the content of" in line and "probably that in train/" in line


@pytest.mark.one_benchmark
def test_a_training_says_that_another_version_of_the_generator_made_its_data(case, data, tmp_path, capsys, monkeypatch):
    folder = shutil.copytree(data, tmp_path / "data")
    synthesis = case.synthesize.SYNTHESIS
    synthesis.provide_data(folder, synthesis.mini)
    assert "warning" not in capsys.readouterr().err
    describe_again(folder, generator_sha256="0" * 64)
    synthesis.provide_data(folder, synthesis.mini)
    assert re.match(f"warning: {folder} was generated by another version of .* 00000000…", capsys.readouterr().err)
    known = manifest.read_manifest(folder / manifest.NAME).compute_digest()
    monkeypatch.setattr(type(synthesis), "known_digests", (known,))
    synthesis.provide_data(folder, synthesis.mini)
    assert capsys.readouterr().err == ""


FORMATS = {
    "cosmoflow": ["repack --format npy --sample-size 16"],
    "deepcam": ["convert --format npy", "convert --format hdf5-single"],
    "oc20": ["convert --format compact"],
}
BROKEN = {
    "cosmoflow": (change_universe(2, lambda _, y: put(2, 63)(y)), r"labels\[2\] is 63;"),
    "deepcam": (change_snapshot(2, lambda x, _: put((5, 7, 2), 1e20)(x)), r"data\[5, 7, 2\] .* is 1e\+20;"),
    "oc20": (change_frame(2, "force", put((4, 1), 1e9)), r"frame \d+_\d+: force\[4, 1\] is 1e\+09;"),
}


def test_verify_looks_into_all_formats(case, data, config, monkeypatch, capsys):
    shutil.copytree(data, "data")
    plant, text = BROKEN[case.name]
    name = plant(Path("data/train"), monkeypatch)
    prepare = import_module(f"{case.name}.prepare").main
    for number, command in enumerate(FORMATS[case.name]):
        folder = f"other{number}"
        assert prepare([*command.split(), "data", folder, "--workers", "1"]) == 0
        capsys.readouterr()
        assert prepare(["verify", folder, "--values", "--workers", "2"]) == 1
        captured = capsys.readouterr()
        (line,) = (line for line in captured.err.splitlines() if line.startswith("error: "))
        assert name.partition(".")[0] in line and re.search(text, line), line
        assert ": 1 problems, 3" in captured.out  # of 31 or 32 samples


@pytest.mark.parametrize(
    ("benchmark", "kept", "lost"),
    [("cosmoflow", "u1_data.npy", "u1_label.npy"), ("deepcam", "label-1.npy", "data-1.npy")],
)
def test_verify_names_a_file_whose_partner_is_lost(benchmark, kept, lost, tmp_path, capsys):
    (tmp_path / "train").mkdir()
    for name in (kept, kept.replace("1", "2"), lost.replace("1", "2")):
        (tmp_path / "train" / name).write_bytes(name.encode())
    prepare = import_module(f"{benchmark}.prepare").main
    assert prepare(["manifest", str(tmp_path)]) == 0
    assert prepare(["verify", str(tmp_path), "--sizes-only"]) == 1
    error = capsys.readouterr().err
    assert error.count("error:") == 1 and f"{kept}: train/{lost} of the same sample is missing" in error, error
