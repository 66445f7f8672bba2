"""A command whose extra is not installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from common import installed
from common.benchmarks import PACKAGES, Package
from common.installed import missing_extra
from tests.problems import ROOT

COMMANDS = {
    "predict oc20": "oc20 predict",
    "data synthesize deepcam": "deepcam.synthesize",
    "evaluate cosmoflow": "cosmoflow evaluate",
    "weights export": "common.training.weights",
}


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


@pytest.mark.parametrize("name", PACKAGES)
def test_training_without_its_extra_says_in_one_line_what_to_install(name, bare):
    status, said = bare("-m", f"{name}.train", "mini")
    assert (status, said) == (1, f"error: python -m {name}.train needs torch: pip install '{ROOT}[{name}]'\n")


@pytest.mark.parametrize(("words", "module"), COMMANDS.items())
def test_the_installed_script_says_so_for_every_command(words, module, bare):
    call = f"import sys; from submission.cli import main; sys.exit(main({[*words.split(), 'missing']}))"
    status, said = bare("-c", call)
    extra = "train" if module.startswith("common") else re.split(r"\W", module)[0]
    assert status == 1 and said.startswith(f"error: python -m {module} needs ")
    assert said.endswith(f": pip install '{ROOT}[{extra}]'\n") and said.count("\n") == 1


def test_a_program_that_imports_the_suite_has_its_own_traceback(bare):
    status, said = bare("-c", "import cosmoflow.train")
    assert status == 1 and "Traceback" in said


@pytest.mark.parametrize(("distribution", "requirement"), [("wave-speed", "wave-speed"), ("", f"{ROOT}[train]")])
def test_a_plug_in_is_installed_with_its_own_distribution(distribution, requirement, monkeypatch):
    monkeypatch.setattr(installed, "find_package", lambda name: Package(name, ROOT, "x", distribution=distribution))
    said = missing_extra(ModuleNotFoundError(name="torch_of_nobody"), "wave_speed.train")
    assert said == f"python -m wave_speed.train needs torch_of_nobody: pip install '{requirement}'"


def test_other_errors_keep_their_traceback():
    assert missing_extra(ValueError("x"), "oc20.train") is None
    # A module of our own that is missing is not a matter of pip.
    assert missing_extra(ModuleNotFoundError("", name="common.training.nothing"), "oc20.train") is None
