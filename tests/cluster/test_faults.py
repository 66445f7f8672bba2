"""A rank that is killed ends the others, long before they give up waiting for it."""

import pytest

from tests.cluster.problem import events, kill_rank, until_trained

LAUNCHERS = {
    "torchrun": "torchrun --nproc-per-node 2",
    "srun": "srun -N 2 -n 2 python",
    "mpirun": "mpirun.mpich -n 2 python",
    "srun-shared": "srun -N 2 -n 4 python",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LAUNCHERS)
def test_all_ranks_end_when_one_is_killed(cluster, problem, built, tmp_path, name):
    """The others wait for it in a collective, or for the halo of a sample that they share."""
    launcher, settings = LAUNCHERS[name], ["dist.spatial=4"] if name.endswith("shared") else []
    variables = {"PYTHONPATH": f"{built / 'mpich'}:{cluster.environment()['PYTHONPATH']}"}
    running = cluster.start(*launcher.split(), *problem.words(tmp_path, "train.epochs=400", *settings), **variables)
    until_trained(tmp_path)
    kill_rank(tmp_path, 1)
    done = running.wait(60)  # dist.timeout_s is 600
    assert done.status != 0, str(done)
    if not launcher.startswith("mpirun"):  # MPICH kills all ranks at once
        assert [stop["metadata"]["status"] for stop in events(tmp_path, "run_stop")] == ["aborted"], str(done)
