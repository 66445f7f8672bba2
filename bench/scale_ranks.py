"""Ranks of a tiny CosmoFlow, forked from one process that has torch, and what the actions of their job cost each.

    python bench/scale_ranks.py RANKS FOLDER DATA     trains twice in FOLDER, and writes FOLDER/ranks.json

Before that a plain process group of torch meets, for comparison. The ranks are connected by the control plane alone, as
those beside accelerators are, and those on CPUs above the limit of `common.ranks.dist`.

Counted is what the kernel knows of a process: bytes and segments of its TCP connections, open descriptors, CPU time,
memory, and the files, folders and processes that Python opens. What begins and ends an action are functions of the
trainer. Not seen: connections that open and close within an
action. Eight ranks each believe that they share a node.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch._dynamo  # the first optimizer imports it; here all ranks have it before they are forked
import torch.distributed as td
from scale_page import DESCRIPTORS, IDLE_S, PER_NODE

from common.ending import EXIT_STATUS, TARGET_NOT_MET
from common.ranks import dist
from common.training import job
from common.training.benchmark import SampleProblem
from common.training.checkpoint import Checkpoints
from common.training.folder import OwnedFolder
from common.training.loop import Loop
from common.training.run import Training
from cosmoflow import train
from cosmoflow.train import CosmoFlow

LONGEST_S: Final = 300.0
"""For one of the two trainings."""
TCP_COUNTERS: Final = 120
"""Where struct tcp_info of Linux has bytes acknowledged and received (64 bits), and 20 bytes later data segments."""
ACTIONS: Final[dict[str, tuple[Any, str]]] = {
    "configuration": (Training, "__init__"),
    "folder": (OwnedFolder, "take_over"),
    "resume": (Checkpoints, "load"),
    "file list": (CosmoFlow, "__init__"),
    "provenance": (Training, "_begin_log"),
    "staging": (SampleProblem, "stage"),
    "steps": (Loop, "_make_steps"),
    "evaluation": (SampleProblem, "evaluate"),
    "checkpoint": (Checkpoints, "save"),
}
CONFIG: Final = """
data: {data_dir: DATA, sample_shape: [16, 16, 16, 4], workers: 1}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.5}
train: {epochs: 2, global_batch_size: 64, seed: 7, target: 1.0e-9}
staging: {mode: replicate, stage_dir: $SCALE_NODE/staged, keep: true, workers: 1}
schedule: {base_lr: 0.001, scaling: none, warmup_epochs: 0, decay: {}}
precision: {dtype: fp32}
dist: {timeout_s: 300, device: cpu}
submission: {org: Example University, platform: scale}
"""


class Counters:
    """What a rank has done until now, and what each action was of it."""

    def __init__(self) -> None:
        self.actions: dict[str, Counter[str]] = {}
        self.facts: dict[str, float] = {}
        self._calls: Counter[str] = Counter()
        self._connections: dict[str, tuple[int, int, int, int]] = {}
        self._kept: list[socket.socket] = []
        sys.addaudithook(self._note_event)

    def _note_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not str(arguments[0]).startswith("/proc/"):
            self._calls["files"] += 1
        elif event in ("os.listdir", "os.scandir") and not str(arguments[0]).startswith("/proc/"):
            self._calls["folders"] += 1
        elif event == "subprocess.Popen":
            self._calls["processes"] += 1

    def _read_connections(self, keep: bool = False) -> None:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/self/fd/{name}")
                if not link.startswith("socket:"):
                    continue
                connection = socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM)
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, received = struct.unpack_from("QQ", info, TCP_COUNTERS)
                segments_in, segments_out = struct.unpack_from("II", info, TCP_COUNTERS + 32)
                self._connections[link] = sent, received, segments_out, segments_in
                if keep:
                    self._kept.append(connection)
                else:
                    connection.close()

    def total(self, keep: bool = False) -> Counter[str]:
        """Return all counts; keep: hold the connections open, so that the next call sees them to their end."""
        self._read_connections(keep)
        columns = [sum(column) for column in zip(*self._connections.values(), strict=True)] or [0] * 4
        counts = Counter(dict(zip(("sent", "received", "messages_out", "messages_in"), columns, strict=True)))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        read = int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])
        micros = round(1e6 * (usage.ru_utime + usage.ru_stime))
        return counts + self._calls + Counter(read=read, cpu_us=micros, wall_us=time.monotonic_ns() // 1000)

    @contextlib.contextmanager
    def counting(self, action: str, keep: bool = False) -> Iterator[None]:
        """Add what happens inside to an action, also if it fails."""
        before = self.total(keep)
        try:
            yield
        finally:
            after = self.total()
            after.subtract(before)
            self.actions.setdefault(action, Counter()).update(after + Counter(times=1))

    def note_memory(self) -> None:
        """Note descriptors, threads and memory of this rank."""
        rollup = Path("/proc/self/smaps_rollup").read_text()
        private = sum(int(kilobytes) for kilobytes in re.findall(r"Private_\w+:\s+(\d+)", rollup))
        self.facts |= {
            "descriptors": len(os.listdir("/proc/self/fd")),
            "descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "threads": len(os.listdir("/proc/self/task")),
            "private_mb": private / 1024,
        }


def watch_actions(counters: Counters, idle_s: float) -> None:
    """Count what the trainer's actions do."""

    def watch(action: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*arguments: Any, **keys: Any) -> Any:
            with counters.counting(action):
                return function(*arguments, **keys)

        return counted

    for action, (owner, name) in ACTIONS.items():
        setattr(owner, name, watch(action, getattr(owner, name)))
    connect = job.connect

    @contextlib.contextmanager
    def counted_connect(*arguments: Any) -> Iterator[Any]:
        with contextlib.ExitStack() as connected:
            with counters.counting("meeting"):
                dist = connected.enter_context(connect(*arguments))
            yield dist
            counters.note_memory()
            with counters.counting("sign of life"):
                time.sleep(idle_s)
            with counters.counting("end", keep=True):
                connected.close()

    job.connect = counted_connect


def run_rank(rank: int, folder: Path, words: list[str], idle_s: float) -> int:
    """Train as one of the ranks; return the exit status."""
    node = folder / f"node{rank // PER_NODE}"
    os.environ |= {"RANK": str(rank), "SCALE_NODE": str(node)}
    socket.gethostname = lambda: node.name
    output = os.open(folder / f"output{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    counters, status = Counters(), 1
    watch_actions(counters, idle_s)
    try:
        status = train.main([str(folder / "scale.yaml"), f"output_dir={folder}/run", *words])
    except SystemExit as error:
        status = int(error.code or 0)
    finally:
        report = {"status": status, "actions": counters.actions, **counters.facts}
        (folder / f"rank{rank}.json").write_text(json.dumps(report))
    return status


def find_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fork_each(ranks: int, run: Callable[[int], int]) -> bool:
    """Run each rank in a process of its own, which ends with the status it returns; tell whether some had to be ended.

    All begin at the same time, as far as this machine can.
    """
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run(rank)
            finally:
                os._exit(status)
        children.append(child)
    end, alive = time.monotonic() + LONGEST_S, set(children)
    while alive and time.monotonic() < end:
        alive -= {child for child in alive if os.waitpid(child, os.WNOHANG)[0]}
        time.sleep(0.1)
    for child in alive:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return bool(alive)


def measure_plain_group(ranks: int, folder: Path) -> dict[str, float]:
    """Return what rank 0 of a plain process group of torch sends and receives to meet the others, by gloo."""
    port, counts = find_port(), folder / "plain"

    def run(rank: int) -> int:
        counters = Counters()
        before = counters.total()
        store = td.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0)
        td.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        td.barrier()
        if rank == 0:
            after = counters.total()
            after.subtract(before)
            counts.write_text(json.dumps(after | {"descriptors": len(os.listdir("/proc/self/fd"))}))
        td.barrier()
        td.destroy_process_group()
        return 0

    if fork_each(ranks, run):
        raise SystemExit(f"a plain group of {ranks} ranks failed")
    return dict(json.loads(counts.read_text()))


def fork_ranks(ranks: int, folder: Path, words: list[str], idle_s: float) -> list[dict[str, Any]]:
    """Fork the ranks, and return what each has counted; SystemExit if one fails."""
    os.environ |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_port())}
    alive = fork_each(ranks, lambda rank: run_rank(rank, folder, words, idle_s))
    reports = [json.loads(path.read_text()) for rank in range(ranks) if (path := folder / f"rank{rank}.json").exists()]
    if alive or len(reports) < ranks or {report["status"] for report in reports} != {EXIT_STATUS[TARGET_NOT_MET]}:
        raise SystemExit(f"{ranks} ranks failed:\n{(folder / 'output0.txt').read_text()[-3000:]}")
    return reports


def main() -> None:
    ranks, folder, data = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS[0], most))
    for node in range(-(-ranks // PER_NODE)):
        (folder / f"node{node}").mkdir(parents=True)
    (folder / "scale.yaml").write_text(CONFIG.replace("DATA", str(data)))
    plain = measure_plain_group(ranks, folder)
    dist.MOST_CONNECTED = 1
    first = fork_ranks(ranks, folder, [], IDLE_S)
    second = fork_ranks(ranks, folder, ["train.epochs=3", "--resume"], 0.0)
    for before, after in zip(first, second, strict=True):
        resumed = after["actions"]
        before["actions"] |= {"resume": resumed["resume"], "second staging": resumed["staging"]}
    (folder / "ranks.json").write_text(json.dumps({"plain": plain, "ranks": first}))


if __name__ == "__main__":
    main()
