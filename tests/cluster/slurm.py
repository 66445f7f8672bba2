"""A real Slurm of several nodes on this machine, for tests; needs root, Linux, and what install.sh installs.

    with Cluster(folder) as cluster:
        cluster.run("srun", "-N", "2", "hostname")     # on the login node, login1

The nodes nid001, nid002 … share the file system of this machine, but for /mnt and /dev/shm: `local` is the path of a
node's /mnt outside. start.sh makes the nodes in namespaces that end with its standard input, and so with this process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
START = Path(__file__).with_name("start.sh")
LOGIN = "login1"
GPUS = 4
"""On each node, according to Slurm; the devices are empty files."""
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=login1(10.77.0.100)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=10
MinJobAge=3600
ReturnToService=1
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
GresTypes=gpu
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
STOP_S = 20
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")


class Cluster:
    """A Slurm with a login node and compute nodes; a context manager that starts and ends it."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder = folder
        self.nodes = [f"nid{number:03d}" for number in range(1, nodes + 1)]
        self._machine: subprocess.Popen[bytes] | None = None
        self._inside: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._configure()
        command = [
            *("unshare", "--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"),
            *(str(START), "cluster", str(self.folder), str(len(self.nodes))),
        ]
        with (self.folder / "output.txt").open("wb") as output:
            # A session of its own: Ctrl-C reaches this process alone, and __exit__ ends the cluster.
            self._machine = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self.environment(),
                start_new_session=True,
            )
        try:
            until(self._ready, "the nodes are up")
            until(lambda: self.idle() == len(self.nodes), "the nodes are idle")
        except BaseException as error:
            self.__exit__()
            error.add_note(self._said())
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._machine is not None and self._machine.stdin is not None
        self._machine.stdin.close()
        try:
            self._machine.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._machine.kill()
            self._machine.wait()

    def command(self, *command: str, node: str = LOGIN, **variables: str) -> list[str]:
        """Return a command line that runs a command on a node, in the checkout; variables: of its environment."""
        enter = ["nsenter", "--target", str(self._process(node)), "--pid", "--net", "--uts", "--mount", "--ipc", "--"]
        environment = self.environment() | variables
        return [
            *enter,
            "env",
            "-i",
            "-C",
            str(ROOT),
            *(f"{name}={value}" for name, value in environment.items()),
            *command,
        ]

    def environment(self) -> dict[str, str]:
        """Return the variables of a command on a node: the checkout's modules, one thread per rank, this Slurm."""
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}:/usr/bin:/bin:/usr/sbin:/sbin"
        return kept | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def run(self, *command: str, node: str = LOGIN, timeout_s: float = 120, **variables: str) -> Done:
        """Run a command on a node until it ends; AssertionError if it does not in time."""
        return self.start(*command, node=node, **variables).wait(timeout_s)

    def start(self, *command: str, node: str = LOGIN, **variables: str) -> Running:
        """Start a command on a node."""
        return Running(self.command(*command, node=node, **variables))

    def slurm(self, *command: str) -> str:
        """Run a command of Slurm on the login node; return its output. AssertionError if it fails."""
        done = self.run(*command, timeout_s=60)
        assert done.status == 0, f"{' '.join(command)}: {done}"
        return done.text.strip()

    def idle(self) -> int:
        """Return the number of nodes that wait for work."""
        done = self.run("sinfo", "-h", "-t", "idle", "-o", "%D", timeout_s=60)
        return int(done.text.split()[0]) if done.status == 0 and done.text.split() else 0

    def jobs(self) -> str:
        """Return the jobs that run or are queued, a line each."""
        until(lambda: not self.slurm("squeue", "-h", "--states=completing"), "what has ended is cleaned up")
        return self.slurm("squeue", "-h", "-o", "%A %j %T")

    def inside(self, node: str, path: Path) -> Path:
        """Return where a path of a node, below a mount of its own, is outside."""
        return Path(f"/proc/{self._process(node)}/root", *path.parts[1:])

    def local(self, node: str) -> Path:
        """Return the folder that is /mnt on a node."""
        return self.folder / node / "local"

    def left_on_nodes(self) -> list[str]:
        """Return the files on the nodes' own disks and in their memory."""
        disks = [str(path) for node in self.nodes for path in self.local(node).rglob("*") if not path.is_dir()]
        memory = [self.run("find", "/dev/shm", "-type", "f", node=node).text for node in self.nodes]
        return [*disks, *"".join(memory).split()]

    def pull_cable(self, node: str, state: str = "down") -> None:
        """Cut a node off the network of the others; state "up": put the cable in again."""
        enter = ["nsenter", "--target", str(self._process(node)), "--net"]
        subprocess.run([*enter, "ip", "link", "set", "eth0", state], check=True)

    def hosts(self, node: str, *first: str) -> None:
        """Write a node's /etc/hosts, with these lines first."""
        addresses = ["127.0.0.1 localhost", "::1 localhost", f"10.77.0.100 {LOGIN}"]
        addresses += [f"10.77.0.{number} {name}" for number, name in enumerate(self.nodes, 1)]
        (self.folder / node / "hosts").write_text("".join(f"{line}\n" for line in (*first, *addresses)))

    def _configure(self) -> None:
        for name in ("state", "munge"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        for node in (LOGIN, *self.nodes):
            self.local(node).mkdir(parents=True)
            (self.folder / node / "spool").mkdir()
            self.hosts(node)
        for number in range(GPUS):
            (self.folder / f"gpu{number}").touch()
        lines = CONFIGURATION.format(folder=self.folder)
        lines += "".join(
            f"NodeName={node} NodeAddr=10.77.0.{number} CPUs=8 RealMemory=4000 Gres=gpu:{GPUS}\n"
            for number, node in enumerate(self.nodes, 1)
        )
        (self.folder / "slurm.conf").write_text(lines)
        devices = f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]"
        (self.folder / "gres.conf").write_text(f"NodeName={','.join(self.nodes)} {devices}\n")

    def _ready(self) -> bool:
        assert self._machine is not None
        assert self._machine.poll() is None, "the cluster ended while it started"
        return (self.folder / "ready").exists()

    def _process(self, node: str) -> int:
        """Return the process that is the first one of a node, by its number outside."""
        if node not in self._inside:
            first = [str(START), "node", str(self.folder), node]
            self._inside[node] = next(
                pid for pid in processes(lambda words: words[1:5] == first and "bash" in words[0])
            )
        return self._inside[node]

    def _said(self) -> str:
        texts = [self.folder / "output.txt", *sorted(self.folder.glob("*/output.txt"))]
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-2000:]}" for path in texts if path.is_file())


class Done:
    """How a command ended. text: what it printed, errors included."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text

    def __str__(self) -> str:
        return f"exit status {self.status}:\n{self.text[-4000:]}"


class Running:
    """A command that runs; what it prints is kept."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )

    def wait(self, timeout_s: float = 120) -> Done:
        """Return how the command ended; AssertionError if it does not in time."""
        try:
            text, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it has started ends with the cluster
            raise AssertionError(f"not ended after {timeout_s} s: {self._process.args}") from None
        return Done(self._process.returncode, text)

    def ended(self) -> bool:
        """Return whether the command has ended."""
        return self._process.poll() is not None


def until(condition: Callable[[], object], what: str, timeout_s: float = 60, pause_s: float = 0.05) -> None:
    """Wait until a condition holds; AssertionError with `what` if it does not in time. pause_s: between two looks."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s} s until {what}"
        time.sleep(pause_s)


def processes(chosen: Callable[[list[str]], bool]) -> Iterator[int]:
    """Yield the processes of this machine, those of all nodes included, whose command line is chosen."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if chosen(words):
                yield int(folder.name)


def variables_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(line.partition("=")[::2] for line in lines)
    return {}
