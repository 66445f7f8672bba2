"""`make demo`: check example logs, train mini problems, and end with a package and a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from common.benchmarks import PACKAGES
from common.command import CONTINUED, CommandParser, place, run_command
from common.training.progress import duration
from compliance.demo import demonstrate
from compliance.model.finding import FAIL
from submission.round.make import RoundInputs, make_round
from submission.round.plan import read_plan
from submission.runs.processes import JobRunner, interrupt_by_signals


class Needs(NamedTuple):
    """What a mini problem needs, its data included. minutes: on two cores. disk_mb: that stay in data/ and in runs/."""

    minutes: int
    disk_mb: int


NEEDS: Final = {"cosmoflow": Needs(3, 220), "deepcam": Needs(5, 650), "oc20": Needs(7, 200)}
SLOW: Final = 2
"""By how much a slow machine takes longer, as CosmoFlow took 3 to 6 minutes."""
USUAL: Final = Needs(5, 300)
"""Of a benchmark that is not measured yet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, 0 if each example and the package got the expected verdict."""
    parser = CommandParser(
        prog="python -m submission.demo",
        description="Check example logs and yours, train the mini problems, and make a package and a report.",
        statuses={0: "each example and the package got the expected verdict", 1: "one did not, or an error"},
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="log or folder to check after the examples")
    add("--benchmarks", nargs="+", choices=PACKAGES, default=PACKAGES, help="only these")
    add("-o", "--output", type=place, help="default: a new folder in runs/; in an interrupted one it goes on")
    given = parser.parse_args(arguments)
    output = given.output or Path("runs", time.strftime("demo-%Y%m%d-%H%M%S"))
    return run_command(lambda: _demo(given.benchmarks, given.paths, output), (ValueError, OSError), CONTINUED)


def _demo(benchmarks: Sequence[str], paths: Sequence[str], output: Path) -> int:
    begin = time.monotonic()
    interrupt_by_signals()
    needs = [NEEDS.get(name, USUAL) for name in benchmarks]
    minutes = sum(need.minutes for need in needs)
    print(
        f"This checks example logs, then trains {', '.join(benchmarks)} on small data and packages the runs.\n"
        f"It takes about {minutes} to {SLOW * minutes} minutes on two cores, and "
        f"{sum(need.disk_mb for need in needs):,} MB of disk in data/ and {output}.",
        flush=True,
    )
    wrong = demonstrate(paths, None)
    print(f"\n=== Training: {', '.join(benchmarks)} ===", flush=True)
    plan = read_plan("mini", benchmarks, runs=1)
    verdict = make_round(plan, output, JobRunner(), RoundInputs())
    print(f"The demonstration took {duration(time.monotonic() - begin)}.", flush=True)
    return 1 if wrong or verdict == FAIL else 0


if __name__ == "__main__":
    sys.exit(main())
