"""The recipes are those of the published reference convergence points, and log as such."""

from pathlib import Path

import pytest

from common.config import load
from common.settings.keys import list_hyperparameters
from compliance.rcp.points import ReferencePoint, compare_hyperparameters
from compliance.rcp.table import read_table
from deepcam.reference import REFERENCE
from deepcam.train import Config
from tests.test_published_recipes import RESULTS

HERE = Path(__file__).parents[2] / "deepcam"
PUBLISHED = [entry for entry in read_table(HERE / "rcps.yaml").entries if entry.variant == "full"]


def preset(entry):
    """Check that a recipe that a later round replaced keeps the number of its round in its name."""
    newer = any(other.batch_size == entry.batch_size and other.rounds > entry.rounds for other in PUBLISHED)
    return f"gbs{entry.batch_size}{'-v1' if newer else ''}"


@pytest.mark.parametrize("entry", PUBLISHED, ids=preset)
def test_a_preset_is_the_recipe_of_its_convergence_point(entry):
    path = HERE / "presets" / f"{preset(entry)}.yaml"
    config = load(Config, path)
    said = list_hyperparameters(config)
    point = ReferencePoint.from_runs(entry, "epochs", REFERENCE.runs)
    assert compare_hyperparameters(point, said) == []
    assert {"opt_lr", "opt_name", "opt_weight_decay", "scheduler_type", "scheduler_lr_warmup_steps"} < set(said)
    assert config.train.tail == "drop" and config.train.epochs > max(entry.epochs)
    fewest, most = (int(number(entry.epochs)) for number in (min, max))
    need = f"reference runs need {fewest} to {most} epochs" if fewest < most else f"reference runs need {most} epochs"
    assert need in path.read_text()


def test_every_preset_of_the_full_problem_is_a_published_recipe():
    presets = {path.stem for path in (HERE / "presets").glob("gbs*.yaml")}
    assert presets == {*map(preset, PUBLISHED), *(name for package, name in RESULTS if package == "deepcam")}
