"""The container recipes: their extras exist, and a shell can parse them; no image is built here."""

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from submission.assemble.implementation import SETUP_FILES

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "containers/Dockerfile").read_text()
DEFINITION = (ROOT / "containers/mlperf-hpc.def").read_text()
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


@pytest.mark.parametrize("recipe", [DOCKERFILE, DEFINITION], ids=["docker", "apptainer"])
def test_the_extras_exist(recipe):
    extras = re.search(r"--editable '\.\[(.*)\]'", recipe)[1].split(",")
    assert {"all", "mpi"} <= set(extras) <= set(SETUP["options.extras_require"])


def test_the_wheel_contains_the_setup_files_of_a_package():
    assert tuple(SETUP["options.data_files"]["share/mlperf-hpc-suite"].split()) == SETUP_FILES


def test_a_shell_can_parse_the_commands():
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    post = DEFINITION.partition("%post\n")[2].partition("%environment")[0]
    assert len(steps) == 3 and "pip install" in post
    for text in (*steps, post):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_the_image_runs_as_a_user():
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["mlperf"]
