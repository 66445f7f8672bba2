"""The small problems of the benchmarks, and a finished run of each: the first test that asks makes it, all read it."""

import csv
import fcntl
import io
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES

ROOT = Path(__file__).parents[1]
# What differs between one process and two: the order in which float32 numbers are added. A pixel may tip over then,
# hence the absolute tolerance for an IoU.
SAME = {"rel": 2e-4, "abs": 2e-4}


STAGED = ("staging.mode=replicate", "staging.stage_dir=node")


class Problems:
    """Folders that all processes of the tests share: nothing in them is changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)

    def _make_once(self, name: str, make: Callable[[Path], None]) -> Path:
        folder = self.root / name
        with (self.root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    make(folder)
                (folder / "made").touch()
        return folder

    def make_data(self, case) -> Path:
        """Return the folder with the data of a case."""

        def make(folder: Path) -> None:
            assert case.synthesize.main([str(folder / case.name), *case.made.split(), "--workers", "1"]) == 0

        return self._make_once(f"data-{case.name}", make) / case.name

    def make_run(self, case) -> Path:
        """Return the folder of a run of four epochs, which has missed its target."""
        data = self.make_data(case)

        def make(folder: Path) -> None:
            with chdir(folder):
                assert case.train.main([write_config(case, data, folder)]) == 4

        return self._make_once(f"run-{case.name}", make) / "run"


def child_environment() -> dict[str, str]:
    """Return the environment of a process with one thread and the modules of this checkout, wherever it works."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def run_process(*command, variables=None, **options):
    """Run a command until it ends; return how it ended, and what it said. variables: more of its environment."""
    environment = child_environment() | (variables or {})
    return subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, check=False, **options
    )


def torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def mpirun(ranks: int) -> list[str]:
    """Return the command of the mpirun beside this Python, or else on the path; skip the test where there is none."""
    pytest.importorskip("mpi4py")
    command = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if command is None:
        pytest.skip("no mpirun: pip install mlperf-hpc-suite[mpi] brings one")
    return [command, "-n", str(ranks), sys.executable]


def write_config(case, data: Path | str, folder: Path) -> str:
    """Write the configuration of a case for its data; return the path."""
    path = folder / "small.yaml"
    path.write_text(case.config.replace("DATA", str(data)))
    return str(path)


@pytest.fixture(scope="session")
def problems(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    return Problems((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "problems")


@pytest.fixture(params=PACKAGES)
def case(request):
    """Return the case of each benchmark in turn; a file that is about one benchmark returns its case instead."""
    return import_module(f"tests.{request.param}.case").CASE


@pytest.fixture
def one_thread():
    """Use one thread, like the processes of `start`: another number of threads adds in another order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(case, problems):
    return problems.make_data(case)


@pytest.fixture
def config(case, data, one_thread, empty_folder):
    """Return a configuration file in an empty working directory."""
    return write_config(case, data, empty_folder)


@pytest.fixture
def run(case, config):
    """Train in this process; return the exit code."""
    return lambda *arguments: case.train.main([config, *arguments])


@pytest.fixture
def start(case, config):
    """Start training in a process of its own, or by a launcher."""

    def started(*arguments, launcher=(sys.executable,)):
        command = [*launcher, "-m", f"{case.name}.train", config, *arguments]
        return subprocess.Popen(
            command, env=child_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    return started


@pytest.fixture
def finished_run(case, one_thread, problems):
    """Return the folder of a finished run, to be read."""
    return problems.make_run(case)


@pytest.fixture
def run_copy(config, finished_run):
    """Copy a finished run to the working directory, as `run`."""
    return shutil.copytree(finished_run, "run")


def curve(folder):
    """Return loss and quality of each epoch of a run."""
    with (Path(folder) / "history.csv").open() as file:
        return [(float(row["loss"]), float(row["quality"])) for row in csv.DictReader(file)]


def flat(pairs):
    return list(itertools.chain.from_iterable(pairs))
