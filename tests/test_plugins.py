"""Benchmarks from outside the suite."""

import importlib
import sys

import pytest

from common import benchmarks
from common.benchmarks import FOLDERS_VARIABLE, PluginError, find_package, list_benchmarks, use_folders
from compliance.benchmarks import find_reference, list_broken_plugins, list_references, load_plugin


@pytest.fixture
def write_package(tmp_path, monkeypatch):
    """Write the facts of packages into a folder that is searched."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(FOLDERS_VARIABLE, "")
    monkeypatch.setenv("PYTHONPATH", "")
    use_folders([str(tmp_path)])
    names = []

    def write(name, facts):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "reference.py").write_text(facts)
        names.append(name)
        forget()

    def forget():
        benchmarks.find_plugins.cache_clear()
        list_references.cache_clear()
        load_plugin.cache_clear()
        importlib.invalidate_caches()

    yield write
    forget()
    for name in [module for module in sys.modules if module.partition(".")[0] in names]:
        del sys.modules[name]


FACTS = """
from dataclasses import replace
from cosmoflow.reference import REFERENCE as COSMOFLOW
REFERENCE = replace(COSMOFLOW, name="waves")
MINIS = ()
"""


def test_a_package_in_a_folder_is_found_and_its_facts_are_read_on_demand(write_package, tmp_path):
    write_package("waves", FACTS)
    assert "waves" in list_benchmarks() and find_package("waves").folder == tmp_path / "waves"
    assert "waves" not in sys.modules
    assert find_reference("waves").name == "waves"
    assert find_reference("waves2") is None


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ("import torch", "without|do without"),
        ("1 / 0", "division by zero"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("REFERENCE, MINIS = None, ()", "found None"),
        (FACTS.replace('name="waves"', 'name="other"'), "REFERENCE.name is 'other'"),
    ],
)
def test_a_broken_package_is_named_and_ends_nothing(facts, cause, write_package, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    write_package("waves", facts)
    with pytest.raises(PluginError, match=cause):
        load_plugin("waves")
    assert find_reference("waves") is None and "waves" in list_broken_plugins()["waves"]


def test_plug_ins_can_be_forbidden(write_package, monkeypatch):
    write_package("waves", FACTS)
    monkeypatch.setenv(benchmarks.PLUGINS_VARIABLE, "off")
    benchmarks.find_plugins.cache_clear()
    assert find_package("waves") is None
