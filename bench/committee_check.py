"""Measure the checker on logs of MLPerf Training against mlperf-logging, in the same run, and compare the verdicts.

    python bench/committee_check.py           the logs of ../shared/corpus/training_v4.1.tar.xz; a few minutes
    python bench/committee_check.py --keep    also keep the record

Both sides judge by the same rule files, those of the installed mlperf-logging: it runs them, the checker reads them.
CPU seconds are user + system time, from getrusage; each measurement runs in a separate process, on one core. In
process, they are without the imports, and logs that need a rule file which the checker refuses, as it imports a module,
are left out and counted. As commands, all logs are judged: the command of mlperf-logging takes one log, so there are as
many calls as logs; the checker takes the folder. Of this checker the median of several runs counts, of mlperf-logging
one run. Exit status 1: a verdict differs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import machine
from checker_measures import Clock
from numbers_table import Number
from records import ROOT, add_keep_option, keep_record

ROUND: Final = "4.1"
UNREADABLE: Final = "stable_diffusion"
"""The folder of the benchmark whose rule file imports a module."""
THEIRS: Final = "mlperf-logging"
WHAT: Final = {"strict": "both profiles", "official": "profile official"}
COMPILED: Final = "compliance.check, compliance.committee.facts, mlperf_logging.compliance_checker.mlp_compliance"
"""Modules to import once before anything is measured, so that Python has compiled them."""


# -- what is measured, each in a process of its own ----------------------------------------------------------


def list_logs(corpus: Path) -> list[str]:
    """Return the logs that both sides judge."""
    paths = sorted(map(str, corpus.glob("*/results/**/result_*.txt")))
    return [path for path in paths if f"/{UNREADABLE}/" not in path]


def measure_ours(corpus: Path, profile: str) -> dict[str, Any]:
    """Return the seconds, and which logs are valid; None for one that is not judged."""
    from compliance.engine import Options, check_paths

    paths = list_logs(corpus)
    clock = Clock()
    report = check_paths(paths, Options(profile=profile, usage="training", round=f"training-{ROUND}", jobs=1))
    seconds = clock.read()
    unjudged = {finding.path for finding in report.findings if finding.incomplete and finding.rule == "COM01"}
    valid = {run.path: None if run.path in unjudged else run.verdict != "FAIL" for run in report.runs}
    return {**seconds, "valid": [valid.get(path) for path in paths]}


def measure_theirs(corpus: Path) -> dict[str, Any]:
    """Return the seconds, and which logs are valid."""
    import logging

    from mlperf_logging.compliance_checker import mlp_compliance

    logging.disable(logging.CRITICAL)
    rules = f"training_{ROUND}.0/common.yaml"
    valid = []
    clock = Clock()
    for path in list_logs(corpus):
        checker = mlp_compliance.make_checker("training", f"{ROUND}.0", False, False)
        valid.append(bool(mlp_compliance.main(path, rules, checker)[0]))
    return {**clock.read(), "valid": valid}


def measure_commands(corpus: Path, ours: bool) -> dict[str, Any]:
    """Return the seconds of the commands that judge every log, also those that need a refused file."""
    logs = sorted(map(str, corpus.glob("*/results/**/result_*.txt")))
    one = ["compliance.check", "--no-config", "--profile", "official", "--jobs", "1", "--round", ROUND, str(corpus)]
    their = ["mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", f"{ROUND}.0", "--log_output"]
    commands = [one] if ours else [[*their, str(corpus / "output.log"), log] for log in logs]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": seconds, "wall_s": 0.0, "logs": len(logs)}


MEASURES: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {
    "strict": lambda corpus: measure_ours(corpus, "strict"),
    "official": lambda corpus: measure_ours(corpus, "official"),
    "theirs": measure_theirs,
    "our_command": lambda corpus: measure_commands(corpus, ours=True),
    "their_commands": lambda corpus: measure_commands(corpus, ours=False),
}


# -- the command ---------------------------------------------------------------------------------------------


def run_measure(name: str, corpus: Path) -> dict[str, Any]:
    """Return what a measurement gives in a fresh process."""
    command = [sys.executable, __file__, "--measure", name, "--corpus", str(corpus)]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    print(f"{name:10}{found['cpu_s']:9.3f} s CPU {found['wall_s']:9.3f} s", file=sys.stderr)
    return found


def measure_all(archive: Path, runs: int) -> dict[str, Any]:
    """Return the seconds of each side, and how many verdicts agree."""
    with tempfile.TemporaryDirectory(prefix="bench-committee-") as folder:
        corpus = Path(folder, "corpus")
        with tarfile.open(archive) as tar:
            tar.extractall(corpus, filter="data")
        # Both sides start from compiled files, as installed packages do; nothing is written beside the sources.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.update(PYTHONPYCACHEPREFIX=str(Path(folder, "pycache")), PYTHONPATH=str(ROOT))
        subprocess.run([sys.executable, "-c", f"import {COMPILED}"], check=True)
        found = {
            name: [run_measure(name, corpus) for _ in range(runs)] for name in ("strict", "official", "our_command")
        }
        theirs, commands = run_measure("theirs", corpus), run_measure("their_commands", corpus)
        logs, every = len(theirs["valid"]), len(list(corpus.glob("*/results/**/result_*.txt")))
    seconds = {name: [one["cpu_s"] for one in of_name] for name, of_name in found.items()}
    ours = found["official"][0]["valid"]
    return {
        "logs": logs,
        "left_out": every - logs,
        "equal": sum(one == other for one, other in zip(ours, theirs["valid"], strict=True)),
        "valid": sum(theirs["valid"]),
        **{name: {"cpu_s": median(times), "cpu_s_of_runs": times} for name, times in seconds.items()},
        "theirs": {"cpu_s": theirs["cpu_s"]},
        "their_commands": {"cpu_s": commands["cpu_s"], "logs": commands["logs"]},
    }


def list_numbers(results: dict[str, Any]) -> Iterator[Number]:
    """Yield the rows of the page of numbers."""
    what = f"{results['logs']:,} logs of MLPerf Training v{ROUND} by the committee's rule files, in process, one core"
    for name, profile in WHAT.items():
        ours, theirs = results[name]["cpu_s"], results["theirs"]["cpu_s"]
        yield Number(
            f"{what}, {profile}",
            f"{ours:.3f} s",
            f"{THEIRS} {theirs:.2f} s",
            f"{theirs / ours:.1f}",
        )
    ours, theirs = results["our_command"]["cpu_s"], results["their_commands"]["cpu_s"]
    number = results["their_commands"]["logs"]
    yield Number(
        f"{number:,} logs of MLPerf Training v{ROUND}, one command, profile official; peer: a command for each log",
        f"{ours:.2f} s",
        f"{THEIRS} {theirs:.1f} s",
        f"{theirs / ours:.1f}",
    )
    goal = "" if results["equal"] == results["logs"] else "all"
    yield Number("these logs with the same verdict", f"{results['equal']:,} of {results['logs']:,}", goal=goal)
    yield Number("logs left out: their rule file imports a module", f"{results['left_out']}")


def main() -> int:
    """Measure, print the numbers; exit 1 if a verdict differs."""
    given = parse_arguments()
    if given.measure:
        sys.path.insert(0, str(ROOT))  # before this folder, which has names of packages
        json.dump(MEASURES[given.measure](given.corpus), sys.stdout)
        return 0
    about = machine.about()
    about["versions"] = {name: version(name) for name in ("mlperf-hpc-suite", "mlperf-logging", "msgspec")}
    results = measure_all(given.corpus / f"training_v{ROUND}.tar.xz", given.runs)
    for number in list_numbers(results):
        print(" | ".join(filter(None, (number.what, number.value, number.peer, number.ratio))))
    if given.keep:
        keep_record("committee", {**about, "results": results})
    return 0 if results["equal"] == results["logs"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = ROOT.parent / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=beside, help="folder of the archive (default: ../shared/corpus)")
    parser.add_argument("--runs", type=int, default=3, help="runs of this checker (default: 3)")
    add_keep_option(parser)
    parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
    given: argparse.Namespace = parser.parse_args()
    return given


if __name__ == "__main__":
    sys.exit(main())
