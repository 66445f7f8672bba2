"""Raw universes become samples; whatever interrupts or damages the work, nothing is lost and nothing is wrong."""

import json
import os
import re
import shutil
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest

from common.data.build import Journal
from common.data.manifest import read_manifest
from common.reference import SPLITS
from cosmoflow import prepare
from cosmoflow.data import packed, tfrecord
from cosmoflow.data.sample_files import ENDINGS
from cosmoflow.data.tfrecord import Sample
from cosmoflow.prepare import split_by_hash
from tests.common.files import contents, read_errors, truncate

GRID = 8


def write_raw(path, seed, grid=GRID):
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["full"] = rng.poisson(1.0, (grid, grid, grid, 4)).astype(np.int16)
        file["unitPar"] = rng.uniform(-1, 1, 4)


@pytest.fixture
def raw(tmp_path):
    """Six universes of 8³ voxels in two jobs, two of which have the same file name."""
    folder = tmp_path / "raw"
    for i, name in enumerate(product(("111", "222"), ("a1", "a2", "a3"))):
        write_raw(folder / name[0] / f"univ_{name[1]}.hdf5", i)
    return folder


def convert(raw, out, *options):
    return prepare.main(["convert", str(raw), str(out), "--sample-size", "4", "--workers", "1", *options])


def universes(folder, split):
    """Return the universes that have samples in a split."""
    return {re.sub(r"_\d{3}(_data|_label)?\.\w+$", "", name) for name in os.listdir(folder / split)}


@pytest.mark.parametrize(
    "options",
    [[], ["--compress", "none"], ["--format", "npy"], ["--format", "packed"]],
    ids=["gzip", "raw", "npy", "packed"],
)
def test_samples_are_the_slices_of_the_universe_in_published_order(raw, tmp_path, options):
    out = tmp_path / "out"
    assert convert(raw, out, "--validation", "2", *options) == 0
    for path in raw.rglob("*.hdf5"):
        name = f"{path.parent.name}_{path.stem}"
        (split,) = {split for split in SPLITS if name in universes(out, split)}
        with h5py.File(path) as file:
            full, labels = file["full"][()], file["unitPar"][()].astype(np.float32)
        for i, (a, b, c) in enumerate(product((0, 4), repeat=3)):
            stem = str(out / split / f"{name}_{i:03d}")
            if "npy" in options:
                found = Sample(np.load(f"{stem}_data.npy"), np.load(f"{stem}_label.npy"))
                assert found.x.dtype == np.int16 and found.y.dtype == np.float32
            elif "packed" in options:
                found = packed.read_sample(Path(f"{stem}.packed"), Sample.empty((4, 4, 4, 4)), verify=True)
            else:
                record = Path(f"{stem}.tfrecord")
                assert (record.read_bytes()[:2] == b"\x1f\x8b") == (not options)
                found = tfrecord.read_sample(record, Sample.empty((4, 4, 4, 4)), verify_crc=True)
            np.testing.assert_array_equal(found.x, full[a : a + 4, b : b + 4, c : c + 4])
            np.testing.assert_array_equal(found.y, labels)
    manifest = read_manifest(out / "manifest.json")
    assert len(manifest.files) == 48 * (2 if "npy" in options else 1)
    assert manifest.facts["sample_shape"] == [4, 4, 4, 4] and manifest.variant == "full"


def test_samples_are_repacked_unchanged(raw, tmp_path, capsys):
    out, other_out = tmp_path / "out", tmp_path / "npy"
    size = ["--sample-size", "4", "--workers", "1"]
    assert convert(raw, out, "--validation", "2") == 0
    repack = ["repack", str(out), str(other_out), "--format", "npy", *size]
    damaged, *_ = (out / "train").iterdir()
    good = damaged.read_bytes()
    damaged.write_bytes(good[:40])
    assert damaged.name in read_errors(capsys, prepare.main(repack))
    damaged.unlink()
    damaged.symlink_to(tmp_path / "gone")
    assert f"is a link to {tmp_path / 'gone'}, which does not exist" in read_errors(capsys, prepare.main(repack))
    damaged.unlink()
    damaged.write_bytes(good)
    assert prepare.main(repack) == 0
    for split in SPLITS:
        for path in (out / split).iterdir():
            old = tfrecord.read_sample(path, Sample.empty((4, 4, 4, 4)))
            new = (np.load(other_out / split / f"{path.stem}{ending}") for ending in ENDINGS["npy"])
            assert all(map(np.array_equal, old, new))
    manifest = read_manifest(other_out / "manifest.json")
    assert len(manifest.files) == 96 and manifest.facts["format"] == "npy"
    few, again = tmp_path / "packed", tmp_path / "again"
    assert prepare.main(["repack", str(other_out), str(few), "--format", "packed", *size]) == 0
    assert prepare.main(["repack", str(few), str(again), *size]) == 0
    assert read_manifest(few / "manifest.json").facts["format"] == "packed"
    assert contents(again / "train") == contents(out / "train")
    none = str(tmp_path / "none")
    assert "expected samples to repack" in read_errors(capsys, prepare.main(["repack", str(raw), none]))
    error = read_errors(capsys, prepare.main(["repack", str(out), none, "--sample-size", "8"]))
    assert ".tfrecord: a sample of 4³ × 4 counts; --sample-size is 8: give --sample-size 4" in error
    assert error.count("error") == 1 and not os.path.exists(none)
    shutil.copy(next((few / "train").glob("*.packed")), out / "train")
    mixed = read_errors(capsys, prepare.main(["repack", str(out), none, *size]))
    assert "has samples as tfrecord and packed: keep one format per folder" in mixed


def test_packed_samples_are_verified_with_their_values(raw, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(raw, out, "--validation", "2", "--format", "packed") == 0
    assert prepare.main(["verify", str(out), "--values"]) == 0
    assert "48 samples looked at" in capsys.readouterr().out
    path = min((out / "train").iterdir())
    x, y = packed.read_sample(path, Sample.empty((4, 4, 4, 4)))
    x[0, 0, 0, 0] = -3
    path.write_bytes(packed.encode_sample(x, y))
    (out / "manifest.json").unlink()
    assert prepare.main(["manifest", str(out)]) == 0
    assert f"{path}: counts[0, 0, 0, 0] is -3" in read_errors(capsys, prepare.main(["verify", str(out), "--values"]))


def test_a_split_file_is_followed_and_checked(raw, tmp_path, capsys):
    lists = {"train": ["111_univ_a1", "222_univ_a1"], "validation": ["222_univ_a3"]}
    file = tmp_path / "split.json"
    file.write_text(json.dumps(lists))
    assert convert(raw, tmp_path / "out", "--split-file", str(file)) == 0
    assert {split: sorted(universes(tmp_path / "out", split)) for split in SPLITS} == lists
    for train, message in (
        (["222_univ_a3", "none"], "222_univ_a3 is listed more than once"),
        (["univ_a1"], "names look like 111_univ_a1"),
    ):
        file.write_text(json.dumps({**lists, "train": train}))
        assert message in read_errors(capsys, convert(raw, tmp_path / "other", "--split-file", str(file)), 2)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--train", "5", "--validation", "2"], "5 training and 2 validation universes were asked for, but only"),
        (["--format", "npy", "--compress", "gzip"], "npy files cannot be compressed"),
        (["--task", "0"], "--task and --n-tasks must be given together"),
        (["--task", "2", "--n-tasks", "2"], "task 2 of 2 with 1 worker"),
        (["--validation-fraction", "1.5"], "between 0 and 1"),
    ],
)
def test_arguments_that_do_not_fit_are_wrong_use(raw, tmp_path, capsys, options, message):
    assert message in read_errors(capsys, convert(raw, tmp_path / "out", *options), 2)
    assert not (tmp_path / "out").exists()


def test_tasks_share_the_work_and_the_last_one_writes_the_manifest(raw, tmp_path, monkeypatch, capsys):
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert convert(raw, out, "--validation", "2", "--task", "0", "--n-tasks", "2") == 0
    assert "3 belong to other tasks" in capsys.readouterr().out
    assert "24 of 48 files are finished" in read_errors(capsys, prepare.main(["manifest", str(out)]))
    # The other task as a rank of a launcher.
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert convert(raw, out, "--validation", "2") == 0
    monkeypatch.undo()
    assert convert(raw, whole, "--validation", "2") == 0
    assert contents(out) == contents(whole)


def test_a_bad_universe_may_be_taken_away_and_tasks_be_fewer(raw, tmp_path, capsys):
    bad, out, whole = raw / "222" / "univ_a3.hdf5", tmp_path / "out", tmp_path / "whole"
    bad.write_bytes(b"")
    options = ["--train", "4", "--validation", "1"]
    for task in range(3):
        convert(raw, out, *options, "--task", str(task), "--n-tasks", "3")
    assert not (out / "manifest.json").exists()
    bad.unlink()
    capsys.readouterr()
    assert convert(raw, out, *options) == 0
    assert convert(raw, whole, *options) == 0
    assert contents(out) == contents(whole)


def test_records_of_tasks_can_be_merged_by_hand(raw, tmp_path, monkeypatch):
    out, copy = tmp_path / "out", tmp_path / "copy"
    monkeypatch.setattr(Journal, "merge_parts", lambda *_: None)  # as if the last task had died before its last step
    for task in ("0", "1"):
        assert convert(raw, out, "--validation", "2", "--task", task, "--n-tasks", "2") == 0
    monkeypatch.undo()
    assert prepare.main(["manifest", str(out)]) == 0
    assert convert(raw, copy, "--validation", "2") == 0
    assert contents(out) == contents(copy)


def damage_text(path):
    path.write_text("<html>404</html>")


def damage_with(key, value):
    def damage(path):
        with h5py.File(path, "a") as file:
            del file[key]
            if value is not None:
                file[key] = value

    return damage


def damage_chunk(path):
    counts = np.random.default_rng(0).poisson(1.0, (GRID, GRID, GRID, 4)).astype(np.int16)
    with h5py.File(path, "a") as file:
        del file["full"]
        file.create_dataset("full", data=counts, chunks=(4, GRID, GRID, 4), compression="gzip")
        chunk = file["full"].id.get_chunk_info(1)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        file.write(b"\0" * 64)


DAMAGES = {
    "truncated": (truncate, "not a readable HDF5 file"),
    "no HDF5": (damage_text, "this is a web page (perhaps of a login), not an HDF5 file"),
    "chunk": (damage_chunk, "`full` in rows 4 to 7 is damaged"),
    "no counts": (damage_with("full", None), "`full` is missing; the file has: unitPar"),
    "no labels": (damage_with("unitPar", None), "`unitPar` is missing"),
    "shape": (damage_with("full", np.zeros((GRID, GRID, 4), "<i2")), "`full` has the shape (8, 8, 4)"),
    "grid": (damage_with("full", np.zeros((4, 4, 4, 4), "<i2")), "4 voxels per side, the others have 8"),
    "type": (damage_with("full", np.zeros((GRID, GRID, GRID, 4), "f4")), "the type float32 where int16 was expected"),
    "negative": (damage_with("full", np.full((GRID, GRID, GRID, 4), -1, "<i2")), "negative particle counts"),
    "nan": (damage_with("unitPar", [0.1, np.nan, 0.3, 0.4]), "`unitPar` is [0.10000000149011612, nan,"),
    "range": (damage_with("unitPar", [0.3, 0.8, 0.96, 70.0]), "where four numbers in [-1, 1] were expected"),
    "number": (damage_with("unitPar", [0.1, 0.2, 0.3]), "where four numbers in [-1, 1] were expected"),
    "link": (damage_with("full", h5py.ExternalLink("other.h5", "full")), "`full` is a link, which is not followed"),
    "text": (damage_with("unitPar", "0 0 0 0"), "`unitPar` is damaged"),
}


@pytest.mark.parametrize("damage, message", DAMAGES.values(), ids=DAMAGES)
def test_a_bad_universe_is_named_and_the_others_are_made(raw, tmp_path, capsys, damage, message):
    bad = raw / "111" / "univ_a2.hdf5"
    good = tmp_path / "good.hdf5"
    shutil.copy(bad, good)
    damage(bad)
    out = tmp_path / "out"
    error = read_errors(capsys, convert(raw, out, "--validation", "2"))
    assert "error: skipped 111_univ_a2: " in error and message in error and str(bad) in error
    made = universes(out, "train") | universes(out, "validation")
    assert len(made) == 5 and "111_univ_a2" not in made
    shutil.copy(good, bad)
    assert convert(raw, out, "--validation", "2") == 0
    assert "generated 1 universes" in capsys.readouterr().out
    assert prepare.main(["verify", str(out)]) == 0


def test_too_small_a_disk_is_told_before_the_work(raw, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 0, 100))
    error = read_errors(capsys, convert(raw, tmp_path / "out", "--validation", "2"))
    assert "needed, 100 B free; nothing was written" in error


def test_a_manifest_is_made_for_data_that_are_there(raw, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(raw, out, "--validation", "2") == 0
    before = read_manifest(out / "manifest.json")
    assert "already exists" in read_errors(capsys, prepare.main(["manifest", str(out)]))
    (out / "manifest.json").unlink()
    (out / "train/lost.tfrecord").symlink_to("/nowhere/annex")
    assert "lost.tfrecord: this is a link to /nowhere" in read_errors(capsys, prepare.main(["manifest", str(out)]))
    (out / "train/lost.tfrecord").unlink()
    os.mkfifo(out / "train/pipe.tfrecord")
    assert "pipe.tfrecord is a pipe, not a file" in read_errors(capsys, prepare.main(["manifest", str(out)]))
    wrong = (out / "train/pipe.tfrecord").rename(out / os.fsdecode(b"train/\xff.tfrecord"))
    for command in (["manifest", str(out)], ["repack", str(out), str(tmp_path / "again"), "--sample-size", "4"]):
        assert r"\udcff" in (said := read_errors(capsys, prepare.main(command))) and "not UTF-8" in said
    wrong.unlink()
    assert prepare.main(["manifest", str(out)]) == 0
    after = read_manifest(out / "manifest.json")
    assert after.compute_digest() == before.compute_digest() and after.variant == "full"
    assert "no files in train and validation" in read_errors(capsys, prepare.main(["manifest", str(raw)]))


def test_another_split_of_the_input_is_refused(raw, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(raw, out, "--validation", "2") == 0
    before = contents(out)
    error = read_errors(capsys, convert(raw, out, "--validation", "3"))
    assert "the input or its split has changed" in error and contents(out) == before


def test_universes_of_one_name_are_refused(raw, tmp_path, capsys):
    write_raw(raw / "copy" / "111" / "univ_a1.hdf5", 99)
    assert "would both become 111_univ_a1" in read_errors(capsys, convert(raw, tmp_path / "out"))


def test_what_is_no_universe_is_said(raw, tmp_path, capsys):
    empty, samples = tmp_path / "empty", tmp_path / "samples"
    empty.mkdir()
    assert "are the two exchanged?" in read_errors(capsys, convert(empty, raw), 2)
    samples.mkdir()
    (samples / "a.tfrecord").touch()
    assert "a.tfrecord is a sample already" in read_errors(capsys, convert(samples, tmp_path / "out"))


def test_universes_are_in_one_split_and_stay_there_when_others_come_or_go():
    names = [f"1_univ_a{i}" for i in range(2000)]
    found = split_by_hash(names, seed=3)
    assert not set(found["train"]) & set(found["validation"])
    assert set(found["train"]) | set(found["validation"]) == set(names)
    assert 0.08 < len(found["validation"]) / len(names) < 0.14
    fewer = split_by_hash(names[::2], seed=3)
    assert set(fewer["validation"]) == set(found["validation"]) & set(names[::2])
    assert split_by_hash(names, seed=4) != found

    exact = split_by_hash(names, train=1600, validation=200)
    assert (len(exact["train"]), len(exact["validation"])) == (1600, 200)
    remaining = [name for name in names if name != exact["validation"][0]]
    without = split_by_hash(remaining, train=1600, validation=200)
    assert set(without["train"]) == set(exact["train"])
