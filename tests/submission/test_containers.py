"""The container recipes name files, extras and sections that exist; no engine builds them here."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "containers/Dockerfile").read_text()
DEFINITION = (ROOT / "containers/mlperf-hpc.def").read_text()
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def copied_by_docker():
    lines = re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE)
    return {source for line in lines for source in shlex.split(line)[:-1]}


def copied_by_apptainer():
    files = DEFINITION.partition("%files\n")[2].partition("\n\n")[0]
    return {line.split()[0] for line in files.splitlines()}


def test_both_copy_the_whole_suite_and_nothing_else():
    packages = {name.rstrip("*") for name in SETUP["options.packages.find"]["include"].split()}
    wanted = packages | {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.cfg"}
    ignored = (ROOT / "containers/Dockerfile.dockerignore").read_text()
    assert copied_by_docker() == copied_by_apptainer() == set(re.findall(r"^!(.*)$", ignored, re.MULTILINE)) == wanted
    assert all((ROOT / name).exists() for name in wanted)


@pytest.mark.parametrize("recipe", [DOCKERFILE, DEFINITION], ids=["docker", "apptainer"])
def test_the_extras_exist(recipe):
    extras = re.search(r"--editable '\.\[(.*)\]'", recipe)[1].split(",")
    assert set(extras) <= set(SETUP["options.extras_require"]) and {"cosmoflow", "deepcam", "oc20", "mpi"} <= set(
        extras
    )


def test_the_shell_commands_are_read_by_a_shell():
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    post = DEFINITION.partition("%post\n")[2].partition("%environment")[0]
    assert len(steps) == 3 and "pip install" in post
    for text in (*steps, post):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_the_image_runs_as_a_user():
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["mlperf"]
