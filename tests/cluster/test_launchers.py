"""Ranks started by every launcher at hand train the same curve, which is that of one process."""

import pytest

from tests.cluster.slurm import ROOT
from tests.problems import curve

MEET = "--rdzv-backend c10d --rdzv-endpoint nid001:29500 --rdzv-id one"
# How the suite names the launcher, the number of ranks, the command, and settings.
LAUNCHERS = {
    "torchrun": ("torchrun", 2, "torchrun --nproc-per-node 2"),
    "openmpi-2": ("openmpi", 2, "mpirun.openmpi --oversubscribe -n 2 python"),
    "openmpi-4": ("openmpi", 4, "mpirun.openmpi --oversubscribe -n 4 python"),
    "mpich-2": ("pmi", 2, "mpirun.mpich -n 2 python"),
    "mpich-4": ("pmi", 4, "mpirun.mpich -n 4 python"),
    "srun-3-nodes": ("slurm", 4, "srun -N 3 -n 4 python"),
    "srun-pmi2": ("pmi", 4, "srun --mpi=pmi2 -N 2 -n 4 python"),
    "srun-torchrun": ("torchrun", 4, f"srun -N 2 -n 2 torchrun --nnodes 2 --nproc-per-node 2 {MEET}"),
    "torchrun-shared": ("torchrun", 2, "torchrun --nproc-per-node 2", "dist.spatial=2"),
    "openmpi-shared": ("openmpi", 4, "mpirun.openmpi --oversubscribe -n 4 python", "dist.spatial=[2,2]"),
    "mpich-shared": ("pmi", 4, "mpirun.mpich -n 4 python", "dist.spatial=4"),
    "srun-shared": ("slurm", 4, "srun -N 2 -n 4 python", "dist.spatial=2"),
    "srun-shared-over-nodes": ("slurm", 4, "srun -N 2 -n 4 -m cyclic python", "dist.spatial=4"),
}


@pytest.fixture(scope="module")
def curves(cluster, problem, tmp_path_factory):
    """Return the curve of one process, and later those of several, by the number of ranks and settings."""
    folder = tmp_path_factory.mktemp("one")
    assert cluster.run("python", *problem.words(folder)).status in (1, 4)
    return {(1,): curve(folder)}


SMOKE = {"torchrun", "openmpi-4", "mpich-4", "srun-3-nodes", "srun-torchrun"}
"""One command of each launcher; the others are exhaustive."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in SMOKE)) for name in LAUNCHERS]
)
def test_the_curve_is_that_of_one_process(cluster, problem, built, curves, tmp_path, name):
    launcher, ranks, command, *settings = LAUNCHERS[name]
    mpi = built / name.partition("-")[0]
    path = f"{mpi}:{ROOT}" if mpi.is_dir() else str(ROOT)
    done = cluster.run(*command.split(), *problem.words(tmp_path, *settings), PYTHONPATH=path)
    assert f"{ranks} ranks on " in done.text and f"started by {launcher}," in done.text, str(done)
    found = curve(tmp_path)
    assert found == curves.setdefault((ranks, *settings), found)
    assert len(found) == 2
    for epoch, alone in zip(found, curves[1,], strict=True):
        assert epoch == pytest.approx(alone, rel=1e-3)
