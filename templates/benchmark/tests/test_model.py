"""The network of New Benchmark: weights by seed, and the symmetry of the plate."""

import pytest
import torch

from newbenchmark.model import build_model
from newbenchmark.settings import ModelConfig


def test_the_seed_gives_the_weights_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = build_model(ModelConfig(), 1), build_model(ModelConfig(), 1), build_model(ModelConfig(), 2)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.output.weight, again.output.weight)
    assert not torch.equal(first.output.weight, other.output.weight)


def test_a_shifted_plate_has_the_same_diffusivity():
    model = build_model(ModelConfig(), 1)
    x_BHW = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model(x_BHW), model(x_BHW.roll((4, 8), dims=(1, 2))))


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="layers is 0; expected at least 1"):
        ModelConfig(layers=0)
