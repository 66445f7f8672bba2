"""The command `python -m submission.report`: report results as one HTML file; needs no network and no JavaScript.

>>> from submission.report import write_report
>>> report = compliance.check_logs(["results/"], details=True)              # doctest: +SKIP
>>> write_report(report, Path("report.html"), title="Our round")       # doctest: +SKIP
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from common.command import NOTHING_WRITTEN, CommandParser, UsageError, clean, run_command
from compliance.cli import add_result_options, read_result_options
from compliance.engine import check_paths
from compliance.formats.findings import all_shown, summary
from submission.results.page.page import write_report
from submission.results.rows import NoResultsError, read_report

DESCRIPTION: Final = "Report results as one HTML file: scores, how they were computed, charts and findings."
EXAMPLES: Final = """\
examples:
  python -m submission.report my_organisation/ -o report.html                a submission
  python -m submission.report hpc_results_v3.0/ -o round.html                a round: all its submissions
  python -m submission.report runs/round/package/ --allow-mini -o mini.html  results on the mini problems
  python -m submission.report v3.0/ --previous v2.0/ -o round.html           with the speed-up since v2.0
  python -m submission.report runs/a/result_0.txt -o run.html                one log

Open the page in any browser of 2024 or later. It needs no network; links to logs are relative to the page.

exit status: 0 the page is written (check results with python -m compliance.check), 1 there are no logs or the page
cannot be written, 2 wrong use
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser("python -m submission.report", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="logs, folders of logs, submissions, repositories")
    add("--previous", nargs="+", default=[], metavar="PATH", help="results of the previous round")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="the page to write")
    add("--force", action="store_true", help="replace a page written by this command")
    add_result_options(parser)
    add("--title", default="", help="heading of the page")
    given = parser.parse_args(arguments)
    return run_command(lambda: _run(given), (OSError, NoResultsError), NOTHING_WRITTEN)


def _run(given: argparse.Namespace) -> int:
    missing = [path for path in given.paths if not os.path.exists(path)]
    if missing:
        raise UsageError(f"no such file or folder: {missing[0]}")
    if given.output.is_dir():
        raise UsageError(f"-o {given.output} is a folder; name a file in it, such as report.html")
    if os.path.lexists(given.output) and not given.force:
        raise UsageError(f"{given.output} exists; --force replaces a page of this command")
    options = read_result_options(given, details=True)
    report = check_paths(given.paths, options)
    if not report.runs:
        print(
            f"error: no logs below {', '.join(map(clean, given.paths))}; expected files result_*.txt", file=sys.stderr
        )
        return 1
    previous = read_report(given.previous, replace(options, round=None, details=False)) if given.previous else None
    write_report(report, given.output, given.title, previous)
    print(f"{clean(given.output)}: {summary(report, all_shown(report))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
