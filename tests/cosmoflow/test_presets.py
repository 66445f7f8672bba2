"""The recipes are those of the published reference convergence points, and log as such."""

from pathlib import Path

import pytest
import yaml

from common.config import load
from common.settings.keys import list_hyperparameters
from cosmoflow.train import Config

HERE = Path(__file__).parents[2] / "cosmoflow"
POINTS = {
    point["batch_size"]: point["hyperparameters"]
    for point in yaml.safe_load((HERE / "rcps.yaml").read_text())["points"]
    if point.get("variant", "full") == "full"
}


@pytest.mark.parametrize("size", POINTS)
def test_a_preset_is_the_recipe_of_its_convergence_point(size):
    config = load(Config, HERE / "presets" / f"gbs{size}.yaml")
    said = list_hyperparameters(config)
    wanted = POINTS[size]
    same = wanted.keys() - {"opt_base_learning_rate", "opt_learning_rate_decay_factor"}
    assert {key: said[key] for key in same} == {key: wanted[key] for key in same}
    # The published points state the first rate, or the peak: one of both.
    rates = (config.schedule.base_lr, said["opt_base_learning_rate"])
    assert wanted["opt_base_learning_rate"] in [pytest.approx(rate) for rate in rates]
    # The reference logs the largest factor alone.
    factors, published = said["opt_learning_rate_decay_factor"], wanted["opt_learning_rate_decay_factor"]
    assert factors == published or max(factors) == published
