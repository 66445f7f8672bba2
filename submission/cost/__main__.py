"""The command `python -m submission.cost`: show the FLOPS of runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from common.command import NOTHING_WRITTEN, CommandParser, run_command
from common.reference import ROUNDS
from compliance.cli import round_name, write_text
from compliance.engine.options import Options
from submission.analysis.cost.model import read_workloads
from submission.cost.formats import csv_costs, json_costs, plain_costs
from submission.cost.operations import operations
from submission.summary.rows import NoResultsError, read_logs
from submission.text_table import output_width

MOST_N: Final = 100.0
EXAMPLES: Final = """\
examples:
  python -m submission.cost runs/                              each log below a folder
  python -m submission.cost hpc_results_v3.0/ --format csv     all fields, for a spreadsheet
  python -m submission.cost result_0.txt --n 10                another exponent of VFLOPS
  python -m submission.cost old.txt --round 0.7                the network of another round than the newest

FLOPS over the training time are the metric of HPC AI500 V3.0, FLOP of all steps / time of the epochs; sustained FLOPS
count evaluations too, and all time from run_start to run_stop; VFLOPS are FLOPS * (achieved / target)^n. A run without
a number has the reason beside it. Nothing is written but to standard output.

exit status: 0 shown, also where runs have no number, 1 no file is a result log, 2 wrong use
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(arguments)
    return run_command(lambda: _show(given), (OSError, NoResultsError), NOTHING_WRITTEN)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m submission.cost",
        description="Show the FLOPS of runs: over the training time, sustained, and by the quality that was reached.",
        epilog=EXAMPLES,
    )
    parser.add_argument("paths", nargs="+", metavar="LOGS", help="result log, folder of runs, or tree of results")
    parser.add_argument(
        "--n", type=_exponent, metavar="N", help="exponent of VFLOPS (default: 10 for deepcam, 5 for all others)"
    )
    parser.add_argument("--round", type=round_name, metavar="{" + ",".join(ROUNDS) + "}", help="round of the rules")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")
    return parser


def _exponent(text: str) -> float:
    """Return the exponent that an argument names; an `argparse` type."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MOST_N:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_N:g}; found {text!r}")
    return number


def _show(given: argparse.Namespace) -> int:
    options = Options(round=given.round, allow_mini=True, progress=sys.stderr.isatty(), details=True)
    found = operations(read_logs(given.paths, options), read_workloads(), given.n)
    if given.format == "table":
        text = plain_costs(found, output_width())
    else:
        text = (json_costs if given.format == "json" else csv_costs)(found)
    write_text(text, None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
