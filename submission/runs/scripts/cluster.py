"""The profile of a machine for job scripts: what its scheduler wants to know, and what its nodes have.

Nothing is assumed about a machine without a profile. The values become lines of job scripts, so each is checked: a
directive is one line that no shell expands, and only `setup` is shell code.

What jobs ask from Slurm, from PBS, or from one machine without a scheduler, and how they start ranks there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from common.command import count, positive, suggest_name
from common.config import PLACE, ConfigError, key, load, quote_value
from common.errors import UsageError
from common.installed import is_name
from common.programs import ask_program
from common.version import FOLDERS_VARIABLE
from submission.runs.plan import PlannedRun

EXAMPLES: Final = Path(__file__).parent / "sites"
END_OF_JOB: Final = "END_OF_JOB"
"""The line that ends a job in the script that submits it."""
QUEUE: Final = ("account", "partition", "qos", "constraint")
WORD: Final = re.compile(r"[\w.:@%+=,&|*()\[\]!-]*")
OPTION_WORD: Final = r"[^\s\x00-\x1f\x7f`$;<>\"'\\#]+"
OPTION: Final = re.compile(rf"-{OPTION_WORD}( {OPTION_WORD})?")
COMMAND: Final = re.compile(r"[\w./][\w./=:,@%+ -]*")
VARIABLE: Final = r"\$(?:[A-Za-z_][A-Za-z0-9_]*(?![A-Za-z0-9_])|\{[A-Za-z_][A-Za-z0-9_]*\})"
LOCAL_DISK: Final = re.compile(rf"(/|{VARIABLE})([\w./+-]|{VARIABLE})*")
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Characters that no script can have; tabs and line ends are judged by what the value is for."""
GPU_OPTIONS: Final = {"nvidia": ["--nv"], "amd": ["--rocm"], "intel": []}
"""Options by which a container gets GPUs of a kind; Intel's need none, since Apptainer mounts the host's /dev."""
TORCHRUN: Final = re.compile(r"\btorchrun(?= |$)|\btorch\.distributed\.run(?= |$)")


def parse_time(time: str) -> int:
    """Return HH:MM:SS in seconds; ValueError for another form."""
    match = re.fullmatch(r"(\d+):([0-5]\d):([0-5]\d)", time)
    if not match:
        raise ValueError(f"{quote_value(time)}: expected HH:MM:SS, such as 00:30:00 in quotes")
    hours, minutes, rest = map(int, match.groups())
    return 3600 * hours + 60 * minutes + rest


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a node, and how a job asks for them."""

    kind: Literal["nvidia", "amd", "intel"] = key(
        "nvidia", "whose they are: a container is entered with --nv, with --rocm, or for Intel's with neither", PLACE
    )
    per_node: int = key(0, "of each node, and then also the default of ranks per node", PLACE)
    request: Literal["gpus-per-node", "gres", "none"] = key(
        "gpus-per-node",
        "how Slurm is asked for them: --gpus-per-node=N, --gres=gpu:N, or none: nodes come with them",
        PLACE,
    )

    def __post_init__(self) -> None:
        if self.per_node < 0:
            raise ValueError(f"per_node is {self.per_node}; expected 0 or more")


@dataclass(frozen=True, slots=True)
class PackageJob:
    """The job that makes package and report: one task without GPU, on a node that other jobs may share."""

    account: str | None = key(None, "null: that of the runs; '': none", PLACE)
    partition: str | None = key(None, "null: that of the runs; '': none", PLACE)
    qos: str | None = key(None, "null: that of the runs; '': none", PLACE)
    constraint: str | None = key(None, "null: that of the runs; '': none", PLACE)
    options: tuple[str, ...] = key((), "its further options; those of the runs do not apply", PLACE)
    time: str = key("00:30:00", "its time limit, HH:MM:SS", PLACE)

    def __post_init__(self) -> None:
        _check_directives(self, *QUEUE)
        parse_time(self.time)


@dataclass(frozen=True, slots=True)
class Site:
    """A machine as job scripts see it."""

    note: str = key("", "printed at the top of the scripts, such as whether anybody has tried the profile", PLACE)
    account: str | None = key(None, "project that pays (--account; PBS: -A)", PLACE)
    needs_account: bool = key(False, "whether the machine refuses jobs without an account", PLACE)
    partition: str | None = key(None, "partition (--partition; PBS: queue, -q)", PLACE)
    qos: str | None = key(None, "quality of service (--qos; not for PBS)", PLACE)
    constraint: str | None = key(None, "features of the nodes (--constraint; not for PBS)", PLACE)
    options: tuple[str, ...] = key((), "further options of the jobs that train, each as after #SBATCH or #PBS", PLACE)
    setup: tuple[str, ...] = key((), "lines of bash at the start of each job: modules, virtual environment", PLACE)
    local_disk: str | None = key(
        None,
        "folder on each node's own disk, in which data are staged; $NAME is expanded on the node. null: no disk is "
        "assumed, and what would be staged on it is read from shared storage",
        PLACE,
    )
    launcher: str | None = key(
        None,
        "command that starts the ranks, with options; {ranks} and {ranks_per_node} are replaced. null: srun, "
        "mpiexec -n {ranks} -ppn {ranks_per_node}, or torchrun, as the scheduler needs. Open MPI has no -ppn: set "
        "mpiexec -n {ranks}",
        PLACE,
    )
    host_suffix: str = key(
        "",
        "added to the short name of rank 0's host in MASTER_ADDR, where that names its fast network, such as i",
        PLACE,
    )
    apptainer: str = key(
        "apptainer exec", "command that enters an image.sif, with options; SingularityCE: singularity exec", PLACE
    )
    cpus_per_task: int | None = key(None, "CPUs of each rank, as the scheduler counts them", PLACE)
    gpus: Gpus = field(default_factory=Gpus)
    package: PackageJob = field(default_factory=PackageJob)

    def __post_init__(self) -> None:
        _check_directives(self, *QUEUE, "host_suffix")
        _check_characters(self, "note", "setup", "local_disk")
        if "\n" in self.note:
            raise ValueError("note has several lines; expected one")
        for line in self.setup:
            if "\n" in line or line.strip() == END_OF_JOB:
                raise ValueError(f"setup has {quote_value(line)}; expected a list of single lines of bash")
        if self.setup and re.search(r"(?<!\\)(\\\\)*\\$", self.setup[-1]):
            raise ValueError(
                f"setup: line {len(self.setup)}, {quote_value(self.setup[-1])}, ends in a backslash, which would join "
                "it with the next line of the script; remove the backslash"
            )
        if self.local_disk is not None and not LOCAL_DISK.fullmatch(self.local_disk):
            raise ValueError(
                f"local_disk is {quote_value(self.local_disk)}; expected an absolute path of letters, digits and "
                ". _ - + /, with variables as $NAME or ${NAME}, such as $TMPDIR or /scratch/$USER"
            )
        launcher = "srun" if self.launcher is None else self.launcher
        for name, command in (("launcher", launcher), ("apptainer", self.apptainer)):
            if not COMMAND.fullmatch(command.replace("{ranks}", "").replace("{ranks_per_node}", "")):
                raise ValueError(
                    f"{name} is {quote_value(command)}; expected a command with options on one line, such as srun "
                    "--cpu-bind=cores, mpiexec -n {ranks} -ppn {ranks_per_node} or apptainer exec, without quotes, "
                    "variables or shell code"
                )
        if TORCHRUN.search(launcher) and launcher.split()[0] == "srun":
            raise ValueError(
                f"launcher is {quote_value(launcher)}; expected srun or torchrun: each of them starts all ranks"
            )
        if self.cpus_per_task is not None and self.cpus_per_task < 1:
            raise ValueError(f"cpus_per_task is {self.cpus_per_task}; expected at least 1")

    @property
    def problem(self) -> str:
        """What the profile lacks so that jobs can be submitted; "" if nothing."""
        jobs: dict[str, Site | PackageJob] = {"account": self, "package.account": self.package_job}
        for name, job in jobs.items():
            has_account = job.account or any(re.match("--account[= ]|-A", option) for option in job.options)
            if self.needs_account and not has_account:
                return f"{name} is not set, and the machine refuses jobs without one: set it in a copy of the profile"
        return ""

    @property
    def package_job(self) -> PackageJob:
        """The package job, with the account and queue of the runs where it has none of its own."""
        inherited = {name: getattr(self, name) for name in QUEUE if getattr(self.package, name) is None}
        return replace(self.package, **inherited)


def read_site(name: str) -> Site:
    """Return the profile in a YAML file, or the example of this name.

    Raises UsageError if no example has it, ConfigError for a file with errors.
    """
    if not is_name(name):
        site = load(Site, Path(name))
        if problem := _check_syntax(site.setup):
            raise ConfigError(f"{name}: setup: {problem}")
        return site
    if name not in (sites := list_sites()):
        raise UsageError(
            f"--site {name}: no such example{suggest_name(name, sites)}; expected {', '.join(sites)}, or a file: "
            f"./{name} or FILE.yaml"
        )
    return load(Site, EXAMPLES / f"{name}.yaml")


def list_sites() -> list[str]:
    """Return the names of the examples."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def quote_words(source: str, words: Sequence[str]) -> str:
    """Return words as bash reads them, on one line of a script; UsageError for line ends and control characters.

    A line of its own could end the job in the script that submits it, and what follows would run at once.
    """
    for word in words:
        if "\n" in word or CONTROL.search(word):
            raise UsageError(f"{source}: {quote_value(word)} cannot be in a job script; expected text on one line")
    return shlex.join(words)


def _check_syntax(lines: Sequence[str]) -> str:
    """Return what bash says of the syntax of the lines, with the line, "" if nothing, or without bash."""
    complaints = ask_program("bash", "-nc", "\n".join(lines)).complaints
    message = complaints.partition("\n")[0]  # also a warning, such as of a here-document without its end
    if not (match := re.search(r"line (\d+):? (.*)", message)):
        return message
    number = min(int(match[1]), len(lines))
    return f"line {number}, {quote_value(lines[number - 1])}: {match[2]}; expected lines that bash can read"


def _check_characters(job: Site | PackageJob, *names: str) -> None:
    for name in names:
        value = getattr(job, name) or ()
        for text in (value,) if isinstance(value, str) else value:
            if CONTROL.search(text):
                raise ValueError(f"{name} has {quote_value(text)}; expected text without control characters")


def _check_directives(job: Site | PackageJob, *words: str) -> None:
    for name in words:
        value = getattr(job, name)
        if value is not None and not WORD.fullmatch(value):
            raise ValueError(
                f"{name} is {quote_value(value)}; expected one word, without spaces, quotes, $, ; and the like"
            )
    _check_characters(job, "options")
    for option in job.options:
        if not OPTION.fullmatch(option):
            raise ValueError(
                f"options has {quote_value(option)}; expected one option on one line, such as --reservation=NAME or "
                "-C nvme: no shell reads it, so it cannot have variables, quotes, backslashes, # ; < or >"
            )


GRACE_S: Final = 300
"""Time between the signal to save and stop and the time limit: enough for an evaluation and a checkpoint."""
RESTARTS: Final = 20
"""How many times a Slurm job queues itself again."""
Scheduler = Literal["slurm", "pbs", "plain"]
SUBMIT: Final = {
    "slurm": {"submit": "sbatch --parsable", "cancel": "scancel", "depend": "--dependency="},
    "pbs": {"submit": "qsub", "cancel": "qdel", "depend": "-W depend="},
}
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
        if self.scheduler == "pbs" and any(job.qos or job.constraint for job in (self.site, self.site.package)):
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
    def meet(self) -> str | None:
        """The function of a job that says where its ranks meet; None where they find that themselves."""
        return "meet" if self.scheduler == "pbs" or (self.scheduler == "slurm" and self.site.host_suffix) else None

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
        command = (
            self.site.launcher
            or {
                "slurm": "srun",
                "pbs": "mpiexec -n {ranks} -ppn {ranks_per_node}",
                "plain": "torchrun --nproc-per-node {ranks}" if ranks > 1 else "",
            }[self.scheduler]
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
            size = f"WORLD_SIZE={ranks} " if self.scheduler == "pbs" else ""  # PALS with PMIx tells no rank of it
            return f"{size}timeout --foreground --signal={signal} {self.seconds - GRACE_S} {command}{step} {enter}"
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
        options = [
            *(GPU_OPTIONS[self.site.gpus.kind] if self.gpus_per_node else []),
            *(f'--bind "{path}"' for path in paths),
        ]
        return " ".join([self.site.apptainer, *options, image, ""]) if self.container else ""

    @property
    def _disk(self) -> str:
        """The local disk for the shell of a job, which ends if one of its variables is not set."""
        hint = "is not set on this node, but local_disk of the site profile names it"
        return re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", rf"${{\1:?{hint}}}", self.site.local_disk or "")


def add_cluster_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that describe a cluster, from --emit on, and return their group; `read_cluster` reads them."""
    group = parser.add_argument_group("scripts for a cluster, instead of running here")
    add = group.add_argument
    add("--emit", choices=("slurm", "pbs", "plain"), help="print a script that submits or starts the runs")
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
