"""The job scripts of a plan that is not a round, on a real Slurm."""

import json

import pytest

from common.measure.fom import read_measurement
from submission.runs.plan import PlannedRun, is_finished, read_record
from submission.runs.scripts.cluster import Cluster as Jobs
from submission.runs.scripts.script import Script
from tests.cluster.problem import SETTINGS
from tests.cluster.scripts import JOB, try_jobs
from tests.cluster.slurm import until


def plan_runs(folder, data):
    """Return two measurements, on one rank and on four, a training, and what evaluates it."""
    config, *settings = SETTINGS.split()
    training = PlannedRun(
        benchmark="cosmoflow",
        kind="training",
        config=config,
        overrides=(*settings, f"data.data_dir={data}", "train.epochs=1"),
        folder=folder / "seed_7",
        seed=7,
    )
    measurements = [
        PlannedRun(
            benchmark="cosmoflow",
            kind="measurement",
            config="mini",
            overrides=("precision.dtype=fp32", "train.global_batch_size=8"),
            folder=folder / f"ranks_{ranks}",
            ranks=ranks,
            environment={"GLOO_LOG_LEVEL": "ERROR"},
            options=("--steps", "4", "--warmup", "1", "--data", str(data)),
        )
        for ranks in (1, 4)
    ]
    evaluation = PlannedRun(
        benchmark="cosmoflow",
        kind="evaluation",
        config="",
        overrides=(f"data.data_dir={data}",),
        folder=folder / "evaluation",
        options=(str(training.folder),),
    )
    return [*measurements, training, evaluation]


@pytest.fixture
def study(problem, tmp_path):
    """Return the runs of a plan, and their job scripts, of which the last makes a file."""
    runs = plan_runs(tmp_path / "study", problem.data)
    jobs = Jobs(scheduler="slurm", ranks_per_node=2)
    after = f"touch {tmp_path / 'study/figures'}\n"
    return runs, Script(runs=runs, cluster=jobs, out=tmp_path / "study", after=after, title="A study.").render()


def test_slurm_accepts_the_jobs_of_a_study(cluster, study, tmp_path):
    jobs = JOB.findall(study[1])
    assert len(jobs) == 4
    try_jobs(cluster, tmp_path, jobs)


@pytest.mark.exhaustive
def test_a_study_runs_and_is_not_repeated(cluster, study, tmp_path):
    """Takes a minute: five jobs, of which two wait for the others."""
    runs, script = study
    (tmp_path / "submit.sh").write_text("".join(line for line in script.splitlines(True) if ".synthesize " not in line))
    for _ in range(2):
        done = cluster.run("bash", str(tmp_path / "submit.sh"))
        assert done.status == 0, str(done)
        until(lambda: not cluster.jobs(), "all jobs have ended", 240)
        output = "\n".join(path.read_text()[-2000:] for path in sorted((tmp_path / "study").rglob("slurm-*.txt")))
        assert all(map(is_finished, runs)) and (tmp_path / "study/figures").exists(), output
    for run, ranks in zip(runs[:2], (1, 4), strict=True):
        assert read_measurement(run.result_file).units == ranks
    assert read_record(runs[2].folder) == json.loads(runs[2].encode())
    assert output.count("seed_7: target_not_met") == 2 and output.count("ranks_4: done") == 2
