"""The command `python -m submission.summary`: what results score, as tables."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.command import CommandParser, UsageError, run_command
from common.reference import ROUNDS
from compliance.cli import add_rules_option, refuse_to_overwrite, round_name, write_text
from submission.summary.formats import WIDTH, csv_summary, json_summary, markdown_summary, terminal_summary
from submission.summary.rows import NoResults, differences, read_rows

EXAMPLES = """\
examples:
  python -m submission.summary hpc_results_v3.0/                   the tables of a round
  python -m submission.summary my_organisation/ --allow-mini       results on the mini problems too
  python -m submission.summary v2.0/ --previous v1.0/              and what changed since then
  python -m submission.summary v2.0/ --format csv -o tables/       time_to_train.csv and throughput.csv
  python -m submission.summary v2.0/ --format markdown -o table.md

exit status: 0 there are results (whether they pass: python -m compliance.check), 1 there are none, 2 wrong use
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(arguments)
    return run_command(lambda: _summarise(given), (OSError, NoResults))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m submission.summary",
        description="Show what results of MLPerf HPC score: of a submission, or of all submissions of a round.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="submission, repository of submissions, folder of runs"
    )
    parser.add_argument("--previous", nargs="+", default=[], metavar="PATH", help="results of the round before")
    parser.add_argument("--round", type=round_name, metavar="{" + ",".join(ROUNDS) + "}", help="round of the rules")
    parser.add_argument("--allow-mini", action="store_true", help="accept runs on the mini problems")
    add_rules_option(parser)
    parser.add_argument(
        "--format", choices=("table", "csv", "json", "markdown"), default="table", help="default: table"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there (csv: a folder, for its files)")
    return parser


def _summarise(given: argparse.Namespace) -> int:
    found = read_rows(given.paths, given.round, given.allow_mini)
    previous = read_rows(given.previous, None, given.allow_mini) if given.previous else []
    changes = differences(previous, found) if previous else []
    if given.format == "csv":
        _write_tables(csv_summary(found, changes), given)
        return 0
    if given.format == "table":
        width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() and not given.output else WIDTH
        text = terminal_summary(found, changes, width)
    else:
        text = (json_summary if given.format == "json" else markdown_summary)(found, changes)
    refuse_to_overwrite(given.output, (*given.paths, *given.previous))
    write_text(text, given.output)
    return 0


def _write_tables(texts: Mapping[str, str], given: argparse.Namespace) -> None:
    """Write each table into its own file of the folder; one table alone may go to standard output."""
    if given.output is None:
        if len(texts) > 1:
            raise UsageError(f"{len(texts)} tables ({', '.join(texts)}) need a folder: -o FOLDER")
        write_text(next(iter(texts.values())), None)
        return
    if given.output.exists() and not given.output.is_dir():
        raise UsageError(f"-o {given.output} is a file; csv needs a folder, for a file of each table")
    given.output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        refuse_to_overwrite(given.output / name, (*given.paths, *given.previous))
        write_text(text, given.output / name)


if __name__ == "__main__":
    sys.exit(main())
