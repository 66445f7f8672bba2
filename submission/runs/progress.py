"""Make the missing runs of a plan on this machine: what they need, said first; how far they are; the time that is left.

The estimate of the time gives its basis.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tqdm import tqdm

from common.command import clean, counted
from common.console import format_duration
from common.data import manifest
from common.data.build import readable_bytes
from common.files import LOG_NAME
from common.record import METRICS
from common.reference import FULL, MINI, OWN
from common.values import group_pairs
from compliance.benchmarks import reference_of
from compliance.logs.run import read_run
from submission.runs.plan import RECORD, PlanError, PlannedRun, check_records, has_ended, is_finished
from submission.runs.processes import BEAT_S, OUTPUT, Attempt, JobRunner, Setup, read_last_lines

NO_BASIS: Final = "no basis yet"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far an active run is.

    epochs: evaluated so far. epoch_s: of each of them. since_s: the last one. most: epochs at most, 0 if unknown.
    """

    run: PlannedRun
    text: str
    epochs: int = 0
    epoch_s: float = 0.0
    since_s: float = 0.0
    most: int = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run was started; 0 if its folder does not tell."""
        with suppress(OSError):
            return max(0.0, time.time() - (self.run.folder / RECORD).stat().st_mtime)
        return 0.0

    @property
    def line(self) -> str:
        """The run, how far it is, and since when it has been running."""
        return clean(f"{self.run.name}: {self.text}, {format_duration(self.elapsed_s)} so far")


def read_progress(run: PlannedRun) -> RunProgress:
    """Return how far an active run is: by its log if it has one, else by the last line that it has printed."""
    try:
        return _read_progress(run)
    except (OSError, ValueError) as error:  # what is only shown ends no run
        return RunProgress(run, f"how far it is cannot be read ({error})")


def _read_progress(run: PlannedRun) -> RunProgress:
    if run.instances:
        return RunProgress(run, f"{sum(map(has_ended, run.result_folders))} of {run.instances} instances have ended")
    log = run.folder / LOG_NAME
    record = read_run(str(log)) if run.kind == "training" and log.exists() else None
    if record is None or not record.epochs_trained:
        return RunProgress(run, "".join(read_last_lines(run.folder / OUTPUT, 1)).strip() or "no output so far")
    train = (record.details.configuration or {}).get("train", {})
    most, epochs, epoch_s, since_s = train.get("epochs", 0), 0, 0.0, 0.0
    text = f"epoch {record.epochs_trained:g}" + (f" of at most {most}" if most else "") + _describe_step(run)
    if record.details.evaluations:
        last = record.details.evaluations[-1]
        epochs = int(last.epoch or 0)
        epoch_s = (last.time_ms - (record.start_ms or math.nan)) / 1000 / epochs if epochs else 0.0
        since_s = max(0.0, time.time() - last.time_ms / 1000)
        reference = reference_of(record.benchmark, record.variant)
        target = reference.target.choose(train.get("target")) if reference else None
        text += f", {target.key} {last.value:.4g} (target: {target.range_text})" if target else f", {last.value:.4g}"
    return RunProgress(run, text, epochs, epoch_s, since_s, most)


def _describe_step(run: PlannedRun) -> str:
    """Return the step of the epoch that a training has made last; "" at its end, and if it does not tell."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # a line may just be being written
        record = json.loads(read_last_lines(run.folder / METRICS, 1)[0])
        return f", step {record['step']}" if record["kind"] == "step" else ""
    return ""


def measure_seconds(run: PlannedRun) -> float:
    """Return how long a finished run took, by when its plan and its result were written; 0 without these files."""
    begin, end = run.folder / RECORD, run.result_file
    if not (begin.exists() and end.exists()):  # such as one that was killed after it had written its log
        return 0.0
    return max(0.0, end.stat().st_mtime - begin.stat().st_mtime)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time for the missing runs.

    seconds: for those that there is a basis for. bases: where the seconds come from, in words. bounded: they are an
    upper bound. unknown: the benchmarks without a basis.
    """

    seconds: float = 0.0
    bases: tuple[str, ...] = ()
    bounded: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The time with its basis, in words."""
        if not self.bases:
            return NO_BASIS
        amount = f"{'at most' if self.bounded else 'about'} {format_duration(self.seconds)} ({'; '.join(self.bases)})"
        return f"{amount}, without {' and '.join(self.unknown)} ({NO_BASIS})" if self.unknown else amount


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimates the time for missing runs, each by runs of its own benchmark alone.

    size: of the runs at the same time. usual_minutes: of a run, by benchmark, where that is known.
    """

    size: int = 1
    usual_minutes: Mapping[str, float] = field(default_factory=dict)

    def estimate_time(
        self, missing: Sequence[PlannedRun], finished: Collection[PlannedRun], active: Sequence[RunProgress] = ()
    ) -> Estimate:
        """Return the estimate for the missing runs, the active ones among them included."""
        took = group_pairs((run.benchmark, run_s) for run in finished if (run_s := measure_seconds(run)))
        total, bases, unknown, bounded = 0.0, dict[str, None](), dict[str, None](), False
        own = {progress.run.folder: progress for progress in active}
        for run in missing:
            progress = own.get(run.folder)
            elapsed = progress.elapsed_s if progress else 0.0
            seconds, usual_s = took.get(run.benchmark, []), 60 * self.usual_minutes.get(run.benchmark, 0.0)
            if seconds and elapsed < fmean(seconds):
                total += fmean(seconds) - elapsed
                basis = f"mean of {counted(len(seconds), 'finished run')} of {run.benchmark}"
            elif like := next(_find_alike(run, active), None):
                done_s = like.epochs * like.epoch_s + min(like.since_s, like.epoch_s) if like.run is run else 0.0
                total += max(0.0, like.most * like.epoch_s - done_s)
                basis = f"{counted(like.epochs, 'epoch')} of {'this run' if len(active) == 1 else like.run.name}"
                bounded = True
            elif elapsed < usual_s:
                total += usual_s - elapsed
                basis = f"{run.benchmark}: usually {usual_s / 60:g} minutes on two cores"
            else:
                unknown[run.benchmark] = None
                continue
            bases[basis] = None
        return Estimate(total / min(self.size, len(missing) or 1), tuple(bases), bounded, tuple(unknown))


def _find_alike(run: PlannedRun, active: Sequence[RunProgress]) -> Iterator[RunProgress]:
    """Yield the active runs of the same benchmark that tell their epochs, the run itself first."""
    alike = [progress for progress in active if progress.run.benchmark == run.benchmark and progress.epochs]
    yield from sorted((p for p in alike if p.most and p.epoch_s > 0), key=lambda progress: progress.run is not run)


class Needs(NamedTuple):
    """What a mini problem needs. minutes: of a run on two cores. data_mb: of its dataset. run_mb: that a run leaves."""

    minutes: int
    data_mb: int
    run_mb: int


NEEDS: Final = {"cosmoflow": Needs(3, 130, 10), "deepcam": Needs(5, 610, 75), "oc20": Needs(7, 80, 6)}


def find_usual_minutes(setups: Iterable[Setup]) -> dict[str, float]:
    """Return how long a run takes on two cores, by benchmark, of those that train the mini problem as it is."""
    return {
        setup.benchmark: NEEDS[setup.benchmark].minutes
        for setup in setups
        if setup.benchmark in NEEDS
        and setup.config == MINI
        and all(override.startswith(("data.data_dir=", "submission.", "train.seed=")) for override in setup.overrides)
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
    estimate = Estimator(size, usual).estimate_time(missing, finished)
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


DescribeResult = Callable[[PlannedRun], str]
"""Returns what a finished run has reached, for its line of progress."""
REFRESH_S: Final = 2.0
"""How often the live line of a terminal reads how far the active runs are."""


def execute_plan(
    runs: Sequence[PlannedRun],
    runner: JobRunner,
    describe_result: DescribeResult = lambda run: "done",
    usual_minutes: Mapping[str, float] = MappingProxyType({}),
) -> list[Attempt]:
    """Make the runs without a result, in order; return the last attempts at those that were given up.

    A finished run is never repeated, whatever its result. The others are begun again with the same seed: resuming from
    a checkpoint would count the time in between, because the clock of a run does not stop. A run that crashed too often
    stops the runs of its group. Raises PlanError, before anything is made, if a folder has another plan.
    usual_minutes: of a run, by benchmark, for the estimate before the first one ends.
    """
    check_records(runs)
    missing = [run for run in runs if not is_finished(run)]
    display = _Display(runs, missing, Estimator(runner.size, usual_minutes), describe_result)
    attempts = runner.run_all(missing, display.show_progress)
    failed = []
    try:
        with closing(attempts):
            for attempt in attempts:
                display.show_attempt(attempt)
                failed += [attempt] if attempt.last and not attempt.finished else []
    finally:
        display.bar.close()
    return failed


class _Display:
    """The progress of a plan: a line for each run that has ended; active ones have a line every BEAT_S, or live."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        missing: Sequence[PlannedRun],
        estimator: Estimator,
        describe_result: DescribeResult,
    ) -> None:
        self.estimator, self.describe_result = estimator, describe_result
        self.total = len(runs)
        self.missing = {run.folder: run for run in missing}
        self.finished = [run for run in runs if run.folder not in self.missing]
        self.bar: Any = tqdm(
            total=self.total,
            initial=len(self.finished),
            bar_format="{n_fmt}/{total_fmt} runs |{bar:10}| {elapsed}{postfix}",
            dynamic_ncols=True,
            disable=None,
            leave=False,
        )
        self.shown_at = time.monotonic()

    def show_progress(self, active: Sequence[PlannedRun]) -> None:
        """Show how far the active runs are, if that is due: on the live line, else a line for each."""
        if time.monotonic() - self.shown_at < (BEAT_S if self.bar.disable else REFRESH_S):
            return
        self.shown_at = time.monotonic()
        progresses = [read_progress(run) for run in active]
        left = self.estimator.estimate_time([*self.missing.values()], self.finished, progresses).text
        *lines, last = [progress.line for progress in progresses] or ["waiting"]
        if self.bar.disable:
            done = f"{len(self.finished)} of {counted(self.total, 'run')} finished"
            self._print_lines(*lines, f"{last}; {done}, time left: {left}")
        else:
            self.bar.set_postfix_str("; ".join([f"left: {left}", *lines, last]))

    def show_attempt(self, attempt: Attempt) -> None:
        """Print how an attempt ended; after a crash also the last lines of its output."""
        run = attempt.run
        if attempt.last:
            given_up = None if attempt.finished else run.group_name
            self.missing = {
                folder: other
                for folder, other in self.missing.items()
                if folder != run.folder and other.group_name != given_up
            }
        if not attempt.finished:
            again = f"given up after {counted(attempt.number, 'attempt')}" if attempt.last else "restarting"
            how = "was refused (wrong use), not restarted" if attempt.refused else f"crashed ({attempt.cause}), {again}"
            self._print_lines(f"{run.name} {how}; its output: {attempt.folder / OUTPUT}")
            self._print_lines(*(f"  | {clean(line)}" for line in read_last_lines(attempt.folder / OUTPUT)))
            return
        self.bar.update()
        self.finished.append(run)
        left = self.estimator.estimate_time([*self.missing.values()], self.finished)
        more = f"; time left: {left.text}" if self.missing else ""
        self._print_lines(f"[{len(self.finished)}/{self.total}] {run.name} {self.describe_result(run)}{more}")

    def _print_lines(self, *lines: str) -> None:
        for line in lines:
            tqdm.write(line, file=sys.stdout)
        sys.stdout.flush()
        self.shown_at = time.monotonic()
