"""The trainer itself: the mini problems to their targets, full sizes with files, evaluations."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from gpu.background import ROOT, wait
from gpu.candidates import switch_on
from gpu.cases import Bench, WrongError
from gpu.networks import NETWORKS
from gpu.results import Row
from gpu.sections import NAMES
from gpu.training import Plan, Watch, log_events, start_times, step, train
from gpu.variants import BEST, CONVERGING, NO_BUCKETS, NO_TUNING, PACKED, PLAIN, Variant

TINY_KEYS: Final = {
    "cosmoflow": ("model.conv_size=2", "model.conv_layers=3"),
    "deepcam": ("data.height=48", "data.width=80", "model.width=0.05", "model.middle_blocks=0"),
    "oc20": ("model.hidden=16", "model.interaction=8", "model.spherical=3"),
}


def mini_again(bench: Bench) -> None:
    """Train each with everything on, twice with one seed: both runs must give the same bits."""
    names = NAMES[-1:] if bench.dry else NAMES  # interpreted, the kernels would take minutes
    begin, started = time.monotonic(), {}
    for which in ("first", "second"):
        for name in names:
            with bench.case("started", network=name, variant=which):
                started[name, which] = start(bench, name, which)
    for (name, which), process in started.items():
        with bench.case("mini", network=name, variant=which, kind=CONVERGING[name].name) as row:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(1.0, bench.left_s - 3))
            process.kill()
            row["seconds"] = time.monotonic() - begin
            row.update(ended(bench, run_folder(bench, name, which)))
    for name in dict.fromkeys(name for name, _ in started):
        with bench.case("equal runs", network=name, kind=CONVERGING[name].name) as row:
            first, second = (history(run_folder(bench, name, which)) for which in ("first", "second"))
            row["epochs"] = len(first)
            if not first or first != second:
                raise WrongError(f"the curves are {first[-1:]} and {second[-1:]}")


def run_folder(bench: Bench, name: str, which: str) -> Path:
    return bench.work / f"mini-run-{name}-{which}"


def start(bench: Bench, name: str, which: str) -> subprocess.Popen[bytes]:
    """Start the training of a mini problem; RuntimeError without its data or candidates."""
    variant = CONVERGING[name] if not bench.dry else Variant("", keys=(*TINY_KEYS[name], "train.epochs=1"))
    data, folder = data_of(bench, name), run_folder(bench, name, which)
    shutil.rmtree(folder, ignore_errors=True)
    with switch_on(variant.candidates):
        command = [sys.executable, "-m", "gpu.candidates", ",".join(variant.candidates), name, "mini"]
    command += [f"data.data_dir={data}", f"output_dir={folder}", f"dist.device={bench.device.type}"]
    command += ["train.seed=7", NO_TUNING, *variant.overrides]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": python_path()})


def python_path() -> str:
    """Return this tree, before the folder of these modules, and what was there."""
    return os.pathsep.join([str(ROOT), str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])])


def data_of(bench: Bench, name: str) -> Path:
    """Return the data of a mini problem, which the run has generated since its start."""
    return wait(bench.work, name, max(1.0, bench.left_s - 30))


def history(folder: Path) -> list[tuple[str, str]]:
    """Return loss and quality of each epoch, with all their digits."""
    path = folder / "history.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return [(row["loss"], row["quality"]) for row in csv.DictReader(file)]


def ended(bench: Bench, folder: Path) -> Row:
    """Return how a run ended; WrongError if it has not met its target."""
    curve, records = history(folder), log_events(folder)
    times = {record["key"]: record["time_ms"] for record in records}
    status = next((record["metadata"].get("status") for record in records if record["key"] == "run_stop"), None)
    found: Row = {"epochs": len(curve), "quality": float(curve[-1][1]) if curve else None, "status": status}
    found |= start_times(folder)
    if status and "run_start" in times:
        found["run_s"] = (times["run_stop"] - times["run_start"]) / 1e3
    if bench.dry:
        if status is None:
            raise RuntimeError(f"{folder} has no run_stop")
    elif status != "success":
        raise WrongError(f"{status or 'not finished'} after {len(curve)} epochs with {found['quality']}")
    return found


# -- at full size --------------------------------------------------------------------------------------------


def product(bench: Bench) -> None:
    """Train each network at its full size with files for some time, beside steps on batches that lie on the device."""
    with_files(bench, "cosmoflow", BEST["cosmoflow"])
    with_files(bench, "cosmoflow", PACKED)
    with_files(bench, "oc20", BEST["oc20"])
    with_files(bench, "oc20", BEST["oc20"].with_keys(NO_BUCKETS))
    with_files(bench, "deepcam", BEST["deepcam"], 120)  # to choose algorithms takes cuDNN 40 s, to compile about 60


def with_files(bench: Bench, network: str, variant: Variant, needs_s: float = 20) -> None:
    """Measure steps with files, and without unless that is known."""
    batch = bench.size(NETWORKS[network].batch, 1)
    names = {"network": network, "batch": batch, "variant": variant.name}
    if bench.lacks_time(needs_s, "with files", **names):
        return
    with bench.case("with files", **names) as row, switch_on(variant.candidates):
        watch = Watch(bench, Plan(*bench.size((24, 10, 10, 0, 8.0), (0, 0, 1, 0, 0.01))))
        row.update(train(bench, network, batch, variant, watch, resident=False)[1])
    if variant == BEST[network] and bench.found("step", **names) is None:
        step(bench, network, batch, variant, Plan(*bench.size((24, 10, 40), (0, 0, 1))))


EVALUATED: Final = {"cosmoflow": 64, "deepcam": 16, "oc20": 128}


def evaluation(bench: Bench) -> None:
    """Measure evaluations in batches of their own size, recorded and not."""
    for network, batch in EVALUATED.items():
        size = bench.size(batch, 1)
        for best in (BEST[network], PLAIN):
            variant = Variant(best.name, best.model, (*best.keys, f"train.eval_batch_size={size}"))
            names = {"network": network, "batch": size, "variant": variant.name}
            if bench.lacks_time(10, "evaluation", **names):
                continue
            with bench.case("evaluation", **names) as row:
                watch = Watch(bench, Plan(*bench.size((16, 4, 24), (0, 0, 1))))
                trained = bench.size(NETWORKS[network].batch, 1)
                row.update(train(bench, network, trained, variant, watch, evaluates=True)[1])
                row["per_s"] = 1e3 * size / row["ms"]
