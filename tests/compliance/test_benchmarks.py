"""The list of benchmarks."""

import pytest

from compliance.benchmarks import _import_own_facts


def test_a_listed_benchmark_without_its_package_is_one_line():
    with pytest.raises(SystemExit, match=r"error: common/benchmarks.py lists 'okay', but there is no .*okay: bring"):
        _import_own_facts("okay")


def test_a_package_that_python_does_not_find_wants_the_installation_again(monkeypatch):
    monkeypatch.setattr("compliance.benchmarks.os.path.exists", lambda _: True)
    with pytest.raises(SystemExit, match=r"repeat `pip install --editable \.`"):
        _import_own_facts("okay")
