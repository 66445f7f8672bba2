"""What jobs ask from Slurm, from PBS, or from one machine without a scheduler, and how they start ranks there."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from common.command import count, positive
from common.errors import UsageError
from common.version import FOLDERS_VARIABLE
from submission.runs.plan import PlannedRun
from submission.runs.scripts.site import (
    QUEUE,
    TORCHRUN,
    PackageJob,
    Site,
    list_sites,
    parse_time,
    quote_words,
    read_site,
)

GRACE_S: Final = 300
"""Time between the signal to save and stop and the time limit: enough for an evaluation and a checkpoint."""
RESTARTS: Final = 20
"""How many times a Slurm job queues itself again."""
Scheduler = Literal["slurm", "pbs", "plain"]
SCHEDULERS: Final[tuple[Scheduler, ...]] = ("slurm", "pbs", "plain")
SUBMIT: Final = {"slurm": ("sbatch --parsable", "scancel", "--dependency="), "pbs": ("qsub", "qdel", "-W depend=")}
"""The command that submits a job and prints its number, the one that cancels jobs, and the option for dependencies.

A scheduler that is not listed has no jobs: the script itself does the work.
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where jobs run. time: limit of a job that makes runs, HH:MM:SS. container: image.sif, image.sqsh or ""."""

    scheduler: Scheduler
    ranks_per_node: int = 1
    gpus_per_node: int = 0
    time: str = "04:00:00"
    container: str = ""
    site: Site = field(default_factory=Site)

    def __post_init__(self) -> None:
        try:
            if self.seconds <= 2 * GRACE_S:
                raise ValueError(f"{self.time}: expected more than {2 * GRACE_S // 60} minutes")
        except ValueError as error:
            raise UsageError(f"--time {error}") from None
        if self.container and not self.container.endswith((".sif", ".sqsh")):
            raise UsageError(f"--container {self.container}: expected image.sif (Apptainer) or image.sqsh (enroot)")
        if self.is_pyxis and self.scheduler != "slurm":
            raise UsageError("--container: .sqsh images are for Slurm with pyxis; expected an Apptainer image.sif")
        for job in (self.site, self.site.package):
            if self.scheduler == "pbs" and (job.qos or job.constraint):
                raise UsageError("--site: qos and constraint are options of Slurm; for PBS use partition and options")

    @property
    def seconds(self) -> int:
        """The time limit in seconds."""
        return parse_time(self.time)

    @property
    def is_pyxis(self) -> bool:
        """Whether srun itself starts the container."""
        return self.container.endswith(".sqsh")

    @property
    def starts_by_srun(self) -> bool:
        """Whether the ranks are started by srun."""
        return self.scheduler == "slurm" and (self.site.launcher or "srun").split()[0] == "srun"

    @property
    def suite(self) -> str:
        """The prefix of a command that runs once, with a trailing space; "" if there is none."""
        return f"srun --nodes=1 --ntasks=1 {self._enter('')}" if self.is_pyxis else self._enter("")

    def count_nodes(self, ranks: int) -> int:
        """Return the nodes of a run; UsageError if it does not fill them, or for several without a scheduler."""
        nodes = max(1, ranks // self.ranks_per_node)
        if ranks > self.ranks_per_node and ranks % self.ranks_per_node:
            raise UsageError(f"a run of {ranks} ranks does not fill nodes of {self.ranks_per_node} (--ranks-per-node)")
        if nodes > 1 and self.scheduler not in SUBMIT:
            raise UsageError("--emit plain is for one machine; for several nodes use slurm or pbs")
        return nodes

    def count_instance_nodes(self, run: PlannedRun) -> int:
        """Return the nodes that each instance of a job has for itself; 0 if it has none, or is not started by srun."""
        if not run.instances or not self.starts_by_srun:
            return 0
        nodes, rest = divmod(run.ranks, run.instances * self.ranks_per_node)
        return 0 if rest else nodes

    def launch(self, ranks: int, step: str = "") -> str:
        """Return the prefix of a command that runs on all ranks, with a trailing space; "" if there is none.

        step: options of srun for a part of them.
        """
        enter = self._enter(self._disk)
        torchrun = f"torchrun --nproc-per-node {ranks}" if ranks > 1 else ""
        command = (
            self.site.launcher or {"slurm": "srun", "pbs": "mpiexec -n {ranks}", "plain": torchrun}[self.scheduler]
        )
        signal = "USR1"
        if match := TORCHRUN.search(command):  # without --no-python it takes the word after it for a Python file
            options = re.sub(r" (-m|--module|--no-python)(?= |$)", "", command[match.end() :])
            command = f"{command[: match.end()]} --no-python{options}"
            signal = "TERM"  # torchrun passes it on; SIGUSR1 would end it, and not its ranks
        command = command.replace("{ranks}", str(ranks))
        command = command.replace("{ranks_per_node}", str(min(ranks, self.ranks_per_node)))
        if self.scheduler not in SUBMIT:
            return f"{command} {enter}" if self.site.launcher else f"{enter}{command}{' ' if command else ''}"
        if not self.starts_by_srun:  # the scheduler signals no other launcher before the time limit
            return f"timeout --foreground --signal={signal} {self.seconds - GRACE_S} {command}{step} {enter}"
        # No --kill-on-bad-exit: a stopped rank exits with 3 while rank 0 may still be writing. srun does not take the
        # CPUs from the job since Slurm 22.05.
        cpus = f" --cpus-per-task={self.site.cpus_per_task}" if self.site.cpus_per_task else ""
        return f"{command} --kill-on-bad-exit=0 --wait=60{cpus}{step} {enter}"

    def describe_job(self, ranks: int) -> dict[str, Any]:
        """Return the values with which a job that makes runs of this many ranks asks for resources."""
        nodes, tasks, cpus = self.count_nodes(ranks), min(ranks, self.ranks_per_node), self.site.cpus_per_task
        request = self.site.gpus.request
        gpus = self.gpus_per_node if request != "none" else 0
        return {
            "time": self.time,
            "nodes": nodes,
            "ranks_per_node": tasks,
            "cpus_per_task": cpus,
            "gpus_per_node": gpus or None if request == "gpus-per-node" else None,
            "gres": gpus or None if request == "gres" else None,
            "grace_s": GRACE_S if self.starts_by_srun else None,
            "select": f"{nodes}:ncpus={tasks * (cpus or 1)}:mpiprocs={tasks}{f':ngpus={gpus}' if gpus else ''}",
        }

    def describe_queue(self, job: Site | PackageJob) -> dict[str, Any]:
        """Return the values of the queue and of the further options of a job."""
        return {"options": job.options} | {name: getattr(job, name) or None for name in QUEUE}

    def _enter(self, disk: str) -> str:
        """Return the prefix of a command that runs in the container, with a trailing space; "" without one.

        disk: a folder that it needs beside the current one and those of --benchmarks-from.
        """
        folders = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
        image, paths = quote_words("--container", [self.container]), [path for path in ("$PWD", disk, *folders) if path]
        if self.is_pyxis:
            mounts = ",".join(f"{path}:{path}" for path in paths)
            return f'--container-image={image} --container-mounts="{mounts}" --container-workdir="$PWD" '
        binds = "".join(f' --bind "{path}"' for path in paths)
        return f"apptainer exec{' --nv' if self.gpus_per_node else ''}{binds} {image} " if self.container else ""

    @property
    def _disk(self) -> str:
        """The local disk for the shell of a job, which ends if one of its variables is not set."""
        hint = "is not set on this node, but local_disk of the site profile names it"
        return re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", rf"${{\1:?{hint}}}", self.site.local_disk or "")


def add_cluster_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that describe a cluster, from --emit on, and return their group; `read_cluster` reads them."""
    group = parser.add_argument_group("scripts for a cluster, instead of running here")
    add = group.add_argument
    add("--emit", choices=SCHEDULERS, help="print a script that submits or starts the runs")
    add(
        "--site",
        metavar="NAME|FILE",
        help=f"profile of the machine: a YAML file, or an untested example: {', '.join(list_sites())}",
    )
    add("--ranks-per-node", type=positive, help="default: one per GPU; without GPUs 1")
    add("--gpus-per-node", type=count, help="default: as in the site profile, or 0")
    add("--time", default="04:00:00", metavar="HH:MM:SS", help="limit per job (default: 04:00:00)")
    add("--container", metavar="FILE", help="image.sif (Apptainer), or image.sqsh (enroot, on Slurm)")
    return group


def read_cluster(arguments: argparse.Namespace) -> Cluster:
    """Return the cluster as the site profile and the options describe it; the options take precedence."""
    site = read_site(arguments.site) if arguments.site else Site()
    gpus = site.gpus.per_node if arguments.gpus_per_node is None else arguments.gpus_per_node
    return Cluster(
        scheduler=arguments.emit,
        ranks_per_node=arguments.ranks_per_node or gpus or 1,
        gpus_per_node=gpus,
        time=arguments.time,
        container=arguments.container or "",
        site=site,
    )
