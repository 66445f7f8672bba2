"""`python -m common.new_benchmark`: what it refuses, what it writes; tests/test_installed.py installs a project."""

import os
import subprocess
import sys

import pytest

from common.errors import UsageError
from common.new_benchmark import write_project
from tests.problems import ROOT

SHORT, LONG = "ab", "ocean_eddies_of_2026"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Heat", "lower-case letters, digits and _"),
        ("3d_heat", "lower-case letters, digits and _"),
        ("../heat", "lower-case letters, digits and _"),
        (LONG + "7", "at most 20"),
        ("class", "a keyword of Python"),
        ("match", "a keyword of Python"),
        ("runs", "a meaning of its own"),
        ("true", "a meaning of its own"),
        ("yaml", "the name of an installed module"),
        ("json", "the name of an installed module"),
        ("cosmoflow", "the name of an installed module"),
        ("cosmo_flow", "taken for MLPerf's"),
        ("my_mlperf_heat", "taken for MLPerf's"),
        ("openfold", "taken for MLPerf's"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused_and_nothing_is_written(name, message, empty_folder, tmp_path):
    with pytest.raises(UsageError, match=message):
        write_project(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "title", ['a """ b', "back\\slash", "{name}", "two\nlines", "", " ", "x" * 31, "MLPerf Heat", "CosmoFlow"]
)
def test_a_title_that_cannot_stand_in_the_sources_is_refused(title, tmp_path):
    with pytest.raises(UsageError, match="--title is"):
        write_project("heat", tmp_path / "heat", title)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_the_suite_or_with_files_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"inside the suite.*: --package \.\./mlperf-hpc-heat-flow"):
        write_project("heat_flow", ROOT / "mlperf-hpc-heat-flow")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="exists; choose another by --package"):
        write_project("heat_flow", tmp_path)


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "MLPERF_HPC_BENCHMARKS_FROM": ""}
"""In which the suite is that of this checkout, and no other package is found."""


def test_what_is_written_is_short_formatted_and_typed(tmp_path):
    """Whatever the length of name and title, and the name's place in the alphabet."""
    for name, title in ((SHORT, None), (LONG, "Kältebrücken " + "x" * 17)):
        folder = tmp_path / name
        write_project(name, folder, title)
        texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
        assert sum(text.count("\n") for text in texts) <= 900 and "newbenchmark" not in "".join(texts).lower()
        assert f'\n{name} = "{name}"\n' in (folder / "pyproject.toml").read_text()
        for command in (["check"], ["format", "--check"]):
            subprocess.run([sys.executable, "-m", "ruff", *command, "--no-cache", "--quiet"], cwd=folder, check=True)
    subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "setup.cfg", "-p", LONG],
        cwd=folder,
        env=os.environ | ENVIRONMENT | {"MYPYPATH": str(ROOT)},
        check=True,
    )


@pytest.mark.usefixtures("untraced")
def test_its_own_tests_pass(tmp_path):
    """Not installed. 20 s: the gate's one proof that a benchmark outside the tree trains, and that its log is valid."""
    write_project("ocean_eddies", tmp_path / "project")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path / "project",
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and " skipped" not in done.stdout, done.stdout + done.stderr
