"""The command `python -m submission.cost`: show the FLOPS of runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from common.command import NOTHING_WRITTEN, CommandParser, clean, run_command
from common.reference import ROUNDS
from common.version import VERSION
from compliance.cli import round_name, write_text
from compliance.formats.json import finite
from compliance.formats.words import plain
from compliance.options import Options
from submission.analysis.cost.model import read_workloads
from submission.analysis.tables import number
from submission.cost.operations import Operations, operations
from submission.summary.rows import NoResultsError, read_logs
from submission.text_table import TextTable, csv_text, output_width, plain_text

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


# -- formats ---------------------------------------------------------------------------------------------------


SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""
NOTE_WIDTH: Final = 120
"""Characters per line of the notes where the output has no width."""
UNITS: Final = "on the units of the run (of a throughput result: of one instance)"
GIGA, TERA = 1e9, 1e12
HEADINGS: Final = (
    *(("log", ""), ("samples", "trained"), ("T_train", "min"), ("training", "TFLOPS"), ("sustained", "TFLOPS")),
    *(("quality", ""), ("target", ""), ("n", ""), ("valid", "TFLOPS"), ("no number because", "")),
)
TEXT: Final = ("log", "no number because")
CONVENTION: Final = (
    "FLOP: 1 multiply-add = 2, of convolutions and products alone, counted from the reference model at full size "
    "(submission/analysis/cost/workloads.yaml); an open result may have trained another model"
)
NOTES: Final = (
    CONVENTION,
    "training: FLOP of training * samples trained / T_train, the time of epochs without evaluations",
    "sustained: FLOP of training and evaluation / (run_stop - run_start)",
    "valid: VFLOPS = training * (achieved / target)^n, target / achieved where lower is better; as published, a "
    "quality better than the target makes it larger than training",
)
GRAPH_NOTE: Final = (
    "oc20: FLOP of the published algorithm with its list of triplets; this suite's network makes about a tenth less "
    "(fom.json states those made)"
)


def plain_costs(found: Sequence[Operations], width: int | None = None) -> str:
    """Return the table and its notes in lines of at most `width` characters; None: nothing is cut."""
    groups = tuple(map(_group, found))
    numeric = tuple(name not in TEXT for name, _ in HEADINGS)
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(one.log)) for one in found])
    rows = tuple((clean(os.path.relpath(one.log, folder)), *_cells(one)) for one in found)
    title = f"FLOPS of runs below {clean(folder)}: floating point operations per second, {UNITS}"
    table = TextTable(title, HEADINGS, rows, numeric, groups).without_empty()
    remarks = sorted({note for one in found if (note := _note(one))})
    notes = [textwrap.fill(note, width or NOTE_WIDTH, subsequent_indent="  ") for note in (*NOTES, *remarks)]
    return "\n\n".join([plain_text(table, width), "\n".join(notes)]) + "\n"


def json_costs(found: Sequence[Operations]) -> str:
    """Return all fields as JSON, with a note; units are in their names or in the docstring of Operations."""
    runs = [asdict(one) | {"note": _note(one)} for one in found]
    document = {"schema": SCHEMA, "version": VERSION, "convention": CONVENTION, "runs": runs}
    return json.dumps(finite(document), indent=1) + "\n"


def csv_costs(found: Sequence[Operations]) -> str:
    """Return all fields as CSV with a note, a line for each log."""
    names = [field.name for field in fields(Operations)]
    return csv_text([*names, "note"], [[*(getattr(one, name) for name in names), _note(one)] for one in found])


def _note(one: Operations) -> str:
    """Return what must be known to compare the numbers of a run, "" if they need no explanation."""
    return GRAPH_NOTE if one.benchmark == "oc20" and one.flops is not None else ""


def _group(one: Operations) -> str:
    """Return the heading above the rows of a benchmark, with the FLOP of a sample if they are known."""
    name = f"{clean(one.benchmark) or 'unknown benchmark'}{' (mini)' if one.mini else ''}, round {one.round}"
    if one.training_flop is None or one.forward_flop is None:
        return name
    giga = [number(flop / GIGA) for flop in (one.training_flop, one.forward_flop)]
    return f"{name}: {giga[0]} GFLOP for a sample trained, {giga[1]} evaluated"


def _cells(one: Operations) -> tuple[str, ...]:
    """Return the cells of a run, without the name of its log."""
    rates = (one.flops, one.sustained_flops, one.vflops)
    training, sustained, valid = ("" if rate is None else number(rate / TERA) for rate in rates)
    return (
        "" if one.samples is None else plain(one.samples),
        number(one.train_minutes),
        training,
        sustained,
        number(one.quality),
        "" if one.target is None else f"{one.target:g}",
        "" if one.n is None else f"{one.n:g}",
        valid,
        one.reason,
    )


if __name__ == "__main__":
    sys.exit(main())
