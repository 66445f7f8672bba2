"""An emulated accelerator that is fed by our reader, for `bench/feed.py`.

    PYTHONPATH=. python -P bench/feed_reader.py '{"folder": …}'

See `Plan` for the argument. Prints `ready`, waits for a line, and prints what it used as JSON. An epoch that is not
counted comes first: it reads the files into the page cache, or all of them are removed from there before each epoch,
which is not counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any


@dataclass
class Plan:
    """What is read, and how. folder: of the dataset. files: how many, from rank on by ranks.

    shape: of the voxels. step_s: what the accelerator computes for a sample.
    """

    folder: str
    files: int
    cold: bool
    step_s: float
    threads: int
    epochs: int
    shape: tuple[int, int, int, int] = (128, 128, 128, 4)
    rank: int = 0
    ranks: int = 1

    def paths(self) -> list[Path]:
        return sorted(Path(self.folder, "train").iterdir())[self.rank : self.files : self.ranks]


def drop(paths: list[Path]) -> None:
    """Ask the system to remove files from the page cache, which it does with what is on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def used() -> dict[str, float]:
    """Return what this process has used: CPU seconds of all threads and children, bytes read and those from storage."""
    times = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {
        "cpu_s": sum(one.ru_utime + one.ru_stime for one in times),
        "wall_s": time.perf_counter(),
        "read_bytes": float(counters["rchar"]),
        "stored_bytes": float(counters["read_bytes"]),
    }


def start() -> None:
    """Wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


class Epochs:
    """Sums what the epochs after the first use; that files are removed from the page cache is not counted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.number = 0
        self.total = dict.fromkeys(used(), 0.0)

    def begin(self) -> None:
        """Remove the files from the page cache if they should be cold; before the second epoch wait for the others."""
        self.number += 1
        if self.plan.cold:
            drop(self.plan.paths())
        if self.number == 2:
            start()
        self.before = used()

    def end(self) -> None:
        """Add what was used since the beginning of this epoch."""
        if self.number > 1:
            after = used()
            self.total = {key: self.total[key] + after[key] - self.before[key] for key in after}


def read_epochs(plan: Plan) -> dict[str, Any]:
    import numpy as np
    import torch

    from common.data.prefetch import read_batches
    from cosmoflow.data.dataset import DataConfig, Dataset

    folder = Path(plan.folder)
    dataset = Dataset(folder / "train", DataConfig(folder, sample_shape=plan.shape, workers=plan.threads))
    numbers = dict(dataset.files())
    chosen = np.array([numbers[f"train/{path.name}"] for path in plan.paths()])
    rng = np.random.default_rng(plan.rank)
    epochs = Epochs(plan)

    def epoch() -> float:
        """Return the utilisation of an epoch in a new order; its first step is not counted."""
        order = rng.permutation(chosen)
        epochs.begin()
        begin = time.perf_counter()
        first_s = 0.0
        for batch in read_batches(dataset, order[:, None], torch.device("cpu")):
            time.sleep(plan.step_s)
            first_s = first_s or time.perf_counter() - begin
            del batch
        utilisation = (len(order) - 1) * plan.step_s / (time.perf_counter() - begin - first_s)
        epochs.end()
        return utilisation

    utilisation = [epoch() for _ in range(plan.epochs + 1)][1:]
    return {**epochs.total, "utilisation": utilisation, "samples": len(chosen) * plan.epochs}


if __name__ == "__main__":
    print(json.dumps(read_epochs(Plan(**json.loads(sys.argv[1])))), flush=True)
