"""Train mini problems on a machine that is disturbed on purpose, and keep their logs: what honest runs look like.

    python -m tests.conformance.disturbed_runs FOLDER            60 runs, two at a time; the same command continues
    python -m tests.conformance.disturbed_runs FOLDER --pack     disturbed_runs.tar.xz of the logs that there are

Each run has a number, and the number decides benchmark, seed and disturbance. FOLDER gets data/, runs/ and logs/; its
path is in no log. Needs Linux, and some hours of two cores.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE / "disturbed_runs.tar.xz"
OTHERS = {4: "deepcam", 9: "oc20", 14: "deepcam"}
"""Which of twenty runs do not train cosmoflow: its take 70 CPU seconds, those of deepcam 90, those of oc20 300."""
RUNS = 60
ATTEMPTS = 6
BURN = "import time; end = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
FILL = "import sys, time; data = bytearray(b'x') * int(sys.argv[1]); time.sleep(float(sys.argv[2]))"


class Training:
    """A training and its process, which a resumed run has more than one of."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.benchmark = OTHERS.get(number % 20, "cosmoflow")
        self.disturbance = DISTURBANCES[number % len(DISTURBANCES)]
        self.name = f"{self.benchmark}_{number:02}_{self.disturbance.__name__}"
        self.output = f"runs/{self.name}"
        self.log = folder / self.output / "result_0.txt"
        self.rng = random.Random(f"disturbed run {number}")
        self.ended = threading.Event()
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the training, or continue it."""
        data = [f"data.data_dir=data/{self.benchmark}-mini"]
        data += ["data.cache=false"] if self.disturbance is cold_cache else []
        settings = [*data, f"output_dir={self.output}", f"train.seed={1000 + self.number}"]
        command = [sys.executable, "-m", f"{self.benchmark}.train", "mini", "--auto-resume", *settings]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd())}
        with (self.folder / f"{self.output}.out").open("ab") as out:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=out)

    @property
    def epochs(self) -> int:
        """The epochs that the log has begun."""
        with suppress(OSError):
            return self.log.read_bytes().count(b'"epoch_start"')
        return 0

    @property
    def has_succeeded(self) -> bool:
        """Whether the log says that the run met its target."""
        with suppress(OSError):
            return b'"status": "success"' in self.log.read_bytes()
        return False

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the training goes on."""
        return not self.ended.wait(seconds)

    def wait_for_epoch(self, number: int) -> bool:
        """Wait until this epoch (from 1) has begun; return whether the training goes on."""
        while self.epochs < number:
            if not self.wait(0.2):
                return False
        return True

    def signal(self, name: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self.process.send_signal(name)

    def stop_for(self, seconds: float) -> None:
        """Stop the process for a while."""
        self.signal(signal.SIGSTOP)
        self.wait(seconds)
        self.signal(signal.SIGCONT)

    def slow_down(self, seconds: float, share: float) -> None:
        """Let the process run for a share of the time only, as a quota of the scheduler does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.wait(0.1 * share):
            self.stop_for(0.1 * (1 - share))


# -- disturbances ---------------------------------------------------------------------------------------------


def other_work(run: Training) -> None:
    """Let other processes come and go."""
    while run.wait(run.rng.uniform(2, 25)):
        with work_beside([BURN] * run.rng.randint(1, 3)):
            run.wait(run.rng.uniform(3, 25))


def stops(run: Training) -> None:
    """Stop the process a few times, as a debugger, a snapshot or a suspended machine does."""
    for _ in range(run.rng.randint(1, 4)):
        if run.wait(run.rng.uniform(5, 50)):
            run.stop_for(run.rng.choice((1, 3, 8, 20)))


def one_long_stop(run: Training) -> None:
    """Stop the process for up to a minute, within one epoch."""
    if run.wait_for_epoch(run.rng.randint(1, 6)) and run.wait(run.rng.uniform(0, 8)):
        run.stop_for(run.rng.uniform(30, 60))


def other_priority(run: Training) -> None:
    """Change the priority again and again while others work."""
    with work_beside([BURN]):
        while run.wait(run.rng.uniform(5, 20)):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, run.process.pid, run.rng.randint(5, 19))


def quota(run: Training) -> None:
    """Let the process run for a share of the time in some stretches."""
    while run.wait(run.rng.uniform(3, 30)):
        run.slow_down(run.rng.uniform(5, 20), run.rng.uniform(0.2, 0.8))


def cold_cache(run: Training) -> None:
    """Drop the data from the page cache again and again; nothing is cached in the process."""
    while run.wait(run.rng.uniform(0.5, 8)):
        drop_from_page_cache(run.folder / "data" / f"{run.benchmark}-mini")


def less_memory(run: Training) -> None:
    """Take memory, and give it back."""
    while run.wait(run.rng.uniform(2, 20)):
        size = run.rng.randint(200, 1500) * 2**20
        with work_beside([FILL], str(size), "30"):
            run.wait(run.rng.uniform(3, 25))


def slow_first_epochs(run: Training) -> None:
    """Slow down the first one to three epochs, as compilation or cold caches do."""
    until, share = run.rng.randint(2, 4), run.rng.uniform(0.2, 0.5)
    while run.epochs < until and not run.ended.is_set():
        run.slow_down(1, share)


def slow_last_epochs(run: Training) -> None:
    """Slow down more and more, as a machine that grows hot does."""
    while run.wait(0.5):
        run.slow_down(1, max(0.35, 1 - 0.08 * run.epochs))


def one_core(run: Training) -> None:
    """Share one core with another process for some time, then move to another core."""
    cores = sorted(os.sched_getaffinity(0))
    while not run.ended.is_set():
        core = run.rng.choice(cores)
        with suppress(OSError):  # it has ended
            for task in os.listdir(f"/proc/{run.process.pid}/task"):
                os.sched_setaffinity(int(task), {core})
        with work_beside([BURN] * (run.rng.random() < 0.6), core=core):
            run.wait(run.rng.uniform(5, 25))


def killed_and_resumed(run: Training) -> None:
    """Kill the process in an epoch, and continue from the checkpoint."""
    if run.wait_for_epoch(run.rng.randint(3, 5)) and run.wait(run.rng.uniform(0, 6)):
        run.signal(run.rng.choice((signal.SIGKILL, signal.SIGTERM)))


def all_at_once(run: Training) -> None:
    """Work beside, a quota, cold caches and stops, in turn."""
    while run.wait(run.rng.uniform(1, 10)):
        with work_beside([BURN] * run.rng.randint(0, 2)):
            drop_from_page_cache(run.folder / "data" / f"{run.benchmark}-mini")
            run.slow_down(run.rng.uniform(1, 12), run.rng.uniform(0.3, 0.9))
            if run.rng.random() < 0.3:
                run.stop_for(run.rng.uniform(1, 15))


DISTURBANCES: tuple[Callable[[Training], None], ...] = (
    other_work,
    stops,
    slow_first_epochs,
    killed_and_resumed,
    quota,
    one_long_stop,
    cold_cache,
    one_core,
    slow_last_epochs,
    less_memory,
    other_priority,
    all_at_once,
    stops,
)
"""Thirteen, so that each meets each benchmark in the course of 260 runs."""


@contextmanager
def work_beside(programs: list[str], *arguments: str, core: int | None = None) -> Iterator[None]:
    """Run Python programs while the context is open, each with these arguments; core: all on this one."""
    processes = [subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", code, *arguments]) for code in programs]
    try:
        for process in processes if core is not None else ():
            os.sched_setaffinity(process.pid, {core})
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def drop_from_page_cache(folder: Path) -> None:
    """Tell the system that the files of a folder are not needed."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# -- runs -----------------------------------------------------------------------------------------------------


def train_disturbed(folder: Path, number: int) -> str:
    """Train until the target is met; return how it ended."""
    run = Training(folder, number)
    kept = folder / "logs" / f"{run.name}.txt"
    disturbing = threading.Thread(target=run.disturbance, args=(run,))
    disturbing.start()
    for attempt in range(ATTEMPTS):
        run.process.wait()
        if run.has_succeeded or run.process.returncode == 0 or attempt == ATTEMPTS - 1:
            break
        time.sleep(3)
        run.process = run.start()
    run.ended.set()
    disturbing.join()
    if run.has_succeeded:
        kept.write_bytes(run.log.read_bytes())
    return f"{run.name}: {'success' if run.has_succeeded else f'exit {run.process.returncode}'}"


def is_kept(folder: Path, number: int) -> bool:
    """Return whether the log of this run is there."""
    return any((folder / "logs").glob(f"*_{number:02}_*.txt"))


def write_archive(folder: Path) -> None:
    """Pack the logs; the same logs give the same bytes."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted((folder / "logs").glob("*.txt")):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(member, file)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.disturbed_runs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS, help="their number (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default: %(default)s)")
    parser.add_argument("--hours", type=float, default=24.0, help="start no run after this time (default: %(default)s)")
    parser.add_argument("--pack", action="store_true", help=f"only write {ARCHIVE.name}, of the logs that there are")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.pack:
        return write_archive(folder)
    for name in ("data", "runs", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for benchmark in ("cosmoflow", *sorted(set(OTHERS.values()))):
        subprocess.run(
            [sys.executable, "-m", f"{benchmark}.synthesize", folder / "data" / f"{benchmark}-mini"], check=True
        )
    end = time.monotonic() + 3600 * arguments.hours

    def train(number: int) -> None:
        if time.monotonic() < end and not is_kept(folder, number):
            print(train_disturbed(folder, number), flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(train, range(arguments.runs)))


if __name__ == "__main__":
    main()
