"""Presets on figures of merit that are simulated: the curve of each finds the law that made them."""

import json
import random
from pathlib import Path

import pytest

from common.ending import COMPLETED, Ending, write_ending
from submission.study.__main__ import main
from submission.study.plan import plan_points, read_plan

pytestmark = pytest.mark.usefixtures("empty_folder")

POWER = -0.9


def simulate(name, measure):
    """Write the results of a preset's runs; measure: the quantities of a run by its ranks and settings."""
    noise = random.Random(0)
    for point in plan_points(read_plan(name), Path("out"), name):
        folders = [*point.run.result_folders, point.run.folder]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            write_ending(folder, Ending(COMPLETED, epochs=2))
        settings = dict(word.split("=", 1) for word in point.run.overrides)
        figure = measure(point.run.ranks, settings, lambda: noise.lognormvariate(0, 0.01))
        common = {"units": point.run.ranks, "samples_per_s": 100.0, "batch": 16, "steps": 256, "minutes": 1.0}
        (folders[-1] / "fom.json").write_text(json.dumps(common | figure))


def fits(name):
    assert main([name, "--no-run", "-o", "out"]) == 0
    study = json.loads(Path("out/study.json").read_text())
    return {curve["title"]: curve["fits"] for curve in study["curves"]}


def test_time_and_energy_over_units(capsys):
    def measure(ranks, settings, noise):
        return {"minutes": 40 * ranks**POWER * noise(), "energy_j": 9e5 * ranks**0.1 * noise()}

    simulate("frey", measure)
    found = fits("frey")
    for title, exponent in (("Time over units", POWER), ("Energy over units", 0.1)):
        (fit,) = found[title]
        low, high = fit["parameters"]["b"]["interval"]
        assert low <= exponent <= high and high - low < 0.1 and fit["formula"]
    assert found["Time over the power limit"][0]["problem"].startswith("no fit")
    assert "Time over units: " in capsys.readouterr().out


def test_quality_over_samples_and_parameters():
    def measure(ranks, settings, noise):
        samples, parameters = int(settings["data.train_samples"]), 1000 * int(settings["model.conv_size"]) ** 2
        quality = (0.1 + 40 * parameters**-0.6 + 9 * samples**-0.7) * (1 + 0.1 * (noise() - 1))
        return {"train_samples": samples, "parameters": parameters, "quality": quality}

    simulate("litmatter", measure)
    (fit,) = fits("litmatter")["Quality over samples and parameters"]
    low, high = fit["parameters"]["b"]["interval"]
    assert low <= 0.7 <= high


def test_efficiency_of_bagging_and_data_parallelism():
    def measure(ranks, settings, noise):
        alone = settings.get("instances.ranks") == "1"
        return {"flop_per_s": 1e9 * (ranks if alone else ranks**0.7) * noise()}

    simulate("ai500-fig9", measure)
    bagging, parallel = (fit["parameters"]["b"]["value"] for fit in fits("ai500-fig9")["Speed"])
    assert bagging == pytest.approx(1, abs=0.05) and parallel == pytest.approx(0.7, abs=0.05)
