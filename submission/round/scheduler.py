"""Write the shell script that runs a round with Slurm, with PBS, or on one machine without a scheduler.

The script submits the jobs; for `plain` it is the job. It can be called again: finished runs are skipped, and stopped
runs resume from their newest checkpoint. Written from the manuals of Slurm and PBS, and not tested with real ones; the
tests replace their commands by stand-ins.
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.command import UsageError
from common.files import LOG_NAME
from compliance.benchmarks import REFERENCES
from submission.round.finish import PackageInputs
from submission.round.plan import Series
from submission.round.state import LARGEST_SEED

SLURM, PBS, PLAIN = "slurm", "pbs", "plain"
SCHEDULERS: Final = (SLURM, PBS, PLAIN)
GRACE_S: Final = 300
"""Time between the signal to save and stop and the time limit: enough for an evaluation and a checkpoint."""
HEAD: Final = """\
#!/bin/bash
# An MLPerf HPC round, printed by `python -m submission.round --emit @scheduler@`.
# @use@
# Call it again after an interruption: finished runs are skipped, stopped runs resume.
# Read it before you use it, and adapt it to your machine.
"""
JOBS: Final = "`bash FILE` submits the runs of each benchmark as a job array, and a final job that packages them."
LOOP: Final = "`bash FILE` trains the runs one after the other, then writes the package and the report."
START: Final = """\
# shellcheck disable=SC2016  # the suite expands paths in single quotes, on each node
set -euo pipefail
"""
FOLDER: Final = {SLURM: "", PBS: 'cd "$PBS_O_WORKDIR"\n'}
"""How a job changes to the folder that it was submitted from."""
SUITE: Final = """\
suite() { @suite@ "$@"; }
"""
SUBMIT: Final = """\
jobs=()
submit() {
  local id
  id=$(@command@ "$@")
  jobs+=("${id%%;*}")
}
"""
COMMANDS: Final = {SLURM: "sbatch --parsable", PBS: "qsub"}
AFTER_ALL: Final = '''"$(IFS=: && echo "afterany:${jobs[*]}")"'''
MINI_DATA: Final = """\
# Generate the data of the mini problem, once.
suite @benchmark@.synthesize "$(suite @benchmark@.train @settings@ --print-config | sed -n 's/^  data_dir: //p')"
"""
ENVIRONMENT: Final = """\
# Load modules and activate the environment here. A run should start with empty page caches: let the prologue of the
# job run `sync; echo 3 >/proc/sys/vm/drop_caches` as root on each node; where ranks may do so: drop_page_cache=true.
"""
RUN: Final = """\
run=@out@/@benchmark@/run_$index
log=$run/@log@
if [ -e "$run/ended" ]; then
  echo "$run is finished"
  exit 0
fi
mkdir -p "$run"
resume=()
if compgen -G "$run/checkpoints/*.pt" >/dev/null; then
  resume=(--resume)
elif [ -e "$log" ]; then
  mv "$log" "$log.interrupted-$(date +%s)"
fi
touch "$run/started"
status=0
@launch@ \\
  @benchmark@.train @settings@ \\
  output_dir="$run" train.seed="${seeds[index]}" "${resume[@]}" || status=$?
# Exit status 0: target met; 1: target missed, or an error; 3: stopped by a signal.
if [ "$status" -le 1 ] && [ ! "$run/started" -nt "$log" ] && grep -q '"key": "run_stop"' "$log"; then
  echo "$status" >"$run/ended"
fi
"""
AFTER_RUN: Final = {
    SLURM: """\
if [ "$status" -eq 3 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
""",
    PBS: """\
if [ ! -e "$run/ended" ]; then
  echo "$run is not finished: submit the round again to resume it" >&2
fi
exit "$status"
""",
    PLAIN: """\
if [ "$status" -gt 1 ]; then exit "$status"; fi
""",
}
DESCRIBE: Final = """\
settings=$(suite @benchmark@.train @settings@ --print-config)
setting() { sed -n "s/^  $1: //p" <<<"$settings"; }
system=@out@/$(setting platform).json
for file in @out@/package/*/systems/"${system##*/}"; do
  if [ -e "$file" ]; then system=$file; fi  # it may have been completed by hand
done
if [ ! -e "$system" ]; then
  suite submission.system -o "$system" --set system_name="$(setting platform)" number_of_nodes=@nodes@ \\
    submitter="$(setting org)" division="$(setting division)" status="$(setting status)"
fi
"""
PACKAGE: Final = """\
runs=()
for run in @runs@; do
  if [ -e "$run/ended" ]; then runs+=("$run"); fi
done
suite submission.assemble "${runs[@]}" -o @out@/package --system "$system"@sources@
suite submission.report @out@/package -o @out@/report.html --force@mini@
suite submission.summary @out@/package@mini@
suite compliance.check @out@/package@mini@
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the jobs run. time: limit of a job, HH:MM:SS. container: image.sif, image.sqsh or ""."""

    scheduler: str
    nodes: int = 1
    ranks_per_node: int = 1
    gpus_per_node: int = 0
    time: str = "04:00:00"
    container: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", self.time) or self.seconds <= 2 * GRACE_S:
            raise UsageError(f"--time {self.time}: expected HH:MM:SS of more than {2 * GRACE_S // 60} minutes")
        if self.container and not self.container.endswith((".sif", ".sqsh")):
            raise UsageError(f"--container {self.container}: expected image.sif (Apptainer) or image.sqsh (enroot)")
        if self.container.endswith(".sqsh") and self.scheduler != SLURM:
            raise UsageError("--container: .sqsh images are for Slurm with pyxis; expected an Apptainer image.sif")
        if self.scheduler == PLAIN and self.nodes > 1:
            raise UsageError("--emit plain is for one machine; for several nodes use slurm or pbs")

    @property
    def seconds(self) -> int:
        """The time limit in seconds."""
        hours, minutes, seconds = map(int, self.time.split(":"))
        return 3600 * hours + 60 * minutes + seconds

    @property
    def contained(self) -> str:
        """The prefix of a command that runs in the container, with a trailing space; "" without a container."""
        image = shlex.quote(self.container)
        if self.container.endswith(".sif"):
            return f'apptainer exec {"--nv " if self.gpus_per_node else ""}--bind "$PWD" {image} '
        if self.container:
            return f'srun --container-image={image} --container-mounts="$PWD:$PWD" --container-workdir="$PWD" '
        return ""

    @property
    def suite(self) -> str:
        """The prefix of a module that runs once."""
        one = self.contained.replace("srun ", "srun --nodes=1 --ntasks=1 ", 1)
        return f"{one}python -m"

    @property
    def launch(self) -> str:
        """The prefix of a module that runs on all ranks."""
        if self.scheduler == SLURM:
            # No --kill-on-bad-exit: a stopped rank exits with 3 while rank 0 may still be writing.
            return f"srun --kill-on-bad-exit=0 --wait=60 {self.contained.removeprefix('srun ')}python -m"
        if self.scheduler == PBS:
            limit = f"timeout --foreground --signal=USR1 {self.seconds - GRACE_S}"
            return f"{limit} mpiexec -n {self.nodes * self.ranks_per_node} {self.contained}python -m"
        ranks = self.ranks_per_node
        return f"{self.contained}torchrun --nproc-per-node {ranks} -m" if ranks > 1 else self.suite

    def directives(self, name: str, out: str, runs: int) -> str:
        """Return the resource directives of a job; runs: the size of its array, 0 for a job without one."""
        nodes, ranks = (self.nodes, self.ranks_per_node) if runs else (1, 1)
        gpus = self.gpus_per_node
        if self.scheduler == SLURM:
            lines = [f"--job-name={name}", f"--output={out}/slurm-%x-%A{'_%a' if runs else ''}.txt"]
            lines += [f"--nodes={nodes}", f"--ntasks-per-node={ranks}", "--exclusive", f"--time={self.time}"]
            lines += [f"--gpus-per-node={gpus}"] if gpus else []
            again = [f"--array=0-{runs - 1}", f"--signal=USR1@{GRACE_S}", "--requeue", "--open-mode=append"]
            return "".join(f"#SBATCH {line}\n" for line in lines + (again if runs else []))
        select = f"select={nodes}:ncpus={ranks}:mpiprocs={ranks}{f':ngpus={gpus}' if gpus else ''}"
        lines = [
            f"-N {name}",
            f"-o {out}/",
            "-j oe",
            f"-l {select}",
            "-l place=scatter:excl",
            f"-l walltime={self.time}",
        ]
        # PBS refuses an array of one job.
        lines += [f"-J 0-{runs - 1}"] if runs > 1 else []
        return "".join(f"#PBS {line}\n" for line in lines)


def emit(plan: Sequence[Series], cluster: Cluster, output: Path, inputs: PackageInputs) -> str:
    """Return a shell script that trains all runs, then writes package and report, in the folder `output`.

    Draws the seeds. Raises UsageError if the folder's name has characters that schedulers do not accept.
    """
    if not re.fullmatch(r"[\w./@+-]+", str(output)):
        raise UsageError(f"-o {output}: expected a name of letters, digits and . _ - / @ + only, for the scheduler")
    seeds = random.SystemRandom().sample(range(1, LARGEST_SEED), sum(series.runs for series in plan))
    mini = [series for series in plan if _is_mini(series)]
    folders = " ".join(f"{output}/{series.benchmark}" for series in plan)
    here = cluster.scheduler == PLAIN
    text = _filled(HEAD, scheduler=cluster.scheduler, use=LOOP if here else JOBS) + START
    text += ENVIRONMENT if here else _filled(SUBMIT, command=COMMANDS[cluster.scheduler])
    text += _filled(SUITE, suite=cluster.suite) if mini or here else ""
    text += f"mkdir -p {folders}\n"
    text += "".join(_filled(MINI_DATA, benchmark=series.benchmark, settings=_settings(series)) for series in mini)
    for series in plan:
        text += "\n" + _runs(series, cluster, output, [seeds.pop() for _ in range(series.runs)])
    return text + "\n" + _package(plan, cluster, output, inputs)


def _runs(series: Series, cluster: Cluster, output: Path, seeds: Sequence[int]) -> str:
    """Return the part of the script that trains the runs of a benchmark, or submits them."""
    values = {"benchmark": series.benchmark, "settings": _settings(series), "out": str(output), "log": LOG_NAME}
    body = _filled(RUN, launch=cluster.launch, **values) + AFTER_RUN[cluster.scheduler]
    numbers = f"seeds=({' '.join(map(str, seeds))})\n"
    if cluster.scheduler == PLAIN:
        # Ctrl-C ends the training and the script: without the trap it would continue with the next run.
        return f"{numbers}for index in \"${{!seeds[@]}}\"; do (\ntrap 'exit 130' INT TERM\n{body}); done\n"
    index = "index=$SLURM_ARRAY_TASK_ID\n" if cluster.scheduler == SLURM else "index=${PBS_ARRAY_INDEX:-0}\n"
    directives = cluster.directives(f"mlperf-{series.benchmark}", f"{output}/{series.benchmark}", series.runs)
    return _submitted("", directives + START + FOLDER[cluster.scheduler] + ENVIRONMENT + numbers + index + body)


def _package(plan: Sequence[Series], cluster: Cluster, output: Path, inputs: PackageInputs) -> str:
    """Return the part of the script that packages the finished runs, or submits the job that does."""
    first = plan[0]
    describe = f"system={shlex.quote(str(inputs.system))}\n"
    if inputs.system is None:
        describe = _filled(DESCRIBE, benchmark=first.benchmark, settings=_settings(first), nodes=str(cluster.nodes))
    runs = " ".join(f"@out@/{series.benchmark}/run_*" for series in plan)
    mini = " --allow-mini" if any(map(_is_mini, plan)) else ""
    sources = f" --sources {shlex.quote(str(inputs.sources))}" if inputs.sources else ""
    body = _filled(describe + PACKAGE, runs=runs, mini=mini, sources=sources).replace("@out@", str(output))
    if cluster.scheduler == PLAIN:
        return body
    option = f"--dependency={AFTER_ALL}" if cluster.scheduler == SLURM else f"-W depend={AFTER_ALL}"
    directives = cluster.directives("mlperf-package", str(output), 0)
    return _submitted(
        option,
        directives + START + FOLDER[cluster.scheduler] + ENVIRONMENT + _filled(SUITE, suite=cluster.suite) + body,
    )


def _submitted(option: str, job: str) -> str:
    return f"submit {option}{' ' if option else ''}<<'END_OF_JOB'\n#!/bin/bash\n{job}END_OF_JOB\n"


def _settings(series: Series) -> str:
    # The overrides of a round come last and take precedence.
    staging = () if _is_mini(series) else REFERENCES[series.benchmark].staging
    return shlex.join([series.config, *staging, *series.overrides])


def _is_mini(series: Series) -> bool:
    """Return whether a configuration is for the mini problem, judged by its name; only the benchmark reads it."""
    return Path(series.config).name.startswith("mini")


def _filled(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
