"""What a benchmark's configuration says of its keys, and the closed division of them."""

import re
from dataclasses import dataclass
from importlib import import_module

import pytest

from common.benchmarks import PACKAGES
from common.settings.keys import (
    DRAW,
    LENGTH,
    RECIPE,
    DeclarationError,
    closed_rows,
    find_rows,
    find_rows_of,
    key,
    list_leaves,
)
from common.version import VERSION
from compliance.benchmarks import REFERENCES
from cosmoflow import settings as cosmoflow
from tests.bench_script import bench_script


@pytest.fixture(params=PACKAGES)
def config(request):
    return import_module(f"{request.param}.settings").Config


def test_every_key_says_what_it_means(config):
    """`list_leaves` refuses a field without metadata."""
    found = {leaf.name: leaf.key for leaf in list_leaves(config)}
    assert len(found) > 40 and all(key.doc for key in found.values())
    assert found["train.epochs"].role == LENGTH and found["train.seed"].role == DRAW
    assert found["schedule.base_lr"].role == RECIPE
    assert not found["output_dir"].role.computes and not found["data.workers"].role.borrow


def test_the_closed_division_says_something_of_every_key(config):
    reference = REFERENCES[config.reference.name]
    names = [leaf.name for leaf in list_leaves(config)]
    for round_ in reference.rounds:
        asked = [rule.key for rule in find_rows_of(reference, VERSION) if round_ in rule.rounds]
        assert sorted(asked) == sorted(names)
    assert all(re.fullmatch(r"\w+\.adoc#[a-z-]+|\w+/README\.md", rule.cite) for rule in find_rows(reference))


def test_a_key_that_closed_says_nothing_of_fails_in_one_sentence_that_says_what_to_write_where(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Data(cosmoflow.DataConfig):
        noise: float = key(0.0, "noise that is added to each voxel")

    @dataclass(frozen=True, kw_only=True)
    class Config(cosmoflow.Config):
        data: Data

    Data.__module__ = Config.__module__ = cosmoflow.__name__
    monkeypatch.setattr(cosmoflow, "Data", Data, raising=False)
    with pytest.raises(DeclarationError) as refused:
        closed_rows(Config)
    assert re.fullmatch(
        r"cosmoflow/settings.py: class Data, noise does not say .* closed=FREE or .*", str(refused.value)
    )
    monkeypatch.setattr(cosmoflow.Config, "closed", {})
    closed_rows.cache_clear()
    with pytest.raises(DeclarationError) as refused:
        bench_script("config_page").format_page([cosmoflow.Config])
    closed_rows.cache_clear()
    assert re.fullmatch(
        r'cosmoflow/settings.py: class Config, closed does not say .*"optim.name": FREE.*', str(refused.value)
    )
