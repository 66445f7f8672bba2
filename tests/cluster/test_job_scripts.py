"""The scripts of `submission.round --emit slurm` on a real Slurm."""

import re

import pytest

from tests.cluster.problem import ended, epochs_saved, events, unfinished, until_trained
from tests.cluster.scripts import JOB, nodes_of, start_now, steps, try_jobs, until_ended, until_queued_again
from tests.cluster.slurm import until
from tests.problems import curve

GPUS = ("--nodes", "2", "--ranks-per-node", "2", "--gpus-per-node", "2")
SITE = """\
account: a_project
partition: debug
options: [--comment=ours]
setup: [umask 022]
local_disk: /mnt
cpus_per_task: 2
launcher: srun --cpu-bind=cores
gpus: {per_node: 2, request: gres}
"""


@pytest.mark.parametrize(("config", "site"), [("closed", ""), ("mini", ""), ("closed", SITE)])
def test_slurm_accepts_the_jobs_as_printed(cluster, tmp_path, config, site):
    profile = tmp_path / "site.yaml"
    profile.write_text(site)
    more = ("--site", str(profile)) if site else ()
    done = cluster.run("python", "-m", "submission.round", "--config", config, "--emit", "slurm", *GPUS, *more)
    jobs = JOB.findall(done.text)
    assert len(jobs) == 4, str(done)
    try_jobs(cluster, tmp_path, jobs)
    if site:
        assert "#SBATCH --account=a_project\n" in jobs[0] and "#SBATCH --partition=debug\n" in jobs[0]
        assert "staging.stage_dir=/mnt" in jobs[0]


@pytest.mark.exhaustive
def test_a_job_survives_every_interruption(cluster, round_):
    """Interrupted by a signal, an operator, the end of its time and the loss of a node, a job finishes by itself."""
    round_.emit("--emit", "slurm", "--nodes", "2", "--ranks-per-node", "2", epochs=1000, package=True)
    job = round_.submit()
    for count, interrupt in enumerate(INTERRUPTIONS, 1):
        until_trained(round_.run, 2)
        interrupt(cluster, job)
        if count == len(INTERRUPTIONS):
            epochs = epochs_saved(round_.run) + 2
            round_.problem.round(round_.folder, epochs)
        start_now(cluster, job)
        try:
            until(lambda count=count: len(events(round_.run, "run_resumed")) == count, "the run is resumed")
        except AssertionError as error:
            raise AssertionError(f"{error} after it was interrupted {interrupt.__name__}\n{round_.said()}") from None
    until_ended(cluster, job)
    assert ended(round_.run) == "target_not_met", round_.said()
    assert [stop["metadata"]["status"] for stop in events(round_.run, "run_stop")] == ["aborted"]
    assert len(curve(round_.run)) == epochs
    assert unfinished(round_.run) == []
    until(lambda: not cluster.jobs(), "the job that packages has ended", 120)
    assert (round_.output / "report.html").exists(), round_.said()


def by_signal(cluster, job):
    cluster.slurm("scancel", "--signal=USR1", job)
    until_queued_again(cluster, job)


def by_operator(cluster, job):
    cluster.slurm("scontrol", "requeue", job)
    until_queued_again(cluster, job)


def by_time_limit(cluster, job):
    """Shorten the limit, so that the signal of --signal=USR1@300 is due."""
    cluster.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=2")
    until_queued_again(cluster, job)
    cluster.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")


def by_lost_node(cluster, job):
    """Not the first node, whose processes tell the next owner of the run's folder at once that the former is gone."""
    node = nodes_of(cluster, job)[1]
    cluster.slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    until_queued_again(cluster, job)
    until(lambda: not steps(job), f"the processes of job {job} are gone")
    cluster.slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")


INTERRUPTIONS = (by_signal, by_operator, by_time_limit, by_lost_node)


@pytest.mark.exhaustive
def test_a_script_given_twice_trains_once(cluster, round_):
    round_.emit("--emit", "slurm", "--nodes", "1", epochs=50)
    first = round_.submit()
    until_trained(round_.run)
    second = round_.submit()
    assert second != first
    until_ended(cluster, second)
    assert not ended(round_.run), "the first was to train still"
    output = next(round_.output.rglob(f"slurm-*{second}_0.txt")).read_text()
    assert re.search(rf"{round_.run} is in use by process \d+ of job {first} on nid00\d", output), output
    until_ended(cluster, first, 300)
    assert ended(round_.run) == "target_not_met", round_.said()
    assert [event["metadata"]["epoch_num"] for event in events(round_.run, "epoch_start")] == list(range(1, 51))
    assert len(events(round_.run, "run_stop")) == 1 and not events(round_.run, "run_resumed")
    assert unfinished(round_.run) == []
