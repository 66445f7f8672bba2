"""Kill trainings at random moments, let them continue, and compare their curves to the bit.

    python bench/kills.py                       200 kills: about half an hour on two cores
    python bench/kills.py --kills 20            as in CI
    python bench/kills.py --seed 7 --keep DIR   the same moments again, in a folder that is kept

Each training stages its data, writes a checkpoint after each epoch and is started by `--auto-resume --wait`, every
third one on two ranks by torchrun. SIGKILL, SIGTERM or SIGUSR1 comes at a random moment, half of the time at one that
is short: staging, the writing of a checkpoint, clean-up. Checked after each signal: the exit status is that of the
recorded ending, and an orderly stop leaves no staged file, no half-written file and no lease. Checked at the end of
each training: the curve is that of an uninterrupted one. Exit status: 1 if one of these was wrong; a line says
which.
"""

from __future__ import annotations

import argparse
import collections
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.command import positive  # noqa: E402
from common.ending import EXIT_STATUS, STOPPED, Ending, read_ending  # noqa: E402

SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)
SPARED: Final = 0.2
"""The share of starts that are left alone, so that each training ends."""
SETTINGS: Final = (
    "data.sample_shape=[16,16,16,4] model.conv_size=4 model.conv_layers=3 model.fc1=16 model.fc2=8 train.epochs=25 "
    "train.global_batch_size=4 train.target=1e-9 train.seed=7 precision.dtype=fp32 data.workers=1 "
    "staging.mode=replicate checkpoint.keep=3"
).split()
AIMS: Final = ("", "", "", "staging", "writing a checkpoint", "cleaning up")
"""Moments to wait for; "": any."""
PATIENCE_S: Final = 300


class Trainings:
    """Trainings in a folder that are killed.

    before: how the training ended that is now continued, which stays its record until it goes on. faults: what was
    wrong.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.kills, self.killed = 0, False
        self.before: Ending | None = None
        self.where: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.curves: dict[int, list[list[str]]] = {}
        self.seconds: dict[int, float] = {}

    def prepare(self) -> None:
        """Generate the data, and train without interruption for each number of ranks."""
        command = [sys.executable, "-m", "cosmoflow.synthesize", str(self.folder / "data")]
        command += "--grid 16 --particles 16 --train 96 --validation 16 --workers 2".split()
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        for ranks in (1, 2):
            run = self.folder / f"whole-{ranks}"
            begin = time.monotonic()
            self._start(run, ranks).communicate()
            self.seconds[ranks] = time.monotonic() - begin
            self.curves[ranks] = curve(run)

    def train(self, number: int, most: int) -> None:
        """Train one run to its end, with at most `most` kills on the way."""
        run, ranks = self.folder / f"run-{number}", 2 if number % 3 == 2 else 1
        while (ending := read_ending(run)) is None or not ending.final:
            spared = most <= 0 or self.random.random() < SPARED
            found, self.before = self._left(run, staged=False), ending
            process = self._start(run, ranks)
            self.killed = False
            if not spared:
                most -= self._kill(process, run, ranks, found)
            try:
                output, _ = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                self._fault(run, f"did not end within {PATIENCE_S} s", output)
                return
            if spared and ((ending := read_ending(run)) is None or not ending.final):
                self._fault(run, f"a start that nothing disturbed ended by {process.returncode}", output)
                return
        if self.killed:  # while it cleaned up
            output, _ = self._start(run, ranks).communicate()
            if "this run has ended" not in output:
                self._fault(run, "a finished run was not left alone", output)
        if curve(run) != self.curves[ranks]:
            self._fault(run, "the curve differs from that of an uninterrupted run", "")
        if left := self._left(run, staged=not self.killed):
            self._fault(run, f"left over at the end: {left}", "")
        print(
            f"run {number} ({ranks} rank{'s'[: ranks > 1]}): {self.kills} kills so far, {len(self.faults)} faults",
            flush=True,
        )

    def _start(self, run: Path, ranks: int) -> subprocess.Popen[str]:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        folders = [
            f"data.data_dir={self.folder / 'data'}",
            f"output_dir={run}",
            f"staging.stage_dir={self._stage(run)}",
        ]
        return subprocess.Popen(
            [
                sys.executable,
                *launcher,
                "-m",
                "cosmoflow.train",
                "mini",
                *SETTINGS,
                *folders,
                "--auto-resume",
                "--wait",
            ],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _kill(self, process: subprocess.Popen[str], run: Path, ranks: int, found: list[str]) -> int:
        """Send a signal at a random moment, and check how the training ends; return 1, or 0 if it was over before.

        found: what a killed predecessor has left in the folder.
        """
        number = self.random.choice(SIGNALS)
        clean = not self._stage(run).exists()
        if aim := self.random.choice(AIMS):
            while process.poll() is None and self._moment(run, found) != aim:
                time.sleep(0.001)
        else:
            time.sleep(self.random.uniform(0, self.seconds[ranks]))
        victims = [process.pid] if ranks == 1 else _children(process.pid)
        if process.poll() is not None or not victims:
            return 0
        where = self._moment(run, found)
        os.kill(self.random.choice(victims), number)
        output, _ = process.communicate(timeout=PATIENCE_S)
        self.kills += 1
        self.killed = number == signal.SIGKILL
        self.where[f"{number.name}, {where}"] += 1
        if number == signal.SIGKILL:
            return 1
        ending = read_ending(run)
        # What SIGKILL has left in the stage_dir is removed by the next one that stages there, and in the folder by its
        # next owner.
        left = self._left(run, staged=clean)
        if left and not (where == "starting or ended" and left == found):
            self._fault(run, f"{number.name}, {where}: left over: {left}", output)
        expected = {ending.exit_status} if ending else set()
        if where == "starting or ended":  # before the folder had this owner, there is nothing to record; or just after
            expected |= {EXIT_STATUS[STOPPED], -number}  # Python itself catches no signal yet
        elif ending is None or not (ending.final or ending.how == STOPPED or ending == self.before):
            self._fault(run, f"{number.name}, {where}: recorded as {ending and ending.text}", output)
            return 1
        if ranks == 1 and process.returncode not in expected:
            self._fault(run, f"{number.name}, {where}: {ending and ending.how}, status {process.returncode}", output)
        return 1

    def _moment(self, run: Path, found: list[str]) -> str:
        """Return what the training is doing, by its files other than those that a killed predecessor has left."""
        if {str(path.relative_to(self.folder)) for path in run.glob("lease-*")} <= set(found):
            return "starting or ended"
        if list(run.glob("checkpoints/*.tmp")):
            return "writing a checkpoint"
        if read_ending(run) not in (None, self.before):
            return "cleaning up"
        if list(self._stage(run).glob("**/*.part")):
            return "staging"
        return "training" if self._stage(run).exists() else "preparing"

    def _stage(self, run: Path) -> Path:
        return self.folder / "nodes" / run.name

    def _left(self, run: Path, staged: bool) -> list[str]:
        found = [*run.rglob("*.tmp"), *run.glob("lease*"), *(self._stage(run).rglob("*") if staged else ())]
        return sorted(str(path.relative_to(self.folder)) for path in found)[:5]

    def _fault(self, run: Path, what: str, output: str) -> None:
        self.faults.append(f"{run.name}: {what}")
        print(f"WRONG {self.faults[-1]}\n{output[-3000:]}", flush=True)


def curve(run: Path) -> list[list[str]]:
    """Return epoch, loss, quality and learning rate of each epoch, as written."""
    with (run / "history.csv").open() as file:
        return [[row[name] for name in ("epoch", "loss", "quality", "learning_rate")] for row in csv.DictReader(file)]


def _children(pid: int) -> list[int]:
    """Return the processes that a launcher has started and that are alive."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=positive, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the moments")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this folder, which must be new, and keep it")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="kills-"))
    folder.mkdir(parents=True, exist_ok=given.keep is None)
    print(f"seed {given.seed}", flush=True)
    try:
        trainings = Trainings(folder, given.seed)
        trainings.prepare()
        number = 0
        while trainings.kills < given.kills:
            trainings.train(number, min(10, given.kills - trainings.kills))
            number += 1
    finally:
        if given.keep is None:
            shutil.rmtree(folder)
    for moment, count in sorted(trainings.where.items()):
        print(f"{count:4} {moment}")
    print(f"{trainings.kills} kills in {number} trainings: {len(trainings.faults)} faults")
    return 1 if trainings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
