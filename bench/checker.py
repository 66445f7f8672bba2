"""Measure the checker against mlperf-logging, in the same run on the same published logs.

    python bench/checker.py                      all measurements (about six minutes)
    python bench/checker.py --only logs,single   some of them
    python bench/checker.py --earlier DIR        also the checker of another checkout, by turns with this one
    python bench/checker.py --keep               also keep the record

CPU seconds are user + system time including child processes, from getrusage, without the imports where the
description says "in process". Each measurement runs in a separate process; the two sides take turns, and the
median counts. The official commands write into the package that they check, so they get a copy of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import machine
from checker_measures import MEASURES, Work, run
from records import add_keep_option, keep_record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # before this folder, which has a cosmoflow.py and more of such names
OURS, THEIRS = "this checker", "mlperf-logging"
COMPILED = (
    "compliance.check, compliance.rcp, compliance.formats.text, multiprocessing.pool",
    "mlperf_logging.compliance_checker.mlp_compliance, mlperf_logging.package_checker.package_checker",
    "mlperf_logging.result_summarizer.result_summarizer",
)
"""Modules to import once before anything is measured, so that Python has compiled them."""


def extract(archives: Path, folder: Path, kind: str = "published") -> None:
    found = sorted(archives.glob(f"{kind}_v*.tar.xz"))
    if not found:
        sys.exit(f"{archives} has no {kind}_v*.tar.xz; set the folder with --corpus")
    for archive in found:
        with tarfile.open(archive) as tar:
            tar.extractall(folder / archive.name.removeprefix(f"{kind}_").removesuffix(".tar.xz"), filter="data")


# -- running -------------------------------------------------------------------------------------------------


def measured(name: str, work: Work, turn: str) -> dict[str, Any]:
    """Return what the measurement gives in a fresh process; of `earlier_…` it is that of the other checkout."""
    print(f"{turn:8} {name:20}", end="", file=sys.stderr, flush=True)
    command = [
        sys.executable,
        __file__,
        "--measure",
        name.replace("earlier_", "ours_"),
        "--corpus",
        str(work.corpus),
        "--scratch",
        str(work.scratch),
    ]
    environment = os.environ | ({"PYTHONPATH": os.environ["EARLIER"]} if name.startswith("earlier_") else {})
    output = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout
    result: dict[str, Any] = json.loads(output)
    print(f"{result['cpu_s']:9.3f} s CPU {result['wall_s']:9.3f} s", file=sys.stderr)
    return result


def alternate(names: Iterable[str], runs: int, work: Work) -> dict[str, dict[str, Any]]:
    """Return the medians of the measurements, made by turns."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(runs):
        for name, found in results.items():
            found.append(measured(name, work, f"{turn + 1} of {runs}"))
    return {
        name: {key: median(one[key] for one in found) for key in found[0]}
        | {"cpu_s_of_runs": [one["cpu_s"] for one in found]}
        for name, found in results.items()
    }


GROUPS = {
    "logs": ("theirs_logs", "ours_logs", "ours_logs_official"),
    "packages": ("theirs_packages", "ours_packages"),
    "single": ("theirs_single", "ours_single"),
    "cores": ("one_job", "all_jobs"),
    "floor": ("decode_only", "ours_logs"),
    "earlier": ("earlier_logs", "ours_logs", "earlier_packages", "ours_packages", "earlier_single", "ours_single"),
    "memory": ("large_other", "large_kept", "large_text", "long_line"),
}


def measure_all(groups: list[str], work: Work, runs: int, package_runs: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each group the medians of its measurements."""
    for modules in COMPILED:
        run(["-c", f"import {modules}"], work.scratch)
    times = {"packages": package_runs, "single": 5 * runs, "earlier": 3 * runs, "memory": 1}
    return {group: alternate(GROUPS[group], times.get(group, runs), work) for group in groups}


# -- the table -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A line of the table: both sides, their ratio, and the goal that it is held against."""

    what: str
    theirs: str
    ours: str
    ratio: str = ""
    goal: str = ""
    met: bool = True


def rows(results: dict[str, dict[str, dict[str, Any]]]) -> Iterator[Row]:
    """Yield the lines for what was measured."""
    for group, found in results.items():
        yield from ROWS[group](found)


def _against(what: str, theirs: dict[str, Any], ours: dict[str, Any], least: float) -> Row:
    ratio = theirs["cpu_s"] / ours["cpu_s"]
    return Row(
        what, f"{theirs['cpu_s']:.2f} s", f"{ours['cpu_s']:.3f} s", f"{ratio:.1f}", f">= {least:.0f}", ratio >= least
    )


def _log_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    theirs, ours, official = (found[name] for name in GROUPS["logs"])
    what = f"{ours['count']:,.0f} logs of rounds 1.0 to 3.0, in process, one core"
    yield _against(f"{what}, both profiles", theirs, ours, 15)
    yield _against(f"{what}, profile official", theirs, official, 25)


def _package_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    theirs, ours = found["theirs_packages"], found["ours_packages"]
    what = f"{ours['count']:.0f} packages checked and scored, from the command line"
    yield _against(what, theirs, ours, 40)


def _single_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    theirs, ours = found["theirs_single"]["cpu_s"], found["ours_single"]["cpu_s"]
    what = "one small log, from the command line"
    yield Row(what, f"{theirs:.3f} s", f"{ours:.3f} s", f"{theirs / ours:.1f}", "<= 0.15 s", ours <= 0.15)


def _core_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    one, all_ = found["one_job"]["wall_s"], found["all_jobs"]["wall_s"]
    yield Row("these packages, elapsed, all cores and one process", "", f"{all_:.2f} s, {one:.2f} s")


def _floor_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    size = found["decode_only"]["bytes"]
    for name, what in (("decode_only", "decoded by msgspec, nothing checked"), ("ours_logs", "read and checked")):
        seconds = found[name]["cpu_s"]
        yield Row(f"orientation: these logs {what}", "", f"{seconds:.3f} s, {size / 1e6 / seconds:.0f} MB/s")


def _earlier_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    texts = {"logs": "these logs, in process", "packages": "these packages", "single": "one small log"}
    for name, what in texts.items():
        earlier, ours = found[f"earlier_{name}"]["cpu_s"], found[f"ours_{name}"]["cpu_s"]
        ratio = ours / earlier
        what = f"{what}, both profiles, beside the earlier checkout, which needs {earlier:.3f} s for strict"
        yield Row(what, "", f"{ours:.3f} s", f"{1 / ratio:.2f}", ">= 0.71", ratio <= 1.4)


def _memory_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    texts = {
        "large_other": "records of a key that no rule asks for",
        "large_kept": "records of a key that rules ask for",
        "large_text": "console output",
        "long_line": "one line",
    }
    for name, one in found.items():
        lines = f", {one['lines'] / 1e6:.1f} million lines" if one["lines"] else ""
        what = f"{one['bytes'] >> 20} MiB of {texts[name]}{lines}; peak memory"
        small = one["rss_mb"] < 200
        goal, met = ("< 2 s, < 200 MB", small and one["cpu_s"] < 2) if name == "long_line" else ("< 200 MB", small)
        yield Row(what, "", f"{one['cpu_s']:.2f} s, {one['rss_mb']:.0f} MB", "", goal, met)


ROWS: dict[str, Callable[[dict[str, dict[str, Any]]], Iterator[Row]]] = {
    "logs": _log_rows,
    "packages": _package_rows,
    "single": _single_rows,
    "cores": _core_rows,
    "floor": _floor_rows,
    "earlier": _earlier_rows,
    "memory": _memory_rows,
}


def table(results: dict[str, dict[str, dict[str, Any]]], about: dict[str, Any]) -> str:
    """Return the Markdown page."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        "# Performance of the checker",
        "",
        f"Measured by `bench/checker.py` on {machine.describe_machine(about)}, {versions}.",
        "Times are CPU seconds (user + system) unless said otherwise: medians of runs that take turns.",
        "",
        f"| what | {THEIRS} | {OURS} | times less CPU | goal |",
        "|---|---:|---:|---:|---|",
    ]
    for row in rows(results):
        goal = f"{row.goal}: {'met' if row.met else '**missed**'}" if row.goal else ""
        lines.append(f"| {row.what} | {row.theirs} | {row.ours} | {row.ratio} | {goal} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print the table; exit 1 if a goal is missed."""
    given = _arguments()
    if given.measure:
        sys.path.insert(0, os.environ["PYTHONPATH"])
        json.dump(MEASURES[given.measure](Work(given.corpus, given.scratch)), sys.stdout)
        return 0
    groups = given.only.split(",") if given.only else [name for name in GROUPS if name != "earlier" or given.earlier]
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        sys.exit(f"no group {unknown[0]!r}; known are {', '.join(GROUPS)}")
    with tempfile.TemporaryDirectory(prefix="bench-checker-") as folder:
        work = Work(Path(folder, "corpus"), Path(folder, "scratch"))
        work.scratch.mkdir()
        extract(given.corpus, work.corpus)
        # Both sides start from compiled files, as installed packages do; nothing is written beside the sources.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.update(PYTHONPYCACHEPREFIX=str(Path(folder, "pycache")), PYTHONPATH=str(ROOT))
        os.environ["EARLIER"] = str(given.earlier or ROOT)
        results = measure_all(groups, work, given.runs, given.package_runs)
    about = machine.about()
    about["versions"] = {name: version(name) for name in ("mlperf-hpc-suite", "mlperf-logging", "msgspec")}
    print(table(results, about))
    if given.keep:
        keep_record("checker", {**about, "results": results})
    return 0 if all(row.met for row in rows(results)) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = ROOT.parent / "shared" / "corpus"
    parser.add_argument(
        "--corpus", type=Path, default=beside, help="folder of the archives (default: ../shared/corpus)"
    )
    parser.add_argument("--earlier", type=Path, metavar="DIR", help="another checkout of the suite to measure beside")
    parser.add_argument("--only", metavar="GROUPS", help=f"some of {','.join(GROUPS)}")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (default: 3)")
    parser.add_argument(
        "--package-runs", type=int, default=1, help="runs of the official package tools, three minutes each"
    )
    add_keep_option(parser)
    parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
