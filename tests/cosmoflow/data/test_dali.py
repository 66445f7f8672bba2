"""Batches of NVIDIA DALI against those of the native pipeline, on the CPU."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from common.data.prefetch import read_batches
from cosmoflow.data import tfrecord
from cosmoflow.data.dataset import DataConfig, Dataset, DatasetError

SHAPE = (8, 8, 8, 4)
DALI = find_spec("nvidia") and find_spec("nvidia.dali")
needs_dali = pytest.mark.needs("dali", DALI, "NVIDIA DALI: pip install '.[dali]'")
CPU = torch.device("cpu")
STEPS = [np.array(step, np.int64) for step in ([4, 0], [2, 3], [1], [])]


@pytest.fixture
def write(tmp_path):
    """Write five samples, gzipped or raw TFRecord and npy, into folders of their own."""
    rng = np.random.default_rng(1)
    samples = [(rng.poisson(1, SHAPE).astype(np.int16), rng.uniform(-1, 1, 4).astype(np.float32)) for _ in range(5)]

    def write(kind):
        folder = tmp_path / kind
        folder.mkdir()
        for i, (x, y) in enumerate(samples):
            if kind == "npy":
                np.save(folder / f"s{i}_data.npy", x)
                np.save(folder / f"s{i}_label.npy", y)
            else:
                tfrecord.write_sample(folder / f"s{i}.tfrecord", x, y, compress=kind == "gzip")
        return folder

    return write


def batches(folder, pipeline, steps=STEPS):
    config = DataConfig(
        folder, sample_shape=SHAPE, format="npy" if folder.name == "npy" else "tfrecord", workers=1, pipeline=pipeline
    )
    read = read_batches
    if config.pipeline == "dali":
        from cosmoflow.data.dali import load_batches as read
    return list(read(Dataset(folder, config), steps, CPU))


@needs_dali
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["raw", "npy"])
def test_dali_gives_the_batches_of_the_native_pipeline(write, kind):
    folder = write(kind)
    for ours, theirs in zip(batches(folder, "native"), batches(folder, "dali"), strict=True):
        assert torch.equal(ours.x, theirs.x) and ours.x.dtype == theirs.x.dtype
        assert torch.equal(ours.y, theirs.y) and ours.y.dtype == theirs.y.dtype
        assert np.array_equal(ours.indices, theirs.indices)


@needs_dali
@pytest.mark.exhaustive
def test_a_rank_without_samples_gets_empty_batches(write):
    (batch,) = batches(write("raw"), "dali", STEPS[-1:])
    assert batch.x.shape == (0, *SHAPE) and batch.y.shape == (0, 4)


@needs_dali
@pytest.mark.exhaustive
def test_what_dali_cannot_read_is_refused(write):
    with pytest.raises(DatasetError, match=r"s4.tfrecord is gzipped.*staging.inflate"):
        batches(write("gzip"), "dali")
    folder = write("raw")
    (folder / "s2.tfrecord").write_bytes((folder / "s2.tfrecord").read_bytes() + b"more")
    with pytest.raises(DatasetError, match=r"s2.tfrecord.*one size"):
        batches(folder, "dali")


@pytest.mark.skipif(bool(DALI), reason="DALI is installed")
def test_without_dali_the_error_names_the_package(write):
    with pytest.raises(ValueError, match=r"nvidia-dali-cuda130.*pipeline=native"):
        batches(write("raw"), "dali")
