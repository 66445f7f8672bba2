"""Batches of NVIDIA DALI against those of the native pipeline, on the CPU."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from common.data.prefetch import read_batches
from deepcam.data.dataset import DataConfig, Dataset
from deepcam.data.snapshot import NPY_DATA, NPY_LABEL, SnapshotError

H, W = 16, 32
DALI = find_spec("nvidia") and find_spec("nvidia.dali")
needs_dali = pytest.mark.needs("dali", DALI, "NVIDIA DALI: pip install '.[dali]'")
CPU = torch.device("cpu")
STEPS = [np.array(step, np.int64) for step in ([4, 0], [2, 3], [1], [])]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    folder = tmp_path / "train"
    folder.mkdir()
    for i in range(5):
        np.save(folder / f"{NPY_DATA}{i}.npy", rng.normal(size=(H, W, 16)).astype(np.float32))
        np.save(folder / f"{NPY_LABEL}{i}.npy", rng.integers(0, 3, (H, W)).astype(np.int32))
    return folder


def batches(folder, pipeline, steps=STEPS, **options):
    config = DataConfig(folder.parent, height=H, width=W, format="npy", workers=1, pipeline=pipeline, **options)
    read = read_batches
    if config.pipeline == "dali":
        from deepcam.data.dali import load_batches as read
    return list(read(Dataset(folder, config), steps, CPU))


@needs_dali
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"channels": (7, 2)}, {"direct": True}], ids=str)
def test_dali_gives_the_batches_of_the_native_pipeline(folder, options):
    for ours, theirs in zip(batches(folder, "native", **options), batches(folder, "dali", **options), strict=True):
        assert torch.equal(ours.x, theirs.x) and ours.x.dtype == theirs.x.dtype
        assert torch.equal(ours.y, theirs.y) and ours.y.dtype == theirs.y.dtype
        assert np.array_equal(ours.indices, theirs.indices)


@needs_dali
@pytest.mark.exhaustive
def test_a_rank_without_samples_gets_empty_batches(folder):
    (batch,) = batches(folder, "dali", STEPS[-1:], channels=(3, 4))
    assert batch.x.shape == (0, H, W, 2) and batch.y.shape == (0, H, W)


@needs_dali
@pytest.mark.exhaustive
def test_wrong_files_have_a_clear_error(folder):
    np.save(folder / f"{NPY_DATA}4.npy", np.zeros((H, W, 15), np.float32))
    with pytest.raises(SnapshotError, match=r"data-4.npy has the shape \(16, 32, 15\)"):
        batches(folder, "dali")


@pytest.mark.skipif(bool(DALI), reason="DALI is installed")
def test_without_dali_the_error_names_the_package(folder):
    with pytest.raises(ValueError, match=r"nvidia-dali-cuda130.*pipeline=native"):
        batches(folder, "dali")
