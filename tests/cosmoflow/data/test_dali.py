"""Batches of NVIDIA DALI against those of the native pipeline, on the CPU."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from common.data.prefetch import read_batches
from cosmoflow.data.dataset import DatasetError
from tests.cosmoflow.data.test_dataset import CPU, FORMAT, SHAPE, dataset, write

DALI = find_spec("nvidia") and find_spec("nvidia.dali")
needs_dali = pytest.mark.needs("dali", DALI, "NVIDIA DALI: pip install '.[dali]'")
STEPS = [np.array(step, np.int64) for step in ([4, 0], [2, 3], [1], [])]


def batches(folder, kind, pipeline, steps=STEPS):
    read = read_batches
    if pipeline == "dali":
        from cosmoflow.data.dali import load_batches as read
    return list(read(dataset(folder, format=FORMAT[kind], pipeline=pipeline), steps, CPU))


@needs_dali
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["raw", "npy"])
def test_dali_gives_the_batches_of_the_native_pipeline(tmp_path, kind):
    write(tmp_path / "train", kind)
    native, dali = (batches(tmp_path / "train", kind, pipeline) for pipeline in ("native", "dali"))
    for ours, theirs in zip(native, dali, strict=True):
        assert torch.equal(ours.x, theirs.x) and ours.x.dtype == theirs.x.dtype
        assert torch.equal(ours.y, theirs.y) and ours.y.dtype == theirs.y.dtype
        assert np.array_equal(ours.indices, theirs.indices)


@needs_dali
@pytest.mark.exhaustive
def test_a_rank_without_samples_gets_empty_batches(tmp_path):
    (batch,) = batches(write(tmp_path / "train", "raw"), "raw", "dali", STEPS[-1:])
    assert batch.x.shape == (0, *SHAPE) and batch.y.shape == (0, 4)


@needs_dali
@pytest.mark.exhaustive
def test_what_dali_cannot_read_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"s4.tfrecord is gzipped.*staging.inflate"):
        batches(write(tmp_path / "train", "gzip"), "gzip", "dali")
    with (write(tmp_path / "train", "raw") / "s2.tfrecord").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DatasetError, match=r"s2.tfrecord.*one size"):
        batches(tmp_path / "train", "raw", "dali")


@pytest.mark.skipif(bool(DALI), reason="DALI is installed")
def test_without_dali_the_error_names_the_package(tmp_path):
    with pytest.raises(ValueError, match=r"nvidia-dali-cuda130.*pipeline=native"):
        batches(write(tmp_path / "train", "raw"), "raw", "dali")
