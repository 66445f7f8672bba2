"""The command line of the convergence points: show the tables, record a table from reference runs."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from common.benchmarks import choose_plugins
from common.command import CommandParser, UsageError, run_command
from common.reference import ROUNDS, VARIANTS
from compliance.benchmarks import REFERENCES, refuse_plugins_in, require_reference
from compliance.cli import add_plugin_options, round_name
from compliance.formats.table import Column, make_table, plain_text
from compliance.rcp.points import Mode, ReferencePoint, list_points, locate_table, prune
from compliance.rcp.record import record
from compliance.rcp.table import read_table

DESCRIPTION: Final = """\
Show or record reference convergence points (RCP): how long reference runs train until they meet the target. A result
that converges faster than chance allows does not pass.
"""
EXAMPLES: Final = """\
examples:
  python -m compliance.rcp show                              all tables of the newest round
  python -m compliance.rcp show oc20 --round 1.0             one table
  python -m compliance.rcp show cosmoflow --variant mini     the points of its mini problem
  python -m compliance.rcp show --table my.yaml --mode both  a table of your own
  python -m compliance.rcp record runs/ -o my.yaml           make it, or add new runs to it
"""
RECORD_HELP: Final = """\
Record the reference runs of all result_*.txt under RUNS, one log for each run. Runs of one batch size make one point;
the convergence of a run is the epoch_num of its last evaluation before run_stop with status "success".
A point needs twice as many runs as a result (10 where a result has 5), each with a different seed. Runs on
a mini problem (dataset_variant mini or mini2) make separate points.

To add runs, call it again: it skips logs already in the table (same sha256), removes nothing, and leaves the old table
if interrupted. It skips runs without run_stop for now; runs that did not converge stand in the table and do not count.
"""
FOOTNOTE: Final = """
mean: without the lowest and the highest run. std: of all runs. min mean: a result below it does not pass.
max speedup: mean / min mean. kept: results are compared with this point. Those not kept converge later than
a larger batch does, or than a line between their neighbours."""


def _print_points(points: Sequence[ReferencePoint], modes: Sequence[Mode]) -> None:
    if not points:
        print("  no reference points")
        return
    kept = ((mode, set(prune(points, mode))) for mode in modes)
    columns: list[Column[ReferencePoint]] = [
        Column("batch size", "", lambda point: str(point.batch_size)),
        Column("runs", "", lambda point: str(len(point.epochs))),
        Column("mean", "", lambda point: f"{point.mean:.3f}"),
        Column("std", "", lambda point: f"{point.std:.3f}"),
        Column("min mean", "", lambda point: f"{point.min_mean:.3f}"),
        Column("max speedup", "", lambda point: f"{point.max_speedup:.4f}"),
        *(Column(f"kept {mode}", "", partial(_tell_kept, points)) for mode, points in kept),
    ]
    print(textwrap.indent(plain_text(make_table("", columns, points)), "  "))


def _tell_kept(kept: Collection[ReferencePoint], point: ReferencePoint) -> str:
    return "yes" if point in kept else "no"


def print_table(path: Path, round_: str, variant: str | None, modes: Sequence[Mode]) -> None:
    """Print the points of a table file that apply to a round; all variants unless one is named."""
    table = read_table(path)
    runs = require_reference(table.benchmark).runs
    for name in [variant] if variant else sorted({entry.variant for entry in table.entries}, reverse=True):
        print(f"{table.benchmark}, {name}, round {round_}: {table.unit} to converge; a result has {runs} runs")
        _print_points(list_points(table, path, round_, name), modes)


def _make_parser() -> argparse.ArgumentParser:
    parser = CommandParser("python -m compliance.rcp")
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    commands = parser.add_subparsers(dest="command", required=True)

    show = commands.add_parser("show", help="print tables of convergence points")
    show.description, show.epilog = "Print the tables of convergence points.", EXAMPLES
    choice = show.add_mutually_exclusive_group()
    choice.add_argument("benchmark", nargs="?", metavar="BENCHMARK", help="one benchmark (default: all of MLPerf HPC)")
    choice.add_argument("--table", type=Path, metavar="FILE", help="a table of your own")
    show.add_argument("--round", type=round_name, default=ROUNDS[-1], help=f"{', '.join(ROUNDS)} (default: last)")
    show.add_argument("--variant", choices=VARIANTS, help="of the problem (default: all)")
    show.add_argument(
        "--mode",
        choices=("envelope", "official", "both"),
        default="both",
        help="mark the points kept by the written rules, by the official tool, or both (default: both)",
    )

    recorded = commands.add_parser("record", help="make or extend a table")
    recorded.description, recorded.epilog = RECORD_HELP, EXAMPLES
    recorded.add_argument("runs", type=Path, metavar="RUNS", help="folder with result_*.txt, or one log")
    recorded.add_argument("-o", "--output", type=Path, required=True, metavar="TABLE.yaml")
    recorded.add_argument("--name", help="points are called NAME_<batch size> (default: <benchmark>_ref, _mini)")
    recorded.add_argument("--benchmark", metavar="NAME", help="take runs of this benchmark only")
    for command in (show, recorded):
        add_plugin_options(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 after an error (wrong use exits with 2)."""
    options = _make_parser().parse_args(arguments)
    return run_command(lambda: _run(options), (ValueError, OSError))


def _run(arguments: argparse.Namespace) -> int:
    choose_plugins(arguments.benchmarks_from, arguments.no_plugins)
    path = arguments.runs if arguments.command == "record" else arguments.table
    refuse_plugins_in([path] if path else [])
    if arguments.benchmark:
        require_reference(arguments.benchmark)
    if path and not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if arguments.command == "record":
        record(arguments.runs, arguments.output, arguments.name, arguments.benchmark)
        return 0
    names = [arguments.benchmark] if arguments.benchmark else REFERENCES
    modes: tuple[Mode, ...] = ("official", "envelope") if arguments.mode == "both" else (arguments.mode,)
    for table in [path] if path else [locate_table(require_reference(name)) for name in names]:
        print_table(table, arguments.round, arguments.variant, modes)
    print(FOOTNOTE, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
