"""Several instances in one job, on nodes with disks of their own."""

import pytest

from tests.cluster.problem import ended, events
from tests.problems import curve

# The order of the instances as the job prints it, the ranks of each, the launchers of the job and of one alone, and how
# the data are staged.
JOBS = {
    "srun-4x1": ("4 at a time", 1, "srun -N 2 -n 4 python", "python", "shard"),
    "srun-4x1-on-2": ("2 at a time", 1, "srun -N 2 -n 2 python", "python", "replicate"),
    "srun-2x2": ("2 at a time", 2, "srun -N 2 -n 4 python", "srun -N 1 -n 2 python", "replicate"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", JOBS)
def test_instances_of_a_job(cluster, problem, tmp_path, name):
    """Each has its own seed and the curve that it has alone; the job has read each byte of the data once."""
    order, ranks, launcher, alone, mode = JOBS[name]
    count, job = 4 // ranks, tmp_path / "job"
    settings = [f"instances.count={count}", f"instances.ranks={ranks}"]
    settings += ["train.epochs=1", f"staging.mode={mode}", "staging.stage_dir=/mnt/staged"]
    done = cluster.run(*launcher.split(), *problem.words(job, *settings), timeout_s=240)
    assert f"{count} instances of {ranks} rank(s) each, {order}" in done.text, str(done)
    folders = [job / f"instance_{number}" for number in range(count)]
    assert [ended(folder) for folder in (job, *folders)] == ["target_not_met"] * (1 + count)
    seeds = [record["value"] for folder in folders for record in events(folder, "seed")]
    assert seeds == [7 + number for number in range(count)]
    staged = [record["metadata"]["staging_bytes_read"] for at in folders for record in events(at, "staging_stop")]
    whole = sum(path.stat().st_size for path in problem.data.rglob("*.tfrecord"))
    assert len(staged) == count and whole <= sum(staged) <= 1.02 * whole
    assert cluster.left_on_nodes() == []
    one = tmp_path / "one"
    cluster.run(*alone.split(), *problem.words(one, "train.epochs=1", "instances.first=1"), timeout_s=240)
    assert curve(folders[1]) == curve(one / "instance_1") != curve(folders[0])
