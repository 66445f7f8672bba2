"""What runs need, said before the first one starts: how many are missing, disk for them and their data, and time."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from common.data import manifest
from common.data.build import readable_bytes
from common.reference import FULL, MINI, OWN
from submission.runs.plan import PlanError, PlannedRun, is_finished
from submission.runs.progress import NO_BASIS, Estimator
from submission.runs.setup import Setup


class Needs(NamedTuple):
    """What a mini problem needs. minutes: of a run on two cores. data_mb: of its dataset. run_mb: that a run leaves."""

    minutes: int
    data_mb: int
    run_mb: int


NEEDS: Final = {"cosmoflow": Needs(3, 130, 10), "deepcam": Needs(5, 610, 75), "oc20": Needs(7, 80, 6)}
HARMLESS: Final = ("data.data_dir=", "submission.", "train.seed=")
"""Settings that leave the time of a run as it is."""


def find_usual_minutes(setups: Iterable[Setup]) -> dict[str, float]:
    """Return how long a run takes on two cores, by benchmark, of those that train the mini problem as it is."""
    return {
        setup.benchmark: NEEDS[setup.benchmark].minutes
        for setup in setups
        if setup.benchmark in NEEDS
        and setup.config == MINI
        and all(override.startswith(HARMLESS) for override in setup.overrides)
    }


def announce_runs(runs: Sequence[PlannedRun], setups: Sequence[Setup], size: int, usual: Mapping[str, float]) -> None:
    """Print what the missing runs need; PlanError if the disk is clearly too small. Nothing if none is missing.

    setups: each of another dataset. size: of the runs at the same time. usual: minutes of a run, by benchmark.
    """
    finished = [run for run in runs if is_finished(run)]
    missing = [run for run in runs if not is_finished(run)]
    if not missing:
        return
    counts = Counter(run.benchmark for run in missing)
    to_make = ", ".join(f"{count} of {benchmark}" for benchmark, count in counts.items())
    print(f"runs: {len(finished)} of {len(runs)} finished; to make: {to_make}")
    data = {setup.data_dir: NEEDS[setup.benchmark].data_mb for setup in setups if _makes_data(setup)}
    variants = {setup.benchmark: setup.variant for setup in setups}
    sizes = {run.benchmark: _find_run_mb(run, variants.get(run.benchmark, FULL), finished) for run in missing}
    unknown = [benchmark for benchmark, size_mb in sizes.items() if size_mb is None]
    run_mb = sum((sizes[run.benchmark] or 0.0) for run in missing)
    more = f", without runs of {' and '.join(unknown)} ({NO_BASIS})" if unknown else ""
    free, data_mb = check_space([*data.items(), (missing[0].folder, run_mb)]), sum(data.values())
    if data_mb or run_mb or unknown:
        parts = [f"{_format_mb(mb)} for {noun}" for noun, mb in (("data", data_mb), ("runs", run_mb)) if mb]
        print(f"disk: about {' and '.join(parts) or 'nothing'}{more}; {free}")
    estimate = Estimator(size, usual).estimate(missing, finished)
    print(f"time: {estimate.text if estimate.bases else 'unknown until the first run ends'}", flush=True)


def check_space(amounts: Iterable[tuple[Path, float]]) -> str:
    """Return what is free, in words; PlanError if less than needed. amounts: folders, which may not exist, and MB."""
    needed: dict[int, float] = {}
    folders: dict[int, Path] = {}
    for folder, amount_mb in amounts:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        device = os.stat(existing).st_dev
        needed[device] = needed.get(device, 0.0) + amount_mb
        folders.setdefault(device, existing)
    parts = []
    for device, folder in folders.items():
        free_mb = shutil.disk_usage(folder).free / 1e6
        if needed[device] > free_mb:
            raise PlanError(
                f"about {_format_mb(needed[device])} are needed on the disk of {folder}, but {_format_mb(free_mb)} are "
                "free; nothing was started: free some, or choose folders on another disk"
            )
        parts.append(f"{_format_mb(free_mb)} free" + (f" at {folder}" if len(folders) > 1 else ""))
    return ", ".join(parts)


def _format_mb(amount: float) -> str:
    return readable_bytes(1e6 * amount)


def _makes_data(setup: Setup) -> bool:
    """Tell whether the dataset of a mini problem has to be generated, and its size is known."""
    return (
        setup.benchmark in NEEDS and setup.variant not in (FULL, OWN) and not (setup.data_dir / manifest.NAME).exists()
    )


def _find_run_mb(run: PlannedRun, variant: str, finished: Sequence[PlannedRun]) -> float | None:
    """Return what a run leaves on disk, in MB: by finished ones, else as is usual for it; None if that is not known."""
    if run.kind != "training":
        return 0.0
    sizes = [
        sum(path.stat().st_size for path in other.folder.rglob("*") if path.is_file()) / 1e6
        for other in finished
        if other.benchmark == run.benchmark
    ]
    if sizes:
        return fmean(sizes)
    is_mini = run.benchmark in NEEDS and variant != FULL
    return max(run.instances, 1) * NEEDS[run.benchmark].run_mb if is_mini else None
