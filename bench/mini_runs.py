"""Repeat the mini problem of a benchmark with new seeds: reference runs for rcps.yaml, and how long a run takes.

    python bench/mini_runs.py cosmoflow mini --runs 20 -o runs/reference/cosmoflow-16
    python -m compliance.rcp record runs/reference/cosmoflow-16 -o cosmoflow/rcps.yaml
    python bench/mini_runs.py cosmoflow mini --runs 10 --data-seeds 101 102 103 104 105 -o runs/accept

Finished runs are kept, interrupted ones are started again. With data seeds the runs take turns on data made from
other seeds than the default data. summary.json has, for each run, epochs, seconds from run_start to run_stop, CPU
seconds and the curve.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DONE = "run.json"


def data_of(benchmark: str, seed: int | None, out: Path) -> list[str]:
    """Return the overrides that name the data of a seed; they are made if they are not there."""
    if seed is None:
        return []
    folder = out / f"data-{seed}"
    module = f"{benchmark}.synthesize"
    subprocess.run([sys.executable, "-m", module, str(folder), "--seed", str(seed)], check=True, cwd=ROOT)
    return [f"data.data_dir={folder}"]


def run_once(command: list[str], folder: Path, threads: int) -> dict[str, Any]:
    """Make one run in a folder of its own, or take the result of the one that is there; return what it came to."""
    if (folder / DONE).exists():
        return dict(json.loads((folder / DONE).read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    begin = time.monotonic()
    with subprocess.Popen([*command, f"output_dir={folder}"], env=environment, cwd=ROOT) as process:
        _, _, usage = os.wait4(process.pid, 0)
    log = (folder / "result_0.txt").read_text().splitlines()
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in log]
    times = {record["key"]: record["time_ms"] for record in records if record["key"] in ("run_start", "run_stop")}
    with (folder / "history.csv").open() as file:
        curve = [float(row["quality"]) for row in csv.DictReader(file)]
    result = {
        "status": records[-1]["metadata"]["status"],
        "curve": curve,
        "seconds": (times["run_stop"] - times["run_start"]) / 1000,
        "elapsed_s": time.monotonic() - begin,
        "cpu_s": cpu_seconds(usage),
        "threads": threads,
    }
    (folder / DONE).write_text(json.dumps(result))
    return result


def cpu_seconds(usage: resource.struct_rusage) -> float:
    """Return the CPU seconds of a process that has ended."""
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Run the command; return 0 if every run met its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("config", type=Path)
    parser.add_argument("override", nargs="*")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; each gets its share of the cores")
    parser.add_argument("--data-seeds", type=int, nargs="*", default=[], help="seeds of other data than the default")
    given = parser.parse_intermixed_args()
    out = given.out.resolve()
    data = [data_of(given.benchmark, seed, out) for seed in given.data_seeds or [None]]
    threads = max(1, len(os.sched_getaffinity(0)) // given.jobs)

    def make(number: int) -> dict[str, Any]:
        command = [sys.executable, "-m", f"{given.benchmark}.train", str(given.config)]
        return run_once([*command, *given.override, *data[number % len(data)]], out / f"run-{number:02}", threads)

    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(make, range(given.runs)))
    summary = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "config": str(given.config),
        "runs": len(results),
        "met": sum(result["status"] == "success" for result in results),
        "epochs": [len(result["curve"]) for result in results],
        "median_seconds": statistics.median(result["seconds"] for result in results),
        "median_cpu_s": statistics.median(result["cpu_s"] for result in results),
        "results": results,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({name: value for name, value in summary.items() if name != "results"}, indent=1))
    return 0 if summary["met"] == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
