"""How far runs are, by their logs, and how long the missing ones will take, with the basis of the estimate."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from common.command import clean, counted
from common.console import duration
from common.files import LOG_NAME
from common.record import METRICS
from compliance.benchmarks import reference_of
from compliance.logs.run import read_run
from submission.runs.plan import RECORD, PlannedRun, has_ended
from submission.runs.processes import OUTPUT, read_last_lines

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
        return clean(f"{self.run.name}: {self.text}, {duration(self.elapsed_s)} so far")


def read_progress(run: PlannedRun) -> RunProgress:
    """Return how far an active run is: by its log if it has one, else by the last line that it has printed."""
    try:
        return _read_progress(run)
    except (OSError, ValueError) as error:  # what is only shown ends no run
        return RunProgress(run, f"how far it is cannot be read ({error})")


def _read_progress(run: PlannedRun) -> RunProgress:
    if run.instances:
        ended = sum(map(has_ended, run.result_folders))
        return RunProgress(run, f"{ended} of {run.instances} instances have ended")
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
    with suppress(ValueError, LookupError, TypeError):  # a line may just be being written
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
        amount = f"{'at most' if self.bounded else 'about'} {duration(self.seconds)} ({'; '.join(self.bases)})"
        return f"{amount}, without {' and '.join(self.unknown)} ({NO_BASIS})" if self.unknown else amount


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimates the time for missing runs, each by runs of its own benchmark alone.

    size: of the runs at the same time. usual_minutes: of a run, by benchmark, where that is known.
    """

    size: int = 1
    usual_minutes: Mapping[str, float] = field(default_factory=dict)

    def estimate(
        self, missing: Sequence[PlannedRun], finished: Collection[PlannedRun], active: Sequence[RunProgress] = ()
    ) -> Estimate:
        """Return the estimate for the missing runs, the active ones among them included."""
        took: dict[str, list[float]] = {}
        for run in finished:
            if run_s := measure_seconds(run):
                took.setdefault(run.benchmark, []).append(run_s)
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
