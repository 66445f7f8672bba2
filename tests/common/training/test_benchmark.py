"""What a benchmark's configuration says of its keys, and the closed division of them."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from common.config import DRAW, LENGTH, RECIPE, leaves, load, to_dict
from common.training import config_docs
from compliance.benchmarks import PACKAGES, REFERENCES

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=PACKAGES)
def benchmark(request):
    pytest.importorskip("torch")
    return import_module(f"{request.param}.train").BENCHMARK


def test_every_key_says_what_it_means(benchmark):
    """`leaves` refuses a field without metadata."""
    found = {leaf.name: leaf.key for leaf in leaves(benchmark.config)}
    assert len(found) > 40 and all(key.doc for key in found.values())
    assert found["train.epochs"].role == LENGTH and found["train.seed"].role == DRAW
    assert found["schedule.base_lr"].role == RECIPE
    assert not found["output_dir"].role.computes and not found["data.workers"].role.borrow


def refused(config, reference, round_):
    """Return the keys whose values the closed division does not allow; config: as in a log's provenance."""
    tree = json.loads(json.dumps(to_dict(config)))
    values = {leaf.name: leaf.of(tree) for leaf in leaves(type(config))}
    return {
        rule.key for rule in reference.closed if round_ in rule.rounds and not rule.allowed.allows(values[rule.key])
    }


def test_the_closed_division_says_something_of_every_key(benchmark):
    reference = REFERENCES[benchmark.name]
    names = [leaf.name for leaf in leaves(benchmark.config)]
    for round_ in reference.rounds:
        asked = [rule.key for rule in reference.closed if round_ in rule.rounds]
        assert sorted(asked) == sorted(names)
    assert all(re.fullmatch(r"\w+\.adoc#[a-z-]+|\w+/README\.md", rule.cite) for rule in reference.closed)


def test_the_recipes_for_the_closed_division_are_closed(benchmark):
    reference = REFERENCES[benchmark.name]
    folder = ROOT / benchmark.name
    for path in (folder / "config.yaml", *folder.glob("presets/gbs*.yaml")):
        assert not refused(load(benchmark.config, path), reference, "3.0"), path
    mini = load(benchmark.config, folder / "mini.yaml")
    assert {"variant", "submission.division"} < refused(mini, reference, "3.0")


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("cosmoflow", "model.conv_size=4"),
        ("cosmoflow", "data.augment=symmetries"),
        ("cosmoflow", "optim.name=muon"),
        ("cosmoflow", "train.target=0.6"),
        ("deepcam", "model.width=0.25"),
        ("deepcam", "optim.eps=1e-8"),
        ("deepcam", "data.channels=[0, 1]"),
        ("oc20", "optim.weight_decay=0.0"),
    ],
)
def test_what_closed_fixes_is_not_free(name, override):
    pytest.importorskip("torch")
    config = import_module(f"{name}.train").BENCHMARK.config
    found = refused(load(config, ROOT / name / "config.yaml", [override]), REFERENCES[name], "3.0")
    assert found == {override.split("=")[0]}


def test_the_page_of_keys_is_up_to_date():
    pytest.importorskip("torch")
    assert config_docs.main(["--check"]) == 0, "run `make docs`"
    text = config_docs.PAGE.read_text()
    assert all(f"\n## {name}\n" in text for name in PACKAGES)
