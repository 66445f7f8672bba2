"""The description of all nodes of a job, by every launcher that puts processes on several nodes."""

import json

import pytest

MEET = "--rdzv-backend c10d --rdzv-endpoint nid001:29501 --rdzv-id system"
LAUNCHERS = {
    "srun": (2, "srun -N 2 python"),
    "srun-2-per-node": (3, "srun -N 3 --ntasks-per-node 2 python"),
    "srun-pmi2": (2, "srun --mpi=pmi2 -N 2 -n 2 python"),
    "openmpi": (2, "salloc -N 2 mpirun.openmpi --map-by ppr:1:node python"),
    "mpich": (2, "salloc -N 2 mpirun.mpich -n 2 -ppn 1 python"),
    "srun-torchrun": (2, f"srun -N 2 -n 2 torchrun --nnodes 2 --nproc-per-node 2 {MEET}"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_system_of_a_job_has_its_nodes(cluster, tmp_path, name):
    nodes, command = LAUNCHERS[name]
    module = "-m submission.system --set submitter=us -o".split()
    done = cluster.run(*command.split(), *module, str(tmp_path / "system.json"))
    assert done.status == 0 and f"{nodes} nodes, all the same" in done.text, str(done)
    fields = json.loads((tmp_path / "system.json").read_text())
    assert (fields["number_of_nodes"], fields["submitter"]) == (str(nodes), "us")
    assert "nid0" not in str(fields) and len(list(tmp_path.iterdir())) == 1


@pytest.mark.exhaustive
def test_a_folder_that_the_nodes_do_not_share_is_told(cluster):
    done = cluster.run(*"srun -N 2 python -m submission.system -o /mnt/system.json --timeout 3".split())
    assert done.status == 1 and "no description of node 1 of 2" in done.text, str(done)
    assert done.text.count("error: no description") == 1 and cluster.left_on_nodes() == []
