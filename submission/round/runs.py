"""The runs of a round: trainings of one configuration for each benchmark, each with a seed of its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from common.console import duration
from common.files import LOG_NAME
from compliance.logs.run import Run, read_run
from submission.runs.execute import execute_plan
from submission.runs.plan import RECORD, PlanError, PlannedRun, is_finished, keep_seeds
from submission.runs.processes import JobRunner

CONFIG: Final = "config.yaml"
FORMER_RECORD: Final = "round.json"
"""The plan of a round in versions before 0.3."""
LARGEST_SEED: Final = 2**31 - 2**16
"""An instance adds its number, and seeds are below 2^31."""


def plan_runs(folder: Path, counts: Mapping[str, int]) -> list[PlannedRun]:
    """Return the runs of a round in a folder, with their seeds: those that there are, and more.

    counts: runs of each benchmark. Raises PlanError if there are more: leaving some out would be cherry-picking.
    """
    if (folder / FORMER_RECORD).exists():
        raise PlanError(
            f"{folder / FORMER_RECORD}: this round was begun by a version before 0.3, whose seeds are there; finish it "
            "with that version, or choose another folder with -o"
        )
    for benchmark, present in Counter(path.parent.parent.name for path in folder.glob(f"*/run_*/{RECORD}")).items():
        if counts.get(benchmark, 0) < present:
            raise PlanError(
                f"{benchmark} has {present} runs in this round, but {counts.get(benchmark, 0)} are requested: a round "
                "can only grow; for a smaller round choose another folder with -o"
            )
    runs = []
    for benchmark, count in counts.items():
        config = str(folder / benchmark / CONFIG)
        runs += [
            PlannedRun(benchmark=benchmark, kind="training", config=config, folder=folder / benchmark / f"run_{number}")
            for number in range(count)
        ]
    return keep_seeds(runs, draw_seeds())


def make_runs(
    runs: list[PlannedRun], runner: JobRunner, usual_minutes: Mapping[str, float] = MappingProxyType({})
) -> dict[Path, Run]:
    """Train the missing runs; return the paths of all logs with a result, as read.

    usual_minutes: of a run, by benchmark, for the estimate before the first one ends.
    """
    for run in runs:
        if not (run.folder / RECORD).exists():
            run.write_record()  # the seed is fixed before the first run starts
    execute_plan(runs, runner, _describe_run, usual_minutes)
    return read_logs(runs)


def read_logs(runs: list[PlannedRun]) -> dict[Path, Run]:
    """Return the paths of the logs of the finished runs, as read."""
    paths = [run.folder / LOG_NAME for run in runs if is_finished(run)]
    return {path: read_run(str(path)) for path in paths}


def draw_seeds() -> Iterator[int]:
    """Yield random seeds without end."""
    while True:
        yield random.SystemRandom().randint(1, LARGEST_SEED)


def _describe_run(run: PlannedRun) -> str:
    record = read_run(str(run.folder / LOG_NAME))
    evaluations = record.details.evaluations
    quality = f" ({evaluations[-1].value:.4g})" if evaluations else ""
    how = "met the target" if record.status == "success" else "did NOT meet the target (the run is kept)"
    return f"{how} after {len(evaluations)} evaluations{quality}, {duration(60 * (record.minutes or 0.0))}"
