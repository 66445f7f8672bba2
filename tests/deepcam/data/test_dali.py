"""Batches of NVIDIA DALI against those of the native pipeline, on the CPU."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from common.data.build import BadItemError
from common.data.prefetch import read_batches
from tests.deepcam.data.test_dataset import CPU, STEMS, H, W, dataset, write

DALI = find_spec("nvidia") and find_spec("nvidia.dali")
needs_dali = pytest.mark.needs("dali", DALI, "NVIDIA DALI: pip install '.[dali]'")
STEPS = [np.array(step, np.int64) for step in ([4, 0], [2, 3], [1], [])]


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, "npy")


def batches(folder, pipeline, **options):
    read = read_batches
    if pipeline == "dali":
        from deepcam.data.dali import load_batches as read
    return list(read(dataset(folder, format="npy", pipeline=pipeline, **options), STEPS, CPU))


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
def test_wrong_files_have_a_clear_error(folder):
    np.save(folder / f"{STEMS[4]}.npy", np.zeros((H, W, 15), np.float32))
    with pytest.raises(BadItemError, match=rf"{STEMS[4]}.npy has the shape \(16, 32, 15\)"):
        batches(folder, "dali")


@pytest.mark.skipif(bool(DALI), reason="DALI is installed")
def test_without_dali_the_error_names_the_package(folder):
    with pytest.raises(ValueError, match=r"nvidia-dali-cuda130.*pipeline=native"):
        batches(folder, "dali")
