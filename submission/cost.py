"""The command `python -m submission.cost`: the operations of runs per second.

They follow from the counted operations of the reference model and the times of a log. FLOPS over the training time:
those of HPC AI500 V3.0 (TBench 2, 2022, 100083), equation 6, training FLOP of a sample * samples trained / T_train.
Sustained: training and evaluation over the time from run_start to run_stop. VFLOPS: FLOPS * (achieved / target)^n, with
target / achieved where lower is better. Terms of time and samples: see `submission.results.quantities`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from common.command import NOTHING_WRITTEN, CommandParser, clean, run_command
from common.reference import Target
from common.values import is_number
from common.version import VERSION
from compliance.benchmarks import reference_of
from compliance.cli import add_round_option, write_text
from compliance.engine.options import Options
from compliance.formats.json import json_text
from compliance.formats.table import Column, csv_records, make_table, output_width, plain_text, wrap_notes
from compliance.formats.words import plain
from compliance.model.judged_run import JudgedRun
from compliance.model.report import Report
from submission.results.cost_model.model import Workload, read_workloads, workload_of
from submission.results.quantities import RUN_TIME, SAMPLES, evaluated_samples, quantities
from submission.results.quantity_tables import number
from submission.results.rows import NoResultsError, read_logs
from submission.results.sets import unmeasured

EXPONENTS: Final = {"deepcam": 10.0}
"""The n of VFLOPS: 10 for Extreme Weather in HPC AI500, whose counterpart DeepCAM is."""
N: Final = 5.0
"""The n of all other benchmarks: that of Image Classification."""
GRAPH: Final = ("atoms", "edges", "triplets")
"""What the operations of a graph depend on; `sample_means` of a log of this suite states them."""
LARGEST_MEAN: Final = 1e9
TRAINING: Final = 3
"""Operations of training on a graph by those of its energy and forces."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of the run of one log; None where `reason` says why a number is missing.

    workload: name in workloads.yaml. training_flop, forward_flop: of one sample. samples: trained up to the last
    evaluation; evaluated: in all evaluations. train_minutes: T_train; run_minutes: from run_start to run_stop.
    quality: of the last evaluation; n: exponent of VFLOPS. flops, sustained_flops, vflops: per second.
    """

    log: str
    round: str
    benchmark: str
    mini: bool
    workload: str = ""
    training_flop: float | None = None
    forward_flop: float | None = None
    samples: float | None = None
    evaluated: float | None = None
    train_minutes: float | None = None
    run_minutes: float | None = None
    quality: float | None = None
    target: float | None = None
    n: float | None = None
    flops: float | None = None
    sustained_flops: float | None = None
    vflops: float | None = None
    reason: str = ""


def read_operations(report: Report, workloads: Mapping[str, Workload], n: float | None) -> list[Operations]:
    """Return the operations of each log of a report with details, by round, benchmark and path.

    n: exponent of VFLOPS, None for that of the benchmark. Raises NoResultsError if no file is a result log.
    """
    logs = [run for run in report.runs if run.submission or run.details.seconds]
    if not logs:
        raise NoResultsError("no result log found: expected files with :::MLLOG lines, or folders with result_*.txt")
    costs = [count_operations(run, workloads, n) for run in logs]
    return sorted(costs, key=lambda cost: (cost.round, cost.benchmark, cost.mini, cost.log))


def count_operations(run: JudgedRun, workloads: Mapping[str, Workload], n: float | None) -> Operations:
    """Return the operations of the run of one log."""
    benchmark = run.benchmark or ""
    empty = Operations(run.path, run.round, benchmark, run.mini)
    reference, workload = reference_of(benchmark, run.variant), workload_of(benchmark, run.round, workloads)
    reason = _explain_uncounted(run, workload)
    if reason or reference is None:
        return replace(empty, reason=reason)
    cost = _size_workload(workloads[workload], run)
    if cost is None:
        return replace(empty, reason="edges not logged")
    known = replace(empty, workload=workload, training_flop=cost.training_flop, forward_flop=cost.forward_flop)
    if reason := unmeasured(run):
        return replace(known, reason=reason)
    found = quantities(run, reference, None)
    samples, train = found.get(SAMPLES, 0.0), found.get("run_train_time", 0.0)
    evaluated = evaluated_samples(run) or 0.0
    if reason := _explain_unrated(samples, evaluated, train):
        return replace(known, reason=reason)
    quality, target, exponent = run.details.evaluations[-1].value, reference.target, n or EXPONENTS.get(benchmark, N)
    training, share = cost.training_flop * samples, find_valid_share(target, quality, exponent)
    flops = training / (60 * train)
    return replace(
        known,
        samples=samples,
        evaluated=evaluated,
        train_minutes=train,
        run_minutes=found[RUN_TIME],
        quality=quality,
        target=target.value,
        n=exponent,
        flops=flops,
        sustained_flops=(training + cost.forward_flop * evaluated) / (60 * found[RUN_TIME]),
        vflops=None if share is None else flops * share,
        reason="no VFLOPS: the quality has no ratio to the target" if share is None else "",
    )


def _explain_uncounted(run: JudgedRun, workload: str) -> str:
    """Return why the operations of a sample are unknown, "" if they are known."""
    if run.benchmark is None:
        return "no benchmark of this round is named in submission_benchmark"
    if run.mini:
        return "mini problem: its operations are not counted"
    return "" if workload else f"operations of {run.benchmark} are not counted"


def _size_workload(cost: Workload, run: JudgedRun) -> Workload | None:
    """Return the workload with the operations of the run's mean sample, None if they depend on what is not logged."""
    each = (cost.atom_flop, cost.edge_flop, cost.triplet_flop)
    means: list[Any] = [run.details.sample_means.get(name) for name in GRAPH]
    if None in each:
        return cost
    if not all(is_number(mean) and 0 < mean < LARGEST_MEAN for mean in means):
        return None
    forward = sum(flop * mean for flop, mean in zip(each, means, strict=True) if flop and mean)
    return replace(cost, forward_flop=forward, training_flop=TRAINING * forward)


def _explain_unrated(samples: float, evaluated: float, train_minutes: float) -> str:
    """Return what of the samples and their times a log does not give, "" if it gives all."""
    if samples <= 0:
        return "samples unknown: train_samples or epoch_num of the last evaluation is missing"
    if evaluated <= 0:
        return "evaluation unknown: eval_start, eval_stop or eval_samples is missing"
    return "" if train_minutes > 0 else "no training time: the epochs take no longer than their evaluations"


def find_valid_share(target: Target, quality: float, n: float) -> float | None:
    """Return VFLOPS / FLOPS, above 1 if the quality is better than the target; None where it is not above 0, or near.

    n: exponent of the ratio of both.
    """
    if quality <= 0:
        return None
    try:
        share = math.pow(target.value / quality if target.lower_is_better else quality / target.value, n)
    except OverflowError:
        return None
    return share if math.isfinite(share) else None


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
