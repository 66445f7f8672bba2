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
    lines, path = tmp_path / "nodes.jsonl", tmp_path / "system.json"
    done = cluster.run(*command.split(), *"-m submission.system --this-node".split())
    assert done.status == 0, str(done)
    lines.write_text(done.text)
    done = cluster.run(*"python -m submission.system --set submitter=us --merge".split(), str(lines), "-o", str(path))
    assert done.status == 0 and f"{nodes} nodes read" in done.text, str(done)
    fields = json.loads(path.read_text())
    assert (fields["number_of_nodes"], fields["submitter"]) == (str(nodes), "us")
    assert "nid0" not in str(fields)
