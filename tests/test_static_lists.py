"""Files that no program reads as Python name the packages by a pattern, or name exactly those that there are."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from common.version import VERSION
from compliance.benchmarks import PACKAGES
from tests.module_graph import NO_PACKAGES, packages

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
FOUND = packages(ROOT)
SUITE = {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.cfg"} | FOUND
OTHER_EXTRAS = {"train", "all", "plot", "triton", "mpi", "dali", "wandb", "mlflow", "dev"}


def test_the_wheel_has_every_folder_with_python_files():
    assert SETUP["options"]["packages"] == "find:" and "options.packages.find" not in SETUP
    assert SETUP["options"]["package_dir"].split() == ["=", "."]  # see setup.cfg
    folders = {path.parent for package in FOUND for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
    assert [name for name in NO_PACKAGES if (ROOT / name / "__init__.py").exists()] == []


def test_every_package_says_that_it_has_types():
    assert "py.typed" in SETUP["options.package_data"]["*"].split()
    assert [name for name in [*FOUND, "templates/benchmark"] if not (ROOT / name / "py.typed").exists()] == []


def test_every_benchmark_has_an_extra_and_all_has_all():
    extras = SETUP["options.extras_require"]
    assert set(extras) == OTHER_EXTRAS | set(PACKAGES)
    assert re.findall(r"mlperf-hpc-suite\[(\w+)\]", extras["all"]) == list(PACKAGES)


def test_coverage_and_types_are_of_every_package():
    make = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"--cov=(\w+)", make.stdout)) == FOUND
    assert "source" not in SETUP["coverage:run"] and SETUP["mypy"]["files"] == "."
    left_out = re.compile(SETUP["mypy"]["exclude"])
    assert [name for name in FOUND if left_out.match(f"{name}/model.py")] == []


def copied_by_docker():
    lines = re.findall(r"^COPY (.*)$", (ROOT / "containers/Dockerfile").read_text(), re.MULTILINE)
    return [source for line in lines for source in shlex.split(line)[:-1]]


def sent_to_docker():
    return re.findall(r"^!(.*)$", (ROOT / "containers/Dockerfile.dockerignore").read_text(), re.MULTILINE)


def copied_by_apptainer():
    files = (ROOT / "containers/mlperf-hpc.def").read_text().partition("%files\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in files.splitlines()]


@pytest.mark.parametrize("listed", [copied_by_docker, sent_to_docker, copied_by_apptainer])
def test_containers_hold_the_suite_and_nothing_else(listed):
    assert sorted(listed()) == sorted(SUITE)


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", ".github/workflows/ci.yml", "action.yml"])
def test_no_other_file_lists_benchmarks(name):
    named = [word for word in PACKAGES if re.search(rf"(?<!bench/){word}\b", (ROOT / name).read_text())]
    assert len(named) <= 1, f"{name} names {named}: let it ask compliance.benchmarks, or compare it here"


def test_the_version_is_one():
    assert SETUP["metadata"]["version"] == VERSION
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
