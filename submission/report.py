"""The command `python -m submission.report`: results as one HTML page, and analysed as tables, figures and fits.

>>> from submission.report import write_report
>>> report = compliance.check_logs(["results/"], details=True)              # doctest: +SKIP
>>> write_report(report, Path("report.html"), title="Our round")       # doctest: +SKIP
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.command import NOTHING_WRITTEN, CommandParser, UsageError, clean, counted, explain_comma, run_command
from common.console import print_error, print_warning
from common.rounds import label_round
from compliance.cli import add_result_options, read_result_options, refuse_inside, write_text
from compliance.formats.findings import all_shown, summary
from compliance.formats.table import output_width, plain_text
from submission.results.analysis import Analysis, analyse_report
from submission.results.cost_model import error_table
from submission.results.fits.projection import projection_table
from submission.results.page.export import holds_analysis, write_analysis
from submission.results.page.findings import check_replaceable
from submission.results.page.page import write_report
from submission.results.quantity_tables import make_tables
from submission.results.read_rows import explain_no_results, print_errors, read_logs, read_previous
from submission.results.rows import NoResultsError

MOST_UNITS: Final = 10_000_000
DESCRIPTION: Final = "Report results as one HTML file, and analyse them: where the time goes, how they scale and vary."
EXAMPLES: Final = """\
examples:
  python -m submission.report my_organisation/ -o report.html                a submission
  python -m submission.report hpc_results_v3.0/ -o round.html                a round: all its submissions
  python -m submission.report runs/round/package/ --allow-mini -o mini.html  results on the mini problems
  python -m submission.report v3.0/ --previous v2.0/ -o round.html           with the speed-up since v2.0
  python -m submission.report runs/a/result_0.txt -o run.html                one log
  python -m submission.report v1.0/ v2.0/ v3.0/ --data out/                  the analysis of several rounds
  python -m submission.report v3.0/ --data out/ --project 2048,4096          projected to other numbers of accelerators
  python -m submission.report v3.0/ --data out/ --ceilings mine.yaml         with the cost model of your machine

Open the page in any browser of 2024 or later. It needs no network; links to logs are relative to the page. The cards of
very many results go into pages beside it: round-2.html, round-3.html.

The folder of --data gets analysis.json with all numbers, and CSV and SVG files. Facts missing from the logs (staging
that copies nothing, power caps) come from submission/results/facts.yaml and --facts FILE. Projections and the cost
model are marked as such: neither is a result.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.report",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        statuses={
            0: "written, whatever the verdict; standard error names errors and results that cannot be analysed",
            1: "no logs, none that can be read, nothing to analyse, or the files cannot be written",
        },
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="logs, folders of logs, submissions, repositories")
    add("-o", "--output", type=Path, metavar="FILE", help="the page to write")
    add("--data", type=Path, metavar="FOLDER", help="analyse the results and write tables, figures and fits there")
    add("--force", action="store_true", help="replace the page and the data that this command wrote")
    add("--previous", nargs="+", default=[], metavar="PATH", help="results of the previous round, for the page")
    add("--title", default="", help="heading of the page")
    add("--facts", metavar="FILE", help="facts missing from the logs (YAML, in the form of facts.yaml)")
    add("--ceilings", metavar="FILE", help="ceilings for the cost model, in place of accelerators.yaml")
    add(
        "--project",
        type=_parse_units,
        default=(),
        metavar="N,...",
        help="project results to these numbers of accelerators",
    )
    add_result_options(parser)
    options = parser.parse_args(arguments)
    return run_command(lambda: _report_results(options), (OSError, NoResultsError), NOTHING_WRITTEN)


def _parse_units(text: str) -> tuple[int, ...]:
    """Return the numbers of units that an argument names; an `argparse` type."""
    words = [word.strip() for word in text.split(",")]
    if problem := explain_comma(text):
        raise argparse.ArgumentTypeError(problem)
    if re.fullmatch(r"\d,\d{3}", text):
        print_warning(f"--project {text} is two numbers; if one is meant, write {text.replace(',', '')}")
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) <= MOST_UNITS for word in words):
        raise argparse.ArgumentTypeError(f"expected numbers from 1 to {MOST_UNITS}, such as 512,1024; found {text!r}")
    return tuple(sorted({int(word) for word in words}))


def _report_results(arguments: argparse.Namespace) -> int:
    _check_outputs(arguments)
    options = read_result_options(arguments, details=True)
    report = read_logs(arguments.paths, options)
    if not report.runs:
        raise NoResultsError(explain_no_results(arguments.paths))
    if all(run.damage for run in report.runs):
        print_errors(report, arguments.paths)
        raise NoResultsError(f"none of {counted(len(report.runs), 'log')} can be read: there is nothing to report")
    analysis = analyse_report(report, arguments.facts, arguments.ceilings, arguments.project)
    print_errors(report, arguments.paths)
    for warning in analysis.warnings:
        print_warning(clean(warning))
    status = _write_data(analysis, arguments) if arguments.data else 0
    if arguments.output:
        previous = read_previous(arguments.previous, report, options) if arguments.previous else None
        write_report(report, arguments.output, arguments.title, previous, analysis)
        print(f"{clean(arguments.output)}: {summary(report, all_shown(report))}")
    return status


def _write_data(analysis: Analysis, arguments: argparse.Namespace) -> int:
    """Write the analysis into the folder; return the exit status."""
    for result in analysis.sets:
        if result.problem:
            name = result.name if result.row.benchmark else result.folder
            print_warning(f"{clean(name)}, round {label_round(result.row.round)}: {clean(result.problem)}")
    if not any(result.runs for result in analysis.sets):
        print_error("no result can be analysed; the warnings say why")
        return 1
    written = write_analysis(analysis, arguments.data)
    write_text(_describe_analysis(analysis, output_width()), None)
    print(f"{clean(arguments.data / written[0])} and {len(written) - 1} files beside it")
    return 0


def _describe_analysis(analysis: Analysis, width: int | None) -> str:
    """Return what a terminal shows: the first table, what the fits say, projections, the error of the cost model."""
    fits = "\n".join(clean(fit.said) for fit in analysis.fits if fit.power)
    blocks = [*(plain_text(table, width) for table in make_tables(analysis.sets)[:1]), fits]
    if analysis.projected.projections:
        blocks.append(plain_text(projection_table(analysis.projected), width))
    elif analysis.projected.not_projected:
        blocks.append(clean(analysis.projected.said))
    blocks.append(plain_text(error_table(analysis.cost_error), width) if analysis.cost_error.pairs else "")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Raise UsageError without an output, or for one that cannot be written."""
    page, folder = arguments.output, arguments.data
    if not page and not folder:
        pages = [path for path in arguments.paths if path.endswith(".html") and not os.path.lexists(path)]
        meant = f"; is -o {pages[0]} meant?" if pages else ""
        raise UsageError(
            f"nothing to write: name a page with -o FILE, or a folder for the analysis with --data FOLDER{meant}"
        )
    if page and page.is_dir():
        raise UsageError(f"-o {page} is a folder; name a file in it, such as report.html")
    if page and os.path.lexists(page) and not arguments.force:
        raise UsageError(f"{page} exists; --force replaces a page of this command")
    if (
        page
        and folder
        and page.suffix in (".json", ".csv", ".svg")
        and os.path.realpath(page.parent) == os.path.realpath(folder)
    ):
        raise UsageError(
            f"-o {page} is named like the data of --data {folder}; name a page, such as {folder}/page.html"
        )
    if page:
        refuse_inside(page, (*arguments.paths, *arguments.previous))
        check_replaceable(page)
    if folder:
        refuse_inside(folder, arguments.paths, "--data")
        _check_folder(folder, arguments.force)


def _check_folder(folder: Path, force: bool) -> None:
    """Raise UsageError if the folder is a file, or holds something else."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"--data {folder} is a file; name a folder, because an analysis is several files")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not holds_analysis(folder):
        raise UsageError(f"--data {folder} holds other files and no analysis; name a new or an empty folder")
    if not force:
        raise UsageError(f"--data {folder} holds an earlier analysis; --force replaces its files")


if __name__ == "__main__":
    sys.exit(main())
