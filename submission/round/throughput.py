"""A throughput result on this machine: many instances in one job, their package, score, and advice what to prune."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.command import clean, counted
from common.ending import TARGET_MET, read_ending
from common.files import LOG_NAME, instance_folders
from compliance.benchmarks import reference_of
from compliance.logs.run import Run, read_run
from compliance.model.judging import FAIL, PASSING, listed
from compliance.model.layout import WEAK
from compliance.model.result_set import ResultSet
from compliance.model.score import throughput
from submission.round.make import RoundInputs, RoundPackage, open_round, prepare_benchmarks
from submission.round.plan import CONFIG, Series
from submission.runs.plan import PlanError, PlannedRun
from submission.runs.processes import JobRunner, Setup
from submission.runs.progress import announce_runs, execute_plan

FOLDER: Final = "throughput"
"""The folder of the instances, below that of their benchmark."""


Logs = dict[Path, Run]
"""The logs of instances that have ended for good, as read."""


def make_throughput(plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs) -> str:
    """Train the instances of each benchmark in one job, package those that met the target, and show the score.

    Returns the verdict on the package. Call it again to go on: instances that have their result stay as they are.
    """
    with open_round(plan, output, runner, inputs) as (setups, package, locked_runner):
        for setup in setups:
            folder = output / setup.benchmark / FOLDER
            present = max(instance_folders(folder), default=-1) + 1
            if present > inputs.instances:  # leaving some out would be cherry-picking
                raise PlanError(
                    f"{folder} has {present} instances, but {inputs.instances} are requested: their number can "
                    "only grow; which of them do not count is decided by pruning. For fewer choose another folder "
                    "with -o"
                )
        jobs = [_plan_job(setup, inputs, output, runner.size) for setup in setups]
        announce_runs(jobs, setups, 1, {})
        prepare_benchmarks(setups, output, locked_runner)
        execute_plan(jobs, replace(locked_runner, size=1), _describe_job)
        trained = {job.benchmark: _read_results(job) for job in jobs}
        return _finish(package, trained, setups)


def _plan_job(setup: Setup, inputs: RoundInputs, output: Path, size: int) -> PlannedRun:
    """Return the job that trains the instances of a benchmark on this machine. size: of them at the same time."""
    # The seed is drawn by the first call, and kept.
    settings = ("train.seed=null", f"instances.ranks={inputs.instance_ranks}")
    series = Series(setup.benchmark, str(output / setup.benchmark / CONFIG), 1, settings)
    return plan_instances(series, output, inputs.instances, min(size, inputs.instances) * inputs.instance_ranks)


def _describe_job(job: PlannedRun) -> str:
    """Return how many instances of a finished job have met the target, for its line of progress."""
    endings = [read_ending(folder) for folder in job.result_folders]
    met = sum(ending is not None and ending.how == TARGET_MET for ending in endings)
    return f"done: {met} of {counted(len(endings), 'instance')} met the target"


def _read_results(job: PlannedRun) -> tuple[Logs, Logs]:
    """Return the logs of the instances with a result, those that met the target first; say which have none."""
    met: Logs = {}
    missed: Logs = {}
    for folder in job.result_folders:
        ending = read_ending(folder)
        if ending is None or not ending.final:
            cause = ending.text if ending else "it was not started, or was killed"
            print(clean(f"{folder}: no result ({cause})"), file=sys.stderr)
        else:
            logs = met if ending.how == TARGET_MET else missed
            logs[folder / LOG_NAME] = read_run(str(folder / LOG_NAME))
    return met, missed


def plan_instances(series: Series, output: Path, count: int, ranks: int) -> PlannedRun:
    """Return the job that trains all instances of a series on this many ranks, or goes on with them."""
    return PlannedRun(
        benchmark=series.benchmark,
        kind="training",
        config=series.config,
        overrides=series.overrides,
        folder=output / series.benchmark / FOLDER,
        ranks=ranks,
        instances=count,
    )


def _finish(package: RoundPackage, trained: Mapping[str, tuple[Logs, Logs]], setups: Sequence[Setup]) -> str:
    """Write and check the package, and print the scores; return its verdict, FAIL without a model."""
    assembled = None
    for benchmark, (met, missed) in trained.items():
        if met:
            for log in missed:
                print(clean(f"{log.parent}: missed the target: not a model, and not packaged (RUN11)"), file=sys.stderr)
            assembled = package.pack(met, "weak")
        else:
            print(f"{benchmark}: no instance met the target: nothing to package", file=sys.stderr)
    if assembled is None:
        return FAIL
    report = package.show(assembled)
    for setup in setups:
        reference = reference_of(setup.benchmark, setup.variant)
        for results in report.sets:
            if results.scaling == WEAK and results.benchmark == setup.benchmark and reference:
                print("\n".join(describe_score(results, reference.runs)), flush=True)
    return report.verdict if all(met for met, _ in trained.values()) else FAIL


# -- the score and what could be better ----------------------------------------------------------------------


def describe_score(results: ResultSet, least: int) -> list[str]:
    """Return the score of a throughput result, and which instances to prune for a better one."""
    score = throughput(results.runs, results.system_scale, results.instance_scale)
    if score.minutes is None or score.models_per_minute is None:
        return [f"{results.name}: no score: none of the logs passes the check"]
    scale = "less than 1" if score.instance_scale is None else score.instance_scale
    valid = results.verdict in PASSING
    return [
        f"{results.name}: T = {score.system_scale}, S = {scale}, M' = {score.models}, TTTa = {score.minutes:.4g} min: "
        f"{score.models_per_minute:.4g} models/min{'' if valid else f'; not a result: {results.verdict}'}",
        f"advice: {advise_pruning(results, least)}",
    ]


def advise_pruning(results: ResultSet, least: int) -> str:
    """Return which instances to prune. least: models that the rules ask for."""
    accepted = [run for run in results.runs if run.verdict != FAIL]
    runs = sorted((run for run in accepted if run.start_ms and run.stop_ms), key=lambda run: run.stop_ms or 0.0)
    if len(runs) <= least:
        return f"prune none: {len(runs)} models, of which the rules ask for at least {least}"
    clocks = [(run.start_ms or 0.0, run.stop_ms or 0.0) for run in runs]
    kept = find_best_count(clocks, least)
    if kept == len(runs):
        return "prune none: fewer models are not more models/min"
    names = listed([run.path.rsplit("/", 1)[-1] for run in runs[kept:]], 8)
    return (
        f"move {names} to pruned_results: {kept} models are {compute_rate(clocks[:kept]):.4g} models/min instead of "
        f"{compute_rate(clocks):.4g}"
    )


def find_best_count(clocks: Sequence[tuple[float, float]], least: int) -> int:
    """Return how many of the instances, those that stop first, give most models per minute; of equals the most.

    clocks: start and stop in ms, by their stop. least: that must be kept.
    """
    return max(range(min(least, len(clocks)), len(clocks) + 1), key=lambda count: (compute_rate(clocks[:count]), count))


def compute_rate(clocks: Sequence[tuple[float, float]]) -> float:
    """Return models per minute: from the first start to the last stop."""
    return len(clocks) / ((max(stop for _, stop in clocks) - min(start for start, _ in clocks)) / 60_000)
