"""The rules of DeepCAM's baselines: what they try, what they choose, and that the command shows what they reach."""

import json

import pytest

from deepcam import baselines, synthesize
from deepcam.baselines import CYCLONES, RIVERS, CycloneRule, Snapshots
from deepcam.simulation import detection


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "deepcam"
    size = "--height 48 --width 64 --size 3.5 --train 24 --validation 8 --test 1 --workers 1"
    assert synthesize.main([str(folder), *size.split()]) == 0
    return folder


def test_no_number_is_tried_by_which_the_labels_were_made():
    constants = {
        "latitude": {detection.STORMY, detection.TROPICS, detection.POLAR},
        "depth": {detection.CLOSED_PA},
        "warmth": {detection.WARM_K},
        "cold": {detection.COLD_K},
        "near": {detection.NEAR_KM},
        "wind": {detection.GALE},
        "reach": {detection.RING_KM, detection.REACH_KM},
        "eye": {detection.EYE_KM},
        "surplus": {detection.SURPLUS},
        "transport": {detection.TRANSPORT},
        "length": {detection.LONG_KM},
    }
    for grid in (CYCLONES, RIVERS):
        assert not any(constants.get(name, set()) & set(values) for name, values in grid.items())


def test_the_search_leads_to_the_best_of_those_tried(data):
    train = Snapshots(data, "train")
    grid = {name: (values[len(values) // 2],) for name, values in CYCLONES.items()}
    rule = baselines.choose_rule(train, CycloneRule, grid | {"wind": (5.0, 60.0, detection.GALE, 40.0)})
    assert rule.wind == detection.GALE and rule.near == grid["near"][0]


def test_the_command_shows_the_baselines_beside_the_target(data, tmp_path, capsys):
    assert baselines.main([str(data), "-o", str(tmp_path / "b.json")]) == 0
    content = json.loads((tmp_path / "b.json").read_text())
    background, thresholds, regions = content["baselines"]
    assert [row["name"] for row in (background, thresholds, regions)] == [
        "background",
        "thresholds",
        "regions and distances",
    ]
    labels = Snapshots(data, "validation").y_NHW
    everywhere = [(labels == 0).mean(), 0, 0]  # each class is in each snapshot
    assert list(background["details"]["by_class"].values()) == pytest.approx(everywhere, abs=1e-6)
    assert background["quality"] + 0.2 < thresholds["quality"] < 0.75 and regions["quality"] >= 0.85
    assert set(regions["details"]) == {"by_class", "RiverRule", "CycloneRule"}
    assert "regions and distances, meets the target" in capsys.readouterr().out
