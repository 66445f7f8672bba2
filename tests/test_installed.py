"""The suite from its wheel, in a folder without a checkout: what it brings is found, what is missing is named."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.version import DISTRIBUTION
from compliance.samples.log import SampleLog
from submission.assemble.implementation import SETUP_FILES
from submission.integrations import FOLDER
from tests.problems import ROOT

CHECKER = ("msgspec", "yaml", "tqdm")
"""What the suite needs without any extra."""
TINY = """
variant: mini2
output_dir: run
data: {data_dir: data/tiny, sample_shape: [16, 16, 16, 4], workers: 1}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.0}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 0}
train: {epochs: 1, global_batch_size: 8, target: 0.9}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1, status: research}
"""
pytestmark = pytest.mark.exhaustive


ISOLATION = ["--no-build-isolation"] if find_spec("setuptools") else []


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    subprocess.run(command, check=True, env=clean_environment())


def clean_environment():
    """Return the environment without what leads to the checkout, or measures it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTHONPATH"))}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, since a build writes beside the sources; return its path."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in (path.parent for path in ROOT.glob("*/__init__.py")):
        shutil.copytree(package, folder / "code" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SETUP_FILES:
        shutil.copy(ROOT / name, folder / "code")
    for name in (FOLDER, "docs"):
        shutil.copytree(ROOT / name, folder / "code" / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-deps", *ISOLATION, "--wheel-dir", folder, folder / "code")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Make environments with the wheel, and nothing else but packages of this one: all of them, or some."""

    def make(*packages):
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=True)
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        pip("--python", folder / "bin/python", "install", "--no-deps", wheel)
        here = Path(sysconfig.get_path("purelib"))
        for name in packages:
            (site / name).symlink_to(Path(find_spec(name).origin).parent)
        if not packages:  # last in the search path, and .pth files in it, as of an editable suite, are not read
            (site / "all_others.pth").write_text(f"{here}\n")
        return folder / "bin"

    return make


class Shell:
    """Runs commands of an environment in a folder."""

    def __init__(self, bin_, folder):
        self.bin, self.folder = bin_, folder

    def __call__(self, line, status=0):
        """Run a command; return what it prints, on both channels. It must end with the status, and no traceback."""
        name, *words = line.split()
        done = subprocess.run(
            [self.bin / name, *words],
            cwd=self.folder,
            env=clean_environment() | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stdout, done.stdout
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def checker(environment):
    return environment(*CHECKER)


@pytest.fixture(scope="module")
def everything(environment):
    return environment()


def test_the_wheel_has_every_page_and_the_types_of_every_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops, typed = (
        {name.partition("/")[0] for name in names if name.endswith(end)} for end in ("/__init__.py", "/py.typed")
    )
    assert tops == typed
    shared = {name.partition(f"share/{DISTRIBUTION}/")[2] for name in names}
    assert {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")} <= shared


def test_the_wheel_brings_pages_and_integrations(checker, tmp_path):
    shell = Shell(checker, tmp_path)
    assert (ROOT / "docs/guide/check.md").read_text() in shell("mlperf-hpc help docs/guide/check.md")
    assert "reframe " in shell("mlperf-hpc integrations")
    shell("mlperf-hpc integrations tools")
    written, expected = (
        {path.relative_to(folder): (path.read_bytes(), os.access(path, os.X_OK)) for path in folder.rglob("*.*")}
        for folder in (tmp_path / "tools", ROOT / FOLDER)
    )
    assert written == {name: file for name, file in expected.items() if name.suffix != ".pyc"}


def test_the_checker_alone_runs_and_names_what_else_needs_an_extra(checker, tmp_path):
    shell = Shell(checker, tmp_path)
    (tmp_path / "result_0.txt").write_bytes(SampleLog("cosmoflow").bytes())
    assert "Check results:" in shell("mlperf-hpc --help")
    assert "PASS" in shell("mlperf-hpc check result_0.txt")
    assert shell("python -m compliance.check result_0.txt") == shell("mlperf-hpc check result_0.txt")
    (tmp_path / "common").mkdir()
    (tmp_path / "common/__init__.py").touch()  # somebody else's package
    assert "PASS" in shell("mlperf-hpc check result_0.txt") and "PASS" in shell(
        "python -P -m compliance.check result_0.txt"
    )
    shutil.rmtree(tmp_path / "common")
    assert "cosmoflow, full, round 3.0" in shell("mlperf-hpc rcp show cosmoflow")
    wanted = (
        r"error: (python -m {0}\.train|mlperf-hpc train {0}) needs (numpy|torch): pip install 'mlperf-hpc-suite\[{0}\]'"
    )
    for name in PACKAGES:
        assert "Train" in shell(f"python -m {name}.train --help")
        for line in (f"python -m {name}.train mini", f"mlperf-hpc train {name} mini"):
            assert re.fullmatch(wanted.format(name) + "\n", shell(line, status=1))
    assert "pip install 'mlperf-hpc-suite[train]'" in shell("mlperf-hpc weights export --help", status=1)
    said = shell(f"mlperf-hpc round --config mini --benchmarks {PACKAGES[0]}", status=1)
    assert re.match(wanted.format(PACKAGES[0]), said) and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", PACKAGES)
def test_configurations_are_found_by_name(name, everything, tmp_path):
    shell = Shell(everything, tmp_path)
    listed = [line.split()[0] for line in shell(f"python -m {name}.train --list-configs").splitlines()]
    assert set(listed) == {"config", "mini", *(path.stem for path in (ROOT / name / "presets").glob("*.yaml"))}
    for config in ("mini", listed[-1]):
        assert "output_dir: " in shell(f"mlperf-hpc train {name} {config} data.data_dir=d --print-config")
    assert "is named mini" in shell(f"python -m {name}.train {name}/mini.yaml", status=2)
    assert f" {name}.train mini " in shell(f"mlperf-hpc round --config mini --benchmarks {name} --emit plain")


def test_a_round_makes_a_package_that_can_be_installed(everything, tmp_path):
    shell = Shell(everything, tmp_path)
    made = shell(
        "mlperf-hpc data synthesize cosmoflow data/tiny --grid 16 --particles 16 --train 24 --validation 7 --workers 1"
    )
    assert "next: mlperf-hpc train cosmoflow " in made
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "round.yaml").write_text("cosmoflow: {config: tiny.yaml}")
    said = shell("mlperf-hpc round --config round.yaml --runs 1 -o out")
    assert "package: out/package/Example_University" in said and (tmp_path / "out/report.html").exists()
    assert "suite submission.assemble" in shell("mlperf-hpc round --config round.yaml --emit plain -o other")
    assert "cosmoflow" in shell("mlperf-hpc report out --project 4 --data analysis")
    assert (tmp_path / "analysis/analysis.json").exists()
    package = tmp_path / "out/package/Example_University"
    code = package / "benchmarks/cosmoflow/implementations/mlperf-hpc-suite"
    for name in (*SETUP_FILES, "cosmoflow/presets/gbs512.yaml", "cosmoflow/README.md"):
        assert (code / name).read_bytes() == (ROOT / name).read_bytes()
    made_by = json.loads((package / "provenance.json").read_text())["implementations"]
    assert list(made_by) == ["benchmarks/cosmoflow/implementations/mlperf-hpc-suite"]
    pip("wheel", "--no-deps", *ISOLATION, "--wheel-dir", tmp_path / "again", code)
    call = f"mlperf-hpc submit assemble out/cosmoflow --system {next(package.glob('systems/*.json'))} -o other"
    assert re.search(r"wrote \d+ files, 0 unchanged", shell(call))


def test_a_project_outside_builds_on_the_wheel(everything, tmp_path):
    """It takes a minute: mypy reads torch."""
    shell = Shell(everything, tmp_path)
    shutil.copy(ROOT / "tests/outside/own_loop.py", tmp_path)
    shell("python -m cosmoflow.synthesize data/tiny --train 16 --validation 8")
    output = shell("python own_loop.py data/tiny run")
    assert "2 steps of an own loop; True" in output and "ended: stopped early by Show: the quality is" in output
    assert re.search(r"problem MeansProblem of own_loop.py \(\w{8}\): this run is not the reference", output)
    assert "Success: no issues found" in shell("python -m mypy --strict own_loop.py")


def test_a_benchmark_in_a_wheel_of_its_own_goes_the_whole_way(environment, tmp_path):
    """Written by the installed suite, and used by nothing but its commands: no file of the project is left."""
    everything = environment()
    shell = Shell(everything, tmp_path)
    shell("python -m common.new_benchmark ocean_eddies")
    project = tmp_path / "mlperf-hpc-ocean-eddies"
    pip("wheel", "--no-deps", *ISOLATION, "--wheel-dir", tmp_path, project)
    pip("--python", everything / "python", "install", "--no-deps", next(tmp_path.glob("*.whl")))
    shutil.rmtree(project)
    shell("mlperf-hpc data synthesize ocean_eddies data/ocean_eddies-mini")
    made = shell("mlperf-hpc round --config mini --benchmarks ocean_eddies --runs 1 -o out")
    package, run = tmp_path / "out/package/Example_Organization", "out/ocean_eddies/run_0"
    assert f"package: {package.relative_to(tmp_path)}" in made
    assert "ocean_eddies" in (tmp_path / "out/report.html").read_text()
    code = package / "benchmarks/ocean_eddies/implementations/mlperf-hpc-suite/ocean_eddies"
    assert (code / "model.py").exists()
    assert "PASS" in (verdict := shell(f"mlperf-hpc check --allow-mini {run}/result_0.txt"))
    assert "not an MLPerf benchmark" in verdict
    shell(f"mlperf-hpc evaluate ocean_eddies {run}")
    shell(f"mlperf-hpc predict ocean_eddies {run} -o predictions.npz")
    shell(f"mlperf-hpc weights export {run} weights.safetensors")
    assert "ocean_eddies" in shell("mlperf-hpc summary out")
    assert "ocean_eddies" in shell("mlperf-hpc report out -o page.html")
    shell("mlperf-hpc study --benchmark ocean_eddies --axis model.channels=4,8 --set train.epochs=1 -o study")
    assert "ocean_eddies" in (tmp_path / "study/study.html").read_text()
    shell("mlperf-hpc accept --record base.json ocean_eddies mini --steps 7 -n 2")
