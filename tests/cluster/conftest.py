"""Tests on real cluster software: Slurm with several nodes, Open MPI, MPICH. Run them with `make test-cluster`.

They need root on Debian or Ubuntu, and namespaces; elsewhere, and in `make test`, they are skipped. What was found
wrong on such a cluster, and the tests that keep it right (those of other folders need no cluster):

    finding                                                              test
 1  an error of the machine counted as a run that missed its target     test_endings.py: a_killed_rank…
 2  a second job in the same folder took a living run's log             test_job_scripts.py: …given_twice
 3  a run that met its target was lost if its job died right after      submission/runs/test_processes.py: a_success…
 4  signals killed a run outside the training loop                      test_signals.py
 5  a damaged newest checkpoint ended each later attempt                common/training/test_checkpoint.py: damaged…
 6  the port where ranks meet was taken                                 common/ranks/test_meeting.py: a_port_in_use…
 7  Debian's 127.0.1.1 in /etc/hosts made ranks miss each other         test_meeting.py: …loopback…
 8  job scripts had no account, partition and options of a site         test_job_scripts.py: slurm_accepts…
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.problem import Problem
from tests.cluster.scripts import Round
from tests.cluster.slurm import ROOT, Cluster, until

HERE = Path(__file__).parent
BUILT = "MLPERF_HPC_CLUSTER"
"""The variable with the folder that install.sh was called with."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "" if os.environ.get(BUILT) else "on real cluster software: `make test-cluster` runs it"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def built() -> Path:
    """Return the folder with mpi4py for each MPI."""
    return Path(os.environ[BUILT]).resolve()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a Slurm of three nodes."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Generate the data of the small problem."""
    folder = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "cosmoflow.synthesize", str(folder), "--train", "64", "--validation", "16"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    return Problem(folder)


@pytest.fixture
def round_(cluster: Cluster, problem: Problem, tmp_path: Path) -> Round:
    return Round(cluster, problem, tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look after each test whether a job still runs or is queued; cancel it for the next test, and fail.

    The next test gets all nodes: one that was lost is asked for what it still has, which takes Slurm a while.
    """
    yield
    if "cluster" not in request.fixturenames:
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    left = cluster.jobs()
    if left:
        cluster.slurm("scancel", "--full", "--user=root")
        until(lambda: not cluster.jobs(), "the jobs are cancelled")
    until(lambda: cluster.idle() == len(cluster.nodes), "all nodes are idle", 300)
    assert not left, f"jobs were left:\n{left}"
