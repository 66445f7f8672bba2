"""The cluster of these tests itself: nothing of it is left, however the tests end."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import ROOT, Cluster, processes, until

PROGRAM = """\
import sys, time
from pathlib import Path
from tests.cluster.slurm import Cluster
with Cluster(Path(sys.argv[1]), nodes=1):
    print("up", flush=True)
    time.sleep(600)
"""


def of(folder):
    return list(processes(lambda words: any(str(folder) in word for word in words)))


@pytest.mark.exhaustive
def test_a_second_cluster_beside_the_first_ends_with_a_killed_run_of_the_tests(cluster: Cluster, tmp_path):
    run = subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path / "c"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "up\n"
    assert len(of(tmp_path)) > 5
    run.send_signal(signal.SIGKILL)
    run.wait()
    until(lambda: not of(tmp_path), "its processes, and with them namespaces and mounts, are gone")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert "nid001" in cluster.run("srun", "-N", "3", "hostname").text
