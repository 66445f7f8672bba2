"""Data are staged on the nodes' own disks, and nothing is left there."""

import shlex

import pytest

from tests.cluster.problem import ended
from tests.problems import curve

OTHERS = [pytest.param(mode, marks=pytest.mark.exhaustive) for mode in ("none", "replicate", "memory")]


@pytest.mark.parametrize("mode", ["shard", *OTHERS])
def test_every_mode_leaves_nothing_on_three_nodes(cluster, problem, tmp_path, mode):
    staging = ("train.epochs=1", f"staging.mode={mode}", "staging.stage_dir=/mnt/staged")
    done = cluster.run("srun", "-N", "3", "-n", "3", "python", *problem.words(tmp_path, *staging))
    assert f"staging: {mode}" in done.text, str(done)
    assert len(curve(tmp_path)) == 1
    assert cluster.left_on_nodes() == []


@pytest.mark.exhaustive
def test_tasks_of_an_array_on_one_node_wait_for_the_folder_that_they_share(cluster, problem, tmp_path):
    words = problem.words(
        tmp_path / "run_N", "train.epochs=1", "staging.mode=replicate", "staging.stage_dir=/mnt/staged"
    )
    command = shlex.join(words).replace("run_N", "run_$SLURM_ARRAY_TASK_ID")
    (tmp_path / "array.sh").write_text(f"#!/bin/bash\nsrun python {command}\n")
    options = ["--wait", "--array=0-2", "--nodelist=nid001", "--ntasks=1", f"--output={tmp_path}/output_%a.txt"]
    done = cluster.run("sbatch", *options, str(tmp_path / "array.sh"), timeout_s=300)
    texts = [(tmp_path / f"output_{task}.txt").read_text() for task in range(3)]
    assert done.status == 4, (str(done), texts)  # all of them missed the target
    assert {ended(tmp_path / f"run_{task}") for task in range(3)} == {"target_not_met"}
    assert any("waiting until it is free" in text for text in texts), texts  # one may begin after the others
    assert len({str(curve(tmp_path / f"run_{task}")) for task in range(3)}) == 1
    assert cluster.left_on_nodes() == []
