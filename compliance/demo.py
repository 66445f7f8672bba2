"""Demonstrate the checker: make and check a few logs and submissions, good and bad, and then check yours.

`make demo` runs it; `make demo LOGS=path` also checks that tree.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from compliance.check import main as check
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

Story = tuple[str, str, Callable[[Path], str], int]


def _write(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


STORIES: tuple[Story, ...] = (
    (
        "A valid run of CosmoFlow",
        "It reaches the target and complies with every rule.",
        lambda folder: _write(folder / "valid.txt", SampleLog("cosmoflow").bytes()),
        0,
    ),
    (
        "A run that stopped its clock too early",
        "run_stop comes before the evaluation that reaches the target. The official checker accepts it.",
        lambda folder: _write(
            folder / "early_stop.txt",
            SampleLog("cosmoflow").last_evaluation(0.2).add_evaluation(0.12, "run_stop").bytes(),
        ),
        1,
    ),
    (
        "A restarted job that appended to its log",
        "Two runs in one file: the official summary would score only from the second start.",
        lambda folder: _write(folder / "restarted.txt", SampleLog("deepcam").twice().bytes()),
        1,
    ),
    (
        "A submission of one organisation",
        "Ten runs of CosmoFlow, a throughput result with pruned instances, and the system description.",
        lambda folder: (
            SamplePackage(scaling="weak", runs=12).with_time_to_train().prune(2).write(folder / "University")
        ),
        0,
    ),
    (
        "The same with a run copied under a different seed",
        "Nine valid runs, one of them twice with an edited seed. The official package checker accepts it.",
        lambda folder: SamplePackage().copy(3, 7).edit(7, lambda log: log.set("seed", 4711)).write(folder / "Copycat"),
        1,
    ),
)


def main(paths: list[str]) -> int:
    """Check the examples and then `paths`; return 0 if each example got the expected exit status."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="mlperf-hpc-demo-") as folder, contextlib.chdir(folder):
        for number, (title, text, make, expected) in enumerate(STORIES, 1):
            path = make(Path())
            print(f"\n=== {number}. {title} ===\n{text}\n$ python -m compliance.check {path}\n", flush=True)
            status = check([path])
            print(f"(exit status {status})", flush=True)
            wrong += status != expected
    for path in paths:
        print(f"\n=== Your logs: {path} ===\n$ python -m compliance.check {path}\n", flush=True)
        check([path])
    if wrong:
        print(f"\n{wrong} of {len(STORIES)} checks ended unexpectedly: please report this.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
