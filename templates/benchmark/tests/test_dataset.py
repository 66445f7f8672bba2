"""Files of New Benchmark: what is generated is read back, and wrong folders and shapes are refused."""

import numpy as np
import pytest

from common.data.split import DatasetError
from newbenchmark import synthesize
from newbenchmark.data.dataset import Dataset
from newbenchmark.settings import DataConfig
from newbenchmark.simulation.recipe import Recipe


@pytest.fixture
def folder(tmp_path):
    options = ["--side", "8", "--train", "3", "--validation", "2", "--workers", "1", "--seed", "5"]
    assert synthesize.main([str(tmp_path / "data"), *options]) == 0
    return tmp_path / "data"


def test_samples_are_the_simulated_plates(folder):
    samples = Dataset(folder / "validation", DataConfig(folder, side=8))
    x, y = samples.buffer(1, pinned=False)
    samples.load(1, (x[0].numpy(), y[0].numpy()))
    field, label = Recipe(8, 3, 2).simulate_plate(5, 1, 1)
    np.testing.assert_array_equal(x[0], field)
    assert len(samples) == 2 and y[0] == label


def test_another_size_is_refused(folder):
    samples = Dataset(folder / "train", DataConfig(folder, side=16))
    x, y = samples.buffer(1, pinned=False)
    with pytest.raises(DatasetError, match=r"000000_field\.npy: .* \(8, 8\), .* is data.side right"):
        samples.load(0, (x[0].numpy(), y[0].numpy()))


def test_a_folder_without_samples_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"newbenchmark\.synthesize"):
        Dataset(tmp_path / "train", DataConfig(tmp_path))
    with pytest.raises(DatasetError, match="has no samples"):
        Dataset(tmp_path, DataConfig(tmp_path))
