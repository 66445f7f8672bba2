"""The files of a split and the manifest beside them: nothing may be missing, and no sample may come from elsewhere."""

import os
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from common.data import node_memory
from common.data.manifest import NAME, ManifestEntry, read_manifest, write_manifest
from common.data.split import DatasetError
from common.files import is_foreign
from common.tree import RefusedFileError
from cosmoflow.prepare import find_universes
from tests.common.files import write_files

FOREIGN = [
    "._SAMPLE",
    ".DS_Store",
    "._.DS_Store",
    ".nfs000000000012ab34",
    ".SAMPLE.xYz123",
    "SAMPLE.part",
    "SAMPLE.0123456789abcdef.tmp",
    "Thumbs.db",
    "thumbs.db",
    "desktop.ini",
    "Desktop.ini",
    ".directory",
]
"""Of macOS, NFS, rsync, interrupted downloads, killed processes, Windows and KDE."""


@pytest.fixture
def data(case, tmp_path):
    folder = tmp_path / "data"
    assert case.synthesize.main([str(folder), *case.small.split(), "--workers", "1"]) == 0
    return folder


@pytest.fixture
def opened(case, data):
    """Open the first sample of a split, and the samples that a run would then read."""
    dataset = import_module(f"{case.name}.data.dataset")
    config = dataset.DataConfig(data, **({"sample_shape": (8, 8, 8, 4)} if case.name == "cosmoflow" else {}))
    return lambda **ranks: dataset.Dataset(data / "train", config, 1, **ranks)


def test_a_file_that_the_manifest_lists_must_be_there(case, data, opened):
    assert len(opened()) == 1
    last = max((data / "train").glob(case.files))
    last.unlink()
    expected = rf"{last} is missing: {data}/{NAME} lists it \(1 of the \d files .*python -m {case.name}.prepare verify"
    with pytest.raises(DatasetError, match=expected):
        opened()


def test_the_first_rank_lists_the_folder_for_all(case, data, opened, monkeypatch):
    told = []

    def share_bytes(content, ranks):
        told.extend([content] if ranks.is_main else [])
        return memoryview(content if ranks.is_main else told.pop(0))

    monkeypatch.setattr(node_memory, "share_bytes", share_bytes)
    files = list(opened(ranks=SimpleNamespace(is_main=True)).files())
    monkeypatch.setattr(os, "listdir", None)
    assert list(opened(ranks=SimpleNamespace(is_main=False)).files()) == files and not told


def test_a_sample_that_the_manifest_lacks_is_refused(case, data, opened):
    first = min((data / "train").glob(case.files))
    (data / "train/README").touch()  # which no loader reads
    assert len(opened()) == 1
    other = first.with_name(first.name.replace(first.suffix, f"x{first.suffix}"))
    other.write_bytes(first.read_bytes() + b" ")
    with pytest.raises(DatasetError, match=rf"{other} is not in {data}/{NAME} \(1 of the samples .*several datasets"):
        opened()
    other.write_bytes((copy := min((data / "validation").glob(case.files))).read_bytes())
    with pytest.raises(DatasetError, match=rf"{other} has the content of {copy}.* remove these copies from .*train"):
        opened()


CONVERT = {
    "cosmoflow": "repack --format npy --sample-size 8",
    "deepcam": "convert --format npy",
    "oc20": "convert --format compact",
}


def test_files_of_other_systems_are_passed_over_whether_or_not_a_manifest_lists_them(case, data, opened, tmp_path):
    """By the loader and by all commands of `prepare`, which also find an output folder with such files empty."""
    names = list(opened().files())
    last = max((data / "train").glob(case.files))
    for name in FOREIGN:
        (data / "train" / name.replace("SAMPLE", last.name)).write_bytes(b"\0\5\26\7")
    (data / "train/__MACOSX").mkdir()
    (data / "train/__MACOSX" / last.name).write_bytes(b"")
    prepare = import_module(f"{case.name}.prepare")
    assert list(opened().files()) == names
    assert prepare.main(["verify", str(data)]) == 0
    (tmp_path / "out/train").mkdir(parents=True)
    (tmp_path / "out/train/.DS_Store").touch()
    command, *options = CONVERT[case.name].split()
    assert prepare.main([command, str(data), str(tmp_path / "out"), *options, "--workers", "1"]) == 0
    assert not [name for name in read_manifest(tmp_path / "out" / NAME).files if is_foreign(Path(name).name)]
    before = read_manifest(data / NAME)
    (data / NAME).unlink()
    assert list(opened().files()) == names
    assert prepare.main(["manifest", str(data)]) == 0
    files = read_manifest(data / NAME).files
    assert files.items() <= before.files.items() | {"stats.h5": files.get("stats.h5")}.items()
    assert {name for name in files if name.startswith("train/")} == {
        *(path for path in before.files if "train/" in path)
    }
    # One of an earlier version, which took them for data.
    entries = {f"train/{name}": ManifestEntry(4, "0" * 64) for name in (".DS_Store", f"._{last.name}", "gone.part")}
    write_manifest(data / NAME, msgspec.structs.replace(before, files=before.files | entries))
    assert list(opened().files()) == names


def test_universes_are_made_without_files_of_other_systems(tmp_path):
    names = ("a/u.hdf5", "a/._u.hdf5", "__MACOSX/a/u.hdf5", ".Trash-1000/files/u.hdf5")
    write_files(tmp_path, dict.fromkeys(names, b"\x89HDF\r\n\x1a\n"))
    assert find_universes(tmp_path) == {"a_u": tmp_path / "a/u.hdf5"}


@pytest.mark.parametrize(
    "name", ["a.tfrecord", "data-1.h5", "data.0000.lmdb", "data_log.0.txt", "README", "part", "tmp"]
)
def test_other_names_are_data(name):
    assert not is_foreign(name)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(case, data, opened, make):
    first = min((data / "train").glob(case.files))
    first.unlink()
    make(first)
    with pytest.raises(RefusedFileError, match=rf"{first} is a (pipe|folder|device), not a file"):
        opened().read(0)
