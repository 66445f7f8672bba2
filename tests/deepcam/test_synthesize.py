"""Synthetic weather on disk: the same for everyone who gives the same arguments, in the published layout."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from deepcam import synthesize
from deepcam.data import values
from deepcam.fetch import SNAPSHOT
from deepcam.simulation.detection import label_weather
from deepcam.simulation.planet import Planet
from deepcam.simulation.snapshot_generator import PRESETS, Recipe, name_of
from deepcam.synthesize import plan_synthesis
from tests.common.files import contents

SMALL = ["--height", "48", "--width", "72", "--train", "6", "--validation", "2", "--test", "1"]
RECIPE = Recipe(48, 72, 3.0, train=6, validation=2, test=1)


def synthesize_to(out, *options):
    return synthesize.main([str(out), *SMALL, "--workers", "1", *options])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "out"
    assert synthesize_to(out, "--seed", "5") == 0
    return out


def test_the_mini_problem_is_what_the_design_says():
    plan = plan_synthesis(PRESETS["mini2"], 0)
    assert plan.variant == "mini2" and len(plan.items) == 640
    samples = {"train": 512, "validation": 64, "test": 64}
    assert plan.facts == plan.facts | {"sample_shape": [96, 144, 16], "size": 3.0, "samples": samples}
    assert plan.items[0].files == ("train/data-1980-01-01-00-1.h5",)


def test_no_name_comes_twice_and_all_seasons_are_in_every_split():
    plan = plan_synthesis(replace(PRESETS["mini2"], train=3_000, validation=800, test=400), 0)
    names = [item.name.partition("/")[2] for item in plan.items]
    assert len(set(names)) == 4_200 and all(SNAPSHOT.fullmatch(name) for name in names)
    assert len({name[:15] for name in names[:365]}) == 365
    assert "02-29" not in " ".join(name[10:15] for name in names)
    assert {name_of(2, i)[15:17] for i in range(40)} == {f"{month:02d}" for month in range(1, 13)}


def test_files_have_the_published_layout_and_hold_what_is_simulated(made):
    for code, (split, count) in enumerate({"train": 6, "validation": 2, "test": 1}.items()):
        assert len(list((made / split).iterdir())) == count
        for i in range(count):
            with h5py.File(made / name_of(code, i)) as file:
                assert set(file) == {"climate"} and set(file["climate"]) == {"data", "labels_0"}
                data, labels = file["climate/data"], file["climate/labels_0"]
                assert data.dtype == "<f4" and data.shape == (48, 72, 16) and data.chunks is None
                assert labels.dtype == "<i4" and labels.shape == (48, 72) and labels.chunks is None
                fields, classes = RECIPE.simulate_snapshot(5, code, i)
                np.testing.assert_array_equal(data[()], fields)
                np.testing.assert_array_equal(labels[()], classes)
                assert set(np.unique(classes)) == {0, 1, 2}
                np.testing.assert_array_equal(label_weather(Planet(48, 72, 3.0), data[()]), classes)
    assert values.read_stats(made / "stats.h5").count == 6


def test_statistics_that_are_lost_are_made_again(tmp_path):
    assert synthesize_to(tmp_path / "out") == 0
    before = contents(tmp_path / "out")
    (tmp_path / "out/stats.h5").unlink()
    assert synthesize_to(tmp_path / "out") == 0 and contents(tmp_path / "out") == before
