"""The command `python -m submission.cost`: the operations of runs per second."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from common.command import NOTHING_WRITTEN, CommandParser, clean, run_command
from common.version import VERSION
from compliance.cli import add_round_option, write_text
from compliance.engine.options import Options
from compliance.formats.json import json_text
from compliance.formats.table import Column, csv_records, make_table, output_width, plain_text, wrap_notes
from compliance.formats.words import plain
from submission.results.cost_model.model import read_workloads
from submission.results.operations import Operations, read_operations
from submission.results.quantity_tables import number
from submission.results.rows import NoResultsError, read_logs

# -- formats -----------------------------------------------------------------------------------------------

SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""
UNITS: Final = "on the units of the run (of a throughput result: of one instance)"
GIGA, TERA = 1e9, 1e12
CONVENTION: Final = (
    "FLOP: 1 multiply-add = 2, of convolutions and products alone, counted from the reference model at full size "
    "(submission/results/cost_model/workloads.yaml); an open result may have trained another model"
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
COLUMNS: Final = (
    Column[Operations]("samples", "trained", lambda cost: "" if cost.samples is None else plain(cost.samples)),
    Column[Operations]("T_train", "min", lambda cost: number(cost.train_minutes)),
    Column[Operations]("training", "TFLOPS", lambda cost: _format_tera(cost.flops)),
    Column[Operations]("sustained", "TFLOPS", lambda cost: _format_tera(cost.sustained_flops)),
    Column[Operations]("quality", "", lambda cost: number(cost.quality)),
    Column[Operations]("target", "", lambda cost: "" if cost.target is None else f"{cost.target:g}"),
    Column[Operations]("n", "", lambda cost: "" if cost.n is None else f"{cost.n:g}"),
    Column[Operations]("valid", "TFLOPS", lambda cost: _format_tera(cost.vflops)),
    Column[Operations]("no number because", "", lambda cost: cost.reason, numeric=False),
)
"""The columns beside the name of the log."""


def format_table(costs: Sequence[Operations], width: int | None = None) -> str:
    """Return the table and its notes in lines of at most `width` characters; None: nothing is cut."""
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(cost.log)) for cost in costs])
    log = Column[Operations]("log", "", lambda cost: clean(os.path.relpath(cost.log, folder)), numeric=False)
    title = f"FLOPS of runs below {clean(folder)}: floating point operations per second, {UNITS}"
    table = make_table(title, (log, *COLUMNS), costs, [_name_group(cost) for cost in costs]).without_empty()
    remarks = sorted({note for cost in costs if (note := explain_cost(cost))})
    return f"{plain_text(table, width)}\n\n{wrap_notes((*NOTES, *remarks), width)}\n"


def format_json(costs: Sequence[Operations], _: int | None = None) -> str:
    """Return all fields as JSON, with a note; units are in their names or in the docstring of Operations."""
    runs = [asdict(cost) | {"note": explain_cost(cost)} for cost in costs]
    return json_text({"schema": SCHEMA, "version": VERSION, "convention": CONVENTION, "runs": runs})


def format_csv(costs: Sequence[Operations], _: int | None = None) -> str:
    """Return all fields as CSV with a note, a line for each log."""
    return csv_records([asdict(cost) | {"note": explain_cost(cost)} for cost in costs])


FORMATS: Final = {"table": format_table, "csv": format_csv, "json": format_json}


def explain_cost(cost: Operations) -> str:
    """Return what must be known to compare the numbers of a run, "" if they need no explanation."""
    return GRAPH_NOTE if cost.benchmark == "oc20" and cost.flops is not None else ""


def _format_tera(rate: float | None) -> str:
    return "" if rate is None else number(rate / TERA)


def _name_group(cost: Operations) -> str:
    """Return the heading above the rows of a benchmark, with the FLOP of a sample if they are known."""
    name = f"{clean(cost.benchmark) or 'unknown benchmark'}{' (mini)' if cost.mini else ''}, round {cost.round}"
    if cost.training_flop is None or cost.forward_flop is None:
        return name
    giga = [number(flop / GIGA) for flop in (cost.training_flop, cost.forward_flop)]
    return f"{name}: {giga[0]} GFLOP for a sample trained, {giga[1]} evaluated"


# -- the command -------------------------------------------------------------------------------------------

MOST_N: Final = 100.0
DESCRIPTION: Final = "Show the FLOPS of runs: over the training time, sustained, and by the quality that was reached."
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser("python -m submission.cost", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("paths", nargs="+", metavar="LOGS", help="result log, folder of runs, or tree of results")
    add("--n", type=_parse_exponent, metavar="N", help="exponent of VFLOPS (default: 10 for deepcam, 5 for all others)")
    add_round_option(parser)
    add("--format", choices=tuple(FORMATS), default="table", help="default: table")
    arguments = parser.parse_args(argv)
    return run_command(lambda: _show_costs(arguments), (OSError, NoResultsError), NOTHING_WRITTEN)


def _parse_exponent(text: str) -> float:
    """Return the exponent that an argument names; an `argparse` type."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MOST_N:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_N:g}; found {text!r}")
    return number


def _show_costs(arguments: argparse.Namespace) -> int:
    options = Options(round=arguments.round, allow_mini=True, progress=sys.stderr.isatty(), details=True)
    costs = read_operations(read_logs(arguments.paths, options), read_workloads(), arguments.n)
    write_text(FORMATS[arguments.format](costs, output_width()), None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
