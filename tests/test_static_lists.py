"""Files that no program reads as Python name the packages by a pattern, or name exactly those that there are."""

import configparser
import re
import shlex

import pytest

from common.benchmarks import PACKAGES
from common.new_benchmark import TEMPLATE
from common.version import VERSION
from tests.module_graph import NO_PACKAGES, packages
from tests.problems import ROOT, run_process

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
FOUND = packages(ROOT)
SUITE = {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.cfg", "docs", "integrations"} | FOUND
OTHER_EXTRAS = set("train all committee plot study triton mpi dali wandb mlflow dev docs storage completion".split())


def test_the_wheel_has_every_folder_with_python_files():
    assert SETUP["options"]["packages"] == "find:" and "options.packages.find" not in SETUP
    assert SETUP["options"]["package_dir"].split() == ["=", "."]  # see setup.cfg
    files = (path for package in FOUND for path in (ROOT / package).rglob("*.py"))
    folders = {path.parent for path in files if TEMPLATE not in path.parents}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
    assert [name for name in NO_PACKAGES if (ROOT / name / "__init__.py").exists()] == []


def test_every_package_says_that_it_has_types():
    assert "py.typed" in SETUP["options.package_data"]["*"].split()
    assert [name for name in FOUND if not (ROOT / name / "py.typed").exists()] == []


def test_every_benchmark_has_an_extra_and_all_has_all():
    extras = SETUP["options.extras_require"]
    assert set(extras) == OTHER_EXTRAS | set(PACKAGES)
    assert re.findall(r"mlperf-hpc-suite\[(\w+)\]", extras["all"]) == list(PACKAGES)


def test_coverage_and_types_are_of_every_package():
    assert set(re.findall(r"--cov=(\w+)", run_process("make", "-n", "test-all", cwd=ROOT).stdout)) == FOUND
    assert "source" not in SETUP["coverage:run"] and SETUP["mypy"]["files"] == "."
    assert [name for name in FOUND if re.match(SETUP["mypy"]["exclude"], f"{name}/model.py")] == []


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


def locked(path):
    """Return the version of each package in a lock file, and whether all have hashes."""
    entries = re.split(r"^(?=[\w.-]+==)", path.read_text(), flags=re.MULTILINE)[1:]
    versions = dict(re.match(r"([\w.-]+)==(\S+)", entry).groups() for entry in entries)
    return versions, all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("name", ["requirements.lock", ".github/release-tools.lock"])
def test_locks_have_the_tested_versions_and_hashes(name):
    versions, have_hashes = locked(ROOT / name)
    text = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    assert have_hashes and {package: tested.get(package, version) for package, version in versions.items()} == versions
    assert not re.search(r"https?:|file:|--(extra-)?index", (ROOT / name).read_text())


def test_the_lock_has_what_the_extras_need():
    extras = SETUP["options.extras_require"]
    lines = SETUP["options"]["install_requires"] + "".join(extras[name] for name in ("train", *PACKAGES))
    needed = {name.lower() for name in re.findall(r"^(?!mlperf-hpc-suite)([\w-]+)", lines, re.MULTILINE)}
    assert len(needed) > 10 and needed <= set(locked(ROOT / "requirements.lock")[0])


def test_actions_are_named_by_digest():
    texts = [path.read_text() for path in (*ROOT.glob(".github/workflows/*.yml"), ROOT / "action.yml")]
    uses = [use for text in texts for use in re.findall(r"uses: (.*)", text)]
    assert len(uses) >= 5 and [use for use in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", use)] == []


def test_the_version_is_one():
    assert SETUP["metadata"]["version"] == "attr: common.version.VERSION"
    release, day = re.findall(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    wheels = re.findall(r"mlperf_hpc_suite-(.*?)-py3", (ROOT / "docs/guide/install.md").read_text())
    assert set(wheels) == {VERSION}
    version, date = (f"{release}.dev0", "") if day == "unreleased" else (release, f"date-released: {day}\n")
    assert version == VERSION and f"version: {VERSION}\n{date}" in (ROOT / "CITATION.cff").read_text()
