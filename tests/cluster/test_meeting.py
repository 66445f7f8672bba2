"""Ranks meet where a node's host name means its loopback address, and say so where the port of the job is taken."""

import pytest

from tests.cluster.problem import curve
from tests.cluster.scripts import until_ended

TAKEN = """\
#!/bin/bash
# Another service on this node, on the port of the step.
python - <<'END' &
import os, socket, time
from common.ranks.launch import find_rank_position
step = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}
address = find_rank_position(os.environ | step | {"SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"]}).address
server = socket.create_server(("", address.port))
print("taken:", address.port, "on", socket.gethostname(), flush=True)
time.sleep(600)
END
server=$!
sleep 3
srun --kill-on-bad-exit "$@"
MASTER_ADDR=$(hostname) MASTER_PORT=19999 srun --kill-on-bad-exit "$@"
status=$?
kill $server
exit $status
"""


@pytest.mark.exhaustive
def test_ranks_meet_where_debian_gives_a_host_name_a_loopback_address(cluster, problem, tmp_path):
    for node in cluster.nodes:
        cluster.hosts(node, f"127.0.1.1 {node}")
    try:
        done = cluster.run("srun", "-N", "2", "-n", "2", "python", *problem.words(tmp_path, "dist.timeout_s=30"))
    finally:
        for node in cluster.nodes:
            cluster.hosts(node)
    assert "2 ranks on 2 node(s)" in done.text, str(done)
    assert len(curve(tmp_path)) == 2


@pytest.mark.exhaustive
def test_a_taken_port_is_told_and_another_one_can_be_named(cluster, problem, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(TAKEN)
    words = ["python", *problem.words(tmp_path, "dist.timeout_s=30")]
    output = tmp_path / "output.txt"
    job = cluster.slurm("sbatch", "--parsable", "-N", "2", "-n", "2", f"--output={output}", str(script), *words)
    until_ended(cluster, job)
    said = output.read_text()
    assert "taken: " in said and "rank 0 cannot listen on" in said and "set MASTER_ADDR to this host" in said, said
    assert "2 ranks on 2 node(s)" in said, said
    assert len(curve(tmp_path)) == 2
