"""What the instances of an ensemble draw: the right shares, and the same on every machine."""

import numpy as np
import pytest

from common.config import ConfigError, load
from common.data.sampling import draw_samples, drawn_samples, out_of_bag
from common.settings.run import InstancesConfig

N = 20_000


@pytest.mark.parametrize("kind", ["bootstrap", "poisson"])
def test_an_instance_draws_63_percent_and_one_of_four_leaves_out_84(kind):
    left_out = np.zeros(N, bool)
    for instance in range(4):
        drawn = draw_samples(kind, 7, instance, N)
        times = np.bincount(drawn, minlength=N)
        assert (np.diff(drawn) >= 0).all() and len(drawn) == pytest.approx(N, abs=0 if kind == "bootstrap" else 500)
        # Numbers of draws are Poisson numbers of mean 1, or nearly so.
        assert np.bincount(times)[:4] / N == pytest.approx(np.exp(-1) / np.array([1, 1, 2, 6]), abs=0.015)
        out = out_of_bag(drawn, N)
        assert len(out) / N == pytest.approx(1 / np.e, abs=0.01)
        assert sorted({*out.tolist(), *drawn.tolist()}) == list(range(N)) and not set(out) & set(drawn)
        left_out[out] = True
    assert left_out.mean() == pytest.approx(1 - (1 - 1 / np.e) ** 4, abs=0.01) and round(left_out.mean(), 2) == 0.84


def test_draws_are_pure_functions_of_seed_and_instance():
    """The numbers are those of every version: a run that is repeated elsewhere has the same samples."""
    assert draw_samples("bootstrap", 1, 0, 8).tolist() == [1, 1, 3, 3, 4, 6, 6, 7]
    assert draw_samples("poisson", 1, 0, 8).tolist() == [0, 0, 1, 2, 2, 3, 3, 3, 3, 6, 7]
    assert len({tuple(draw_samples("bootstrap", *numbers, 100)) for numbers in ((1, 0), (1, 1), (2, 0), (2, 1))}) == 4
    assert draw_samples("none", 1, 3, 4).tolist() == [0, 1, 2, 3] and not len(out_of_bag(np.arange(4), 4))


def test_an_instance_that_is_trained_alone_draws_as_among_others():
    """Its own seed is that of instance 0 plus its number."""
    alone = InstancesConfig(first=3, bagging="bootstrap")
    assert drawn_samples(alone, 11 + 3, 50).tolist() == draw_samples("bootstrap", 11, 3, 50).tolist()
    with pytest.raises(ValueError, match="the seed of instance 0 is -1"):
        drawn_samples(alone, 2, 50)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("count=0", "count is 0; expected at least 1"),
        ("ranks=0", "ranks is 0; expected at least 1, node, or null"),
        ("first=-1", "first is -1; expected 0 or more"),
        ("bagging=jackknife", "bagging: expected"),
    ],
)
def test_wrong_values_have_a_clear_error(key, message, tmp_path):
    path = tmp_path / "instances.yaml"
    path.write_text("count: 1")
    with pytest.raises(ConfigError, match=message):
        load(InstancesConfig, path, [key])
