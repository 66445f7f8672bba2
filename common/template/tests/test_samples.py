"""Samples and network: files hold what the simulation gives, and the network predicts from it what they ask for."""

import numpy as np
import pytest
import torch
from common.data.split import DatasetError
from common.training.resolve import resolve_config
from torch.nn.utils import parameters_to_vector

from newbenchmark.data.dataset import Dataset
from newbenchmark.model import build_model
from newbenchmark.settings import Config
from newbenchmark.simulation.recipe import PRESETS
from newbenchmark.synthesize import SYNTHESIS


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    SYNTHESIS.provide_data(folder, SYNTHESIS.mini)
    return resolve_config(Config, "mini", [f"data.data_dir={folder}"])


def test_files_hold_what_the_simulation_gives(config):
    samples = Dataset(config.data.data_dir / "validation", config.data)
    expected = PRESETS["mini"].simulate_sample(0, 1, 5)
    for actual, array in zip(samples.read(5), expected, strict=True):
        np.testing.assert_array_equal(actual, array)


def test_a_folder_without_samples_is_refused(config, tmp_path):
    for folder in (tmp_path, tmp_path / "train"):
        with pytest.raises(DatasetError):
            Dataset(folder, config.data)


def test_the_network_predicts_what_a_sample_asks_for(config):
    x, y = Dataset(config.data.data_dir / "train", config.data).read(0)
    assert build_model(config.model, 1)(torch.from_numpy(x)[None]).shape == (1, *y.shape)


def test_the_seed_gives_the_weights_and_leaves_the_generator_alone(config):
    before = torch.get_rng_state()
    first, again, other = (parameters_to_vector(build_model(config.model, seed).parameters()) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again) and not torch.equal(first, other)
