"""What a benchmark's configuration says of its keys, and the closed division of them."""

import re
from importlib import import_module

import pytest

from common.config import DRAW, LENGTH, RECIPE, leaves
from common.training import config_docs
from common.version import VERSION
from compliance.benchmarks import PACKAGES, REFERENCES


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


def test_the_closed_division_says_something_of_every_key(benchmark):
    reference = REFERENCES[benchmark.name]
    names = [leaf.name for leaf in leaves(benchmark.config)]
    for round_ in reference.rounds:
        asked = [rule.key for rule in reference.closed_in(VERSION) if round_ in rule.rounds]
        assert sorted(asked) == sorted(names), "new keys need a row, see Closed in common/reference.py"
    assert all(re.fullmatch(r"\w+\.adoc#[a-z-]+|\w+/README\.md", rule.cite) for rule in reference.closed)


def test_the_page_of_keys_is_up_to_date():
    pytest.importorskip("torch")
    assert config_docs.main(["--check"]) == 0, "run `make docs`"
    text = config_docs.PAGE.read_text()
    assert all(f"\n## {name}\n" in text for name in PACKAGES)
