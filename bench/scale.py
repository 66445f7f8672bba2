"""Measure what each action of a job costs each rank and rank 0, and say what breaks first at 10,000 ranks.

    python bench/scale.py                                2 to 64 ranks, 4,096 clients of the store; 5 to 10 minutes
    python bench/scale.py --quick                        2 to 16 ranks, 512 clients
    python bench/scale.py --keep      also keeps the record

The ranks are processes of this machine (bench/scale_ranks.py), through whose counts powers of their number are fitted;
the meetings of more ranks are simulated. Needs Linux; counts the imports only where strace is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from machine import about
from records import add_keep_option, keep_record
from scale_page import ACTIONS, PER_NODE, write_page

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RANKS: Final = (2, 4, 16, 32, 64)
CLIENTS: Final = 4096
AT_ONCE: Final = 256
"""Clients that wait at the same time."""
FILES: Final = {"train": 524_288, "validation": 65_536}
MEETINGS: Final = ((10_000, 1), (10_000, 4), (10_048, 64), (65_536, 8))
"""Ranks that do not exist, and how many of them share a node of CORES cores."""
CORES: Final = 256
STEP: Final = """
import torch
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], 1.0)
weight.sum().backward()
optimizer.step()
"""


# -- real ranks ----------------------------------------------------------------------------------------------


def measure_ranks(ranks: int, folder: Path, data: Path) -> dict[str, Any]:
    """Return what the actions of a job cost rank 0, at most the leader of another node, and at most another rank.

    The mean where actions are repeated.
    """
    work = folder / f"ranks{ranks}"
    command = [sys.executable, str(Path(__file__).with_name("scale_ranks.py")), str(ranks), str(work), str(data)]
    begin = time.monotonic()
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = json.loads((work / "ranks.json").read_text())
    shutil.rmtree(work)
    everyone = found["ranks"]
    roles = {"main": everyone[:1], "leader": everyone[PER_NODE::PER_NODE]}
    roles["other"] = [report for rank, report in enumerate(everyone) if rank % PER_NODE]
    roles = {who: reports for who, reports in roles.items() if reports}
    result: dict[str, Any] = {"ranks": ranks, "seconds": time.monotonic() - begin, "plain": found["plain"]}
    result["actions"] = {action: {who: find_most(roles[who], action) for who in roles} for action in ACTIONS}
    for name in ("descriptors", "descriptor_limit", "threads", "private_mb"):
        result[name] = {who: max(report[name] for report in reports) for who, reports in roles.items()}
    return result


def find_most(reports: list[dict[str, Any]], action: str) -> dict[str, float]:
    """Return the most of each count of an action that a rank has in the mean."""
    costs = [report["actions"][action] for report in reports]
    names = sorted({name for cost in costs for name in cost} - {"times"})
    return {name: max(cost.get(name, 0) / cost["times"] for cost in costs) for name in names}


# -- clients of the store ------------------------------------------------------------------------------------


def serve_store(connection: Any) -> None:
    """Be the server of a store until the other side ends, in a process of its own."""
    import torch.distributed as td

    store = td.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    connection.send(store.port)
    connection.recv()


class Server:
    """What the process of a store's server has used."""

    def __init__(self, process: int) -> None:
        self._process = Path(f"/proc/{process}")

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads."""
        return sum(int(task.read_text().split()[0]) for task in self._process.glob("task/*/schedstat")) / 1e9

    def memory_kb(self) -> int:
        """Return its resident memory."""
        found = re.search(r"VmRSS:\s+(\d+)", (self._process / "status").read_text())
        assert found is not None
        return int(found[1])


def measure_store(clients: int) -> dict[str, Any]:
    """Return what a store's server takes for many clients, all connected at once."""
    import multiprocessing

    # The server and each client look up the other's name in the DNS; after one failure they stop that.
    os.environ |= {"RES_OPTIONS": "timeout:1 attempts:1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    import torch.distributed as td

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve_store, args=(there,))
    process.start()
    port, server = here.recv(), Server(process.pid or 0)
    result: dict[str, Any] = {"clients": clients, "at_once": AT_ONCE}
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def connect(_: int) -> Any:
            patience = timedelta(seconds=120)
            return td.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=patience)

        def measure(name: str, call: Callable[[int], Any], calls: int = clients) -> list[Any]:
            cpu_s, begin = server.cpu_s(), time.monotonic()
            answers = list(pool.map(call, range(calls)))
            result[name] = {
                "calls": calls,
                "cpu_us": 1e6 * (server.cpu_s() - cpu_s) / calls,
                "wall_s": time.monotonic() - begin,
            }
            return answers

        memory_kb = server.memory_kb()
        stores = measure("connect", connect)
        result["memory_kb"] = (server.memory_kb() - memory_kb) / clients
        measure("append", lambda i: stores[i].append(f"node{i // 8}", "x" * 100))
        measure("set", lambda i: stores[i].set(f"alive{i}", "1"))
        measure("check", lambda i: stores[i].check([f"alive{i}"]))
        stores[0].set("short", "x" * 1000)
        stores[0].set("long", "x" * 2**20)
        measure("get 1 kB", lambda i: stores[i].get("short"))
        measure("get 1 MiB", lambda i: stores[i % clients].get("long"), AT_ONCE)
        threading.Timer(2.0, lambda: stores[-1].set("late", "1")).start()
        measure("wait", lambda i: stores[i].wait(["late"]), AT_ONCE - 1)
        stores.clear()
    here.send(None)
    process.join()
    return result


# -- a meeting of ranks that do not exist --------------------------------------------------------------------


class CountingStore:
    """A store that counts the bytes of the values that go to it and come from it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.sent = self.received = self.largest = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            answer = getattr(self._store, name)(*arguments)
            values = [len(value) for value in arguments if isinstance(value, str)]
            received = len(answer) if isinstance(answer, bytes) else 0
            self.sent, self.received = self.sent + sum(values), self.received + received
            self.largest = max(self.largest, received, *values)
            return answer

        return call


def measure_meeting(ranks: int, per_node: int) -> dict[str, Any]:
    """Return what rank 0 does, and what passes through its store, in a meeting of ranks that have left their facts.

    With the addresses by which the ranks then find those of their groups.
    """
    import torch.distributed as td

    from common.ranks.meeting import Facts, introduce_ranks, seat_ranks

    server = td.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = CountingStore(td.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False))
    cores = zlib.crc32(str(list(range(CORES))).encode())
    here, there = "10.150.0.1", "10.150.12.34"
    for rank in range(ranks - 1, 0, -1):
        node = rank // per_node
        host = socket.gethostname() if node == 0 else f"x{node // 64:04d}c0s{node % 64}b0n0"
        server.add(f"rank{rank}", 1)
        if server.add(f"ranks of {host}", 1) == 1:
            server.append("hosts", f"{host}\n")
        facts = Facts(rank, cores, 3_000_000_000 + rank, there, here)
        server.append(f"facts of {host}", json.dumps(facts, separators=(",", ":")) + "\n")
        server.add("here", 1)
    begin, cpu_s = time.monotonic(), time.process_time()
    neighbours = introduce_ranks(store, Facts(0, cores, 3_000_000_000, here, here), ranks, timeout_s=60)
    assert (neighbours.nodes, neighbours.local_size) == (-(-ranks // per_node), per_node)
    seats, address = seat_ranks([rank // per_node for rank in range(ranks)]), len(f"54321 {there}")
    leaders = sum(own[0].number == 0 for own in seats)
    followers = sum(own[-1].number > 0 for own in seats)
    return {
        "ranks": ranks,
        "per_node": per_node,
        "wall_s": time.monotonic() - begin,
        "cpu_s": time.process_time() - cpu_s,
        "sent": store.sent + followers * address,
        "received": store.received + leaders * address,
        "largest": store.largest,
    }


# -- the list of files of a full dataset ---------------------------------------------------------------------


def stage_again() -> None:
    """Be one of two ranks that stage a full dataset, with all files where they are; the second prints its cost.

    The files are made up: what the file system says of them is left out. own_mb: the most that a rank has for itself
    beyond what it had before. list_mb: the most that the two share.
    """
    import psutil

    from common.ranks.connect import connect
    from common.settings.machine import DistConfig, StagingConfig
    from common.staging import stage
    from common.staging.stage_dir import StageDir
    from common.staging.storage import SharedStorage

    def list_files() -> Iterator[Any]:
        for folder, count in FILES.items():
            for i in range(count):
                name = f"{folder}/univ_ics_2019-03_a{i:08d}_000.tfrecord"
                yield stage.SourceFile(name, 5_000_000 + i % 1000, i, f"{i:064x}")

    SharedStorage.look_up = lambda storage, file, inflate: replace(file, mtime_ns=1)
    StageDir.holds_file = lambda folder, file: True
    with connect(DistConfig(device="cpu")) as dist, tempfile.TemporaryDirectory() as own:
        folder = Path(dist.broadcast_json(own))
        config = StagingConfig(mode="replicate", stage_dir=folder / "staged", keep=True)
        files = list(list_files()) if dist.is_main else []
        process, ended, own_bytes, shared_bytes = psutil.Process(), threading.Event(), [0], [0]
        dist.barrier()
        before, begin_s = process.memory_full_info().uss, time.process_time()

        def watch_memory() -> None:
            while not ended.wait(0.05):
                own_bytes.append(process.memory_full_info().uss - before)
                shared_bytes.append(sum(each.size for each in process.memory_maps() if "/mlperf-hpc-" in each.path))

        watcher = threading.Thread(target=watch_memory)
        watcher.start()
        staged = stage.stage_dataset(files, folder, config, dist, FILES)
        found = {"files": sum(FILES.values()), "cpu_s": time.process_time() - begin_s}
        ended.set()
        watcher.join()
        staged.close()
        if dist.rank == 1:
            print(json.dumps(found | {"own_mb": max(own_bytes) / 1e6, "list_mb": max(shared_bytes) / 1e6}), flush=True)
        dist.barrier()


# -- imports -------------------------------------------------------------------------------------------------


def measure_imports(folder: Path, data: Path) -> dict[str, int]:
    """Return how many calls about files a process makes to the system: {} without strace."""
    if shutil.which("strace") is None:
        return {}
    (folder / "one.yaml").write_text((folder / "scale.yaml").read_text())
    train = ["-m", "cosmoflow.train", str(folder / "one.yaml"), f"output_dir={folder}/one", "train.epochs=1"]
    commands = {
        "torch": ["-c", "import torch"],
        "step": ["-c", STEP],
        "training": [*train, "train.global_batch_size=128", "staging.mode=none"],
    }
    found = {}
    for name, words in commands.items():
        log = folder / "calls.txt"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "SCALE_NODE": str(folder)}
        command = ["strace", "-f", "-qq", "-e", "trace=%file", "-o", str(log), sys.executable, *words]
        subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True)
        with log.open() as lines:
            found[name] = sum(f'"{data}' not in line for line in lines)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer ranks and clients")
    add_keep_option(parser)
    parser.add_argument("--staging-alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.staging_alone:
        stage_again()
        return
    result: dict[str, Any] = {"machine": about(), "ranks": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, numbers = folder / "data", RANKS[:3] if arguments.quick else RANKS
        made = ["--grid", "16", "--particles", "16", "--train", "128", "--validation", "64", "--workers", "1"]
        subprocess.run([sys.executable, "-m", "cosmoflow.synthesize", str(data), *made], cwd=ROOT, check=True)
        for ranks in numbers:
            result["ranks"].append(measure_ranks(ranks, folder, data))
            print(f"{ranks} ranks: {result['ranks'][-1]['seconds']:.0f} s", file=sys.stderr)
        result["store"] = measure_store(512 if arguments.quick else CLIENTS)
        result["meetings"] = [measure_meeting(*meeting) for meeting in MEETINGS]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        alone = [*launch, __file__, "--staging-alone"]
        shown = subprocess.run(alone, check=True, capture_output=True, text=True).stdout
        result["staging"] = json.loads(shown.splitlines()[-1])
        import scale_ranks

        (folder / "scale.yaml").write_text(scale_ranks.CONFIG.replace("DATA", str(data)))
        result["imports"] = measure_imports(folder, data)
    print(write_page(result))
    if arguments.keep:
        keep_record("scale", result)


if __name__ == "__main__":
    main()
