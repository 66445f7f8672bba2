"""A command whose extra is not installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from common.extras import missing_extra
from compliance.benchmarks import PACKAGES

ROOT = Path(__file__).parents[2]
COMMANDS = [
    *(f"{name}.{command}" for name in PACKAGES for command in ("train", "synthesize")),
    "cosmoflow.prepare",
    "deepcam.prepare",
    "oc20.prepare",
    "cosmoflow.evaluate",
    "deepcam.split",
    "common.export",
]


@pytest.fixture
def bare(tmp_path):
    """Run Python where only what the checker needs is installed; return status and what is on standard error."""
    needed = tmp_path / "site"
    needed.mkdir()
    for name in ("msgspec", "yaml", "tqdm"):
        (needed / name).symlink_to(Path(find_spec(name).origin).parent)

    def run(*arguments):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{needed}"}
        command = [sys.executable, "-S", *arguments]  # without the packages of the environment
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    return run


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(module, bare):
    status, said = bare("-m", module, "--help")
    extra = "train" if module.startswith("common") else module.partition(".")[0]
    assert status == 1 and said.startswith(f"error: {module} needs ")
    assert said.endswith(f": pip install '{ROOT}[{extra}]'\n") and said.count("\n") == 1


@pytest.mark.parametrize("module", ["compliance.check", "compliance.rcp", "submission.summary", "submission.manifest"])
def test_the_checker_without_its_packages_says_so_too(module, tmp_path):
    command = [sys.executable, "-S", "-m", module, "--help"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = rf"error: {module} needs \w+: pip install '{re.escape(str(ROOT))}'\n"
    assert done.returncode == 1 and re.fullmatch(said, done.stderr)


def test_the_installed_script_says_so_too(bare):
    status, said = bare("-c", "import sys; from submission.cli import main; sys.exit(main(['train', 'oc20', 'mini']))")
    assert status == 1 and said.startswith("error: oc20.train needs ") and said.count("\n") == 1


def test_a_program_that_imports_the_suite_has_its_own_traceback(bare):
    status, said = bare("-c", "import cosmoflow.train")
    assert status == 1 and "Traceback" in said


def test_other_errors_keep_their_traceback():
    assert missing_extra(ValueError("x"), "oc20.train") is None
    # A module of our own that is missing is not a matter of pip.
    assert missing_extra(ModuleNotFoundError("", name="common.training.nothing"), "oc20.train") is None
