"""What a benchmark's configuration says of its keys."""

from importlib import import_module

import pytest

from common.config import DRAW, LENGTH, RECIPE, leaves
from compliance.benchmarks import PACKAGES


@pytest.fixture(params=PACKAGES)
def config(request):
    pytest.importorskip("torch")
    return import_module(f"{request.param}.train").BENCHMARK.config


def test_every_key_says_what_it_means(config):
    """`leaves` refuses a field without metadata."""
    found = {leaf.name: leaf.key for leaf in leaves(config)}
    assert len(found) > 50 and all(key.doc for key in found.values())
    assert found["train.epochs"].role == LENGTH and found["train.seed"].role == DRAW
    assert found["schedule.base_lr"].role == RECIPE
    assert not found["output_dir"].role.computes and not found["data.workers"].role.borrow
