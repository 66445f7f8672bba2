"""The command `python -m submission.summary`: show the scores of results as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from common.command import NOTHING_WRITTEN, CommandParser, UsageError, run_command
from compliance.cli import add_result_options, read_result_options, refuse_to_overwrite, write_text
from compliance.formats.table import output_width
from compliance.model.waivers import unused
from submission.results.rows import NoResultsError, differences, read_report, rows
from submission.results.tables import csv_summary, json_summary, markdown_summary, plain_summary

DESCRIPTION = "Show the scores of results as tables: of one submission, or of all submissions of a round."
EXAMPLES = """\
examples:
  python -m submission.summary hpc_results_v3.0/                   the tables of a round
  python -m submission.summary my_organisation/ --allow-mini       including mini problems
  python -m submission.summary v2.0/ --previous v1.0/              also compare with the previous round
  python -m submission.summary v2.0/ --format csv -o tables/       time_to_train.csv and throughput.csv
  python -m submission.summary v2.0/ --format markdown -o table.md

exit status: 0 there are results (to check them: python -m compliance.check), 1 there are none, 2 wrong use
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser("python -m submission.summary", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="submission, repository of submissions, folder of runs")
    add("--previous", nargs="+", default=[], metavar="PATH", help="results of the previous round")
    add_result_options(parser)
    add("--format", choices=("table", "csv", "json", "markdown"), default="table", help="default: table")
    add("-o", "--output", type=Path, metavar="FILE", help="write there (csv: into this folder)")
    given = parser.parse_args(arguments)
    return run_command(lambda: _summarise(given), (OSError, NoResultsError), NOTHING_WRITTEN)


def _summarise(given: argparse.Namespace) -> int:
    options = read_result_options(given)
    reports = [read_report(given.paths, options)]
    if given.previous:
        reports.append(read_report(given.previous, replace(options, round=None)))
    for waiver, message in unused(given.waivers, [results for report in reports for results in report.sets]):
        print(f"warning: {waiver.path}, line {waiver.line}: {message}", file=sys.stderr)
    found, previous = rows(reports[0]), rows(reports[1]) if given.previous else []
    changes = differences(previous, found) if previous else []
    if given.format == "csv":
        _write_tables(csv_summary(found, changes), given)
        return 0
    if given.format == "table":
        text = plain_summary(found, changes, None if given.output else output_width())
    else:
        text = (json_summary if given.format == "json" else markdown_summary)(found, changes)
    refuse_to_overwrite(given.output, (*given.paths, *given.previous))
    write_text(text, given.output)
    return 0


def _write_tables(texts: Mapping[str, str], given: argparse.Namespace) -> None:
    """Write each table to its own file in the folder; a single table may go to standard output."""
    if given.output is None:
        if len(texts) > 1:
            raise UsageError(f"{len(texts)} tables ({', '.join(texts)}) need a folder: use -o FOLDER")
        write_text(next(iter(texts.values())), None)
        return
    if given.output.exists() and not given.output.is_dir():
        raise UsageError(f"-o {given.output} is a file; expected a folder, because csv writes one file per table")
    given.output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        refuse_to_overwrite(given.output / name, (*given.paths, *given.previous))
        write_text(text, given.output / name)


if __name__ == "__main__":
    sys.exit(main())
