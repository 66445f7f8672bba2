r"""Repeat the mini problem of a benchmark with new seeds: reference runs for rcps.yaml, and how long a run takes.

    python bench/mini_runs.py cosmoflow mini --runs 20 -o runs/reference/cosmoflow-16
    python -m compliance.rcp record runs/reference/cosmoflow-16 -o cosmoflow/rcps.yaml
    python bench/mini_runs.py cosmoflow mini --runs 10 --data-seeds 101 102 103 104 105 -o runs/accept

    python bench/mini_runs.py cosmoflow mini --runs 10 --data-seeds 101 102 103 104 105 \
        --yardsticks 2 -o runs/accept --keep
    python bench/mini_runs.py cosmoflow --refit -o runs/accept

Finished runs are kept, interrupted ones are started again. With data seeds the runs take turns on data made from
other seeds than the default data. summary.json has, for each run, epochs, seconds from run_start to run_stop, CPU
seconds and the curve. With yardsticks it also has the classical baselines on each of the datasets, and that many
trainings of each ablation (`bench/mini_ablation.py`), and --keep keeps it as a record; --refit fits the baselines of
that record again, and leaves the networks' runs as they are.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mini_ablation import ABLATIONS
from records import add_keep_option, keep_record, read_record

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


def baselines_of(benchmark: str, data: list[str], out: Path, number: int) -> dict[str, Any]:
    """Return the classical baselines on a dataset; they are fitted unless they were."""
    path = out / f"baselines-{number}.json"
    if not path.exists():
        folder = [override.partition("=")[2] for override in data]
        command = [sys.executable, str(ROOT / "bench/baselines.py"), benchmark, *folder, "-o", str(path)]
        subprocess.run(command, check=True, cwd=ROOT)
    return dict(json.loads(path.read_text()))


def refit_baselines(benchmark: str, out: Path) -> None:
    """Put the baselines as they are now into a record, if they are of the data on which its networks were trained."""
    summary, fitted = read_record(f"mini-{benchmark}"), []
    for number, (seed, before) in enumerate(zip(summary["data_seeds"], summary["baselines"], strict=True)):
        fitted.append(baselines_of(benchmark, data_of(benchmark, seed, out), out, number))
        if fitted[-1]["data_sha256"] != before["data_sha256"]:
            raise SystemExit(
                f"{benchmark}: the record's data of seed {seed} were others; run all again, without --refit"
            )
    keep_record(f"mini-{benchmark}", summary | {"baselines": fitted})


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


def page(summaries: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    return "\n".join(describe(summaries)) + "\n"


def describe(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for summary in summaries:
        if "baselines" not in summary:
            continue
        seeds = ", ".join(map(str, summary["data_seeds"])) or "0"
        yield f"\n## {summary['benchmark']}\n"
        yield f"{summary['date']}, {summary['machine']}, one thread a run; data seeds {seeds}.\n"
        yield from _table(summary)
        epochs = " to ".join(map(str, sorted({min(summary["epochs"]), max(summary["epochs"])})))
        yield (
            f"\nTarget {summary['baselines'][0]['target']:g}: met by {summary['met']} of {summary['runs']} runs, after "
            f"{epochs} epochs and {summary['median_cpu_s']:.0f} CPU seconds (median)."
        )


def list_baselines(summary: dict[str, Any]) -> dict[str, list[float]]:
    """Return what each classical baseline reaches on the datasets of a summary."""
    rows: dict[str, list[float]] = {}
    for baseline in (baseline for dataset in summary["baselines"] for baseline in dataset["baselines"]):
        rows.setdefault(baseline["name"], []).append(baseline["quality"])
    return rows


def _table(summary: dict[str, Any]) -> Iterator[str]:
    """Yield the table of a summary, the best method last."""
    rows = list_baselines(summary)
    lower = summary["baselines"][0]["lower_is_better"]
    rows["**network**, when the target was met"] = [run["curve"][-1] for run in summary["results"]]
    best = min if lower else max
    for name in dict.fromkeys(run["ablation"] for run in summary["ablated"]):
        runs = [run for run in summary["ablated"] if run["ablation"] == name]
        rows[f"ablated network ({name}), its best epoch"] = [best(run["curve"]) for run in runs]
    yield f"| {summary['baselines'][0]['quality']} | median | from | to | datasets or runs |\n|---|---:|---:|---:|---:|"
    for row, values in sorted(rows.items(), key=lambda item: statistics.median(item[1]), reverse=lower):
        yield f"| {row} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} | {len(values)} |"


HEAD = """\
# Mini problems: networks and classical baselines

A mini problem is the full problem's code, formats and rules on two cores, and a network that trains as the full one
does reaches its target. It is no proof that a network is needed: classical methods of people who know the physics reach
the target, too, and are better than the network when it stops there. They are fitted on the training split alone
(`bench/baselines.py`); runs and baselines are on data of new seeds, on which no network was tuned; the epochs of the
embedded-atom fit were chosen on data seed 101.

Ablated networks (`bench/mini_ablation.py`) train and are evaluated on data without what carries the signal: CosmoFlow's
without phases, where isotropic statistics are all that remains; DeepCAM's with shuffled blocks, or through a window of
13 x 13 pixels. They miss the target. Made by `bench/mini_runs.py`; the curves are in mini-*.json."""


def main() -> int:
    """Run the command; return 0 if every run met its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?")
    parser.add_argument("config", nargs="?")
    parser.add_argument("override", nargs="*")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; each gets its share of the cores")
    parser.add_argument("--data-seeds", type=int, nargs="*", default=[], help="seeds of other data than the default")
    parser.add_argument(
        "--yardsticks", type=int, metavar="N", help="fit the baselines, and train N times on ablated data"
    )
    parser.add_argument("--refit", action="store_true", help="fit the baselines of the record again, and stop")
    add_keep_option(parser)
    arguments = parser.parse_intermixed_args()
    if not arguments.out or not arguments.benchmark or not (arguments.config or arguments.refit):
        parser.error("expected a benchmark, a configuration and -o; or a benchmark, --refit and -o")
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.refit:
        refit_baselines(arguments.benchmark, out)
        return 0
    data = [data_of(arguments.benchmark, seed, out) for seed in arguments.data_seeds or [None]]
    threads = max(1, len(os.sched_getaffinity(0)) // arguments.jobs)

    def make(number: int) -> dict[str, Any]:
        command = [sys.executable, "-m", f"{arguments.benchmark}.train", arguments.config]
        return run_once([*command, *arguments.override, *data[number % len(data)]], out / f"run-{number:02}", threads)

    def ablate(name: str, number: int) -> dict[str, Any]:
        command = [sys.executable, str(ROOT / "bench/mini_ablation.py"), name, *arguments.override]
        result = run_once([*command, *data[number % len(data)]], out / f"{name}-{number:02}", threads)
        return {"ablation": name, **result}

    def fit(number: int) -> dict[str, Any]:
        return baselines_of(arguments.benchmark, data[number], out, number)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(make, range(arguments.runs)))
        yardsticks = {}
        if arguments.yardsticks is not None:
            yardsticks["baselines"] = list(pool.map(fit, range(len(data))))
            names = [name for name in ABLATIONS if name.startswith(arguments.benchmark)]
            repeated = itertools.product(names, range(arguments.yardsticks))
            yardsticks["ablated"] = list(pool.map(ablate, *zip(*repeated, strict=True))) if arguments.yardsticks else []
    summary = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "benchmark": arguments.benchmark,
        "config": arguments.config,
        "data_seeds": arguments.data_seeds,
        "runs": len(results),
        "met": sum(result["status"] == "success" for result in results),
        "epochs": [len(result["curve"]) for result in results],
        "median_seconds": statistics.median(result["seconds"] for result in results),
        "median_cpu_s": statistics.median(result["cpu_s"] for result in results),
        "results": results,
        **yardsticks,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    if arguments.keep:
        keep_record(f"mini-{arguments.benchmark}", summary)
    print(
        json.dumps({name: value for name, value in summary.items() if name not in ("results", *yardsticks)}, indent=1)
    )
    return 0 if summary["met"] == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
