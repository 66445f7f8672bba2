"""`python -m common.new_benchmark`: names it refuses, and the whole flow with the benchmark that it writes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.command import UsageError
from common.new_benchmark import LINES, TEMPLATE, add, main

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide/new-benchmark.md"
SHORT, LONG = "ab", "ocean_eddies_of_2026"


@pytest.fixture
def checkout(tmp_path):
    """Return a tree with the template and the files that list the benchmarks."""
    shutil.copytree(ROOT / TEMPLATE, tmp_path / TEMPLATE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def contents(root):
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Heat", "lower-case letters, digits and _"),
        ("3d_heat", "lower-case letters, digits and _"),
        ("heat-3d", "lower-case letters, digits and _"),
        ("../heat", "lower-case letters, digits and _"),
        (LONG + "7", "at most 20"),
        ("class", "a keyword of Python"),
        ("match", "a keyword of Python"),
        ("yaml", "the name of an installed module"),
        ("json", "the name of an installed module"),
        ("openfold", "lists a benchmark 'openfold' already"),
        ("templates", "exists; choose another name"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused_and_nothing_is_written(name, message, checkout):
    before = contents(checkout)
    with pytest.raises(UsageError, match=message):
        add(checkout, name)
    assert contents(checkout) == before


@pytest.mark.parametrize("name", LINES)
def test_a_list_that_is_not_found_is_an_error_and_nothing_is_written(name, checkout):
    (checkout / name).write_text("nothing\n")
    before = contents(checkout)
    with pytest.raises(UsageError, match=f"{name} has .*: restore it"):
        add(checkout, "heat")
    assert contents(checkout) == before


def test_an_installed_suite_has_no_template(tmp_path):
    with pytest.raises(UsageError, match="a benchmark is added to a checkout"):
        add(tmp_path, "heat")


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "examples:" in shown and "docs/guide/new-benchmark.md" in shown
    assert GUIDE.exists()


def test_what_is_written_is_formatted_and_can_be_imported(checkout):
    """Whatever the length of the name, and its place in the alphabet."""
    before = contents(checkout)
    for name in (SHORT, LONG):
        add(checkout, name)
    after = contents(checkout)
    changed = {path for path in after if after[path] != before.get(path)}
    written = {path for path in changed if Path(path).parts[0] in (SHORT, LONG, "tests")}
    assert changed - written == set(LINES) and "newbenchmark" not in "".join(map(after.get, written)).lower()
    for path, line in LINES.items():
        assert line.format(name="oc20") + line.format(name=SHORT) + line.format(name=LONG) in after[path]
    sources = f"src = ['.', '{ROOT}']"
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--config", ROOT / "ruff.toml", "--config", sources]
        subprocess.run([*ruff, "."], cwd=checkout, check=True)
    environment = os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{ROOT}"}
    code = f"import {SHORT}.evaluate, {LONG}.evaluate"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, env=environment, check=True)


GUARDS = (
    "tests/test_layers.py",
    "tests/test_static_lists.py",
    "tests/test_docs.py",
    "tests/test_language.py",
    "tests/test_synthesize.py",
    "tests/common/training/test_benchmark.py",
    "tests/compliance/test_explain_docs.py",
    "tests/compliance/rules/test_examples.py",
    "tests/submission/round/test_scheduler.py",
    "tests/ocean_eddies",
)


def git(folder, *arguments):
    """Run git as nobody in particular; return what it prints."""
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def copy(tmp_path):
    """Return a new repository with the files that git tracks in this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path / "suite"
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a copy")
    return folder


def run(folder, command):
    """Run `python -m` with a command line in a folder; return what it prints."""
    words = [sys.executable, "-m", *shlex.split(command)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_new_benchmark_goes_through_the_whole_flow(copy):
    """By the guide's commands, as printed: made, trained, checked, packed; and every guard holds."""
    block = re.findall(
        r"^```\n(.*?)^```", (ROOT / "docs/guide/new-benchmark.md").read_text(), re.MULTILINE | re.DOTALL
    )[0]
    make, *commands, test = re.findall(r"^python -m (.+)$", block, re.MULTILINE)
    printed = run(copy, make)
    for command in commands:
        run(copy, command)
        assert command.startswith("submission.round") or f"python -m {command}" in printed
    package = copy / "runs/first-round/package/Example_Organization"
    assert list(package.glob("benchmarks/ocean_eddies/implementations/*/ocean_eddies/model.py"))
    for command in ("compliance.docs", "common.training.config_docs", "mypy"):  # make docs, make lint
        run(copy, command)
    run(copy, f"{test} {' '.join(GUARDS)}")
    run(copy, f"{test} tests/test_train.py -k ocean_eddies")
    changed = {line[3:] for line in git(copy, "status", "--porcelain").splitlines()}
    pages = {f"docs/reference/{name}.md" for name in ("config", "profiles", "rules", "settings")}
    assert changed - pages == {"ocean_eddies/", "tests/ocean_eddies/", *LINES}
