"""The command `python -m submission.round`: train all runs of a round, or print job scripts; then package and check."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.command import CommandParser, as_called, clean, positive, run_command
from common.console import print_warning
from common.errors import UsageError
from compliance.cli import add_rules_option
from compliance.model.judging import FAIL, INCOMPLETE
from submission.round.make import RoundInputs, make_round, make_throughput, render_round
from submission.round.plan import Series, check_series, read_plan
from submission.runs.processes import ATTEMPTS, JobRunner, check_trainer, interrupt_by_signals, quote_yaml
from submission.runs.scripts.cluster import add_cluster_options, read_cluster

DESCRIPTION: Final = f"""\
Train all time-to-train runs of a round, each with its own seed, and build a checked submission package from them.

  python -m submission.round --config mini                        the mini problems on this machine: hours on two cores
  python -m submission.round --config mini --runs 1               a quick trial: one run each; the package is INCOMPLETE
  python -m submission.round --config mini --benchmarks cosmoflow --jobs 2
  python -m submission.round --config gbs32 --benchmarks cosmoflow      a preset of a benchmark
  python -m submission.round --config round.yaml -o runs/round-7  benchmarks and runs as in round.yaml (see below)
  python -m submission.round --config closed --emit slurm > submit.sh     a script that submits the jobs on a cluster
  python -m submission.round --config closed --emit slurm --site perlmutter --nodes 16 > submit.sh
  python -m submission.round --config mini --benchmarks cosmoflow --throughput 16 --jobs 2
                                                                  a throughput result: 16 instances, two at a time
  python -m submission.round --config closed --emit slurm --nodes 16 --throughput 4 > submit.sh
                                                                  on a cluster: 4 at a time, on 4 nodes each

Call it again to resume: finished runs are never repeated, and a run that missed its target counts as finished.
A run that crashed is restarted with the same seed, up to {ATTEMPTS} attempts per call; the output of failed attempts
is kept in `attempts`. To repeat a run because the machine was at fault, remove its folder and `package`."""
EPILOG: Final = """\
round.yaml has one entry for each benchmark of the round; runs and overrides are optional:
  cosmoflow: {config: gbs32, runs: 10, overrides: [data.data_dir=/data/cosmoflow]}

The folder of the round contains BENCHMARK/run_0, run_1, ... (run.json with the seed, log and output),
BENCHMARK/attempts, BENCHMARK/throughput/instance_0, instance_1, ..., package/ and report.html. Complete
package/*/systems/SYSTEM.json, then call the command again."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    options = _make_parser().parse_args(arguments)

    def run() -> int:
        if options.throughput and options.runs:
            raise UsageError("--throughput is one result of all instances: leave out --runs")
        if options.instance_ranks and not options.throughput:
            raise UsageError("--instance-ranks needs --throughput M")
        return _print_script(options) if options.emit else _run_round(options, arguments)

    again = clean(as_called(f"python -m submission.round {shlex.join(arguments)}"))
    return run_command(run, (ValueError, OSError), "" if options.emit else f"`{again}` continues")


def _make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "python -m submission.round",
        description=DESCRIPTION,
        epilog=EPILOG,
        statuses={
            0: "the package passes the check, except for missing runs",
            1: "it fails, or there was an error",
            130: "interrupted: call again to resume",
        },
    )
    add = parser.add_argument_group("what to run").add_argument
    add("--config", metavar="mini|closed|PRESET|FILE", help="configurations of the benchmarks")
    add("--benchmarks", nargs="+", metavar="NAME", default=[], help="only these")
    add("--runs", type=positive, help="runs per benchmark (default: as many as the rules require)")
    add(
        "--throughput",
        type=positive,
        metavar="M",
        help="train M instances as one throughput result, instead of runs; with --emit slurm all at once, each on "
        "nodes of its own",
    )
    add(
        "--instance-ranks", type=positive, metavar="S", help="ranks of each instance (default: 1; with --emit, all / M)"
    )
    add("--set", action="append", default=[], metavar="a.b=v", help="a setting for all configurations")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="parent folder of the datasets, made if missing; the command generates missing mini data",
    )
    add = parser.add_argument_group("where and how").add_argument
    add("-o", "--output", type=Path, default=Path("runs/round"), help="default: runs/round")
    add("--jobs", type=positive, default=1, help="concurrent runs or instances (default: 1)")
    add("--threads", type=positive, default=0, help="CPU threads per run (default: equal shares)")
    add = parser.add_argument_group("submitter").add_argument
    add("--organisation", metavar="NAME", help="default: submission.org of the configurations")
    add("--system", type=Path, metavar="FILE", help="system description (default: describe this machine)")
    add("--sources", type=Path, metavar="DIR", help="a checkout of the suite (default: this suite)")
    add_rules_option(parser.add_argument_group("check of the package"))
    add_cluster_options(parser).add_argument("--nodes", type=positive, default=1, help="nodes per run (default: 1)")
    return parser


def _plan_series(options: argparse.Namespace) -> list[Series]:
    if options.config is None:
        raise UsageError(
            "--config is missing: mini, closed, a preset or a file, as in "
            "`python -m submission.round --config mini --benchmarks cosmoflow`"
        )
    plan = read_plan(options.config, options.benchmarks, options.runs)
    names = [f"submission.org={quote_yaml(options.organisation)}"] if options.organisation else []
    names += [f"submission.platform={quote_yaml(options.system.stem)}"] if options.system else []
    plan = [series.set(*names, *options.set) for series in plan]
    for series in plan:
        check_series(series, bool(options.throughput))
    return plan


def _print_script(options: argparse.Namespace) -> int:
    if options.data:
        raise UsageError(
            "--data is for runs on this machine; with --emit, set data.data_dir in the overrides of round.yaml"
        )
    cluster = read_cluster(options)
    ranks, instances = options.nodes * cluster.ranks_per_node, options.throughput or 0
    if options.instance_ranks and options.instance_ranks * instances != ranks:
        raise UsageError(
            f"--instance-ranks {options.instance_ranks}: {instances} instances do not fill {options.nodes} nodes of "
            f"{cluster.ranks_per_node} ranks, {ranks} in all; change --nodes, or leave it out for equal shares"
        )
    inputs = RoundInputs(system=options.system, sources=options.sources, instances=instances)
    print(render_round(_plan_series(options), cluster, options.nodes, options.output, inputs), end="")
    if cluster.site.problem:
        print_warning(f"--site {options.site}: {cluster.site.problem}")
    return 0


def _run_round(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    if options.site:
        raise UsageError("--site is for --emit: it describes jobs on a cluster")
    if options.system and not options.system.is_file():
        raise UsageError(f"--system {options.system}: no such file")
    if options.sources and not options.sources.is_dir():
        raise UsageError(f"--sources {options.sources}: no such folder")
    instances, ranks = options.throughput or 0, options.instance_ranks or 1
    inputs = RoundInputs(options.data, options.system, options.sources, instances, ranks)
    plan = _plan_series(options)  # before the folder is created: wrong use leaves nothing behind
    for series in plan:
        check_trainer(series.benchmark)
    interrupt_by_signals()
    runner = JobRunner(options.jobs, options.threads)
    make = make_throughput if instances else make_round
    verdict = make(plan, options.output, runner, inputs)
    if verdict == INCOMPLETE and not instances:
        print(f"run the missing runs with: {_format_full_command(arguments)}", flush=True)
    return 1 if verdict == FAIL else 0


def _format_full_command(arguments: Sequence[str]) -> str:
    """Return the command that trains all missing runs: this call without --runs."""
    words = zip(("", *arguments), arguments, strict=False)
    kept = [word for before, word in words if "--runs" not in (before, word) and not word.startswith("--runs=")]
    return as_called(shlex.join(["python", "-m", "submission.round", *kept]))


if __name__ == "__main__":
    sys.exit(main())
