"""The command `python -m submission.analysis`: analyse rounds, with tables, figures, fits and projections."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.command import NOTHING_WRITTEN, CommandParser, UsageError, clean, run_command
from compliance.cli import add_result_options, read_result_options, write_text
from compliance.formats.table import output_width, plain_text
from submission.results.analysis import Analysis, analyse_trees
from submission.results.cost_model.model import error_table
from submission.results.export import holds_analysis, write_analysis
from submission.results.fits.projection import projection_table
from submission.results.quantity_tables import tables
from submission.results.rows import NoResultsError

MOST_UNITS: Final = 10_000_000
DESCRIPTION: Final = "Analyse results: where the time goes, how epochs and times scale, how runs vary; with figures."
EXAMPLES: Final = """\
examples:
  python -m submission.analysis hpc_results_v0.7/ -o out/              one round
  python -m submission.analysis v1.0/ v2.0/ v3.0/ -o out/              several: also the best results of each
  python -m submission.analysis runs/ --allow-mini -o out/             your own runs
  python -m submission.analysis v3.0/ --project 2048,4096 -o out/      projected to other numbers of accelerators
  python -m submission.analysis v3.0/ --ceilings mine.yaml -o out/     the cost model of your machine

The folder gets analysis.json with all numbers, and CSV and SVG files. What the
logs do not say (staging that copies nothing, power caps) comes from submission/results/facts.yaml and --facts FILE.
Projections and the cost model are marked as such: neither is a result.

exit status: 0 analysed (results that cannot be analysed are named on standard error), 1 there is nothing to analyse or
the files cannot be written, 2 wrong use
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser("python -m submission.analysis", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("paths", nargs="+", metavar="TREE", help="repository of submissions, submission, folder of runs, or log")
    add("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the folder to write")
    add("--force", action="store_true", help="replace the files of an earlier analysis")
    add("--facts", metavar="FILE", help="facts that logs do not say (YAML, the form of facts.yaml)")
    add("--ceilings", metavar="FILE", help="ceilings for the cost model, in place of ceilings.yaml")
    add("--project", type=_units, default=(), metavar="N,...", help="project results to these numbers of accelerators")
    add_result_options(parser)
    given = parser.parse_args(arguments)
    return run_command(lambda: _run(given), (OSError, NoResultsError), NOTHING_WRITTEN)


def _units(text: str) -> tuple[int, ...]:
    """Return the numbers of units that an argument names; an `argparse` type."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) <= MOST_UNITS for word in words):
        raise argparse.ArgumentTypeError(f"expected numbers from 1 to {MOST_UNITS}, such as 512,1024; found {text!r}")
    return tuple(sorted({int(word) for word in words}))


def _run(given: argparse.Namespace) -> int:
    _check_output(given.output, given.paths, given.force)
    options = read_result_options(given, details=True)
    found = analyse_trees(given.paths, options, given.facts, given.ceilings, given.project)
    for warning in found.warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)
    for one in found.sets:
        if one.problem:
            print(f"warning: {clean(one.name)}, round {one.row.round}: {clean(one.problem)}", file=sys.stderr)
    if all(one.problem for one in found.sets):
        print("error: no result can be analysed; the warnings say why", file=sys.stderr)
        return 1
    written = write_analysis(found, given.output)
    write_text(_text(found, output_width()), None)
    print(f"{clean(given.output / written[0])} and {len(written) - 1} files beside it")
    return 0


def _text(found: Analysis, width: int | None) -> str:
    """Return what a terminal shows: the first table, what the fits say, projections, the error of the cost model."""
    blocks = [plain_text(tables(found.sets)[0], width), "\n".join(clean(fit.said) for fit in found.fits if fit.power)]
    if found.projected.projections:
        blocks.append(plain_text(projection_table(found.projected), width))
    elif found.projected.not_projected:
        blocks.append(clean(found.projected.said))
    blocks.append(plain_text(error_table(found.cost_error), width) if found.cost_error.pairs else "")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _check_output(output: Path, paths: Sequence[str], force: bool) -> None:
    """Raise UsageError if the output is a file, lies in what is read, or holds something else."""
    target = os.path.realpath(output)
    for path in map(os.path.realpath, paths):
        if target == path or target.startswith(path + os.sep):
            raise UsageError(f"-o {output} lies in {path}, which is read; name a folder outside of it")
    if not os.path.lexists(output):
        return
    if not output.is_dir():
        raise UsageError(f"-o {output} is a file; name a folder, because an analysis is several files")
    if not any(output.iterdir()):
        return
    if not holds_analysis(output):
        raise UsageError(f"-o {output} holds other files and no analysis; name a new or an empty folder")
    if not force:
        raise UsageError(f"-o {output} holds an earlier analysis; --force replaces its files")


if __name__ == "__main__":
    sys.exit(main())
