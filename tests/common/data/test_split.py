"""The files of a split and the manifest beside them: nothing may be missing, and no sample may come from elsewhere."""

import os
from importlib import import_module
from types import SimpleNamespace

import pytest

from common.data.split import DatasetError
from common.datasets.manifest import NAME
from common.tree import RefusedFileError
from compliance.benchmarks import PACKAGES

CASES = [import_module(f"tests.{name}.case").CASE for name in PACKAGES]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def data(case, tmp_path):
    folder = tmp_path / "data"
    assert case.synthesize.main([str(folder), *case.small.split(), "--workers", "1"]) == 0
    return folder


@pytest.fixture
def opened(case, data):
    """Open the first sample of a split, and the samples that a run would then read."""
    dataset = import_module(f"{case.name}.data.dataset")
    sides = {"cosmoflow": {"sample_shape": (8, 8, 8, 4)}}
    config = dataset.DataConfig(data, **sides.get(case.name, {}))
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
    main = SimpleNamespace(is_main=True, broadcast_json=lambda names: told.append(names) or names)
    files = list(opened(ranks=main).files())
    monkeypatch.setattr(os, "listdir", None)
    other = SimpleNamespace(is_main=False, broadcast_json=lambda nothing: told.pop() if nothing is None else None)
    assert list(opened(ranks=other).files()) == files and not told


def test_a_sample_that_the_manifest_lacks_is_refused(case, data, opened):
    first = min((data / "train").glob(case.files))
    (data / "train/README").touch()  # which no loader reads
    assert len(opened()) == 1
    other = first.with_name(first.name.replace(first.suffix, f"x{first.suffix}"))
    other.write_bytes(first.read_bytes())
    with pytest.raises(DatasetError, match=rf"{other} is not in {data}/{NAME} \(1 of the samples .*several datasets"):
        opened()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(case, data, opened, make):
    first = min((data / "train").glob(case.files))
    first.unlink()
    make(first)
    with pytest.raises(RefusedFileError, match=rf"{first} is a (pipe|folder|device), not a file"):
        opened().read(0)
