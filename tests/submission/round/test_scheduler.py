"""Scripts for clusters: bash runs them, with stand-ins for the schedulers' commands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from compliance.benchmarks import PACKAGES, REFERENCES
from submission.round.__main__ import main

STAND_INS = {
    # Each job becomes a file; its number is its name.
    "sbatch": 'echo "sbatch $*" >>calls; n=$(grep -c "^sbatch" calls); cat >"job_$n.sh"; echo "$n;cluster"',
    "qsub": 'echo "qsub $*" >>calls; n=$(grep -c "^qsub" calls); cat >"job_$n.sh"; echo "$n[].host"',
    "srun": 'echo "srun $*" >>calls; while [ "$1" != python ]; do shift; done; exec "$@"',
    "mpiexec": 'echo "mpiexec $*" >>calls; shift 2; exec "$@"',
    "scontrol": 'echo "scontrol $*" >>calls',
    # The first attempt at a run is stopped by a signal, the second meets the target.
    "python": """\
echo "python $*" >>calls
case "$*" in
*--print-config*) printf '  %s\\n' 'org: A Lab' 'status: cloud' 'platform: our_cluster' 'data_dir: data/mini'; exit ;;
*.train*) ;;
*) exit ;;
esac
for word in "$@"; do case $word in output_dir=*) run=${word#output_dir=} ;; esac; done
mkdir -p "$run/checkpoints"
echo ':::MLLOG {"key": "run_stop"}' >"$run/result_0.txt"
[ -e "$run/checkpoints/epoch-0001.pt" ] && exit
touch "$run/checkpoints/epoch-0001.pt"
exit 3
""",
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Make an empty working directory, and stand-ins for the commands of a cluster."""
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)


def emitted(capsys, *arguments, config="closed"):
    assert main(["--config", config, *arguments]) == 0
    return capsys.readouterr().out


def bash(text, **environment):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return subprocess.run(["bash", "-s"], input=text, text=True, env=os.environ | environment, check=False).returncode


def calls(command):
    return [line for line in Path("calls").read_text().splitlines() if line.startswith(command)]


def test_slurm_jobs_are_submitted_resumed_and_packaged(cluster, capsys):
    text = emitted(
        capsys, "--emit", "slurm", "--benchmarks", "cosmoflow", "oc20", "--nodes", "4", "--ranks-per-node", "2",
        "--gpus-per-node", "2", "--set", "submission.org=Ex's Lab", "-o", "runs/r1", "--sources", "our code",
    )  # fmt: skip
    assert bash(text) == 0
    assert calls("sbatch") == ["sbatch --parsable"] * 2 + ["sbatch --parsable --dependency=afterany:1:2"]
    job = Path("job_1.sh").read_text()
    for line in ("--nodes=4", "--ntasks-per-node=2", "--gpus-per-node=2", "--array=0-9", "--signal=USR1@300"):
        assert f"#SBATCH {line}\n" in job
    assert "#SBATCH --array=0-4\n" in Path("job_2.sh").read_text()
    ids = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "77"}
    assert bash(job, **ids) == 3 and calls("scontrol") == ["scontrol requeue 77"]
    assert bash(job, **ids) == 0 and "--resume" in calls("python")[-1]
    assert "staging.stage_dir=$TMPDIR/cosmoflow submission.org=Ex's Lab" in calls("python")[-1]
    trained = len(calls("python"))
    assert bash(job, **ids) == 0 and len(calls("python")) == trained  # finished
    assert bash(Path("job_3.sh").read_text()) == 0
    packaging = calls("python")[trained:]
    commands = "cosmoflow.train system assemble report summary compliance.check".split()
    assert [line.split()[2].removeprefix("submission.") for line in packaging] == commands
    assert "--set system_name=our_cluster number_of_nodes=4 submitter=A Lab division= status=cloud" in packaging[1]
    system = "--system runs/r1/our_cluster.json"
    assert f"assemble runs/r1/cosmoflow/run_1 -o runs/r1/package {system} --sources our code" in packaging[2]
    assert "cosmoflow.train config " in packaging[0]


def test_pbs_jobs_are_submitted_and_resumed(cluster, capsys):
    text = emitted(capsys, "--emit", "pbs", "--benchmarks", "deepcam", "--nodes", "2", "--time", "01:00:00")
    assert bash(text) == 0
    assert calls("qsub") == ["qsub ", "qsub -W depend=afterany:1[].host"]
    job = Path("job_1.sh").read_text()
    for line in ("-J 0-4", "-l select=2:ncpus=1:mpiprocs=1", "-l walltime=01:00:00"):
        assert f"#PBS {line}\n" in job
    ids = {"PBS_ARRAY_INDEX": "0", "PBS_O_WORKDIR": str(Path.cwd())}
    assert (bash(job, **ids), bash(job, **ids)) == (3, 0)
    assert "timeout --foreground --signal=USR1 3300 mpiexec -n 2" in job and "--resume" in calls("mpiexec")[-1]
    assert bash(Path("job_2.sh").read_text(), **ids) == 0


def test_a_plain_script_makes_all_runs(cluster, capsys):
    text = emitted(capsys, "--emit", "plain", "--benchmarks", "cosmoflow", "--runs", "2", config="mini")
    assert [bash(text), bash(text), bash(text)] == [3, 3, 0]  # each run is stopped once
    assert calls("python -m cosmoflow.synthesize")[0] == "python -m cosmoflow.synthesize data/mini"
    assert len(list(Path("runs/round/cosmoflow").glob("run_*/ended"))) == 2
    assert "--allow-mini" in calls("python")[-1]


@pytest.mark.parametrize("image", ["ours.sif", "ours.sqsh"])
def test_runs_go_into_a_container(cluster, capsys, image):
    text = emitted(capsys, "--emit", "slurm", "--container", image, "--gpus-per-node", "1")
    wanted = (
        'apptainer exec --nv --bind "$PWD" ours.sif python' if image == "ours.sif" else "--container-image=ours.sqsh"
    )
    assert len(re.findall(re.escape(wanted), text)) == len(PACKAGES) + 1  # and the package
    assert bash(text) == 0


def test_seeds_are_distinct(capsys):
    text = emitted(capsys, "--emit", "plain")
    seeds = [seed for line in re.findall(r"^seeds=\((.*)\)$", text, re.MULTILINE) for seed in line.split()]
    assert len(seeds) == len(set(seeds)) == sum(REFERENCES[name].runs for name in PACKAGES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emit", "slurm", "--time", "4h"], "expected HH:MM:SS"),
        (["--emit", "slurm", "--time", "00:05:00"], "more than 10 minutes"),
        (["--emit", "slurm", "--container", "docker.tar"], "expected image.sif"),
        (["--emit", "pbs", "--container", "image.sqsh"], "for Slurm with pyxis"),
        (["--emit", "plain", "--nodes", "2"], "for one machine"),
        (["--emit", "plain", "-o", "my runs; rm"], "expected a name of letters"),
    ],
)
def test_wrong_use(capsys, arguments, message):
    assert main(["--config", "mini", *arguments]) == 2
    assert message in capsys.readouterr().err
