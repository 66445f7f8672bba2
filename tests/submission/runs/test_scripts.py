"""Scripts for clusters: bash runs them, with stand-ins for the commands of schedulers and of the suite."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.config import list_leaves
from common.errors import UsageError
from common.locks import JOB_VARIABLES
from common.ranks.launch import find_rank_position
from common.version import FOLDERS_VARIABLE
from submission.round.__main__ import main
from submission.runs.plan import PlannedRun, read_record
from submission.runs.scripts.cluster import Cluster, Site, list_sites, read_site
from submission.runs.scripts.script import Script

ROOT = Path(__file__).parents[3]
STAND_INS = {
    # Each job becomes a file; its number is its name.
    "sbatch": 'echo "sbatch $*" >>calls; n=$(grep -c "^sbatch" calls); cat >"job_$n.sh"; echo "$n;cluster"',
    "qsub": 'echo "qsub $*" >>calls; n=$(grep -c "^qsub" calls); cat >"job_$n.sh"; echo "$n[].host"',
    "srun": 'echo "srun $*" >>calls; while [ "$1" != python ]; do shift; done; exec "$@"',
    "mpiexec": 'echo "mpiexec $*" >>calls; while [ "$1" != python ]; do shift; done; exec "$@"',
    "scontrol": 'case $1 in show) tr , "\n" <<<"$3" ;; *) echo "scontrol $*" >>calls ;; esac',
    # A training: the first line of the file `next` (from now on: of `next_I` for instance I) says how it goes.
    "python": """\
echo "python $*" >>calls
case "$*" in
*submission.system*) touch "$4"; exit ;;
*.train*) echo "meets ${MASTER_ADDR:-nowhere} ${MASTER_PORT:-}" >>calls ;;
*) exit ;;
esac
plan=next first=""
job=${SLURM_JOB_ID:-}
for word in "$@"; do
  case $word in
  output_dir=*) run=${word#output_dir=} ;;
  instances.first=*) first=${word#*=} ;;
  instances.count=*) count=${word#*=} ;;
  esac
done
if [ -n "$first" ] && [ "$count" = 1 ]; then plan=next_$first run=$run/instance_$first; fi
mkdir -p "$run"
read -r how status <"$plan"
sed -i 1d "$plan"
case $how in
none) rm -f "$run/ended.json" ;;
old) ;;
owned) rm -f "$run/ended.json"; touch "$run/lease-1.json" ;;
mine) rm -f "$run/ended.json"; echo "{\\"pid\\": 1, \\"job\\": \\"$job\\", \\"since\\": 0}" >"$run/lease-2.json" ;;
*) echo "{\\"how\\": \\"$how\\", \\"cause\\": \\"no space left on \\\\\\"disk\\\\\\"\\", \\"epochs\\": 3}" >"$run/part"
   mv "$run/part" "$run/ended.json" ;;
esac
exit "$status"
""",
}
IDS = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "70", "SLURM_JOB_ID": "77"}
PBS_IDS = {"PBS_JOBID": "1234567[].server", "PBS_NODEFILE": "nodes", "PBS_O_WORKDIR": "."}
SCHEDULERS = {name: "pbs" if name in ("aurora", "polaris") else "slurm" for name in list_sites()}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Make an empty working directory, and stand-ins for the commands of a cluster."""
    for name, lines in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{lines}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("TMPDIR", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("calls").touch()
    Path("nodes").write_text("nid001.hsn.org\n" * 2 + "nid002.hsn.org\n" * 2)


@pytest.fixture
def emit(call):
    """Return the script for a scheduler that the command prints."""
    return lambda scheduler, *words, config="closed": call(main, "--config", config, "--emit", scheduler, *words).out


def list_texts(script):
    """Return a script, and the jobs in it: the outer script is read without them."""
    return [script, *re.findall(r"<<'END_OF_JOB'\n(.*?^)END_OF_JOB$", script, re.DOTALL | re.MULTILINE)]


def check_script(script):
    """Check the syntax of a script and of its jobs."""
    for text in list_texts(script):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def bash(script, **environment):
    """Run a script, after it was checked; return the exit status."""
    check_script(script)
    Path("script.sh").write_text(script)
    return subprocess.run(["bash", "script.sh"], env=os.environ | environment, check=False).returncode


def trained(script, *endings, name="next", **environment):
    """Run a script whose trainings end like this: how, or `none` without a record, and exit status."""
    Path(name).write_text("".join(f"{ending}\n" for ending in endings))
    return bash(script, **environment)


def calls(command):
    return [line for line in Path("calls").read_text().splitlines() if line.startswith(command)]


def slurm_job(emit, *arguments):
    assert bash(emit("slurm", "--benchmarks", "cosmoflow", *arguments)) == 0
    return Path("job_1.sh").read_text()


def test_a_second_script_keeps_the_plans_of_the_first(cluster, emit, capfd):
    arguments = ["plain", "--benchmarks", "cosmoflow", "--runs", "1", "-o", "r"]
    first, second = (emit(*arguments, config="mini") for _ in range(2))
    assert trained(first, "stopped 3") == 3
    seed = read_record(Path("r/cosmoflow/run_0"))["seed"]
    Path("data/cosmoflow-mini").mkdir(parents=True)
    Path("data/cosmoflow-mini/manifest.json").touch()
    generated = len(calls("python -m cosmoflow.synthesize"))
    assert trained(second, "target_met 0") == 2
    assert "r/cosmoflow/run_0/run.json: the run has another plan" in capfd.readouterr().err
    assert read_record(Path("r/cosmoflow/run_0"))["seed"] == seed
    assert trained(emit(*arguments, config="mini"), "target_met 0") == 0
    assert len(calls("python -m cosmoflow.synthesize")) == generated == 1  # only without data


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "plain"])
def test_every_job_searches_the_folders_of_other_benchmarks(scheduler, cluster, emit, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDERS_VARIABLE, f"/my plug-ins{os.pathsep}/b")
    (tmp_path / "bin" / "python").write_text('#!/bin/bash\necho "python $PYTHONPATH" >>calls\n')
    script = emit(scheduler, "--benchmarks", "cosmoflow", config="mini")
    bash(script, PYTHONPATH="/usual", MLPERF_HPC_BENCHMARKS_FROM="")
    assert calls("python")[0] == "python /usual:/my plug-ins:/b"  # of the data, made where the script is called
    for text in [script, *(path.read_text() for path in tmp_path.glob("job_*.sh"))]:
        assert f"export {FOLDERS_VARIABLE}='/my plug-ins:/b'\n" in text
        check_script(text)
    image = Cluster(scheduler=scheduler, container="image.sif").suite
    assert '--bind "/my plug-ins"' in image and '--bind "/b"' in image


def test_slurm_jobs_are_submitted_continued_and_packaged(cluster, emit):
    script = emit("slurm", "--benchmarks", "cosmoflow", "oc20", "--nodes", "4", "--ranks-per-node", "2",
        "--gpus-per-node", "2", "--set", "submission.org=Ex's Lab", "-o", "runs/r1", "--sources", "our code",
    )  # fmt: skip
    assert bash(script) == 0
    assert calls("sbatch") == ["sbatch --parsable"] * 2 + ["sbatch --parsable --dependency=afterany:1:2"]
    job = Path("job_1.sh").read_text()
    for line in ("--nodes=4", "--ntasks-per-node=2", "--gpus-per-node=2", "--array=0-9", "--signal=USR1@300"):
        assert f"#SBATCH {line}\n" in job
    assert "#SBATCH --array=0-4\n" in Path("job_2.sh").read_text()
    # The number of an array, and of its last task, would queue all of its tasks again.
    assert trained(job, "stopped 3", **IDS) == 3 and calls("scontrol") == ["scontrol requeue 70_1"]
    assert trained(job, "target_met 0", **IDS) == 0
    assert calls("python")[-1].endswith("--auto-resume") and "submission.org=Ex's Lab" in calls("python")[-1]
    before = len(calls("python"))
    assert bash(job, **IDS) == 0 and len(calls("python")) == before  # it has its result
    assert bash(Path("job_3.sh").read_text()) == 0
    packaging = calls("python")[before:]
    commands = "system assemble report summary compliance.check".split()
    assert [line.split()[2].removeprefix("submission.") for line in packaging] == commands
    fields = "system_name=example_n1 number_of_nodes=4 submitter=Ex's Lab division=closed status=onprem"
    assert f"--set {fields}" in packaging[0]
    system = "--system runs/r1/example_n1.json"
    assert f"assemble runs/r1/cosmoflow/run_1 -o runs/r1/package {system} --draft --sources our code" in packaging[1]


@pytest.mark.parametrize(
    ("ending", "status", "requeued", "said"),
    [
        ("target_met 1", 0, False, "target_met"),  # as torchrun and a dead launcher report it: the record counts
        ("target_not_met 4", 0, False, "target_not_met"),
        ("diverged 1", 0, False, "diverged"),
        ("failed 1", 1, False, r"failed: no space left on \"disk\""),
        ("stopped 1", 3, True, "stopped"),
        ("stopped 143", 3, True, "stopped"),
        ("none 138", 3, True, "stopped"),  # killed by SIGUSR1 before it could write
        ("none 3", 3, True, "stopped"),
        ("none 137", 3, False, "not started, or ended before it could record how (exit status 137)"),
        ("none 1", 1, False, "give it again"),
        ("none 0", 1, False, "give it again"),
        ("none 2", 2, False, "see the message above"),
        ("owned 3", 3, False, "another job trains it, or was killed (exit status 3)"),
        ("owned 1", 3, False, "another job trains it, or was killed (exit status 1)"),  # by torchrun
        ("mine 3", 3, True, "stopped"),  # while it waited for its earlier start, which was killed
        ("mine 137", 3, False, "killed (exit status 137)"),  # out of memory, perhaps: it would be again
        ("mine 1", 3, False, "killed (exit status 1)"),
    ],
)
def test_a_run_ends_as_its_record_says(cluster, emit, capfd, ending, status, requeued, said):
    job = slurm_job(emit)
    assert trained(job, ending, **IDS) == status
    assert bool(calls("scontrol")) == requeued
    shown = capfd.readouterr()
    assert said in shown.out + shown.err


@pytest.mark.parametrize("status", ["1", "3", "127"])
def test_the_record_of_an_earlier_attempt_requeues_nothing(cluster, emit, status):
    job = slurm_job(emit)
    assert trained(job, "stopped 3", **IDS) == 3 and len(calls("scontrol")) == 1
    Path("runs/round/cosmoflow/run_1/lease-1.json").touch()  # of another job
    assert trained(job, f"old {status}", **IDS) == 3
    assert len(calls("scontrol")) == 1
    assert trained(job, "stopped 3", **IDS, SLURM_RESTART_COUNT="20") == 3 and len(calls("scontrol")) == 1


def test_a_refused_job_leaves_no_other_job_unmentioned(cluster, emit, capfd):
    script = emit("slurm", "--benchmarks", "cosmoflow", "deepcam", "oc20")
    sbatch = Path(shutil.which("sbatch"))
    sbatch.write_text(sbatch.read_text() + '[ "$n" -lt 3 ] || { echo "Invalid account" >&2; exit 1; }\n')
    assert bash(script) == 1 and len(calls("sbatch")) == 3
    said = capfd.readouterr().err
    assert "Invalid account\na job was not submitted" in said
    assert "submitted before it, without the last job: 1 2. Cancel: scancel '1' '2'" in said


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_launcher_that_the_scheduler_does_not_signal_gets_a_signal_in_time(cluster, emit, scheduler):
    for launcher, signal in (("torchrun --no-python --nproc-per-node {ranks}", "TERM"), ("mpirun -n {ranks}", "USR1")):
        Path("site.yaml").write_text(f"launcher: {launcher}")
        more = ("--benchmarks", "oc20", "--site", "site.yaml", "--time", "01:00:00")
        script = emit(scheduler, *more)
        size = "WORLD_SIZE=1 " if scheduler == "pbs" else ""
        command = f"{size}timeout --foreground --signal={signal} 3300 {launcher.format(ranks=1)}"
        assert f'\n{command} "${{words[@]}}"' in script
        assert "#SBATCH --signal" not in script


@pytest.mark.parametrize(
    ("launcher", "printed"),
    [
        ("torchrun --nproc-per-node {ranks_per_node}", "torchrun --no-python --nproc-per-node 4"),
        ("bin/torchrun --nproc-per-node 4 -m", "bin/torchrun --no-python --nproc-per-node 4"),
        ("python -m torch.distributed.run -m", "python -m torch.distributed.run --no-python"),
    ],
)
def test_torchrun_starts_a_command(cluster, emit, launcher, printed):
    Path("site.yaml").write_text(f"launcher: {launcher}\ngpus: {{per_node: 4}}")
    for scheduler in ("slurm", "pbs", "plain"):
        script = emit(scheduler, "--benchmarks", "oc20", "--site", "site.yaml")
        assert f'{printed} "${{words[@]}}"' in script and "words=(python -m oc20.train" in script
        assert scheduler == "plain" or "--signal=TERM" in script


def test_only_runs_with_a_result_are_packaged(cluster, emit):
    job = slurm_job(emit, "--system", "ours.json")
    for index, ending in enumerate(("target_met", "target_not_met", "failed", "stopped", "diverged")):
        trained(job, f"{ending} 1", **IDS | {"SLURM_ARRAY_TASK_ID": str(index)})
    assert bash(Path("job_2.sh").read_text()) == 0
    for index, end in ((0, '{"key": "run_stop"}\n'), (1, '{"key": "run_stop"}\n{"key": "epoch_start"}\n')):
        Path(f"runs/round/cosmoflow/run_{index}/result_0.txt").write_text(end)  # the second contradicts its record
    assert bash(Path("job_2.sh").read_text()) == 0
    packed = [call.partition("assemble ")[2].partition(" -o ")[0] for call in calls("python -m submission.ass")]
    assert packed == [text.format("runs/round/cosmoflow/run") for text in ("{0}_0 {0}_1 {0}_4", "{0}_0 {0}_4")]
    shutil.rmtree("runs/round/cosmoflow")
    assert bash(Path("job_2.sh").read_text()) == 1


def test_the_system_is_described_where_it_trains(cluster, emit):
    job = slurm_job(emit)
    assert trained(job, "target_met 0", **IDS | {"SLURM_ARRAY_TASK_ID": "0"}) == 0
    assert len(calls("python -m submission.system")) == 1
    assert bash(Path("job_2.sh").read_text()) == 0
    assert len(calls("python -m submission.system")) == 1


def test_pbs_jobs_are_submitted_and_continued(cluster, emit):
    script = emit("pbs", "--benchmarks", "deepcam", "--nodes", "2", "--time", "01:00:00")
    assert bash(script) == 0
    assert calls("qsub") == ["qsub ", "qsub -W depend=afterany:1[].host"]
    job = Path("job_1.sh").read_text()
    for line in ("-J 0-4", "-l select=2:ncpus=1:mpiprocs=1", "-l walltime=01:00:00"):
        assert f"#PBS {line}\n" in job
    ids = PBS_IDS | {"PBS_ARRAY_INDEX": "0"}
    assert [trained(job, ending, **ids) for ending in ("none 124", "target_met 0")] == [3, 0]
    assert "timeout --foreground --signal=USR1 3300 mpiexec -n 2 -ppn 1" in job and "-resume" in calls("mpiexec")[-1]
    assert bash(Path("job_2.sh").read_text(), **ids) == 0


@pytest.mark.parametrize(
    ("ending", "said"),
    [("mine 137", "killed (exit status 137)"), ("mine 3", "another job trains it, or was killed (exit status 3)")],
)
def test_a_killed_training_of_a_plain_script_is_its_own(cluster, emit, capfd, monkeypatch, ending, said):
    for name in JOB_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    script = emit("plain", "--benchmarks", "oc20", "--runs", "1")
    assert trained(script, ending) == 3 and said in capfd.readouterr().err


def test_a_plain_script_makes_all_runs(cluster, emit):
    script = emit("plain", "--benchmarks", "cosmoflow", "--runs", "2", config="mini")
    assert trained(script, "none 1") == 1  # as torchrun reports a killed rank
    assert trained(script, "target_met 0", "stopped 1") == 3
    assert trained(script, "target_met 0") == 0
    assert (
        calls("python -m cosmoflow.synthesize")[0]
        == "python -m cosmoflow.synthesize data/cosmoflow-mini --preset mini2"
    )
    trainings = [line for line in calls("python -m cosmoflow.train") if "--auto-resume" in line]
    assert len(trainings) == 4 and len({line.split("train.seed=")[1] for line in trainings}) == 2
    assert "--allow-mini" in calls("python")[-1]


@pytest.mark.parametrize("image", ["ours.sif", "ours.sqsh"])
def test_runs_go_into_a_container(cluster, emit, image, tmp_path):
    (tmp_path / "site.yaml").write_text("local_disk: ${SCRATCH}/me")
    script = emit("slurm", "--container", image, "--gpus-per-node", "1", "--site", "./site.yaml")
    enter = 'apptainer exec --nv --bind "$PWD"' if image == "ours.sif" else "--container-image=ours.sqsh"
    assert len(re.findall(re.escape(enter), script)) == 2 * len(PACKAGES) + 1  # trainings, their jobs, the package
    assert len(re.findall(r"\$\{SCRATCH:\?[^}]+\}/me", script)) == len(PACKAGES) * (1 if image == "ours.sif" else 2)
    assert bash(script) == 0
    assert trained(Path("job_1.sh").read_text(), **IDS) == 1 and not calls("srun")  # SCRATCH is not set


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "plain"])
@pytest.mark.parametrize(("kind", "option"), [("nvidia", "--nv "), ("amd", "--rocm "), ("intel", "")])
def test_a_container_gets_the_gpus_of_their_kind(cluster, emit, scheduler, kind, option):
    Path("site.yaml").write_text(f"gpus: {{kind: {kind}, per_node: 4}}\napptainer: singularity exec")
    arguments = [scheduler, "--benchmarks", "oc20", "--container", "ours.sif", "--site", "./site.yaml"]
    for more, wanted in (([], option), (["--gpus-per-node", "0"], "")):
        assert set(re.findall(r"singularity exec (.*?)--bind", emit(*arguments, *more))) == {wanted}


# -- where ranks meet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "host"),
    [
        ("note: x", "nid001.hsn.org"),
        ("host_suffix: -ib.org", "nid001-ib.org"),
        ("host_suffix: i&false", "nid001i&false"),
    ],
)
def test_ranks_under_pbs_meet_at_the_first_host_without_mpi4py(cluster, emit, site, host):
    Path("site.yaml").write_text(site)
    script = emit("pbs", "--benchmarks", "oc20", "--site", "./site.yaml", "--nodes", "2", "--ranks-per-node", "2")
    assert bash(script) == 0
    assert trained(Path("job_1.sh").read_text(), "target_met 0", **PBS_IDS, PBS_ARRAY_INDEX="3") == 0
    assert calls("meets") == [f"meets {host} 24570"] and "mpiexec -n 4 -ppn 2" in calls("mpiexec")[0]
    pals = {"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "2", "PALS_NODEID": "1"}
    pmi = {"PMI_RANK": "3", "PMI_SIZE": "4", "MASTER_ADDR": host, "MASTER_PORT": "24570"}
    assert find_rank_position(pals | pmi).address == (host, 24570)
    assert "WORLD_SIZE=4 timeout" in Path("job_1.sh").read_text()
    pmix = {"PMIX_RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": host, "MASTER_PORT": "24570"}
    assert find_rank_position(pals | pmix).world_size == find_rank_position(pals | pmi | pmix).world_size == 4


@pytest.mark.parametrize(
    ("site", "wanted"),
    [("host_suffix: i", ["meets n1i 20009", "meets n3i 20011"]), ("note: srun tells them", ["meets nowhere "] * 2)],
)
def test_ranks_under_slurm_meet_by_the_name_of_the_fast_network(cluster, emit, site, wanted):
    Path("site.yaml").write_text(site)
    job = slurm_job(emit, "--throughput", "2", "--nodes", "4", "--site", "./site.yaml")
    for number in range(2):
        Path(f"next_{number}").write_text("target_met 0\n")
    assert bash(job, SLURM_JOB_ID="9", SLURM_JOB_NODELIST="n1,n2,n3,n4") == 0
    assert sorted(calls("meets")) == wanted


# -- style ---------------------------------------------------------------------------------------------------


def run_shellcheck(folder, texts):
    """Return what shellcheck says of scripts."""
    paths = [folder / f"{number}.sh" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    command = ["shellcheck", "--shell=bash", "--severity=style", *paths]
    checked = subprocess.run(command, text=True, capture_output=True, check=False)
    return checked.stdout + checked.stderr


@pytest.mark.needs("shellcheck", shutil.which("shellcheck"), "shellcheck: apt install shellcheck")
def test_shellcheck_finds_nothing_in_a_script_or_its_jobs(cluster, emit, tmp_path):
    sites = [(scheduler, "--site", name, "--nodes", "2") for name, scheduler in SCHEDULERS.items()]
    Path("torchrun.yaml").write_text("launcher: torchrun --nproc-per-node {ranks}")
    instances = ("--site", "juwels-booster", "--throughput", "2", "--nodes", "2", "--container", "ours.sqsh")
    forms = [*sites, ("slurm", *instances), ("slurm", "--site", "torchrun.yaml"), ("pbs", "--container", "ours.sif")]
    scripts = [emit(*form, "--benchmarks", "cosmoflow") for form in forms]
    scripts += [emit(scheduler, config="mini") for scheduler in ("slurm", "pbs", "plain")]
    texts = [text for script in scripts for text in list_texts(script)]
    texts += [path.read_text() for path in (*ROOT.glob("*/*.sh"), *ROOT.glob("tests/*/*.sh"), ROOT / ".ci/run")]
    assert len(texts) > 30 and not run_shellcheck(tmp_path, texts)
    bad = scripts[0].replace("\nstatus=0\n", '\nexport status="$(false)"\n')
    assert "SC2155" in run_shellcheck(tmp_path, list_texts(bad)) and "SC2155" not in run_shellcheck(tmp_path, [bad])


# -- other plans ---------------------------------------------------------------------------------------------


def plan_study(folder):
    """Return two trainings and a measurement on different ranks, and what evaluates the first."""
    training = PlannedRun(benchmark="cosmoflow", kind="training", config="mini", folder=folder / "seed_1", seed=1)
    wide = replace(training, folder=folder / "wide", ranks=4, overrides=("model.conv_size=8",))
    measurement = PlannedRun(
        benchmark="cosmoflow",
        kind="measurement",
        config="mini",
        folder=folder / "speed",
        environment={"NCCL_ALGO": "Ring"},
        options=("--steps", "30"),
    )
    evaluation = PlannedRun(
        benchmark="cosmoflow",
        kind="evaluation",
        config="",
        folder=folder / "evaluation",
        options=(str(training.folder),),
    )
    return [training, wide, measurement, evaluation]


def test_jobs_of_a_study_are_grouped_by_their_ranks_and_keep_their_plans(cluster):
    runs = plan_study(Path("study"))
    slurm = Cluster(scheduler="slurm", ranks_per_node=2)
    after = "suite submission.study plan.yaml\n"
    script = Script(runs=runs, cluster=slurm, out=Path("study"), after=after, title="A study.")
    assert bash(script.render()) == 0
    jobs = {number: Path(f"job_{number}.sh").read_text() for number in range(1, 5)}
    assert "--array=0-1\n" in jobs[1] and "--nodes=1\n#SBATCH --ntasks-per-node=1\n" in jobs[1]
    assert "--nodes=2\n#SBATCH --ntasks-per-node=2\n" in jobs[2]
    waits = ["--parsable --dependency=afterany:1:2", "--parsable --dependency=afterany:1:2:3"]
    assert [call.partition(" ")[2] for call in calls("sbatch")] == ["--parsable"] * 2 + waits
    assert trained(jobs[1], "target_met 0", **IDS | {"SLURM_ARRAY_TASK_ID": "0"}) == 0
    assert read_record(runs[0].folder) == json.loads(runs[0].encode())
    assert trained(jobs[1], **IDS) == 1, "a measurement without its file"
    assert calls("python")[-1] == "python -m cosmoflow measure mini -o study/speed/fom.json --steps 30"
    assert "words=(env NCCL_ALGO=Ring python -m" in jobs[1]
    Path("study/speed/fom.json").write_text("{}")
    before = len(calls("python"))
    assert bash(jobs[1], **IDS) == 0 and len(calls("python")) == before
    assert bash(jobs[4]) == 0 and calls("python")[-1] == "python -m submission.study plan.yaml"


def test_instances_that_share_a_node_have_one_launcher(cluster):
    _, wide, *_ = plan_study(Path("study"))
    arguments = {"runs": [replace(wide, instances=4)], "out": Path("study"), "after": ""}
    for scheduler, job in (("slurm", {"SLURM_ARRAY_TASK_ID": "0"}), ("pbs", PBS_IDS)):
        jobs = Cluster(scheduler=scheduler, ranks_per_node=4)
        assert bash(Script(cluster=jobs, title="A study.", **arguments).render()) == 0
        assert trained(Path("job_1.sh").read_text(), "target_met 0", **IDS | job) == 0
        assert "instances.count=4 instances.first=0" in calls("python -m cosmoflow.train")[-1]
        Path("calls").write_text("")
        shutil.rmtree("study/wide")


def test_a_plan_that_no_job_can_make_is_refused():
    training, wide, *_ = plan_study(Path("study"))
    arguments = {"out": Path("study"), "after": "", "title": "A study."}
    for runs, changes, message in (
        ([wide], {"ranks_per_node": 3}, "4 ranks does not fill nodes of 3"),
        ([wide], {"scheduler": "plain"}, "for one machine"),
        ([replace(training, overrides=("train.epoch=1",))], {}, "did you mean"),
        ([replace(training, folder=Path("my study"))], {}, "expected a name of letters"),
    ):
        with pytest.raises(UsageError, match=message):
            Script(runs=runs, cluster=Cluster(**{"scheduler": "slurm"} | changes), **arguments).render()


# -- throughput ----------------------------------------------------------------------------------------------


def test_instances_train_at_the_same_time_in_one_job(cluster, emit):
    job = slurm_job(
        emit, "--nodes", "6", "--ranks-per-node", "2", "--throughput", "3", "--instance-ranks", "4", "-o", "runs/weak"
    )
    assert "--array" not in job and "#SBATCH --nodes=6\n" in job
    ids = {"SLURM_JOB_ID": "9"}
    for number, ending in enumerate(("target_met 0", "stopped 3", "failed 1")):
        Path(f"next_{number}").write_text(f"{ending}\n")
    assert bash(job, **ids) == 3 and calls("scontrol") == ["scontrol requeue 9"]
    started = sorted(calls("srun"), key=lambda line: int(re.search(r"--relative=(\d)", line)[1]))
    assert [re.search(r"(--nodes=\d+ --ntasks=\d+) --relative=(\d)", line).groups() for line in started] == [
        ("--nodes=2 --ntasks=4", str(first)) for first in (0, 2, 4)
    ]
    for number, line in enumerate(started):
        assert f"instances.first={number} instances.count=1 --auto-resume" in line
        assert "output_dir=runs/weak/cosmoflow/throughput " in line
    assert len({re.search(r"train.seed=\d+", line)[0] for line in started}) == 1  # the training adds the number
    Path("next_1").write_text("target_not_met 4\n")
    Path("next_2").write_text("target_met 0\n")
    assert bash(job, **ids) == 0 and len(calls("srun")) == 5
    assert bash(Path("job_2.sh").read_text()) == 0
    instances = " ".join(f"runs/weak/cosmoflow/throughput/instance_{number}" for number in range(3))
    assembled = calls("python -m submission.assemble")[0]
    assert f"assemble {instances} -o" in assembled and assembled.endswith("--scaling weak")


# -- site profiles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_sites())
def test_examples_are_marked_and_make_scripts(cluster, emit, call, name):
    assert "UNVERIFIED" in read_site(name).note and read_site(name).account is None
    script = emit(SCHEDULERS[name], "--site", name, "--nodes", "2")
    assert bash(script) == 0 and "UNVERIFIED" in script and "\n# account is not set" in script
    gpus = read_site(name).gpus.per_node
    assert re.search(
        rf"#(SBATCH --ntasks-per-node|PBS -l select=2:\S+:mpiprocs)={gpus}\n", Path("job_1.sh").read_text()
    )
    assert name in call(main, "--help").out


SITE = """\
account: abc123
partition: gpu
options: [--reservation=mlperf]
setup: [module load python, 'export SCRATCH=/local/$USER']
local_disk: $SCRATCH
cpus_per_task: 8
launcher: %s
package: {partition: cpu, options: [--mem=8G], time: "00:10:00"}
"""


def test_a_profile_is_in_the_jobs_of_slurm(cluster, emit, monkeypatch):
    monkeypatch.setenv("USER", "me")
    Path("site.yaml").write_text(SITE % "srun --cpu-bind=cores" + "qos: high\n")
    job = slurm_job(emit, "--site", "site.yaml", "--gpus-per-node", "4")
    wanted = "--account=abc123 --partition=gpu --qos=high --reservation=mlperf --cpus-per-task=8 --ntasks-per-node=4"
    for option in wanted.split():
        assert f"#SBATCH {option}\n" in job
    job = job.replace("module load python", 'module() { :; }; module load "$UNSET"')  # modules read unset variables
    assert trained(job, "target_met 0", **IDS) == 0
    assert calls("srun")[-1].startswith("srun --cpu-bind=cores --kill-on-bad-exit=0 --wait=60 --cpus-per-task=8 python")
    assert "staging.mode=replicate staging.stage_dir=$SCRATCH/mlperf-hpc-cosmoflow " in calls("python")[-1]
    package = Path("job_2.sh").read_text()
    directives = set(re.findall("^#SBATCH (.*)$", package, re.MULTILINE))
    assert {
        "--account=abc123",
        "--partition=cpu",
        "--qos=high",
        "--ntasks=1",
        "--mem=8G",
        "--time=00:10:00",
    } < directives
    assert not any(word in package for word in ("--exclusive", "gpus", "reservation", "SCRATCH/"))


def test_a_profile_is_in_the_jobs_of_pbs(cluster, emit):
    Path("site.yaml").write_text(SITE % "mpiexec -n {ranks} --ppn {ranks_per_node}")
    script = emit("pbs", "--site", "site.yaml", "--nodes", "3", "--ranks-per-node", "2", "--gpus-per-node", "4")
    assert bash(script) == 0
    job = Path("job_1.sh").read_text()
    for line in ("-A abc123", "-q gpu", "--reservation=mlperf", "-l select=3:ncpus=16:mpiprocs=2:ngpus=4"):
        assert f"#PBS {line}\n" in job
    assert 'mpiexec -n 6 --ppn 2 "${words[@]}"' in job
    package = Path(f"job_{len(PACKAGES) + 1}.sh").read_text()
    assert "#PBS -q cpu\n" in package and "#PBS -l select=1:ncpus=1\n" in package and "excl" not in package


def test_a_profile_without_the_account_that_its_machine_needs(cluster, call):
    for line, lacks in (
        ("", "account"),
        ("account: abc123", ""),
        ("options: [--account=abc]\npackage: {options: [-A abc]}", ""),
        ("options: [--account=abc]", "package.account"),
        ("account: abc123\npackage: {account: ''}", "package.account"),
    ):
        Path("site.yaml").write_text(f"needs_account: true\n{line}\n")
        said = call(main, "--config", "closed", "--emit", "slurm", "--site", "./site.yaml").err
        assert (f"warning: --site ./site.yaml: {lacks} is not set" in said) if lacks else not said


def test_without_a_profile_nothing_is_assumed(cluster, emit):
    job = slurm_job(emit)
    assert trained(job, "target_met 0", **IDS) == 0
    script = Path("script.sh").read_text()
    assert "staging." not in script and "TMPDIR" not in script
    assert "staging.mode=memory" in emit("slurm", "--benchmarks", "oc20", "-o", "new")  # needs no folder
    assert "shuffle=node" not in emit("slurm", "--benchmarks", "deepcam", "-o", "new")
    shared = "Data are read from shared storage in each epoch"
    assert shared in emit("slurm", "--benchmarks", "deepcam", "-o", "new")
    assert shared not in emit("slurm", "--benchmarks", "oc20", "-o", "new")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("acount: abc", "did you mean account"),
        ('account: "a b"', 'account is "a b"; expected one word'),
        ("partition: gpu;reboot", "expected one word"),
        ('options: ["--mem=1G\\n#SBATCH --nodes=99"]', "expected one option on one line"),
        ("options: [--output=$HOME/x]", "it cannot have variables"),
        ("options: [reservation=x]", "expected one option on one line, such as --reservation=NAME or -C nvme"),
        ("options: [--comment=a b c]", "expected one option on one line"),
        ("options: --mem=0", "options: expected a list"),
        ('setup: ["a\\nb"]', "expected a list of single lines"),
        ("setup: [END_OF_JOB]", "expected a list of single lines"),
        ("setup: [umask 022, if true]", 'setup: line 2, "if true": syntax error'),
        ("setup: [umask 022, echo ), umask 022]", 'setup: line 2, "echo )": syntax error'),
        ("setup: [cat <<END]", "delimited by end-of-file"),
        ("local_disk: scratch", "expected an absolute path"),
        ('setup: [umask 022, "module load a \\\\"]', 'setup: line 2, "module load a \\\\", ends in a backslash'),
        ('setup: ["echo \\0"]', 'setup has "echo \\u0000"; expected text without control characters'),
        ('setup: ["echo \\ud800"]', 'setup has "echo \\ud800"; expected text without control'),
        ('note: "a\\rb"', 'note has "a\\rb"; expected text without control'),
        ('local_disk: "/x\\0"', "local_disk has"),
        ('account: "a\\0"', "account is"),
        ('package: {options: ["--comment=\\ud800"]}', "package: options has"),
        ("local_disk: /x$$y", "with variables as $NAME or ${NAME}"),
        ("local_disk: /x$1", "with variables as $NAME or ${NAME}"),
        ("local_disk: /x$", "with variables as $NAME or ${NAME}"),
        ("launcher: srun torchrun", "expected srun or torchrun"),
        ("local_disk: $(hostname)", "such as $TMPDIR or /scratch/$USER"),
        ("launcher: srun $(id)", "without quotes, variables or shell code"),
        ("launcher: mpiexec -n {rank}", "mpiexec -n {ranks} -ppn {ranks_per_node}"),
        ("apptainer: apptainer exec $(id)", "apptainer is"),
        ("host_suffix: i; id", "host_suffix is"),
        ("gpus: {kind: cray}", 'gpus.kind: expected one of "nvidia"'),
        ("cpus_per_task: 0", "expected at least 1"),
        ("gpus: {request: maybe}", 'gpus.request: expected one of "gpus-per-node"'),
        ("gpus: {per_node: -1}", "expected 0 or more"),
        ("package: {time: 30 min}", 'package: "30 min": expected HH:MM:SS'),
        ("package: {qos: 'a\"b'}", "package: qos is"),
    ],
)
def test_bad_profiles_are_refused(tmp_path, call, line, message):
    (tmp_path / "site.yaml").write_text(line + "\n")
    said = call(main, "--config", "mini", "--emit", "slurm", "--site", tmp_path / "site.yaml", status=2).err
    assert message in said and "site.yaml" in said


ENDS_THE_JOB = "a\nEND_OF_JOB\ntouch pwned\ncat <<'END_OF_JOB'"


@pytest.mark.parametrize("arguments", [["--sources"], ["--system"], ["--container"], []])
@pytest.mark.parametrize("text", [ENDS_THE_JOB, "a\rb"])
def test_nothing_ends_a_job_in_the_script_or_hides_in_it(tmp_path, call, arguments, text):
    override = "train.seed=1" if arguments else f"output_dir={text}"
    (tmp_path / "round.yaml").write_text(f"oc20: {{config: config, overrides: [{json.dumps(override)}]}}")
    given = [*arguments, f"{text}/x.sif"] if arguments else []
    said = call(main, "--config", tmp_path / "round.yaml", "--emit", "slurm", *given, status=2)
    assert not said.out and "cannot be in a job script" in said.err and (arguments or ["oc20"])[0] in said.err


def test_the_reference_lists_the_keys_of_a_profile():
    rows = [f"| `{leaf.name}` | {leaf.key.doc} |" for leaf in list_leaves(Site)]
    assert "\n".join(rows) in (ROOT / "docs/reference/cluster.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emit", "slurm", "--time", "4h"], "expected HH:MM:SS"),
        (["--emit", "slurm", "--time", "00:05:00"], "more than 10 minutes"),
        (["--emit", "slurm", "--container", "docker.tar"], "expected image.sif"),
        (["--emit", "pbs", "--container", "image.sqsh"], "for Slurm with pyxis"),
        (["--emit", "pbs", "--site", "perlmutter"], "qos and constraint are options of Slurm"),
        (["--emit", "slurm", "--site", "perlmuter"], "did you mean 'perlmutter'"),
        (["--emit", "slurm", "--site", "none.yaml"], "cannot be read"),
        (["--emit", "plain", "--nodes", "2"], "for one machine"),
        (["--emit", "plain", "-o", "my runs; rm"], "expected a name of letters"),
        (["--emit", "pbs", "--throughput", "2"], "needs slurm and srun"),
        (["--emit", "slurm", "--throughput", "2", "--nodes", "3"], "do not divide into 2 instances"),
        (["--emit", "slurm", "--throughput", "2", "--nodes", "2", "--runs", "1"], "leave out --runs"),
        (["--emit", "slurm", "--instance-ranks", "2"], "needs --throughput"),
        (["--site", "perlmutter"], "--site is for --emit"),
    ],
)
def test_wrong_use(call, arguments, message):
    assert message in call(main, "--config", "mini", *arguments, status=2).err
