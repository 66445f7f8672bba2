"""Make the missing runs of a plan on this machine, and show the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from common.command import clean, counted
from common.training.progress import duration
from submission.runs.plan import RECORD, PlannedRun, check_records, is_finished
from submission.runs.processes import BEAT_S, OUTPUT, Attempt, JobRunner, read_last_lines

DescribeResult = Callable[[PlannedRun], str]
"""Returns what a finished run has reached, for its line of progress."""


def execute_plan(
    runs: Sequence[PlannedRun], runner: JobRunner, describe_result: DescribeResult = lambda run: "done"
) -> list[Attempt]:
    """Make the runs without a result, in order; return the last attempts at those that were given up.

    A finished run is never repeated, whatever its result. The others are begun again with the same seed: resuming from
    a checkpoint would count the time in between, because the clock of a run does not stop. A run that crashed too often
    stops the runs of its group. Raises PlanError, before anything is made, if a folder has another plan.
    """
    check_records(runs)
    missing = [run for run in runs if not is_finished(run)]
    display = _Display(runs, missing, runner.size, describe_result)
    attempts = runner.run_all(missing, display.tick)
    failed = []
    try:
        with closing(attempts):
            for attempt in attempts:
                display.show_attempt(attempt)
                failed += [attempt] if attempt.last and not attempt.finished else []
    finally:
        display.bar.close()
    return failed


def measure_seconds(run: PlannedRun) -> float:
    """Return how long a finished run took, by when its plan and its result were written; 0 without these files."""
    begin, end = run.folder / RECORD, run.result_file
    if not (begin.exists() and end.exists()):  # such as one that was killed after it had written its log
        return 0.0
    return max(0.0, end.stat().st_mtime - begin.stat().st_mtime)


class _Display:
    """The progress of a plan: a line for each run that has ended, and every BEAT_S; on a terminal also a bar."""

    def __init__(
        self, runs: Sequence[PlannedRun], missing: Sequence[PlannedRun], size: int, describe_result: DescribeResult
    ) -> None:
        self.missing, self.size, self.describe_result = missing, size, describe_result
        self.total = len(runs)
        self.finished = {run.folder: run for run in runs if run not in missing}
        self.bar: Any = tqdm(
            total=self.total,
            initial=len(self.finished),
            bar_format="{n_fmt}/{total_fmt} runs |{bar}| {elapsed}{postfix}",
            disable=None,
            leave=False,
        )
        self.left, self.since, self.refreshed = self._seconds_left(), time.monotonic(), 0.0
        self.printed, self.ended = self.since, set[Path]()

    def tick(self) -> None:
        """Refresh the bar, at most once a second; print what the active runs print, after BEAT_S without a line."""
        now = time.monotonic()
        if now - self.printed >= BEAT_S:
            for run in self.missing:
                if run.folder not in self.ended and (run.folder / OUTPUT).exists():
                    line = "".join(read_last_lines(run.folder / OUTPUT, 1)).strip() or "no output so far"
                    self._print(f"{run.name}: {clean(line)}")
        if now - self.refreshed >= 1:
            self.refreshed = now
            if self.left is not None:
                self.bar.set_postfix_str(self._format_left(self.left - (now - self.since)), refresh=False)
            self.bar.refresh()

    def show_attempt(self, attempt: Attempt) -> None:
        """Print how an attempt ended; after a crash also the last lines of its output."""
        run = attempt.run
        if attempt.last:
            self.ended.add(run.folder)
        if not attempt.finished:
            again = f"given up after {counted(attempt.number, 'attempt')}" if attempt.last else "restarting"
            how = "was refused (wrong use), not restarted" if attempt.refused else f"crashed ({attempt.cause}), {again}"
            self._print(f"{run.name} {how}; its output: {attempt.folder / OUTPUT}")
            for line in read_last_lines(attempt.folder / OUTPUT):
                self._print(f"  | {clean(line)}")
            return
        self.bar.update()
        self.finished[run.folder] = run
        self.left, self.since = self._seconds_left(), time.monotonic()
        left = f"; {self._format_left(self.left)}" if self.left and len(self.finished) < self.total else ""
        self._print(f"[{len(self.finished)}/{self.total}] {run.name} {self.describe_result(run)}{left}")

    def _seconds_left(self) -> float | None:
        """Return the estimated seconds for the missing runs; None before the first run ends."""
        seconds: dict[str, list[float]] = {}
        for run in self.finished.values():
            if duration_s := measure_seconds(run):
                seconds.setdefault(run.benchmark, []).append(duration_s)
        everywhere = [number for numbers in seconds.values() for number in numbers]
        if not everywhere:
            return None
        left = [run for run in self.missing if run.folder not in self.finished]
        return sum(fmean(seconds.get(run.benchmark, everywhere)) for run in left) / self.size

    @staticmethod
    def _format_left(seconds: float) -> str:
        return f"ETA {duration(max(0.0, seconds))}"

    def _print(self, text: str) -> None:
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()
        self.printed = time.monotonic()
