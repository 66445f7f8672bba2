"""What counts as a result: how the training ended, whatever its launcher and its machine make of that."""

import os
import signal

from compliance.logs.log import read_log
from tests.cluster.problem import ended, kill_rank, launchers, until_trained
from tests.cluster.slurm import until
from tests.problems import curve

FINAL = {"target_met", "target_not_met", "diverged"}


def test_a_killed_rank_and_a_stopped_launcher_are_not_results(cluster, round_):
    """Each of them is exit status 1 of torchrun."""
    round_.emit("--emit", "plain", "--ranks-per-node", "2", epochs=12)
    for interrupt in (kill_a_rank, stop_torchrun):
        running = cluster.start("bash", str(round_.script))
        until_trained(round_.run)
        interrupt(round_.run)
        done = running.wait(60)
        assert done.status != 0, str(done)
        assert ended(round_.run) not in FINAL, str(done)
    assert ended(round_.run) == "stopped", str(done)
    done = cluster.run("bash", str(round_.script))
    assert ended(round_.run) == "target_not_met", str(done)
    assert len(curve(round_.run)) == 12


def kill_a_rank(run):
    kill_rank(run, 1)


def stop_torchrun(run):
    (pid,) = launchers(run)
    os.kill(pid, signal.SIGTERM)


def test_the_output_of_a_cancelled_job_says_so(cluster, tmp_path):
    output = tmp_path / "job.txt"
    job = cluster.slurm("sbatch", "--parsable", f"--output={output}", "--wrap", "echo started; srun sleep 100")
    # Slurm says that a job runs before its script does; one that is cancelled then has no output.
    until(lambda: output.is_file() and "started" in output.read_text(), "the script runs")
    cluster.slurm("scancel", job)
    until(lambda: read_log(str(output)).end, "its output has the reason")
    assert "Slurm cancelled the job" in read_log(str(output)).end.text
