"""The runs of a round: train the missing ones, show progress, and keep their state between two calls."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import msgspec
from tqdm import tqdm

from common.command import clean
from common.ending import read_ending
from common.files import LOG_NAME, write_whole_file
from common.training.progress import duration
from compliance.logs.run import Run, read_run
from submission.round.processes import BEAT_S, OUTPUT, Ended, Job, JobRunner, read_last_lines

CONFIG: Final = "config.yaml"
STATE: Final = "round.json"
LARGEST_SEED: Final = 2**31 - 1
Command = Callable[[str, Path, Path, int], Sequence[str]]


class StateError(ValueError):
    """The state of a round is unusable; the message says which file, and how to fix it."""


class RunState(msgspec.Struct):
    """A run. seconds: duration of the process. How the run ended is recorded in its own folder."""

    seed: int
    seconds: float = 0.0


class State(msgspec.Struct, forbid_unknown_fields=True):
    """The runs of each benchmark, by number."""

    runs: dict[str, list[RunState]] = {}

    def request_runs(self, counts: Mapping[str, int]) -> None:
        """Add runs, each with a new seed, until each benchmark has as many as `counts` says.

        Raises StateError if a benchmark has more runs already: leaving some out would be cherry-picking.
        """
        for benchmark, runs in self.runs.items():
            if counts.get(benchmark, 0) < len(runs):
                raise StateError(
                    f"{benchmark} has {len(runs)} runs in this round, but {counts.get(benchmark, 0)} are requested: a "
                    "round can only grow; for a smaller round choose another folder with -o"
                )
        taken = {run.seed for runs in self.runs.values() for run in runs}
        for benchmark, count in counts.items():
            runs = self.runs.setdefault(benchmark, [])
            while len(runs) < count:
                seed = random.SystemRandom().randint(1, LARGEST_SEED)
                if seed not in taken:
                    taken.add(seed)
                    runs.append(RunState(seed))

    def save(self, folder: Path) -> None:
        """Write the state into the folder of the round, for the next call."""
        write_whole_file(folder / STATE, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def load_state(folder: Path) -> State:
    """Return the state in a folder, an empty one if there is none; raise StateError if it is damaged."""
    path = folder / STATE
    if not path.exists():
        return State()
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} is not the state of a round ({error}); restore it, or use another folder") from error


def finished_run(folder: Path) -> Run | None:
    """Return the log in the folder of a run, as read; None if the run has no result yet and must be started again.

    The training itself has recorded how it ended: a run without such a record is active or was killed.
    """
    ending = read_ending(folder)
    if ending is None or not ending.final:
        return None
    run = read_run(str(folder / LOG_NAME))
    return run if run.finished else None


def training(benchmark: str, config: Path, folder: Path, seed: int) -> Sequence[str]:
    """Return the training command of a run."""
    return sys.executable, "-m", f"{benchmark}.train", str(config), f"output_dir={folder}", f"train.seed={seed}"


class Runs:
    """All runs of a round. finished: the logs of the finished ones, as read, by benchmark and number.

    A run is finished when its training has recorded a result (`common.ending`), whether or not it met the target: such
    a run is never repeated. All others restart with the same seed; resuming from a checkpoint would count the time in
    between, because the clock of a run does not stop.
    """

    def __init__(self, folder: Path, state: State, command: Command = training) -> None:
        """Read the logs of the finished runs in the folder of a round.

        command: returns the command of a run, as `training` does. It must write the log result_0.txt and the record of
        its ending into the folder of the run.
        """
        self.folder, self.state, self.command = folder, state, command
        self.finished: dict[tuple[str, int], Run] = {}
        for benchmark, runs in state.runs.items():
            for number in range(len(runs)):
                if found := finished_run(self.run_folder(benchmark, number)):
                    self.finished[benchmark, number] = found

    def run_folder(self, benchmark: str, number: int) -> Path:
        """Return the folder of a run."""
        return self.folder / benchmark / f"run_{number}"

    @property
    def all(self) -> list[tuple[str, int]]:
        """The runs of the round, by benchmark and number."""
        return [(benchmark, number) for benchmark, runs in self.state.runs.items() for number in range(len(runs))]

    def logs(self) -> dict[Path, Run]:
        """Return the paths of the finished runs' logs, in order, with the logs as read."""
        return {self.run_folder(*run) / LOG_NAME: self.finished[run] for run in self.all if run in self.finished}

    def make(self, runner: JobRunner) -> None:
        """Train all missing runs, except those of a benchmark with a run that crashed too often."""
        self.state.save(self.folder)
        jobs = {self._job(*run): run for run in self.all if run not in self.finished}
        display = _Display(self, list(jobs), runner.size)
        attempts = runner.run_all(list(jobs), lambda job: self._has_finished(jobs[job]), display.tick)
        try:
            with closing(attempts):
                for ended in attempts:
                    if ended.finished:
                        benchmark, number = jobs[ended.job]
                        self.state.runs[benchmark][number].seconds = round(ended.seconds, 1)
                        self.state.save(self.folder)
                    display.ended(ended, jobs[ended.job])
        finally:
            display.bar.close()

    def _job(self, benchmark: str, number: int) -> Job:
        folder = self.run_folder(benchmark, number)
        seed = self.state.runs[benchmark][number].seed
        return Job(benchmark, folder, tuple(self.command(benchmark, self.folder / benchmark / CONFIG, folder, seed)))

    def _has_finished(self, run: tuple[str, int]) -> bool:
        """Read the log of a run whose process has ended; return whether the run is finished."""
        found = finished_run(self.run_folder(*run))
        if found:
            self.finished[run] = found
        return found is not None

    def seconds_left(self, size: int) -> float | None:
        """Return the estimated seconds for the missing runs, `size` at a time; None before the first run ends."""
        known = {run: self.state.runs[run[0]][run[1]].seconds for run in self.finished}
        if not any(known.values()):
            return None
        total = 0.0
        for benchmark, runs in self.state.runs.items():
            mine = [seconds for (name, _), seconds in known.items() if name == benchmark and seconds]
            left = len(runs) - sum(name == benchmark for name, _ in known)
            total += left * fmean(mine or [seconds for seconds in known.values() if seconds])
        return total / size


class _Display:
    """The progress of a round: a line for each run that has ended, and every BEAT_S; on a terminal also a bar."""

    def __init__(self, runs: Runs, jobs: Sequence[Job], size: int) -> None:
        self.runs, self.jobs, self.size = runs, jobs, size
        self.total = len(runs.all)
        self.bar: Any = tqdm(
            total=self.total,
            initial=len(runs.finished),
            bar_format="{n_fmt}/{total_fmt} runs |{bar}| {elapsed}{postfix}",
            disable=None,
            leave=False,
        )
        self.left, self.since, self.shown = runs.seconds_left(size), time.monotonic(), 0.0
        self.said, self.done = self.since, set[str]()

    def tick(self) -> None:
        """Refresh the bar, at most once a second; say what the active runs print, after BEAT_S without a line."""
        now = time.monotonic()
        if now - self.said >= BEAT_S:
            for job in self.jobs:
                if job.name not in self.done and (job.folder / OUTPUT).exists():
                    line = "".join(read_last_lines(job.folder / OUTPUT, 1)).strip() or "no output so far"
                    self._say(f"{job.name}: {clean(line)}")
        if now - self.shown >= 1:
            self.shown = now
            if self.left is not None:
                self.bar.set_postfix_str(self._left(self.left - (now - self.since)), refresh=False)
            self.bar.refresh()

    def ended(self, ended: Ended, run: tuple[str, int]) -> None:
        """Print how an attempt ended; after a crash also the last lines of its output."""
        if ended.last:
            self.done.add(ended.job.name)
        if not ended.finished:
            again = f"given up after {ended.attempt} attempts" if ended.last else "restarting"
            how = "was refused (wrong use), not restarted" if ended.refused else f"crashed ({ended.cause}), {again}"
            self._say(f"{ended.job.name} {how}; its output: {ended.kept / OUTPUT}")
            for line in read_last_lines(ended.kept / OUTPUT):
                self._say(f"  | {clean(line)}")
            return
        self.bar.update()
        self.left, self.since = self.runs.seconds_left(self.size), time.monotonic()
        record, done = self.runs.finished[run], len(self.runs.finished)
        evaluations = record.details.evaluations
        quality = f" ({evaluations[-1].value:.4g})" if evaluations else ""
        how = "met the target" if record.status == "success" else "did NOT meet the target (the run is kept)"
        left = f"; {self._left(self.left)}" if self.left and done < self.total else ""
        self._say(
            f"[{done}/{self.total}] {ended.job.name} {how} after {len(evaluations)} evaluations{quality}, "
            f"{duration(60 * (record.minutes or 0.0))}{left}"
        )

    @staticmethod
    def _left(seconds: float) -> str:
        return f"ETA {duration(max(0.0, seconds))}"

    def _say(self, text: str) -> None:
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()
        self.said = time.monotonic()
