"""The command `python -m submission.summary`: show results and runs as tables, or two results side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from common.command import (
    NOTHING_WRITTEN,
    CommandParser,
    UsageError,
    clean,
    counted,
    run_command,
    suggest_name,
)
from common.console import print_warning
from compliance.benchmarks import require_references
from compliance.cli import add_result_options, read_result_options, refuse_inside, write_text
from compliance.formats.findings import alone, describe_unjudged, describe_unread
from compliance.formats.markdown import markdown_text
from compliance.formats.table import output_width, plain_text
from compliance.model.report import Report
from compliance.model.waivers import unused
from submission.results.columns import RESULT_COLUMNS, RUN_COLUMNS, find_column, list_columns, sort_rows
from submission.results.comparison.compare import compare_sides, compare_with_published
from submission.results.comparison.formats import FORMATS
from submission.results.comparison.sides import explain_same_logs, pair_results
from submission.results.operations import Operations, read_operations
from submission.results.read_rows import explain_no_results, list_rows, print_errors, read_logs, read_previous
from submission.results.rows import NoResultsError, compare_rounds
from submission.results.tables import Summary

MOST_N: Final = 100.0
MOST_NAMES: Final = 10
"""Results that are named where they are not compared."""
DESCRIPTION = "Show results as tables: of a submission, a round, your own runs; each run; or two results side by side."
EXAMPLES = """\
examples:
  python -m submission.summary hpc_results_v3.0/                       the tables of a round
  python -m submission.summary my_organisation/ --allow-mini           including mini problems
  python -m submission.summary v2.0/ --previous v1.0/                  also compare with the previous round
  python -m submission.summary v2.0/ --columns system,score,flops --sort score    --columns help lists them
  python -m submission.summary v2.0/ --format csv -o tables/           time_to_train.csv and throughput.csv
  python -m submission.summary runs/ --runs                            the FLOPS of each log
  python -m submission.summary result_0.txt --n 10                     of one log, with another exponent of VFLOPS
  python -m submission.summary Mine/ --compare Theirs/                 two results: what differs
  python -m submission.summary v2.0/ --compare v3.0/ --benchmark oc20  two rounds: organisations with themselves
  python -m submission.summary fast.txt --compare slow.txt             two logs: the time of each part
  python -m submission.summary runs/cosmoflow-measure/fom.json         a measurement, and published results

--compare takes result folders, submissions, folders of runs, single logs, or whole rounds. It compares results of the
same benchmark. Among several it pairs those of the same division and scaling, and of these those of the same
organisation or system. It names the others: give the folders of two results to compare them.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.summary",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        statuses={0: "there are results", 1: "there are none", 2: "wrong use, such as no common benchmark"},
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="submission, repository of submissions, folder of runs, log, fom.json")
    add("--previous", nargs="+", default=[], metavar="PATH", help="results of the previous round")
    add("--runs", action="store_true", help="a row for each log, with its FLOPS, instead of results")
    add("--n", type=_parse_exponent, metavar="N", help="exponent of VFLOPS of runs (default: 10 for deepcam, 5 else)")
    add("--compare", nargs="+", default=[], metavar="B", help="the one PATH and B side by side")
    add("--benchmark", metavar="NAME", help="only this one")
    add("--columns", type=_parse_columns, default=(), metavar="NAME,...", help="these columns; help lists them")
    add("--sort", metavar="NAME", help="order of the rows of a benchmark; --sort=-NAME: descending")
    add_result_options(parser)
    add("--format", choices=("table", "csv", "json", "markdown"), default="table", help="default: table")
    add("-o", "--output", type=Path, metavar="FILE", help="write there (csv: into this folder)")
    options = parser.parse_args(_join_sort(sys.argv[1:] if arguments is None else arguments))
    measured = len(options.paths) == 1 and options.paths[0].endswith(".json")

    def run() -> int:
        if options.output:
            refuse_inside(options.output, (*options.paths, *options.previous, *options.compare))
            named = {".csv": "csv", ".json": "json", ".md": "markdown"}.get(options.output.suffix, options.format)
            if options.format == "csv" and options.output.is_file():
                raise UsageError(f"-o {options.output} is a file; expected a folder, as csv writes one file per table")
            if options.format not in (named, "csv") and not (options.compare and named == "csv"):
                where = "-o FOLDER, with a file for each table" if named == "csv" else f"-o {options.output}"
                raise UsageError(f"-o {options.output} would get a {options.format}; write --format {named} {where}")
        if options.compare:
            return _show_comparison(options)
        if not options.paths:
            raise UsageError("there is no PATH: write the results to show first, as in summary v2.0/ --previous v1.0/")
        return _show_measurement(options) if measured else _show_results(options)

    return run_command(run, (OSError, NoResultsError), NOTHING_WRITTEN)


def _join_sort(words: Sequence[str]) -> list[str]:
    """Return the words, with `--sort -NAME` as one: argparse would take the name for an option."""
    joined: list[str] = []
    for word in words:
        if joined[-1:] == ["--sort"] and word[:1] == "-" and word[1:2] != "-":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parse_exponent(text: str) -> float:
    """Return the exponent that an argument names; an `argparse` type."""
    with suppress(ValueError):
        if 0 < float(text) <= MOST_N:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_N:g}; found {text!r}")


def _parse_columns(text: str) -> tuple[str, ...]:
    """Return the columns that an argument names; for `help` list all and end; an `argparse` type."""
    if text == "help":
        write_text(list_columns(output_width()), None)
        sys.exit(0)
    return tuple(name.strip() for name in text.split(","))


def _show_results(arguments: argparse.Namespace) -> int:
    """Show results, and the runs outside of them; with `--runs` all runs instead."""
    _check_columns(arguments)
    options = read_result_options(arguments, details=True)
    reports = [read_logs(arguments.paths, options)]
    if arguments.previous:
        reports.append(read_previous(arguments.previous, reports[0], options))
    if arguments.benchmark:
        require_references(arguments.benchmark)  # says what is wrong with another name
    for waiver, message in unused(arguments.waivers, [results for report in reports for results in report.sets]):
        print_warning(f"{waiver.path}, line {waiver.line}: {message}")
    tables = [[row for row in list_rows(report) if arguments.benchmark in (None, row.benchmark)] for report in reports]
    print_errors(reports[0], arguments.paths)
    results, runs = [] if arguments.runs else tables[0], _read_runs(reports[0], arguments)
    if not results and not runs:
        raise NoResultsError(explain_no_results(arguments.paths))
    changes = compare_rounds(tables[1], results) if arguments.previous else []
    columns = {**(RESULT_COLUMNS if results else {}), **(RUN_COLUMNS if runs else {})}
    for name in _name_columns(arguments):
        if name not in columns:
            raise UsageError(
                f"the column {name!r} is of {'runs: add --runs' if results else 'results: there are none'}"
            )
    if arguments.sort:
        results = sort_rows(results, RESULT_COLUMNS, arguments.sort)
        runs = sort_rows(runs, RUN_COLUMNS, arguments.sort)
    unread = [*filter(None, [describe_unread(reports[0])]), *describe_unjudged(reports[0])]
    summary = Summary(results, changes, runs, arguments.columns, unread)
    if arguments.format == "csv":
        _write_tables(summary.format_csv(), arguments)
    elif arguments.format == "table":
        write_text(summary.format_text(_find_width(arguments)), arguments.output)
    else:
        write_text(summary.format_json() if arguments.format == "json" else summary.format_markdown(), arguments.output)
    return 0


def _name_columns(arguments: argparse.Namespace) -> list[str]:
    """Return the columns that the options name."""
    return [*arguments.columns, *([arguments.sort.removeprefix("-")] if arguments.sort else [])]


def _check_columns(arguments: argparse.Namespace) -> None:
    """Raise UsageError for columns that no table has, or options that would do nothing."""
    columns = RUN_COLUMNS if arguments.runs else RESULT_COLUMNS | RUN_COLUMNS
    arguments.columns = tuple(find_column(name, columns) for name in arguments.columns)
    if arguments.sort:
        sign = "-" * arguments.sort.startswith("-")
        arguments.sort = sign + find_column(arguments.sort.removeprefix("-"), columns)
    for name in _name_columns(arguments):
        if name not in columns:
            near = suggest_name(name, columns, meanings={key: column.meaning for key, column in columns.items()})
            raise UsageError(f"there is no column {name!r}{near}; --columns help lists them")
    if arguments.columns and arguments.format == "json":
        raise UsageError("--columns is for tables and CSV: JSON has all fields")
    if arguments.runs and arguments.previous:
        raise UsageError("--previous is for results: leave out --runs")


def _read_runs(report: Report, arguments: argparse.Namespace) -> list[Operations]:
    """Return the runs to show: with `--runs` all, else those outside of results."""
    outside = {run.path for run in alone(report)}
    if not arguments.runs and not outside:
        if arguments.n:
            raise UsageError("--n is for runs: add --runs")
        return []
    return [
        run
        for run in read_operations(report, arguments.n)
        if (arguments.runs or run.log in outside) and arguments.benchmark in (None, run.benchmark)
    ]


def _show_comparison(arguments: argparse.Namespace) -> int:
    """Show two results side by side."""
    _refuse_options(arguments, ("previous", "runs", "n", "columns", "sort"), "is not for --compare")
    sides = *arguments.paths, *arguments.compare
    if len(sides) != 2:
        raise UsageError(f"--compare is for two: summary A --compare B; found {', '.join(sides)}")
    if arguments.format == "csv":
        raise UsageError("--format csv is for tables; a comparison is table, markdown or json")
    options = replace(read_result_options(arguments, details=True), allow_mini=True)
    pairs, unpaired = pair_results(*sides, options, arguments.benchmark)
    if unpaired:
        names = [*(side.name for side in unpaired[:MOST_NAMES]), *(["..."] if unpaired[MOST_NAMES:] else [])]
        results = f"{counted(len(unpaired), 'result')} ({clean(', '.join(names))})"
        print(f"not compared, no counterpart of the same name: {results}; name the folder of each", file=sys.stderr)
    for pair in pairs:
        if warning := explain_same_logs(*pair):
            print_warning(clean(warning))
    write_text(
        FORMATS[arguments.format]([compare_sides(*pair) for pair in pairs], _find_width(arguments)), arguments.output
    )
    return 0


def _show_measurement(arguments: argparse.Namespace) -> int:
    """Show a measurement beside published results."""
    names = ("previous", "runs", "n", "columns", "sort", "benchmark", "rules", "round", "waivers")
    _refuse_options(arguments, names, "is not for a measurement")
    if arguments.format in ("csv", "json"):
        raise UsageError(f"--format {arguments.format} is not for a measurement; choose table or markdown")
    table = compare_with_published(Path(arguments.paths[0]))
    text = markdown_text(table) if arguments.format == "markdown" else plain_text(table, _find_width(arguments))
    write_text(text, arguments.output)
    return 0


def _refuse_options(arguments: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    """Raise UsageError if one of the options has a value."""
    for name in names:
        if getattr(arguments, name):
            raise UsageError(f"--{name} {reason}; leave it out")


def _find_width(arguments: argparse.Namespace) -> int | None:
    """Return the characters per line of the output; a file has no limit."""
    return None if arguments.output else output_width()


def _write_tables(texts: Mapping[str, str], arguments: argparse.Namespace) -> None:
    """Write each table to its own file in the folder; a single table may go to standard output."""
    folder = arguments.output
    if folder is None:
        if len(texts) > 1:
            raise UsageError(f"{len(texts)} tables ({', '.join(texts)}) need a folder: use -o FOLDER")
        write_text(next(iter(texts.values())), None)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(text, folder / name)


if __name__ == "__main__":
    sys.exit(main())
