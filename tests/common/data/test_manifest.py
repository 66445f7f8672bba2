"""Manifests of datasets: written, read, compared with the files."""

import hashlib
import json

import pytest

from common.data.manifest import (
    Manifest,
    ManifestEntry,
    ManifestError,
    describe_file,
    read_manifest,
    verify_files,
    write_manifest,
)
from tests.common.files import write_files

FILES = {"train/a.bin": b"first", "train/b.bin": b"second", "validation/c.bin": b""}


@pytest.fixture
def dataset(tmp_path):
    """Return a folder with three files and a manifest."""
    write_files(tmp_path, FILES)
    manifest = Manifest(
        benchmark="cosmoflow",
        variant="mini",
        facts={"grid": 32},
        files={name: describe_file(tmp_path / name) for name in reversed(FILES)},
    )
    write_manifest(tmp_path / "manifest.json", manifest)
    return tmp_path, manifest


def test_what_is_written_is_read_back(dataset):
    folder, manifest = dataset
    assert read_manifest(folder / "manifest.json") == manifest
    tree = json.loads((folder / "manifest.json").read_text())
    assert list(tree["files"]) == list(FILES)
    assert tree["format"] == 1 and tree["facts"] == {"grid": 32}


def test_the_digest_names_the_files_and_nothing_else(dataset):
    _, manifest = dataset
    other_facts = Manifest(benchmark="other", files=dict(sorted(manifest.files.items())))
    assert other_facts.compute_digest() == manifest.compute_digest() and len(manifest.compute_digest()) == 64
    for change in ({"train/a2.bin": ManifestEntry(5, "0" * 64)}, {"train/a.bin": ManifestEntry(5, "0" * 64)}):
        assert Manifest(benchmark="other", files=manifest.files | change).compute_digest() != manifest.compute_digest()


def test_each_difference_is_one_line(dataset):
    folder, manifest = dataset
    assert verify_files(folder, manifest) == []
    (folder / "train/a.bin").write_bytes(b"First")
    (folder / "train/b.bin").write_bytes(b"longer than before")
    (folder / "validation/c.bin").unlink()
    (folder / "train/d.bin").touch()
    (folder / "train/e.bin").symlink_to("/nowhere/annex")
    (folder / "notes.txt").touch()  # beside the folders of the dataset: nobody reads it as data
    expected = [
        f"train/a.bin: SHA-256 {hashlib.sha256(b'First').hexdigest()}, expected {hashlib.sha256(b'first').hexdigest()}",
        "train/b.bin: 18 bytes, expected 6",
        "validation/c.bin: missing",
        "train/d.bin: not in the manifest",
    ]
    lost, *others = verify_files(folder, manifest)
    assert lost.startswith("train/e.bin: this is a link to /nowhere/annex") and others == expected
    assert verify_files(folder, manifest, checksum=False) == [lost, *expected[1:]]


def test_many_files_in_several_threads(tmp_path):
    write_files(tmp_path, {f"{i:03}": b"%d" % i for i in range(300)})
    manifest = Manifest(benchmark="b", files={f"{i:03}": describe_file(tmp_path / f"{i:03}") for i in range(300)})
    (tmp_path / "manifest.json").touch()  # not part of the dataset
    for i in (7, 250):
        (tmp_path / f"{i:03}").unlink()
    assert verify_files(tmp_path, manifest, workers=3) == ["007: missing", "250: missing"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": 2}, "format 2"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"benchmark": None}, "Expected `str`"),
        ({"files": {"../a": {"bytes": 1, "sha256": "0" * 64}}}, "expected the name of a file below"),
        ({"files": {"/a": {"bytes": 1, "sha256": "0" * 64}}}, "expected the name of a file below"),
        ({"files": {"a//b": {"bytes": 1, "sha256": "0" * 64}}}, "expected the name of a file below"),
        ({"files": {"a": {"bytes": -1, "sha256": "0" * 64}}}, "bytes >= 0"),
        ({"files": {"a": {"bytes": 1, "sha256": "0"}}}, "SHA-256 of 64"),
        ({"files": {"a": {"bytes": 1}}}, "sha256"),
    ],
)
def test_an_invalid_manifest_is_refused(dataset, change, message):
    folder, _ = dataset
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ManifestError) as raised:
        read_manifest(path)
    assert str(path) in str(raised.value) and message in str(raised.value)


def test_no_manifest_and_half_a_manifest_are_named(tmp_path):
    with pytest.raises(ManifestError, match=r"manifest.json does not exist"):
        read_manifest(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_bytes(b'{"format": 1, "benchm')
    with pytest.raises(ManifestError, match=r"is not a valid manifest"):
        read_manifest(tmp_path / "manifest.json")
