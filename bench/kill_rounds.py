"""Kill rounds at random moments, start two at once, fill their disk: no run is repeated, lost or filed wrongly.

    python bench/kill_rounds.py             10 kills of rounds of 5 runs: ten minutes on two cores
    python bench/kill_rounds.py --seed 7    the same moments again

The disk is a small tmpfs, which needs root; without it that part is skipped, and the last line says so. Exit status: 1
if something was wrong; a line says what.
"""

from __future__ import annotations

import argparse
import hashlib
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
from common.ending import read_ending  # noqa: E402
from common.files import LOG_NAME  # noqa: E402

RUNS: Final = 5
SETTINGS: Final = (
    "data.sample_shape=[16,16,16,4] model.conv_size=4 model.conv_layers=3 model.fc1=16 model.fc2=8 train.epochs=8 "
    "train.global_batch_size=4 train.target=0.9 precision.dtype=fp32 data.workers=1"
).split()
DISK: Final = "size=100k"
"""Enough for the configuration and the first log, too little for a checkpoint."""


class Rounds:
    """A round that is disturbed; faults: what was wrong. finished: hash of the log of each run with a result."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.faults: list[str] = []
        self.finished: dict[str, str] = {}
        self.refused = 0

    def prepare(self) -> None:
        """Generate the data, and describe the round."""
        data = self.folder / "data"
        command = [sys.executable, "-m", "cosmoflow.synthesize", str(data)]
        command += "--grid 16 --particles 16 --train 96 --validation 16 --workers 2".split()
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        overrides = ", ".join(f"'{one}'" for one in (*SETTINGS, f"data.data_dir={data}"))
        (self.folder / "round.yaml").write_text(
            f"cosmoflow: {{config: mini, runs: {RUNS}, overrides: [{overrides}]}}\n"
        )

    def kill(self, round_: Path) -> None:
        """Kill the round at a random moment, at times while another call tries to join it."""
        process = self._start(round_)
        time.sleep(self.random.uniform(3, 20))
        if process.poll() is None and self.random.random() < 0.4:
            second = self._start(round_)
            said, _ = second.communicate()
            if process.poll() is None:
                self.refused += "in use by process" in said
                if second.returncode == 0 or "in use by process" not in said:
                    self._fault(f"a second round at once was not refused: {said[-500:]}")
        process.kill()
        process.communicate()
        time.sleep(0.5)
        self._look(round_)

    def finish(self, round_: Path) -> None:
        """Let the round end, and compare it with what was seen before."""
        said, _ = self._start(round_).communicate()
        self._look(round_)
        if len(self.finished) != RUNS:
            self._fault(f"{len(self.finished)} of {RUNS} runs have a result at the end: {said[-1500:]}")

    def full_disk(self) -> str:
        """Run a round on a disk that is too small, then on the same disk with space; return what was done."""
        if os.geteuid() != 0:
            return "full disk: skipped, it needs root to mount a tmpfs"
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(disk)], check=False).returncode:
            return "full disk: skipped, no tmpfs can be mounted"
        try:
            self._start(disk / "round").communicate()
            self._look(disk / "round")
            if self.finished:
                self._fault(f"a full disk made results: {self.finished}")
            subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
            self.finish(disk / "round")
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=False)
        return "full disk: done"

    def _start(self, round_: Path) -> subprocess.Popen[str]:
        command = ["-m", "submission.round", "--config", str(self.folder / "round.yaml"), "-o", str(round_)]
        return subprocess.Popen(
            [sys.executable, *command, "--threads", "1"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _look(self, round_: Path) -> None:
        """Compare the runs with a result with those seen before."""
        for run in sorted((round_ / "cosmoflow").glob("run_*")):
            ending = read_ending(run)
            if ending is None or not ending.final:
                continue
            digest = hashlib.sha256((run / LOG_NAME).read_bytes()).hexdigest()
            if self.finished.setdefault(run.name, digest) != digest:
                self._fault(f"{run.name} was repeated")
            if ending.how != "target_met":
                self._fault(f"{run.name} is filed as {ending.text}")
        for name in set(self.finished) - {path.name for path in (round_ / "cosmoflow").glob("run_*")}:
            self._fault(f"{name} is lost")

    def _fault(self, what: str) -> None:
        self.faults.append(what)
        print(f"WRONG {what}", flush=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=positive, default=10, help="default: 10")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the moments")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="kill-rounds-"))
    print(f"seed {given.seed}", flush=True)
    try:
        rounds = Rounds(folder, given.seed)
        rounds.prepare()
        made = 0
        for number in range(given.kills):
            rounds.kill(folder / f"round-{made}")
            print(f"kill {number + 1}: {len(rounds.finished)} of {RUNS} runs have a result", flush=True)
            if len(rounds.finished) == RUNS or number + 1 == given.kills:
                rounds.finish(folder / f"round-{made}")
                made, rounds.finished = made + 1, {}
        disk = rounds.full_disk()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{given.kills} kills, {rounds.refused} second rounds refused, {len(rounds.faults)} faults; {disk}")
    return 1 if rounds.faults else 0


if __name__ == "__main__":
    sys.exit(main())
