"""Demonstrate the checker: make and check a few logs and submissions, good and bad, and then check yours.

`make demo` runs it; `make demo LOGS=path` also checks that tree.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from common.command import CommandParser, as_called, run_command
from compliance.check import main as check
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage


def _write_files(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


STORIES: tuple[tuple[str, str, Callable[[Path], str], int], ...] = (
    (
        "A valid run of CosmoFlow",
        "It reaches the target and complies with every rule.",
        lambda folder: _write_files(folder / "result_0.txt", SampleLog("cosmoflow").bytes()),
        0,
    ),
    (
        "A run that stopped its clock too early",
        "run_stop comes before the evaluation that reaches the target. The official checker accepts it.",
        lambda folder: _write_files(
            folder / "stopped_early.txt",
            SampleLog("cosmoflow").last_evaluation(0.2).add_evaluation(0.12, "run_stop").bytes(),
        ),
        1,
    ),
    (
        "A restarted job that appended to its log",
        "Two runs in one file: the official summary would score only from the second start.",
        lambda folder: _write_files(folder / "restarted.txt", SampleLog("deepcam").twice().bytes()),
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, 0 if each example got the expected one."""
    parser = CommandParser(
        prog="python -m compliance.demo",
        description="Make example logs and submissions, check them, and then check yours.",
        epilog="""\
examples:
  python -m compliance.demo                  good and bad examples, and what the check says of them
  python -m compliance.demo --keep examples  the same, and leave the files there
  python -m compliance.demo logs/            then your logs""",
        statuses={0: "each example got the expected verdict", 1: "one did not, or an error"},
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="log or folder to check after the examples")
    parser.add_argument("--keep", type=_new_folder, metavar="DIR", help="leave the examples in this new folder")
    options = parser.parse_args(arguments)
    return run_command(lambda: demonstrate(options.paths, options.keep), (OSError,))


def _new_folder(text: str) -> Path:
    if os.path.lexists(text):
        raise argparse.ArgumentTypeError(f"{text} exists; name a new folder")
    return Path(text)


def demonstrate(paths: Sequence[str], keep: Path | None) -> int:
    """Check the examples and then `paths`; return 0 if each example got the expected exit status."""
    wrong, check_command = 0, as_called("python -m compliance.check")
    with contextlib.ExitStack() as stack:
        if keep:
            keep.mkdir(parents=True)
            print(f"$ cd {keep}")
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="mlperf-hpc-demo-"))
        stack.enter_context(contextlib.chdir(folder))
        for number, (title, text, make, expected) in enumerate(STORIES, 1):
            path = make(Path())
            print(f"\n=== {number}. {title} ===\n{text}\n$ {check_command} {path}\n", flush=True)
            status = check([path])
            as_expected = "as expected" if status == expected else f"but {expected} was expected"
            print(f"(exit status {status}, {as_expected})", flush=True)
            wrong += status != expected
    print(f"\nThe examples are in {keep}." if keep else "\nThe examples are gone; --keep DIR leaves them in DIR.")
    for path in paths:
        print(f"\n=== Your logs: {path} ===\n$ {check_command} {path}\n", flush=True)
        check([path])
    if wrong:
        print(f"\n{wrong} of {len(STORIES)} checks ended unexpectedly: please report this.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
