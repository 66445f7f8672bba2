"""`make demo`: check example logs, train mini problems, and end with a package and a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.benchmarks import PACKAGES
from common.command import CONTINUED, CommandParser, any_path, as_called, run_command
from common.console import format_duration
from compliance.demo import demonstrate
from compliance.model.judging import FAIL, INCOMPLETE
from submission.round.make import REPORT, RoundInputs, make_round
from submission.round.plan import read_plan
from submission.runs.processes import JobRunner, interrupt_by_signals
from submission.runs.progress import NEEDS, check_space


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
    add("-o", "--output", type=any_path, help="default: a new folder in runs/; in an interrupted one it goes on")
    options = parser.parse_args(arguments)
    output = options.output or Path("runs", time.strftime("demo-%Y%m%d-%H%M%S"))
    return run_command(lambda: _run_demo(options.benchmarks, options.paths, output), (ValueError, OSError), CONTINUED)


def _run_demo(benchmarks: Sequence[str], paths: Sequence[str], output: Path) -> int:
    begin = time.monotonic()
    interrupt_by_signals()
    minutes, data_mb, run_mb = map(sum, zip(*(NEEDS[name] for name in benchmarks), strict=True))
    names = ", ".join(benchmarks)
    free = check_space([(output, data_mb + run_mb)])
    print(
        f"This checks example logs, then trains {names} on small data and packages the runs.\n"
        f"It takes about {minutes} to {2 * minutes} minutes on two cores, and {data_mb + run_mb} MB of disk in "
        f"data/ and {output}; {free}.",
        flush=True,
    )
    wrong = demonstrate(paths, None)
    print(f"\n=== Training: {names} ===", flush=True)
    verdict = make_round(read_plan("mini", benchmarks, runs=1), output, JobRunner(), RoundInputs())
    examples = "not all examples got the expected verdict" if wrong else "all examples got the expected verdict"
    package = "INCOMPLETE as expected, with one run of each" if verdict == INCOMPLETE else verdict
    report = output / REPORT
    text = (
        f"\nDone in {format_duration(time.monotonic() - begin)}: {examples}; {names} trained and packaged ({package}"
        f"{'; the cause is above' if verdict == FAIL else ''}).\nNext: {f'open {report}; ' if report.exists() else ''}"
        "check your own logs with `python -m compliance.check PATH`; train as many runs as the rules require with "
        "`python -m submission.round --config mini`."
    )
    print(as_called(text), flush=True)
    return 1 if wrong or verdict == FAIL else 0


if __name__ == "__main__":
    sys.exit(main())
