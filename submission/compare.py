"""The command `python -m submission.compare`: two results side by side, or a measurement and published results."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command import NOTHING_WRITTEN, CommandParser, UsageError, clean, counted, run_command
from compliance.benchmarks import REFERENCES
from compliance.cli import add_rules_option, write_text
from compliance.formats.markdown import markdown_text
from compliance.formats.table import output_width, plain_text
from submission.results.comparison.comparison import compare, compare_with_published
from submission.results.comparison.formats import FORMATS
from submission.results.comparison.sides import pairs

MAX_NAMES = 10
"""Results that are named where they are not compared."""
DESCRIPTION = "Show two results of a benchmark side by side: hyperparameters, convergence, time, system, score."
EXAMPLES = """\
A and B are result folders, submissions, folders of runs, single logs, or whole rounds. Results of the same benchmark
and scaling are compared; among several, those of the same division, system and batch size, or else the nearest in size.
Of two rounds, each organisation is compared with itself. A alone is the fom.json of a measurement of training steps,
which is compared with published results of similar scale.

examples:
  python -m submission.compare runs/mine runs/theirs
  python -m submission.compare Mine/results/x/strong/deepcam Theirs/results/y/strong/deepcam
  python -m submission.compare Mine/ Theirs/ --benchmark oc20     one benchmark of two submissions
  python -m submission.compare v2.0/ v3.0/                        two rounds: each organisation with itself
  python -m submission.compare fast.txt slow.txt                  two logs: the time of each part
  python -m submission.compare Mine/ Theirs/ --format markdown >> notes.md
  python -m submission.compare runs/cosmoflow-measure/fom.json    a measurement, and published results

The last lines are the changes for B to train with A's hyperparameters: arguments of the training command if all logs
are from this suite, else keys of the log. To check whether results are valid, use python -m compliance.check.

exit status: 0 compared, 2 wrong use, such as no common benchmark
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser("python -m submission.compare", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("a", metavar="A", help="a result, a submission, a round, a folder of runs, a log, or a fom.json")
    add("b", metavar="B", nargs="?", help="the other one; none for a fom.json")
    add("--benchmark", choices=sorted(REFERENCES), help="only this one (default: all common ones)")
    add("--format", choices=tuple(FORMATS), default="table", help="default: table")
    add_rules_option(parser)
    given = parser.parse_args(arguments)
    run = _compare_measurement if given.b is None else _compare
    return run_command(lambda: run(given), (), NOTHING_WRITTEN)


def _compare(given: argparse.Namespace) -> int:
    """Compare two results; return the exit status."""
    for path in (given.a, given.b):
        if not os.path.lexists(path):
            raise UsageError(f"no such file or folder: {path}")
    found, alone = pairs(given.a, given.b, given.benchmark)
    if alone:
        names = [*(side.name for side in alone[:MAX_NAMES]), *(["..."] if alone[MAX_NAMES:] else [])]
        print(
            f"not compared, nothing to pair with: {counted(len(alone), 'result')} ({clean(', '.join(names))})",
            file=sys.stderr,
        )
    write_text(FORMATS[given.format]([compare(pair) for pair in found], output_width()), None)
    return 0


def _compare_measurement(given: argparse.Namespace) -> int:
    """Compare a measurement with published results; return the exit status."""
    if not given.a.endswith(".json"):
        raise UsageError(f"what to compare {given.a} with is missing: only a fom.json can stand alone")
    if given.format == "json":
        raise UsageError("--format json is for two results: name B, or choose table or markdown")
    for option, value in (("--benchmark", given.benchmark), ("--rules", given.rules)):
        if value:
            raise UsageError(f"{option} is for two results: name B, or leave it out")
    table = compare_with_published(Path(given.a))
    write_text(markdown_text(table) if given.format == "markdown" else plain_text(table, output_width()), None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
