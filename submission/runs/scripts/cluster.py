"""What the jobs of a round ask from Slurm, from PBS, or from one machine without a scheduler, in their own words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from common.errors import UsageError
from submission.runs.scripts.site import QUEUE, TORCHRUN, PackageJob, Site, quote_words, seconds

GRACE_S: Final = 300
"""Time between the signal to save and stop and the time limit: enough for an evaluation and a checkpoint."""
RESTARTS: Final = 20
"""How many times a Slurm job queues itself again."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the jobs run. time: limit of a job that trains, HH:MM:SS. container: image.sif, image.sqsh or "".

    submit: the command that submits a job and prints its number; "": the script itself does the work. cancel: the
    command that cancels jobs by their numbers. directive: how a line begins in which a job asks for resources. queue:
    the options for the keys of a site profile that name a queue, up to their values. after_all: the option for a job
    that starts when the others have ended. start: how a job changes to the folder that it was submitted from. index:
    how a job finds the number of its run. again: how a job is continued that was stopped, the shell function `again`.
    """

    nodes: int = 1
    ranks_per_node: int = 1
    gpus_per_node: int = 0
    time: str = "04:00:00"
    container: str = ""
    site: Site = field(default_factory=Site)

    scheduler: ClassVar[str] = ""
    submit: ClassVar[str] = ""
    cancel: ClassVar[str] = ""
    directive: ClassVar[str] = ""
    queue: ClassVar[dict[str, str]] = {}
    after_all: ClassVar[str] = ""
    start: ClassVar[str] = ""
    index: ClassVar[str] = ""
    again: ClassVar[str] = ""
    images: ClassVar[tuple[str, ...]] = (".sif",)

    def __post_init__(self) -> None:
        try:
            if self.seconds <= 2 * GRACE_S:
                raise ValueError(f"{self.time}: expected more than {2 * GRACE_S // 60} minutes")
        except ValueError as error:
            raise UsageError(f"--time {error}") from None
        if self.container and not self.container.endswith((".sif", ".sqsh")):
            raise UsageError(f"--container {self.container}: expected image.sif (Apptainer) or image.sqsh (enroot)")
        if self.container and not self.container.endswith(self.images):
            raise UsageError("--container: .sqsh images are for Slurm with pyxis; expected an Apptainer image.sif")

    @property
    def seconds(self) -> int:
        """The time limit in seconds."""
        return seconds(self.time)

    @property
    def ranks(self) -> int:
        """The ranks of a run."""
        return self.nodes * self.ranks_per_node

    @property
    def suite(self) -> str:
        """The prefix of a module that runs once."""
        return f"{self._contained('')}python -m"

    def launch(self, step: str = "") -> str:
        """Return the prefix of a module that runs on all ranks. step: options of srun for a part of them."""
        raise NotImplementedError

    def directives(self, name: str, folder: str, runs: int = 0) -> str:
        """Return the lines of a job that trains in which it asks for resources.

        folder: of its output. runs: the size of its array; 0: it is not an array.
        """
        raise NotImplementedError

    def package_directives(self, folder: str) -> str:
        """Return the same lines of the job that makes package and report."""
        raise NotImplementedError

    def _lines(self, options: list[str], job: Site | PackageJob) -> str:
        """Return the lines with these options, and those for the queue and the options of the job."""
        queue = [f"{option}{value}" for name, option in self.queue.items() if (value := getattr(job, name))]
        return "".join(f"{self.directive} {option}\n" for option in (*options, *queue, *job.options))

    def _timed(self, launcher: str) -> str:
        """Return the launcher with a signal before the time limit, for one that the scheduler does not signal."""
        # torchrun passes on SIGTERM; SIGUSR1 would end it, and not its ranks.
        signal = "TERM" if TORCHRUN.search(launcher) else "USR1"
        return f"timeout --foreground --signal={signal} {self.seconds - GRACE_S} {launcher}"

    def _launcher(self, default: str) -> str:
        command = self.site.launcher or default
        if match := TORCHRUN.search(command):  # without --no-python it takes the word after it for a Python file
            options = re.sub(r" (-m|--module|--no-python)(?= |$)", "", command[match.end() :])
            command = f"{command[: match.end()]} --no-python{options}"
        return command.replace("{ranks}", str(self.ranks)).replace("{ranks_per_node}", str(self.ranks_per_node))

    def _contained(self, disk: str) -> str:
        """Return the prefix of a command that runs in an Apptainer image, with a trailing space; "" without one.

        disk: a folder beside the current one that it needs.
        """
        if not self.container.endswith(".sif"):
            return ""
        binds = "".join(f' --bind "{path}"' for path in ("$PWD", disk) if path)
        image = quote_words("--container", [self.container])
        return f"apptainer exec{' --nv' if self.gpus_per_node else ''}{binds} {image} "

    @property
    def _disk(self) -> str:
        """The local disk for the shell of a job, which ends if one of its variables is not set."""
        hint = "is not set on this node, but local_disk of the site profile names it"
        return re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", rf"${{\1:?{hint}}}", self.site.local_disk or "")


class Slurm(Cluster):
    """Jobs of Slurm: an array for each benchmark."""

    scheduler = "slurm"
    submit = "sbatch --parsable"
    cancel = "scancel"
    directive = "#SBATCH"
    queue = {name: f"--{name}=" for name in QUEUE}  # noqa: RUF012  (ClassVar of Cluster)
    after_all = "--dependency="
    index = "index=$SLURM_ARRAY_TASK_ID\n"
    images = (".sif", ".sqsh")
    again = f"""\
again() {{
  local job=$SLURM_JOB_ID
  # The number of an array stands for all its tasks; the last task has the same one.
  if [ -n "${{SLURM_ARRAY_TASK_ID:-}}" ]; then job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; fi
  if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {RESTARTS} ]; then
    echo "queued again {RESTARTS} times already: submit the round again to continue" >&2
  else
    scontrol requeue "$job" || echo "cannot be queued again: submit the round again to continue" >&2
  fi
}}
"""

    @property
    def suite(self) -> str:
        return f"srun --nodes=1 --ntasks=1 {self._pyxis('')}python -m" if self._is_pyxis else super().suite

    def launch(self, step: str = "") -> str:
        command = self._launcher("srun")
        if self.starts_by_srun:
            # No --kill-on-bad-exit: a stopped rank exits with 3 while rank 0 may still be writing.
            command += " --kill-on-bad-exit=0 --wait=60"
            # srun does not take it from the job since Slurm 22.05.
            command += f" --cpus-per-task={self.site.cpus_per_task}" if self.site.cpus_per_task else ""
        else:
            command = self._timed(command)  # Slurm signals the steps of srun only
        return f"{command}{step} {self._pyxis(self._disk) if self._is_pyxis else self._contained(self._disk)}python -m"

    @property
    def starts_by_srun(self) -> bool:
        """Whether the ranks are started by srun."""
        return self._launcher("srun").split()[0] == "srun"

    def directives(self, name: str, folder: str, runs: int = 0) -> str:
        output = "%x-%A_%a" if runs else "%x-%j"
        lines = [f"--job-name={name}", f"--output={folder}/slurm-{output}.txt", f"--time={self.time}"]
        lines += [f"--nodes={self.nodes}", f"--ntasks-per-node={self.ranks_per_node}", "--exclusive"]
        lines += [f"--cpus-per-task={self.site.cpus_per_task}"] if self.site.cpus_per_task else []
        if self.gpus_per_node and self.site.gpus.request != "none":
            option = {"gpus-per-node": "--gpus-per-node=", "gres": "--gres=gpu:"}[self.site.gpus.request]
            lines.append(f"{option}{self.gpus_per_node}")
        lines += [f"--array=0-{runs - 1}"] if runs else []
        lines += [f"--signal=USR1@{GRACE_S}"] if self.starts_by_srun else []
        return self._lines([*lines, "--requeue", "--open-mode=append"], self.site)

    def package_directives(self, folder: str) -> str:
        job = self.site.package_job
        lines = ["--job-name=mlperf-package", f"--output={folder}/slurm-%x-%j.txt", f"--time={job.time}"]
        return self._lines([*lines, "--nodes=1", "--ntasks=1"], job)

    @property
    def _is_pyxis(self) -> bool:
        return self.container.endswith(".sqsh")

    def _pyxis(self, disk: str) -> str:
        mounts = ",".join(f"{path}:{path}" for path in ("$PWD", disk) if path)
        image = quote_words("--container", [self.container])
        return f'--container-image={image} --container-mounts="{mounts}" --container-workdir="$PWD" '


class Pbs(Cluster):
    """Jobs of PBS: an array for each benchmark."""

    scheduler = "pbs"
    submit = "qsub"
    cancel = "qdel"
    directive = "#PBS"
    queue = {"account": "-A ", "partition": "-q "}  # noqa: RUF012  (ClassVar of Cluster)
    after_all = "-W depend="
    start = 'cd "$PBS_O_WORKDIR"\n'
    index = "index=${PBS_ARRAY_INDEX:-0}\n"
    again = 'again() { echo "submit the round again to continue" >&2; }\n'

    def __post_init__(self) -> None:
        Cluster.__post_init__(self)
        for job in (self.site, self.site.package):
            if job.qos or job.constraint:
                raise UsageError("--site: qos and constraint are options of Slurm; for PBS use partition and options")

    def launch(self, step: str = "") -> str:
        return f"{self._timed(self._launcher('mpiexec -n {ranks}'))} {self._contained(self._disk)}python -m"

    def directives(self, name: str, folder: str, runs: int = 0) -> str:
        gpus = self.gpus_per_node if self.site.gpus.request != "none" else 0
        ranks, cpus = self.ranks_per_node, self.site.cpus_per_task or 1
        select = f"select={self.nodes}:ncpus={ranks * cpus}:mpiprocs={ranks}{f':ngpus={gpus}' if gpus else ''}"
        lines = [*self._common(name, folder, self.time), f"-l {select}", "-l place=scatter:excl"]
        # PBS refuses an array of one job.
        lines += [f"-J 0-{runs - 1}"] if runs > 1 else []
        return self._lines(lines, self.site)

    def package_directives(self, folder: str) -> str:
        job = self.site.package_job
        return self._lines([*self._common("mlperf-package", folder, job.time), "-l select=1:ncpus=1"], job)

    @staticmethod
    def _common(name: str, folder: str, time: str) -> list[str]:
        return [f"-N {name}", f"-o {folder}/", "-j oe", f"-l walltime={time}"]


class Plain(Cluster):
    """One machine without a scheduler: the script trains one run after the other."""

    scheduler = "plain"
    again = 'again() { echo "call this script again to continue" >&2; }\n'

    def __post_init__(self) -> None:
        Cluster.__post_init__(self)
        if self.nodes > 1:
            raise UsageError("--emit plain is for one machine; for several nodes use slurm or pbs")

    def launch(self, step: str = "") -> str:
        if self.site.launcher:
            return f"{self._launcher('')} {self._contained(self._disk)}python -m"
        start = "torchrun --nproc-per-node {ranks} -m" if self.ranks > 1 else "python -m"
        return f"{self._contained(self._disk)}{start.replace('{ranks}', str(self.ranks))}"


SCHEDULERS: Final[dict[str, type[Cluster]]] = {one.scheduler: one for one in (Slurm, Pbs, Plain)}
