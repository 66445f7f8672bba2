"""The profile of a machine for job scripts: what its scheduler wants to know, and what its nodes have.

Nothing is assumed about a machine without a profile. The values become lines of job scripts, so each is checked: a
directive is one line that no shell expands, and only `setup` is shell code.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from common.command import suggest_name
from common.config import PLACE, ConfigError, key, load, shown
from common.errors import UsageError
from common.installed import is_name

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
TORCHRUN: Final = re.compile(r"\btorchrun(?= |$)|\btorch\.distributed\.run(?= |$)")
ACCOUNT: Final = re.compile("--account[= ]|-A")
TIME: Final = re.compile(r"(\d+):([0-5]\d):([0-5]\d)")
RequestGpus = Literal["gpus-per-node", "gres", "none"]


def parse_time(time: str) -> int:
    """Return HH:MM:SS in seconds; ValueError for another form."""
    match = TIME.fullmatch(time)
    if not match:
        raise ValueError(f"{shown(time)}: expected HH:MM:SS, such as 00:30:00 in quotes")
    hours, minutes, rest = map(int, match.groups())
    return 3600 * hours + 60 * minutes + rest


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a node, and how a job asks for them."""

    per_node: int = key(0, "of each node, and then also the default of ranks per node", PLACE)
    request: RequestGpus = key(
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
        _check_directives(self)
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
        "mpiexec -n {ranks}, or torchrun, as the scheduler needs",
        PLACE,
    )
    cpus_per_task: int | None = key(None, "CPUs of each rank, as the scheduler counts them", PLACE)
    gpus: Gpus = field(default_factory=Gpus)
    package: PackageJob = field(default_factory=PackageJob)

    def __post_init__(self) -> None:
        _check_directives(self)
        _check_characters(self, "note", "setup", "local_disk", "launcher")
        if "\n" in self.note:
            raise ValueError("note has several lines; expected one")
        for line in self.setup:
            if "\n" in line or line.strip() == END_OF_JOB:
                raise ValueError(f"setup has {shown(line)}; expected a list of single lines of bash")
        if self.setup and re.search(r"(?<!\\)(\\\\)*\\$", self.setup[-1]):
            raise ValueError(
                f"setup: line {len(self.setup)}, {shown(self.setup[-1])}, ends in a backslash, which would join it "
                "with the next line of the script; remove the backslash"
            )
        if self.local_disk is not None and not LOCAL_DISK.fullmatch(self.local_disk):
            raise ValueError(
                f"local_disk is {shown(self.local_disk)}; expected an absolute path of letters, digits and . _ - + /, "
                "with variables as $NAME or ${NAME}, such as $TMPDIR or /scratch/$USER"
            )
        launcher = "srun" if self.launcher is None else self.launcher
        if not COMMAND.fullmatch(launcher.replace("{ranks}", "").replace("{ranks_per_node}", "")):
            raise ValueError(
                f"launcher is {shown(launcher)}; expected a command with options on one line, such as srun "
                "--cpu-bind=cores or mpiexec -n {ranks} --ppn {ranks_per_node}, without quotes, variables or shell code"
            )
        if TORCHRUN.search(launcher) and launcher.split()[0] == "srun":
            raise ValueError(f"launcher is {shown(launcher)}; expected srun or torchrun: each of them starts all ranks")
        if self.cpus_per_task is not None and self.cpus_per_task < 1:
            raise ValueError(f"cpus_per_task is {self.cpus_per_task}; expected at least 1")

    @property
    def problem(self) -> str:
        """What the profile lacks so that jobs can be submitted; "" if nothing."""
        jobs: dict[str, Site | PackageJob] = {"account": self, "package.account": self.package_job}
        for name, job in jobs.items():
            if self.needs_account and not job.account and not any(map(ACCOUNT.match, job.options)):
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
    if name not in (known := list_sites()):
        hint = suggest_name(name, known)
        raise UsageError(
            f"--site {name}: no such example{hint}; expected {', '.join(known)}, or a file: ./{name} or FILE.yaml"
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
            raise UsageError(f"{source}: {shown(word)} cannot be in a job script; expected text on one line")
    return shlex.join(words)


def _check_syntax(lines: Sequence[str]) -> str:
    """Return what bash says of the syntax of the lines, with the line, "" if nothing, or without bash."""
    if (bash := shutil.which("bash")) is None:
        return ""
    process = subprocess.run([bash, "-nc", "\n".join(lines)], capture_output=True, text=True, check=False)
    message = process.stderr.partition("\n")[0]  # also a warning, such as of a here-document without its end
    if not (match := re.search(r"line (\d+):? (.*)", message)):
        return message
    number = min(int(match[1]), len(lines))
    return f"line {number}, {shown(lines[number - 1])}: {match[2]}; expected lines that bash can read"


def _check_characters(job: Site | PackageJob, *names: str) -> None:
    for name in names:
        value = getattr(job, name) or ()
        for text in (value,) if isinstance(value, str) else value:
            if CONTROL.search(text):
                raise ValueError(f"{name} has {shown(text)}; expected text without control characters")


def _check_directives(job: Site | PackageJob) -> None:
    for name in QUEUE:
        value = getattr(job, name)
        if value is not None and not WORD.fullmatch(value):
            raise ValueError(f"{name} is {shown(value)}; expected one word, without spaces, quotes, $, ; and the like")
    _check_characters(job, "options")
    for option in job.options:
        if not OPTION.fullmatch(option):
            raise ValueError(
                f"options has {shown(option)}; expected one option on one line, such as --reservation=NAME or -C nvme: "
                "no shell reads it, so it cannot have variables, quotes, backslashes, # ; < or >"
            )
