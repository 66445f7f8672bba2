"""Benchmarks from outside the suite."""

import os
import re
import sys
from pathlib import Path

import pytest

from common import benchmarks
from common.benchmarks import PluginError, find_package, find_plugins, list_benchmarks, use_folders
from common.version import FOLDERS_VARIABLE
from compliance.benchmarks import BROKEN, find_reference, load_plugin
from submission.cli import main
from tests.compliance.test_plugins import forget


@pytest.fixture
def write_package(tmp_path, monkeypatch):
    """Write the facts of packages into a folder that is searched."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(FOLDERS_VARIABLE, "")
    monkeypatch.setenv("PYTHONPATH", "")
    use_folders([str(tmp_path)])

    def write(name, facts):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "reference.py").write_text(facts)
        forget()

    yield write
    forget()


FACTS = """
from dataclasses import replace
from cosmoflow.reference import REFERENCE as COSMOFLOW
REFERENCE = replace(COSMOFLOW, name="waves", points="waves/rcps.yaml")
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
        (FACTS + "REFERENCE = replace(REFERENCE, runs=10**30)", "1 to 1000"),
        (FACTS + "REFERENCE = replace(REFERENCE, runs=0)", "1 to 1000"),
        (FACTS + "MINIS = (REFERENCE,) * 100_000", "different variants"),
        (FACTS + "REFERENCE = replace(REFERENCE, target=replace(REFERENCE.target, value=float('nan')))", "finite"),
        (FACTS.replace("waves/rcps.yaml", "nowhere.yaml"), "points is 'nowhere.yaml'; expected a file"),
        (FACTS.replace("waves/rcps.yaml", "waves/../../etc/passwd"), "in the package"),
        ("import os; os.symlink('/dev/zero', os.path.dirname(__file__) + '/rcps.yaml')" + FACTS, "in the package"),
        ("import os; os.mkfifo(os.path.dirname(__file__) + '/rcps.yaml')" + FACTS, "a file of at most"),
    ],
)
def test_a_broken_package_is_named_and_ends_nothing(facts, cause, write_package, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    write_package("waves", facts)
    with pytest.raises(PluginError, match=cause):
        load_plugin("waves")
    assert find_reference("waves") is None and "waves" in BROKEN["waves"]


def test_plug_ins_can_be_forbidden(write_package, monkeypatch):
    write_package("waves", FACTS)
    monkeypatch.setenv(benchmarks.PLUGINS_VARIABLE, "off")
    benchmarks.find_plugins.cache_clear()
    assert find_package("waves") is None


@pytest.mark.parametrize(
    "name", ["cosmo\u043eflow", "w" * 21, "mlperf", "mlcommons_heat", "cosmo_flow", "openfold", "Waves"]
)
def test_a_name_that_passes_for_another_is_not_found(name, write_package):
    write_package(name, "")
    assert find_package(name) is None or name in benchmarks.PACKAGES


@pytest.mark.parametrize("file", ["cosmoflow/__init__.py", "common/__init__.py", "json.py", "yaml.py"])
def test_a_folder_that_would_hide_modules_is_refused(file, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    before = [*sys.path]
    with pytest.raises(PluginError, match=f"its {Path(file).parts[0]} would hide the module"):
        use_folders([str(tmp_path)])
    assert sys.path == before


def test_a_folder_comes_after_the_modules_of_the_suite(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(FOLDERS_VARIABLE, "")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugins").mkdir()
    use_folders(["plugins"])
    assert os.environ["PYTHONPATH"] == f"/elsewhere{os.pathsep}{tmp_path / 'plugins'}"


def test_a_folder_of_the_variable_is_absolute_and_exists(write_package, tmp_path, monkeypatch):
    write_package("waves", FACTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDERS_VARIABLE, ".")
    find_plugins.cache_clear()
    assert find_package("waves").origin == str(tmp_path)
    monkeypatch.setenv(FOLDERS_VARIABLE, "nowhere")
    find_plugins.cache_clear()
    with pytest.raises(PluginError, match=r"nowhere.*no such folder"):
        find_package("waves")
    monkeypatch.setenv(FOLDERS_VARIABLE, "")


def test_two_folders_with_one_name_are_refused(write_package, tmp_path):
    write_package("waves", FACTS)
    (tmp_path / "more" / "waves").mkdir(parents=True)
    (tmp_path / "more" / "waves" / "reference.py").write_text(FACTS)
    use_folders([str(tmp_path / "more"), str(tmp_path / "more" / ".")])
    with pytest.raises(PluginError, match=f"{tmp_path / 'more'} and {tmp_path} .*several have that name"):
        load_plugin("waves")


def test_a_package_that_trains_has_the_shared_commands(write_package, tmp_path, capsys):
    write_package("waves", FACTS)
    assert main(["evaluate", "waves", "--help"]) == 2
    (tmp_path / "waves" / "train.py").write_text("1 / 0")
    for command in ("evaluate", "predict", "measure"):
        capsys.readouterr()
        with pytest.raises(SystemExit, match="0"):
            main([command, "waves", "--help"])
        assert f" {command} waves " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "waves"), "'waves' of {folder} has no train.py"),
        (("predict", "waves"), "'waves' of {folder} has no train.py"),
        (("data", "fetch", "waves"), r"cannot be used: ZeroDivisionError.*reference.py, line 1"),
        (("--no-plugins", "train", "waves"), "'waves' is not a benchmark"),
        (("--no-plugins", "--benchmarks-from={folder}", "check"), "give one of them"),
        (("--benchmarks-from={folder}", "train", "waves"), "has no train.py"),
        (("--benchmarks-from", "nowhere", "check"), "no such folder"),
        (("--benchmarks-from",), "expected --benchmarks-from DIR"),
    ],
)
def test_the_command_line_says_why_a_benchmark_cannot_be_used(
    words, message, write_package, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(benchmarks.PLUGINS_VARIABLE, "")
    write_package("waves", "1 / 0")
    (tmp_path / "waves" / "fetch.py").touch()
    assert main([word.format(folder=tmp_path) for word in words]) == 2
    assert re.search(message.format(folder=tmp_path), capsys.readouterr().err)
