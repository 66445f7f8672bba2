"""Make the missing runs of a plan on this machine, and show the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, Final

from tqdm import tqdm

from common.command import clean, counted
from submission.runs.plan import PlannedRun, check_records, is_finished
from submission.runs.processes import BEAT_S, OUTPUT, Attempt, JobRunner, read_last_lines
from submission.runs.progress import Estimator, read_progress

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

    def tick(self, active: Sequence[PlannedRun]) -> None:
        """Show how far the active runs are, if that is due: on the live line, else a line for each."""
        if time.monotonic() - self.shown_at < (BEAT_S if self.bar.disable else REFRESH_S):
            return
        self.shown_at = time.monotonic()
        progresses = [read_progress(run) for run in active]
        left = self.estimator.estimate([*self.missing.values()], self.finished, progresses).text
        *lines, last = [progress.line for progress in progresses] or ["waiting"]
        if self.bar.disable:
            done = f"{len(self.finished)} of {counted(self.total, 'run')} finished"
            self._print(*lines, f"{last}; {done}, time left: {left}")
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
            self._print(f"{run.name} {how}; its output: {attempt.folder / OUTPUT}")
            self._print(*(f"  | {clean(line)}" for line in read_last_lines(attempt.folder / OUTPUT)))
            return
        self.bar.update()
        self.finished.append(run)
        left = self.estimator.estimate([*self.missing.values()], self.finished)
        more = f"; time left: {left.text}" if self.missing else ""
        self._print(f"[{len(self.finished)}/{self.total}] {run.name} {self.describe_result(run)}{more}")

    def _print(self, *lines: str) -> None:
        for line in lines:
            tqdm.write(line, file=sys.stdout)
        sys.stdout.flush()
        self.shown_at = time.monotonic()
