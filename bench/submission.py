"""Measures checking, scoring, summarising, reporting and analysing all published rounds, against the official pair.

    python bench/submission.py                             everything (about four minutes, most of it theirs)
    python bench/submission.py --quick                     the packages of one round, once: does it work?
    python bench/submission.py --keep                      also keep the record

Each of our commands gets the tree of all rounds at once. The official package checker and result summarizer take one
package each; they write into it, so they get a copy. They make no report and no analysis. CPU seconds are user + system
time of the commands with all their processes, imports included, from wait4; the median of the runs counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from checker import COMPILED, ROOT, extract
from checker_measures import ROUNDS, Work, packages, run, theirs_packages
from machine import about, describe_machine
from records import add_keep_option, keep_record

GOAL_S = 15.0
ANALYSIS_GOAL_S, ANALYSIS_GOAL_BYTES = 8.0, 200e6
QUICK_ROUND = ROUNDS[-1]
COMMANDS = {
    "check": ("compliance.check", "-o", "check.txt"),
    "summary": ("submission.summary", "--format", "json", "-o", "summary.json"),
    "report": ("submission.report", "-o", "report.html"),
    "analysis": ("submission.report", "--project", "1024,4096", "--data", "analysis"),
}
"""Module, options and output of each of our commands; they write into a fresh folder."""
WHAT = {
    "check": "checked and scored: `compliance.check`",
    "summary": "scored again and put into tables: `submission.summary`",
    "report": "shown as one page: `submission.report`",
    "analysis": "analysed, with figures, fits and projections: `submission.report --data`",
}
SCORED = ("check", "summary", "report")
"""What the official pair does too, but for the page."""
MAY_FAIL = ("check",)
"""Exit with 1 because some published results break rules."""


def ours(name: str, corpus: Path, folder: Path) -> dict[str, float]:
    """Return what one of our commands took for the whole tree; it must have worked."""
    module, *options = COMMANDS[name]
    errors = folder / "errors.txt"
    begin = time.perf_counter()
    with errors.open("wb") as file:
        command = [sys.executable, "-m", module, str(corpus), *options]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=file)
        _, status, use = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    output = folder / options[-1]
    size = sum(path.stat().st_size for path in (output.iterdir() if output.is_dir() else [output]))
    if code not in ((0, 1) if name in MAY_FAIL else (0,)) or not size:
        sys.exit(f"python -m {module} ended with exit status {code}:\n{errors.read_text(errors='replace')[-2000:]}")
    return {
        "cpu_s": use.ru_utime + use.ru_stime,
        "wall_s": time.perf_counter() - begin,
        "output_bytes": size,
        "most_memory_bytes": use.ru_maxrss * 1024,
    }


def measure(work: Work, runs: int, official_runs: int) -> dict[str, Any]:
    """Return the medians of our commands and of the official pair, which take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (*COMMANDS, "official")}
    for turn in range(max(runs, official_runs)):
        for name, results in found.items():
            if turn >= (official_runs if name == "official" else runs):
                continue
            print(f"{turn + 1:3} {name:10}", end="", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=work.scratch) as folder:
                one = theirs_packages(work) if name == "official" else ours(name, work.corpus, Path(folder))
            results.append(one)
            print(f"{one['cpu_s']:9.2f} s CPU {one['wall_s']:9.2f} s", file=sys.stderr)
    return {
        name: {key: median(one[key] for one in results) for key in results[0]}
        | {"cpu_s_of_runs": [one["cpu_s"] for one in results]}
        for name, results in found.items()
    }


def analysis_met(results: dict[str, Any]) -> bool:
    """Return whether the analysis is within its goals."""
    found = results["analysis"]
    return found["cpu_s"] <= ANALYSIS_GOAL_S and found["most_memory_bytes"] <= ANALYSIS_GOAL_BYTES


def page(results: dict[str, Any], machine: dict[str, Any], corpus: dict[str, int]) -> str:
    """Return the Markdown page."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    total, theirs = sum(results[name]["cpu_s"] for name in SCORED), results["official"]["cpu_s"]
    elapsed = sum(results[name]["wall_s"] for name in SCORED)
    goal = f"goal: below {GOAL_S:.0f} s CPU: {'met' if total < GOAL_S else '**missed**'}"
    pair = "the official pair, package by package: `package_checker`, `result_summarizer`; no report"
    rows = [
        f"| {WHAT[name]} | {results[name]['cpu_s']:.2f} s | {results[name]['wall_s']:.2f} s "
        f"| {results[name]['output_bytes'] / 1e3:.0f} kB | {results[name]['most_memory_bytes'] / 1e6:.0f} MB |"
        for name in COMMANDS
    ]
    lines = [
        "# Performance of check, summary, report and analysis",
        "",
        f"Measured by `bench/submission.py` on {describe_machine(machine)}, "
        f"{versions}. The load average was {machine['load']:.1f} when it began, from other work.",
        f"Published results: {corpus['packages']} packages with {corpus['logs']} logs. Each of our commands is called "
        "once for all of them. CPU seconds are user + system of all processes of a command; medians of runs.",
        "",
        "| all packages | CPU | elapsed | output | memory of the largest process |",
        "|---|---:|---:|---:|---:|",
        *rows,
        f"| the first three; {goal} | {total:.2f} s | {elapsed:.2f} s | | |",
        f"| {pair} | {theirs:.2f} s | {results['official']['wall_s']:.2f} s | | |",
        f"| ratio | {theirs / total:.1f} times less CPU | | | |",
        "",
        f"Goal of the analysis: at most {ANALYSIS_GOAL_S:.0f} s CPU and {ANALYSIS_GOAL_BYTES / 1e6:.0f} MB: "
        f"{'met' if analysis_met(results) else '**missed**'}. The official tools have none.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print the page; exit 1 if the goal is missed."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-submission-") as name:
        folder = Path(name)
        work = Work(folder / "corpus", folder / "scratch")
        work.scratch.mkdir()
        extract(given.corpus, work.corpus)
        if given.quick:
            work = _one_round(work, folder)
        # Both sides start from compiled files, as installed packages do; nothing is written beside the sources.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.update(PYTHONPYCACHEPREFIX=str(folder / "pycache"), PYTHONPATH=str(ROOT))
        for modules in (*COMPILED, "submission.summary, submission.report"):
            run(["-c", f"import {modules}"], work.scratch)
        machine = about()
        machine["versions"] = {name: version(name) for name in ("mlperf-hpc-suite", "mlperf-logging", "msgspec")}
        corpus = {
            "packages": len(list(packages(work.corpus))),
            "logs": sum(1 for _ in work.corpus.glob("*/*/results/**/result_*.txt")),
        }
        results = measure(work, *((1, 1) if given.quick else (given.runs, given.official_runs)))
    print(page(results, machine, corpus))
    if given.keep:
        keep_record("submission", {**machine, "corpus": corpus, "results": results})
    met = sum(results[name]["cpu_s"] for name in SCORED) < GOAL_S and analysis_met(results)
    return 0 if met else 1


def _one_round(work: Work, folder: Path) -> Work:
    """Return the work with the packages of one round only; the folders of the others are there, and empty."""
    small = Work(folder / "one-round", work.scratch)
    for path in sorted(work.corpus.iterdir()):
        (small.corpus / path.name).mkdir(parents=True)
    (small.corpus / f"v{QUICK_ROUND}").rmdir()
    (work.corpus / f"v{QUICK_ROUND}").rename(small.corpus / f"v{QUICK_ROUND}")
    return small


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = ROOT.parent / "shared" / "corpus"
    parser.add_argument(
        "--corpus", type=Path, default=beside, help="folder of the archives (default: ../shared/corpus)"
    )
    parser.add_argument("--quick", action="store_true", help=f"only the packages of round {QUICK_ROUND}, once")
    parser.add_argument("--runs", type=int, default=3, help="runs of our commands (default: 3)")
    parser.add_argument("--official-runs", type=int, default=1, help="runs of the official pair, three minutes each")
    add_keep_option(parser)
    given = parser.parse_args()
    if given.quick and given.keep:
        parser.error("--quick measures one round only, too few for a record; omit --keep")
    if min(given.runs, given.official_runs) < 1:
        parser.error("--runs and --official-runs: expected at least 1")
    return given


if __name__ == "__main__":
    sys.exit(main())
