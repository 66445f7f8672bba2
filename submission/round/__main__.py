"""`python -m submission.round`: all time-to-train runs of a round, and a checked package and a report of them."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from common.command import UsageError, count, positive, run_command
from common.files import whole_file
from common.reference import MINI
from submission.report.__main__ import NotOurs
from submission.round.finish import Conclusion
from submission.round.plan import BENCHMARKS, Series, Setup, read_plan, resolve
from submission.round.processes import ATTEMPTS, Crew, LockedError, sole_worker
from submission.round.runs import CONFIG, Runs
from submission.round.scheduler import SCHEDULERS, Cluster, emit
from submission.round.state import StateError, load_state

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
  cosmoflow: {config: cosmoflow/presets/gbs32.yaml, runs: 10, overrides: [data.data_dir=/data/cosmoflow]}

In the folder of the round: round.json (seeds, and how runs ended), BENCHMARK/run_0, run_1 … with log and output.txt,
BENCHMARK/attempts, package/ (complete systems/SYSTEM.json in it, and call again), report.html.

exit status: 0 the package passes the check, missing runs aside; 1 it does not, or there was an error; 2 wrong use;
130 interrupted: call again to go on"""
MANIFEST: Final = "manifest.json"
"""What is beside data that are complete; see common/datasets/manifest.py."""
USER_ERRORS: Final = (ValueError, OSError, LockedError, NotOurs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(argv)
    return run_command(lambda: _emit(given) if given.emit else _round(given), USER_ERRORS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m submission.round",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    names = [f"submission.org={_quoted(given.organisation)}"] if given.organisation else []
    names += [f"submission.platform={_quoted(given.system.stem)}"] if given.system else []
    return [series.set(*names, *given.set) for series in plan]


def _quoted(text: str) -> str:
    """Return the text as YAML that cannot be anything else than text."""
    return "'" + text.replace("'", "''") + "'"


def _emit(given: argparse.Namespace) -> int:
    """The script is printed; returns the exit status."""
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
    print(emit(_plan(given), cluster, given.output, given.system), end="")
    return 0


def _round(given: argparse.Namespace) -> int:
    """The round is made; returns the exit status."""
    if given.system and not given.system.is_file():
        raise UsageError(f"--system {given.system}: there is no such file")
    plan = _plan(given)  # before there is a folder: what is wrong use leaves nothing
    # A batch system ends jobs with SIGTERM: the runs that are under way must end with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with sole_worker(given.output) as lock:
        crew = Crew(given.jobs, given.threads, lock=lock)
        setups = [_located(resolve(series), given.data) for series in plan]
        conclusion = Conclusion(given.output, setups, given.system)
        state = load_state(given.output)
        for setup in setups:
            if setup.series.benchmark in state.runs:
                _check_same(given.output / setup.series.benchmark / CONFIG, setup.text)
        state.ask_for({setup.series.benchmark: setup.series.runs for setup in setups})
        for setup in setups:
            _keep(given.output / setup.series.benchmark / CONFIG, setup.text)
        state.save(given.output)
        for setup in setups:
            _provide(setup, crew)
        runs = Runs(given.output, state)
        runs.make(crew)
        return conclusion.write(runs)


def _located(setup: Setup, data: Path | None) -> Setup:
    """Return the setup with its data in a folder of this one, if it is given."""
    if data is None:
        return setup
    return resolve(setup.series.set(f"data.data_dir={_quoted(str(data / setup.data_dir.name))}"))


def _check_same(path: Path, text: str) -> None:
    """Raise StateError if another configuration is in the file: the runs of a result are alike."""
    for before, now in zip_longest(path.read_text().splitlines(), text.splitlines(), fillvalue=""):
        if before != now:
            raise StateError(
                f"{path} says `{before.strip()}`, and this call `{now.strip()}`: the runs of a round have the same "
                "configuration; restore it, or choose another folder"
            )


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(text)


def _provide(setup: Setup, crew: Crew) -> None:
    """The data of a mini problem are there: made now, by their benchmark, if they are not complete."""
    folder = setup.data_dir
    if setup.variant == MINI and not (folder / MANIFEST).exists():
        print(f"{setup.series.benchmark}: {folder} holds no data yet, they are made, once", flush=True)
        if crew.run([sys.executable, "-m", f"{setup.series.benchmark}.synthesize", str(folder)]):
            raise StateError(f"the data of {setup.series.benchmark} could not be made in {folder}: see above")


if __name__ == "__main__":
    sys.exit(main())
