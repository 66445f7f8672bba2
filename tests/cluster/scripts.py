"""The scripts that `submission.round --emit` prints for the small problem, and the jobs that they submit."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster.problem import Problem
from tests.cluster.slurm import Cluster, processes, until

JOB = re.compile(r"<<'END_OF_JOB'\n(.*?)^END_OF_JOB\n", re.MULTILINE | re.DOTALL)
# Where the part begins that packages the runs.
PACKAGE = re.compile(r"^submit --dependency|^system=", re.MULTILINE)
STATES_THAT_END = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}


class Round:
    """A round of one run of the small problem, as a script."""

    def __init__(self, cluster: Cluster, problem: Problem, folder: Path) -> None:
        self.cluster, self.problem, self.folder = cluster, problem, folder
        self.output = folder / "round"
        self.run = self.output / "cosmoflow" / "run_0"
        self.script = folder / "submit.sh"

    def emit(self, *arguments: str, epochs: int, settings: tuple[str, ...] = (), package: bool = False) -> None:
        """Print the script; package: with the part that makes the package, which takes a while."""
        plan = self.problem.round(self.folder, epochs, *settings)
        command = ["python", "-m", "submission.round", "--config", str(plan), "-o", str(self.output), *arguments]
        done = self.cluster.run(*command)
        assert done.status == 0, done
        text = "".join(line for line in done.text.splitlines(True) if ".synthesize " not in line)  # the data are there
        self.script.write_text(text if package else PACKAGE.split(text)[0])

    def submit(self) -> str:
        """Give the script; return the number of the job that trains."""
        done = self.cluster.run("bash", str(self.script))
        assert done.status == 0, done
        jobs = self.cluster.slurm("squeue", "-h", "--array", "-o", "%A %j")
        return max((line.split()[0] for line in jobs.splitlines() if line.endswith("mlperf-cosmoflow")), key=int)

    def said(self) -> str:
        """Return what the jobs said."""
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.output.rglob("slurm-*.txt"))
        )


def try_jobs(cluster: Cluster, folder: Path, jobs: list[str]) -> None:
    """Ask Slurm whether it would take these job scripts."""
    for job in jobs:
        (folder / "job.sh").write_text(job)
        tested = cluster.run("sbatch", "--test-only", str(folder / "job.sh"))
        assert tested.status == 0 and "to start at" in tested.text, str(tested)


def state(cluster: Cluster, job: str) -> str:
    """Return a job's state, such as PENDING and RUNNING."""
    match = re.search(r"JobState=(\w+)", cluster.slurm("scontrol", "show", "job", job))
    return match[1] if match else ""


def until_queued_again(cluster: Cluster, job: str) -> None:
    """Wait until a job that was interrupted is queued; its time limit is looked at every 30 s."""
    until(lambda: state(cluster, job) == "PENDING", f"job {job} is queued again", 100)


def start_now(cluster: Cluster, job: str) -> None:
    """Let a job start that was queued again: Slurm has it wait for two minutes.

    At least a second must pass: nodes take a job that begins in the second of its end for the one that was ended.
    """
    cluster.slurm("scontrol", "update", f"JobId={job}", "StartTime=now+3")


def until_ended(cluster: Cluster, job: str, timeout_s: float = 120) -> None:
    """Wait until a job has ended, and is not queued again."""
    until(lambda: state(cluster, job) in STATES_THAT_END, f"job {job} has ended", timeout_s)


def nodes_of(cluster: Cluster, job: str) -> list[str]:
    """Return the nodes of a job."""
    match = re.search(r" NodeList=(\S+)", cluster.slurm("scontrol", "show", "job", job))
    assert match, f"job {job} has no nodes"
    return cluster.slurm("scontrol", "show", "hostnames", match[1]).split()


def steps(job: str) -> list[int]:
    """Return the processes of Slurm that look after the steps of a job, on all nodes."""
    return list(processes(lambda words: words[0].startswith(f"slurmstepd: [{job}.")))
