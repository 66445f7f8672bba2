"""The baselines of DeepCAM: what they see, and that the command shows them beside the target."""

import json

import numpy as np
import pytest

from deepcam import baselines, synthesize
from deepcam.baselines import NEIGHBOURS, PixelNetwork, Snapshots
from deepcam.reference import CLASS_WEIGHTS
from deepcam.simulation import detection
from deepcam.simulation.detection import CYCLONE


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "deepcam"
    size = "--height 48 --width 64 --size 3.5 --train 24 --validation 8 --test 1 --workers 1"
    assert synthesize.main([str(folder), *size.split()]) == 0
    return folder


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(baselines, "STEPS", 60)
    monkeypatch.setattr(baselines, "BATCH", 2_048)


def test_a_network_sees_a_pixel_its_neighbours_and_the_medians(data, few_steps):
    train = Snapshots(data, "train")
    network = PixelNetwork(train, NEIGHBOURS, CLASS_WEIGHTS)
    pixel = [np.array([number]) for number in (0, 20, 30)]
    seen = network.gather_features(train, *pixel)
    x_HWC, near = train.x_NHWC[0], {(20, 30), *((20 + rows, 30 + columns) for rows, columns in NEIGHBOURS)}
    kept = x_HWC.copy()
    x_HWC += 1
    for row, column in near:
        x_HWC[row, column] = kept[row, column]
    assert (network.gather_features(train, *pixel) == seen).all()
    for row, column in near:
        x_HWC[row, column] += 1
        assert (network.gather_features(train, *pixel) != seen).any()
        x_HWC[row, column] = kept[row, column]
    train.x_NHWC[0] = kept


def test_thresholds_are_the_best_of_those_tried(data):
    train = Snapshots(data, "train")
    tried = [(wind, 101_600.0) for wind in (5.0, detection.GALE, 60.0)]
    assert baselines.choose_thresholds(train, baselines.mark_cyclones, CYCLONE, tried) == (detection.GALE, 101_600.0)


def test_the_command_shows_the_baselines_beside_the_target(data, few_steps, tmp_path, capsys):
    assert baselines.main([str(data), "-o", str(tmp_path / "b.json")]) == 0
    found = {one["name"]: one for one in json.loads((tmp_path / "b.json").read_text())["baselines"]}
    assert list(found) == [
        "background",
        "thresholds",
        "MLP",
        "MLP, weighted",
        "MLP of neighbours",
        "MLP of neighbours, weighted",
    ]
    labels = Snapshots(data, "validation").y_NHW
    everywhere = [(labels == 0).mean(), 0, 0]  # each class is in each snapshot
    assert list(found["background"]["details"]["by_class"].values()) == pytest.approx(everywhere, abs=1e-6)
    assert found["thresholds"]["quality"] > found["background"]["quality"] + 0.05
    assert all(one["details"]["by_class"]["background"] > 0.9 for one in found.values())
    assert "the target lies beyond the best baseline" in capsys.readouterr().out
