"""`python -m submission.round`: all time-to-train runs of a round, and a checked package and a report of them."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.command import CommandParser, UsageError, count, positive, run_command
from compliance.cli import add_rules_option
from compliance.model.finding import FAIL, INCOMPLETE
from submission.round.finish import PackageInputs
from submission.round.make import make_round
from submission.round.plan import BENCHMARKS, Series, quoted, read_plan
from submission.round.processes import ATTEMPTS, JobRunner
from submission.round.scheduler import SCHEDULERS, Cluster, emit

DESCRIPTION: Final = f"""\
Make all time-to-train runs of a round, each with a seed of its own, and a checked submission package of them.

  python -m submission.round --config mini                        the mini problems, here: hours on two cores
  python -m submission.round --config mini --runs 1               one run of each, for a look; the package is INCOMPLETE
  python -m submission.round --config mini --benchmarks cosmoflow --jobs 2
  python -m submission.round --config round.yaml -o runs/round-7  what round.yaml says (below)
  python -m submission.round --config closed --emit slurm > submit.sh     a script that submits the jobs on a cluster

Called again, it goes on: runs that are finished are never repeated. A run that did not meet its target is finished
too. A run that crashed is begun again with the same seed, up to {ATTEMPTS} times in a call; what it wrote stays in
`attempts`. To repeat a run, because you know that the machine was at fault, remove its folder and `package`."""
EPILOG: Final = """\
round.yaml has for each benchmark of the round the following; runs and overrides may be left out:
  cosmoflow: {config: gbs32, runs: 10, overrides: [data.data_dir=/data/cosmoflow]}

In the folder of the round: round.json (seeds, and how runs ended), BENCHMARK/run_0, run_1 … with log and output.txt,
BENCHMARK/attempts, package/ (complete systems/SYSTEM.json in it, and call again), report.html.

exit status: 0 the package passes the check, missing runs aside; 1 it does not, or there was an error; 2 wrong use;
130 interrupted: call again to go on"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    given = _parser().parse_args(arguments)
    return run_command(lambda: _emit(given) if given.emit else _round(given, arguments), (ValueError, OSError))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m submission.round",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    what = parser.add_argument_group("what is run")
    what.add_argument("--config", required=True, metavar="mini|closed|FILE", help="configurations of the benchmarks")
    what.add_argument("--benchmarks", nargs="+", choices=BENCHMARKS, default=[], help="only these")
    what.add_argument("--runs", type=positive, help="of each benchmark (default: as many as the rules want)")
    what.add_argument("--set", action="append", default=[], metavar="a.b=v", help="a value for all configurations")
    what.add_argument("--data", type=Path, metavar="DIR", help="where the folders with the data are, or are made")
    where = parser.add_argument_group("where and how")
    where.add_argument("-o", "--output", type=Path, default=Path("runs/round"), help="default: runs/round")
    where.add_argument("--jobs", type=positive, default=1, help="runs at a time (default: 1)")
    where.add_argument("--threads", type=positive, default=0, help="of each run (default: its share of the cores)")
    who = parser.add_argument_group("who submits")
    who.add_argument("--organisation", metavar="NAME", help="default: as the configurations say")
    who.add_argument("--system", type=Path, metavar="FILE", help="system description (default: made here)")
    who.add_argument("--sources", type=Path, metavar="DIR", help="a checkout of the suite (default: this suite)")
    add_rules_option(parser.add_argument_group("check of the package"))
    cluster = parser.add_argument_group("scripts for a cluster, instead of runs")
    cluster.add_argument("--emit", choices=SCHEDULERS, help="print a script that submits or makes the runs")
    cluster.add_argument("--nodes", type=positive, default=1, help="of a run (default: 1)")
    cluster.add_argument("--ranks-per-node", type=positive, default=1, help="default: 1")
    cluster.add_argument("--gpus-per-node", type=count, default=0, help="default: 0")
    cluster.add_argument("--time", default="04:00:00", metavar="HH:MM:SS", help="limit of a job (default: 04:00:00)")
    cluster.add_argument("--container", metavar="FILE", help="image.sif (Apptainer), or image.sqsh (enroot, on Slurm)")
    return parser


def _plan(given: argparse.Namespace) -> list[Series]:
    plan = read_plan(given.config, given.benchmarks, given.runs)
    names = [f"submission.org={quoted(given.organisation)}"] if given.organisation else []
    names += [f"submission.platform={quoted(given.system.stem)}"] if given.system else []
    return [series.set(*names, *given.set) for series in plan]


def _emit(given: argparse.Namespace) -> int:
    if given.data:
        raise UsageError("--data is for runs made here; in a script the overrides of round.yaml say data.data_dir")
    cluster = Cluster(
        scheduler=given.emit,
        nodes=given.nodes,
        ranks_per_node=given.ranks_per_node,
        gpus_per_node=given.gpus_per_node,
        time=given.time,
        container=given.container or "",
    )
    print(emit(_plan(given), cluster, given.output, PackageInputs(given.system, given.sources)), end="")
    return 0


def _round(given: argparse.Namespace, arguments: Sequence[str]) -> int:
    if given.system and not given.system.is_file():
        raise UsageError(f"--system {given.system}: there is no such file")
    if given.sources and not given.sources.is_dir():
        raise UsageError(f"--sources {given.sources}: there is no such folder")
    inputs = PackageInputs(given.system, given.sources)
    plan = _plan(given)  # before there is a folder: what is wrong use leaves nothing
    # A batch system ends jobs with SIGTERM: the runs that are under way must end with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    verdict = make_round(plan, given.output, JobRunner(given.jobs, given.threads), given.data, inputs)
    if verdict == INCOMPLETE:
        print(f"run the rest with: {_again(arguments)}", flush=True)
    return 1 if verdict == FAIL else 0


def _again(arguments: Sequence[str]) -> str:
    """Return the command that makes all runs that are missing: this one without --runs."""
    words, kept = iter(arguments), []
    for word in words:
        if word == "--runs":
            next(words)
        elif not word.startswith("--runs="):
            kept.append(word)
    return shlex.join(["python", "-m", "submission.round", *kept])


if __name__ == "__main__":
    sys.exit(main())
