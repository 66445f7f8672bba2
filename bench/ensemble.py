"""Ensembles of bagged networks (HPC AI500 V3) on the mini problems: what the mean of several predictions gains.

    python bench/ensemble.py -o runs/ensemble                   # about 50 CPU minutes; started runs are kept
    python bench/ensemble.py -o runs/ensemble --quick           # one data seed, tiny: only to see that it works
    python bench/ensemble.py -o runs/ensemble --keep            # also keeps the record

1. Draws. For each data seed, 4 instances by bootstrap: the share of different samples that each draws, and of samples
   that have an out-of-bag member.
2. Quality. For CosmoFlow and OC20 and each data seed: 4 members, trained alike on generated data; quality of ensemble,
   best and mean member, and by how much the identity MSE(ensemble) = mean MSE - mean variance is missed.
3. Speed and quality (Fig. 7 of the paper). M instances on P ranks each, at the same number of ranks M x P and of
   epochs: samples per second of all instances together, and the quality of their ensemble.

These are mini problems made smaller: fewer samples and epochs than the mini configuration, so that all of it takes less
than an hour of CPU time; qualities are compared with each other, not with the target. Each instance is a job of P
processes. The records, one file for each run and evaluation, are in the folder; results.json and table.md sum them up.
Nothing of it is an MLPerf result.
"""

from __future__ import annotations

import argparse
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from records import add_keep_option, keep_record

from common.data.sampling import draw_samples, out_of_bag
from common.training.tracking import read_history

ROOT: Final = Path(__file__).resolve().parents[1]
MEMBERS: Final = 4
DATA_SEEDS: Final = (101, 102, 103, 104, 105)
SEED: Final = 1000
"""Seed of instance 0 on the first data; each data seed has its own, more than the number of members apart."""
DONE: Final = "run.json"
MSE_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class Size:
    """How much a benchmark is given.

    config: of the training. per_name: samples of what the data's generator counts, frames of a trajectory. steps:
    overrides of its schedule for this length.
    """

    config: str
    train: int
    validation: int
    epochs: int
    per_name: int = 1
    steps: tuple[str, ...] = ()


SIZES: Final = {
    "cosmoflow": Size("mini", 1_024, 128, 8),
    "oc20": Size("mini", 400, 80, 6, 10, ("schedule.warmup_steps=30", "schedule.boundaries=[120, 180, 240]")),
}
QUICK: Final = {
    "cosmoflow": Size("mini", 32, 16, 1),
    "oc20": Size("mini", 30, 10, 1, 10, ("schedule.warmup_steps=2",)),
}


class Bench:
    """A folder of records, and what is made in it."""

    def __init__(self, out: Path, sizes: dict[str, Size], data_seeds: tuple[int, ...], ranks: int) -> None:
        self.out, self.sizes, self.data_seeds, self.ranks = out, sizes, data_seeds, ranks

    def data(self, benchmark: str, seed: int) -> Path:
        """Return the folder of generated data, which are made if they are not there."""
        folder, size = self.out / benchmark / f"data-{seed}", self.sizes[benchmark]
        train, validation = (str(samples // size.per_name) for samples in (size.train, size.validation))
        words = [str(folder), "--seed", str(seed), "--train", train, "--validation", validation]
        log = folder.with_suffix(".log")
        if self.run([f"{benchmark}.synthesize", *words], log):
            raise SystemExit(f"{folder}: the data were not made; see {log}")
        return folder

    def run(self, words: list[str], log: Path, ranks: int = 1) -> int:
        """Run a module with its arguments at low priority and return its exit status; its output goes to a file."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            command = ["nice", "-n", "19", sys.executable, *launcher, "-m", *words]
            return subprocess.run(
                command, env=environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False
            ).returncode

    def member(self, benchmark: str, data_seed: int, instance: int, folder: Path, ranks: int = 1) -> dict[str, Any]:
        """Train an instance, or take the record of the one that is there; return epochs, quality and times."""
        if (folder / DONE).exists():
            return dict(json.loads((folder / DONE).read_text()))
        shutil.rmtree(folder, ignore_errors=True)
        size = self.sizes[benchmark]
        words = [
            size.config,
            f"output_dir={folder}",
            f"data.data_dir={self.out / benchmark / f'data-{data_seed}'}",
            f"train.seed={SEED + 100 * data_seed}",
            f"train.epochs={size.epochs}",
            "train.target=1e-9",  # so that all are trained alike
            f"instances.first={instance}",
            "instances.bagging=bootstrap",
            "checkpoint.keep=1",
            *size.steps,
        ]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.run([f"{benchmark}.train", *words], folder.with_suffix(".log"), ranks)
        histories = sorted(folder.rglob("history.csv"))
        if not histories:
            raise SystemExit(f"{folder}: the training ended with {status}; see {folder.with_suffix('.log')}")
        curve = [epoch.quality for epoch in read_history(histories[0].parent)]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        start, stop = _run_times_s(histories[0].with_name("result_0.txt"))
        record = {"curve": curve, "start_s": start, "stop_s": stop, "ranks": ranks, "samples": size.train * size.epochs}
        record["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        (folder / DONE).write_text(json.dumps(record))
        return record

    def evaluated(self, benchmark: str, runs: list[Path], record: Path, *options: str) -> dict[str, Any]:
        """Evaluate the ensemble of some runs, or take the record that is there."""
        if not record.exists():
            folder = runs[0]
            data = json.loads((folder.parent / "data.json").read_text())
            words = [*map(str, runs), *options, "-o", str(record), f"data.data_dir={data}"]
            self.run([benchmark, "evaluate", *words], record.with_suffix(".log"))
        if not record.exists():
            raise SystemExit(f"{record} was not written; see {record.with_suffix('.log')}")
        return dict(json.loads(record.read_text()))

    # -- the three parts -------------------------------------------------------------------------------------

    def draws(self, samples: int) -> list[dict[str, float]]:
        """Return the shares of samples that are drawn, and that have an out-of-bag member, for each data seed."""
        found = []
        for data_seed in self.data_seeds:
            drawn = [
                draw_samples("bootstrap", SEED + 100 * data_seed, instance, samples) for instance in range(MEMBERS)
            ]
            different = [len(np.unique(one)) / samples for one in drawn]
            left_out = np.unique(np.concatenate([out_of_bag(one, samples) for one in drawn]))
            found.append({"data_seed": data_seed, "different": different, "out_of_bag": len(left_out) / samples})
        return found

    def quality(self, benchmark: str) -> list[dict[str, Any]]:
        """Return for each data seed the qualities of members and ensemble."""
        found = []
        for data_seed in self.data_seeds:
            data, folder = self.data(benchmark, data_seed), self.out / benchmark / f"members-{data_seed}"
            runs = [folder / f"member-{instance}" for instance in range(MEMBERS)]
            made = [self.member(benchmark, data_seed, instance, run) for instance, run in enumerate(runs)]
            (folder / "data.json").write_text(json.dumps(str(data)))
            judged = self.evaluated(benchmark, runs, folder / "validation.json")
            outside = self.evaluated(benchmark, runs, folder / "out_of_bag.json", "--out-of-bag")
            mse = judged["mean_squares"]
            found.append(
                {
                    "data_seed": data_seed,
                    **{name: judged[name] for name in ("ensemble", "best", "mean", "spread_ddof_0")},
                    "out_of_bag": outside["ensemble"],
                    "out_of_bag_share": outside["share_of_samples"],
                    "identity": abs(mse["ensemble"] - (mse["members"] - mse["variance"])),
                    "cpu_s": sum(one["cpu_s"] for one in made),
                }
            )
            print(f"{benchmark} {json.dumps(found[-1])}", flush=True)
        return found

    def fig7(self, benchmark: str) -> list[dict[str, Any]]:
        """Return speed and quality of M instances of P ranks for each M x P that is the number of ranks."""
        found, data_seed = [], self.data_seeds[0]
        data = self.data(benchmark, data_seed)
        for count in [m for m in range(1, self.ranks + 1) if self.ranks % m == 0]:
            ranks, folder = self.ranks // count, self.out / benchmark / f"instances-{count}x{self.ranks // count}"
            runs = [folder / f"member-{instance}" for instance in range(count)]

            def train(instance: int, ranks: int = ranks, folder: Path = folder) -> dict[str, Any]:
                return self.member(benchmark, data_seed, instance, folder / f"member-{instance}", ranks)

            with ThreadPoolExecutor(count) as pool:  # all instances at the same time
                made = list(pool.map(train, range(count)))
            (folder / "data.json").write_text(json.dumps(str(data)))
            if count > 1:
                quality = self.evaluated(benchmark, runs, folder / "validation.json")["ensemble"]
            else:
                quality = made[0]["curve"][-1]
            seconds = max(one["stop_s"] for one in made) - min(one["start_s"] for one in made)
            speed = sum(one["samples"] for one in made) / seconds
            found.append({"M": count, "P": ranks, "seconds": seconds, "samples_per_s": speed, "quality": quality})
            print(f"{benchmark} {json.dumps(found[-1])}", flush=True)
        return found


def _run_times_s(log: Path) -> tuple[float, float]:
    """Return when a run started and stopped, in seconds of the epoch."""
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]
    times = {one["key"]: one["time_ms"] / 1000 for one in records if one["key"] in ("run_start", "run_stop")}
    return times["run_start"], times["run_stop"]


def count_won(rows: list[dict[str, Any]]) -> int:
    """Return in how many data seeds the ensemble is better than its best member; both qualities are errors."""
    return sum(row["ensemble"] < row["best"] for row in rows)


def page(results: dict[str, Any]) -> str:
    """Return the Markdown page."""
    different = [share for row in results["draws"] for share in row["different"]]
    outside = [row["out_of_bag"] for row in results["draws"]]
    quality = [row for found in results["benchmarks"].values() for row in found["quality"]]
    lines = [
        "# Ensembles of bagged networks",
        "",
        f"`bench/ensemble.py`, {results['date']}: {results['machine']}, one thread per rank. {results['what']} Lower "
        "qualities are better. The identity MSE(ensemble) = mean MSE - mean variance is missed by at most "
        f"{max(row['identity'] for row in quality):.0e}.",
        "",
        f"An instance draws {statistics.mean(different):.1%} different samples ({min(different):.1%} to "
        f"{max(different):.1%}); {statistics.mean(outside):.1%} of samples ({min(outside):.1%} to {max(outside):.1%}) "
        f"have an out-of-bag member among {MEMBERS}. Expected: 63.2 % and 84.0 %.",
    ]
    for name, found in results["benchmarks"].items():
        cpu_s = sum(row["cpu_s"] for row in found["quality"])
        lines += ["", f"## {name}", "", f"{found['size']} {cpu_s:.0f} CPU seconds.", ""]
        lines += ["| data seed | mean member | best member | ensemble | out of bag |", "|---|---:|---:|---:|---:|"]
        lines += [
            f"| {row['data_seed']} | {row['mean']:.4f} | {row['best']:.4f} | {row['ensemble']:.4f} | "
            f"{row['out_of_bag']:.4f} |"
            for row in found["quality"]
        ]
        won = count_won(found["quality"])
        lines += ["", f"The ensemble is better than its best member in {won} of {len(found['quality'])} data seeds."]
        lines += ["", "| M instances | P ranks each | samples/s | seconds | quality |", "|---|---|---:|---:|---:|"]
        lines += [
            f"| {row['M']} | {row['P']} | {row['samples_per_s']:.1f} | {row['seconds']:.0f} | {row['quality']:.4f} |"
            for row in found["fig7"]
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command; return 1 if the identity of mean squares does not hold somewhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of records; started work goes on there")
    parser.add_argument("--quick", action="store_true", help="one data seed, few samples, one epoch")
    parser.add_argument("--ranks", type=int, default=4, help="M x P of the table of speed and quality (default: 4)")
    add_keep_option(parser)
    given = parser.parse_args()
    sizes, seeds = (QUICK, DATA_SEEDS[:1]) if given.quick else (SIZES, DATA_SEEDS)
    bench = Bench(given.out.resolve(), sizes, seeds, given.ranks)
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "what": "The mini problems made smaller, with generated data.",
        "draws": bench.draws(2_048),
        "benchmarks": {},
    }
    for name, size in sizes.items():
        text = f"{size.train:,} training and {size.validation:,} validation samples, {size.epochs} epochs, bootstrap."
        results["benchmarks"][name] = {"size": text, "quality": bench.quality(name), "fig7": bench.fig7(name)}
    bench.out.mkdir(parents=True, exist_ok=True)
    (bench.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (bench.out / "table.md").write_text(page(results))
    print(page(results))
    if given.keep:
        keep_record("ensemble", results)
    rows = [row for found in results["benchmarks"].values() for row in found["quality"]]
    return 0 if all(row["identity"] <= MSE_TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
