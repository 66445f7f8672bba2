"""deepcam.prepare: snapshots become npy files or one HDF5 file per split, in parallel, resumably, verified."""

import errno
import os
import re
import shutil

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

from common.data.manifest import read_manifest  # noqa: E402
from deepcam import prepare  # noqa: E402
from deepcam.data import conversion, snapshot, values  # noqa: E402
from deepcam.data.conversion import locate_arrays  # noqa: E402
from deepcam.reference import CHANNELS  # noqa: E402
from tests.common.files import contents, read_errors, truncate  # noqa: E402
from tests.deepcam.test_summarize import spoil_labels  # noqa: E402

SHAPE = (16, 16, len(CHANNELS))
TRAIN = 20
FORMATS = ("npy", "hdf5-single")
both = pytest.mark.parametrize("form", FORMATS)


def name_of(i):
    return f"data-1996-06-{i // 8 + 1:02d}-{i % 8:02d}-2.h5"


@pytest.fixture
def source(tmp_path):
    folder, rng = tmp_path / "source", np.random.default_rng(0)
    for split, samples in (("train", TRAIN), ("validation", 3), ("test", 1)):
        (folder / split).mkdir(parents=True)
        for i in range(samples):
            data = rng.standard_normal(SHAPE).astype(np.float32)
            snapshot.write_snapshot(folder / split / name_of(i), data, rng.integers(0, 3, SHAPE[:2]))
    vectors = {name: np.zeros(len(CHANNELS)) + (name == "maxval") for name in values.VECTORS}
    values.write_stats(folder / "stats.h5", values.Stats(TRAIN, **vectors))
    return folder


def convert(source, out, form, *options):
    return prepare.main(["convert", str(source), str(out), "--format", form, "--workers", "1", *options])


def samples_of(folder, split, form):
    """Name -> data and labels, read by other means than the suite's."""
    if form == "npy":
        names = [path.name.removeprefix("data-") for path in (folder / split).glob("data-*.npy")]
        load = {name: [np.load(folder / split / f"{kind}-{name}") for kind in ("data", "label")] for name in names}
        return {f"data-{name.removesuffix('.npy')}.h5": arrays for name, arrays in load.items()}
    with h5py.File(folder / f"{split}.h5") as file:
        assert file["data"].dtype == "<f4" and file["labels"].dtype == "u1" and file["data"].chunks is None
        rows = zip(file["names"].asstr(), file["data"][()], file["labels"][()], strict=True)
        return {name: [data, labels] for name, data, labels in rows}


@both
def test_every_sample_is_that_of_its_snapshot(source, tmp_path, form, capsys):
    out = tmp_path / "out"
    with h5py.File(source / "train" / name_of(3), "r+") as file:  # any type of number, also compressed
        labels = file["climate/labels_0"][()]
        del file["climate/labels_0"]
        file.create_dataset("climate/labels_0", data=labels.astype("f4"), chunks=(8, 8), compression="gzip")
    assert convert(source, out, form, "--verify") == 0
    assert "0 differences" in capsys.readouterr().out
    for split, count in (("train", TRAIN), ("validation", 3), ("test", 1)):
        found = samples_of(out, split, form)
        assert sorted(found) == [name_of(i) for i in range(count)]
        for name, (data, labels) in found.items():
            with h5py.File(source / split / name) as file:
                np.testing.assert_array_equal(data, file["climate/data"][()])
                np.testing.assert_array_equal(labels, file["climate/labels_0"][()])
    assert (out / "stats.h5").read_bytes() == (source / "stats.h5").read_bytes()
    manifest = read_manifest(out / "manifest.json")
    assert manifest.facts["format"] == form and manifest.facts["sample_shape"] == list(SHAPE)
    assert manifest.variant == "full" and "stats.h5" in manifest.files
    before = contents(out)
    assert convert(source, out, form) == 0 and contents(out) == before


def test_samples_of_a_big_file_lie_at_pages(source, tmp_path):
    assert convert(source, tmp_path / "out", "hdf5-single") == 0
    file = locate_arrays(tmp_path / "out" / "train.h5")
    assert file.data_NHWC.offset % 4096 == 0 and file.labels_NHW.offset % 4096 == 0


def test_tasks_write_to_the_same_file(source, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    for task in ("0", "1"):
        assert not (out / "manifest.json").exists()
        assert convert(source, out, "hdf5-single", "--task", task, "--n-tasks", "2", "--verify") == 0
    assert convert(source, whole, "hdf5-single") == 0
    assert contents(out) == contents(whole)


def another_shape(path):
    snapshot.write_snapshot(path, np.zeros((32, 16, 16)), np.zeros((32, 16)))


@both
@pytest.mark.parametrize("spoil", [truncate, spoil_labels, another_shape])
def test_a_bad_snapshot_is_named_and_the_others_are_made(source, tmp_path, capsys, form, spoil):
    bad, good, out = source / "train" / name_of(18), tmp_path / "good.h5", tmp_path / "out"
    shutil.copy(bad, good)
    spoil(bad)
    error = read_errors(capsys, convert(source, out, form))
    assert re.search(r"error: skipped train\S+( rows 16 to 19,)?: ", error) and f"{bad}: " in error
    shutil.copy(good, bad)
    assert convert(source, out, form, "--verify") == 0
    assert "generated 1 items" in capsys.readouterr().out


@both
def test_a_full_disk_stops_the_work_and_keeps_what_is_finished(source, tmp_path, capsys, monkeypatch, form):
    out, whole, calls = tmp_path / "out", tmp_path / "whole", []
    module, name = (conversion, "write_npy") if form == "npy" else (os, "pwrite")
    real = getattr(module, name)

    def full_disk(*args):
        calls.append(args)
        if len(calls) > 36:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(module, name, full_disk)
    error = read_errors(capsys, convert(source, out, form))
    assert re.search(r"No space left on device; \d+ of \d+ items are finished and kept. Free", error)
    assert len(calls) == 37
    monkeypatch.undo()
    assert convert(source, out, form) == 0
    assert convert(source, whole, form) == 0
    assert contents(out) == contents(whole)


def test_verify_names_what_is_changed_and_says_how_to_fix_it(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(source, out, "hdf5-single") == 0
    assert prepare.main(["verify", str(out)]) == 0
    right = contents(out)
    with h5py.File(out / "train.h5", "r+") as file:
        file["labels"][17, 2, 2] += 1
    (out / "stats.h5").write_bytes(b"")
    (out / "test.h5").unlink()
    capsys.readouterr()
    assert prepare.main(["verify", str(out), "--sizes-only"]) == 1
    error = read_errors(capsys, prepare.main(["verify", str(out)]))
    record = out / "checksums" / "train-000016.txt"
    assert f"train.h5, row 17: not the recorded {name_of(17)}; delete {record}" in error
    assert "stats.h5: 0 bytes" in error and error.count("test.h5") == 1
    assert "test.h5 is missing although parts" in read_errors(capsys, convert(source, out, "hdf5-single"))
    (out / "test.h5").write_bytes(right["test.h5"])
    record.unlink()
    assert convert(source, out, "hdf5-single") == 0
    assert contents(out) == right


@both
def test_values_are_compared_with_their_snapshots(source, tmp_path, capsys, form):
    out = tmp_path / "out"
    assert convert(source, out, form) == 0
    with h5py.File(source / "train" / name_of(5), "r+") as file:
        file["climate/data"][0, 0, 0] = np.nan
    assert convert(source, out, form, "--verify") == 1
    told = capsys.readouterr()
    assert "1 differences" in told.out and f"differs from {source / 'train' / name_of(5)}; delete" in told.err


def test_nothing_is_mixed_or_overwritten(source, tmp_path, capsys):
    npy, big = tmp_path / "npy", tmp_path / "big"
    assert convert(source, npy, "npy") == 0 and convert(source, big, "hdf5-single") == 0
    before = contents(npy), contents(big)
    assert "format: npy in the folder, hdf5-single now" in read_errors(capsys, convert(source, npy, "hdf5-single"))
    shutil.copy(source / "train" / name_of(0), source / "train" / name_of(99))
    assert "has another dataset" in read_errors(capsys, convert(source, big, "hdf5-single"))
    assert before == (contents(npy), contents(big))
    shutil.rmtree(big / "checksums")
    (big / "manifest.json").unlink()
    assert f"{big / 'train.h5'} has other samples" in read_errors(capsys, convert(source, big, "hdf5-single"))
    assert convert(source, npy, "npy") == 0  # where each sample has files of its own, more may come
    assert "generated 1 items" in capsys.readouterr().out


def test_an_incomplete_input_is_told(source, tmp_path, capsys):
    out = tmp_path / "out"
    for name in os.listdir(source / "train"):
        (source / "train" / name).write_text("<html>404</html>")
    error = read_errors(capsys, convert(source, out, "npy"))
    assert "no snapshot can be read" in error and str(source / "train" / name_of(0)) in error
    (source / "stats.h5").unlink()
    assert "python -m deepcam.summarize" in read_errors(capsys, convert(source, out, "npy"))
    shutil.rmtree(source / "validation")
    assert "python -m deepcam.split" in read_errors(capsys, convert(source, out, "npy")) and not out.exists()


def test_a_manifest_of_what_was_downloaded_covers_the_statistics(source, capsys):
    assert prepare.main(["manifest", str(source)]) == 0
    assert read_manifest(source / "manifest.json").files.keys() >= {"stats.h5", f"test/{name_of(0)}"}
    assert prepare.main(["verify", str(source)]) == 0
    (source / "notes.txt").touch()
    (source / "train" / "data-more.h5").touch()
    capsys.readouterr()
    error = read_errors(capsys, prepare.main(["verify", str(source)]))
    assert error == "error: train/data-more.h5: not in the manifest\n"


def test_what_was_fetched_in_place_of_a_snapshot_is_named(source, capsys):
    path = source / "train" / name_of(0)
    good = path.read_bytes()
    path.write_text("<!DOCTYPE html><title>403</title>")
    assert f"{path}: this is a web page" in read_errors(capsys, prepare.main(["manifest", str(source)]))
    path.write_bytes(good[:-1])
    assert prepare.main(["manifest", str(source)]) == 0
    assert prepare.main(["verify", str(source), "--values"]) == 1
    said = capsys.readouterr()
    assert f"{path}: not a readable HDF5 file" in said.err
    assert f"remove {source / 'manifest.json'}, and write it anew: python -m deepcam.prepare manifest" in said.out
