"""The recipes are those of the published reference convergence points, and log as such."""

from math import ceil
from pathlib import Path

import pytest

from common.config import load
from common.settings.keys import list_hyperparameters
from compliance.rcp.points import ReferencePoint, compare_hyperparameters
from compliance.rcp.table import read_table
from oc20.reference import REFERENCE
from oc20.train import Config

HERE = Path(__file__).parents[2] / "oc20"
PUBLISHED = {
    f"gbs{entry.batch_size}": entry for entry in read_table(HERE / "rcps.yaml").entries if entry.variant == "full"
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_the_recipe_of_its_convergence_point(name):
    path, entry = HERE / "presets" / f"{name}.yaml", PUBLISHED[name]
    config = load(Config, path)
    said = list_hyperparameters(config)
    point = ReferencePoint.from_runs(entry, "epochs", REFERENCE.runs)
    assert compare_hyperparameters(point, said) == []
    assert said["opt_name"] == "AdamW" and config.optim.weight_decay == 0.01
    assert set(point.hyperparameters) <= set(said) and config.train.epochs > max(entry.epochs)
    # The published steps are those of epochs whose last step is a smaller one.
    steps = ceil(config.data.train_samples / config.train.global_batch_size)
    assert config.train.tail == "keep" and config.schedule.warmup_steps == 4 * steps
    assert not any(boundary % steps for boundary in config.schedule.boundaries)
    assert f"reference runs need {min(entry.epochs):g} to {max(entry.epochs):g} epochs" in path.read_text()


def test_every_preset_of_the_full_problem_is_a_published_recipe():
    assert {path.stem for path in (HERE / "presets").glob("gbs*.yaml")} == set(PUBLISHED)
