"""`python -m common.new_benchmark`: names it refuses, and the whole flow with the benchmark that it writes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.errors import UsageError
from common.new_benchmark import GUIDE as GUIDE_NAME
from common.new_benchmark import LINES, TEMPLATE, add, main

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / GUIDE_NAME
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
        ("dali", "an extra or a package in setup.cfg"),
        ("mpi4py", "an extra or a package in setup.cfg"),
        ("runs", "a meaning of its own"),
        ("true", "a meaning of its own"),
        ("yaml", "the name of an installed module"),
        ("json", "the name of an installed module"),
        ("openfold", "a meaning of its own"),
        ("templates", "exists; choose another name"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused_and_nothing_is_written(name, message, checkout):
    before = contents(checkout)
    with pytest.raises(UsageError, match=message):
        add(checkout, name)
    assert contents(checkout) == before


@pytest.mark.parametrize("title", ['a """ b', "back\\slash", "{name}", "two\nlines", "", " ", "x" * 31])
def test_a_title_that_cannot_stand_in_the_sources_is_refused(title, checkout):
    before = contents(checkout)
    with pytest.raises(UsageError, match="--title is"):
        add(checkout, "heat", title)
    assert contents(checkout) == before


@pytest.mark.parametrize("name", LINES)
def test_a_list_that_is_missing_is_named(name, checkout):
    (checkout / name).unlink()
    with pytest.raises(UsageError, match=f"{name} is missing: restore it"):
        add(checkout, "heat")


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


def guide_commands():
    """Return the commands of the guide's first block."""
    return re.findall(r"^```\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[0].splitlines()


def test_the_guide_has_the_commands_that_are_printed(checkout, capsys):
    add(checkout, "ocean_eddies")
    printed = capsys.readouterr().out.partition("next:\n")[2].splitlines()
    assert guide_commands()[1:] == [line.strip() for line in printed[:-1]]


def test_what_is_written_is_formatted_and_can_be_imported(checkout):
    """Whatever the length of name and title, and the name's place in the alphabet."""
    before = contents(checkout)
    for name, title in ((SHORT, None), (LONG, "Kältebrücken " + "x" * 17)):
        add(checkout, name, title)
    after = contents(checkout)
    changed = {path for path in after if after[path] != before.get(path)}
    written = {path for path in changed if Path(path).parts[0] in (SHORT, LONG, "tests")}
    assert changed - written == set(LINES) and "newbenchmark" not in "".join(map(after.get, written)).lower()
    for path, line in LINES.items():
        assert line.format(name=PACKAGES[-1]) + line.format(name=SHORT) + line.format(name=LONG) in after[path]
    assert f"\n{LONG} =\n    mlperf-hpc-suite[train]\n" in after["setup.cfg"]
    sources = f"src = ['.', '{ROOT}']"
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--config", ROOT / "ruff.toml", "--config", sources]
        subprocess.run([*ruff, "."], cwd=checkout, check=True)
    environment = os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{ROOT}"}
    code = f"import {SHORT}.evaluate, {LONG}.evaluate"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, env=environment, check=True)


OTHER_GUARDS = (
    "tests/test_docs.py",
    "tests/test_synthesize.py",
    "tests/compliance/test_explain_docs.py",
    "tests/compliance/rules/test_examples.py",
    "tests/submission/round/test_scheduler.py",
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
    return run_words(folder, [sys.executable, "-m", *shlex.split(command)])


def run_words(folder, words):
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
def test_a_new_benchmark_goes_through_the_whole_flow(copy):
    """By the guide's commands, as printed: made, trained, checked, packed; and every guard holds."""
    *commands, test = [line.removeprefix("python -m ") for line in guide_commands() if line != "make docs"]
    for command in commands:
        run(copy, command)
    package = copy / "runs/first-round/package/Example_Organization"
    assert list(package.glob("benchmarks/ocean_eddies/implementations/*/ocean_eddies/model.py"))
    run_words(copy, [sys.executable, "bench/reference_pages.py"])  # make docs
    run(copy, "mypy")  # make lint
    run(copy, test)
    run(copy, f"pytest {' '.join(OTHER_GUARDS)}")
    run(copy, "pytest tests/test_train.py tests/test_steps.py -k ocean_eddies")
    changed = {line[3:] for line in git(copy, "status", "--porcelain").splitlines()}
    pages = {f"docs/reference/{name}.md" for name in ("config", "profiles", "rules", "settings")}
    assert changed - pages == {"ocean_eddies/", "tests/ocean_eddies/", *LINES}
