"""The runs of a study: what this machine can make, making it, and what the runs have measured, from their folders.

Points that the machine cannot have are left out, and said.
"""

from __future__ import annotations

import math
import os
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from common.bad_json import load_json
from common.command import counted
from common.ending import DIVERGED, STOPPED_EARLY, read_ending
from common.files import LOG_NAME
from common.measure.devices import POWERCAP
from common.measure.fom import NAME as FIGURE
from common.processes import usable_cores
from common.tree import ANYWHERE
from common.values import group_pairs
from compliance.benchmarks import require_reference
from compliance.logs.run import read_run
from submission.runs.plan import (
    RECORD,
    PlanError,
    PlannedRun,
    assign_folders,
    check_records,
    has_result,
    is_finished,
    read_record,
)
from submission.runs.processes import (
    OUTPUT,
    SET_ASIDE,
    JobRunner,
    check_trainer,
    hold_lock,
    interrupt_by_signals,
    provide_data,
    read_error,
    read_last_lines,
    set_aside,
)
from submission.runs.progress import announce_runs, execute_plan
from submission.study.curves import name_value
from submission.study.plan import INTERFACES, RANKS, StudyPlan, StudyPoint
from submission.study.records import QUANTITIES, CurveSpec, StudyRun
from submission.system.machine import Machine, probe_machine

THREADS: Final = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class StudyMachine:
    """The facts of a machine.

    accelerators: their number, None if it is unknown. devices: model names. interfaces: of the network. meter: a
    power.source, or "".
    """

    cores: int
    accelerators: int | None
    interfaces: tuple[str, ...]
    processor: str = ""
    devices: str = ""
    meter: str = ""

    def describe(self) -> dict[str, str | int]:
        """Return the facts for the record of a study."""
        devices = {"devices": f"{self.accelerators} x {self.devices}"} if self.accelerators else {}
        others = {"interfaces": ", ".join(self.interfaces), "meter": self.meter or "none"}
        return {"processor": self.processor, "cores": self.cores, **devices, **others}


def probe_study_machine() -> StudyMachine:
    """Return the facts about this machine."""
    fields = probe_machine(Machine())
    meters = {
        "nvml": Path("/dev/nvidiactl").exists(),
        "rapl": os.access(f"{POWERCAP}/intel-rapl:0/energy_uj", os.R_OK),
    }
    return StudyMachine(
        cores=usable_cores(),
        accelerators=int(count) if (count := fields.get("accelerators_per_node")) else None,
        interfaces=tuple(name for _, name in socket.if_nameindex()),
        processor=fields.get("host_processor_model_name", ""),
        devices=fields.get("accelerator_model_name", ""),
        meter=next((name for name, is_there in meters.items() if is_there), ""),
    )


def split_points(points: Sequence[StudyPoint], machine: StudyMachine) -> tuple[list[StudyPoint], list[str]]:
    """Return the points that the machine can make, or that are made, and a note for each value that it cannot have."""
    kept: list[StudyPoint] = []
    excluded: dict[tuple[str, str], dict[str, None]] = {}
    units = counted(machine.accelerators, "accelerator") if machine.accelerators else counted(machine.cores, "core")
    for point in points:
        run = point.run
        missing = [
            (name, value, ", ".join(machine.interfaces))
            for name, value in run.environment.items()
            if name in INTERFACES and value not in machine.interfaces
        ]
        if machine.accelerators is not None and run.ranks > (machine.accelerators or machine.cores):
            missing.append((RANKS, str(run.ranks), units))
        if not missing or is_finished(run):  # made elsewhere
            kept.append(point)
            continue
        for name, value, available in missing:
            excluded.setdefault((name, available), {})[value] = None
    return kept, [
        f"left out: {name} {', '.join(values)}: this machine has {available}"
        for (name, available), values in excluded.items()
    ]


def choose_meter(plan: StudyPlan, machine: StudyMachine) -> tuple[StudyPlan, list[str]]:
    """Return the plan with the machine's meter, if it asks for energy and names none, and a note if there is none."""
    if not plan.energy or any(override.startswith("power.source=") for override in plan.overrides):
        return plan, []
    if not machine.meter:
        return plan, ["no energy: no meter can be read here (NVML or RAPL); name another by --set power.source=NAME"]
    return replace(plan, overrides=(*plan.overrides, f"power.source={machine.meter}")), []


def set_threads(point: StudyPoint, threads: int) -> StudyPoint:
    """Return the point with a fixed number of threads of each rank, so that a unit is the same in every run."""
    return replace(
        point,
        run=replace(point.run, environment={THREADS: str(threads), **point.run.environment}),
    )


def find_changeable(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points that have no result yet, whose settings may change; PlanError if others have changed."""
    groups = group_pairs((point.run.folder.parent, point) for point in points)
    empty = [group for group in groups.values() if not any(has_result(point.run) for point in group)]
    check_records([point.run for group in groups.values() if group not in empty for point in group])
    return [point for group in empty for point in group]


def make_runs(points: Sequence[StudyPoint], output: Path, runner: JobRunner) -> None:
    """Make the missing runs, then the evaluations of those that have their networks. Raises PlanError beforehand."""
    for benchmark in {point.run.benchmark for point in points}:
        check_trainer(benchmark)
    interrupt_by_signals()
    with hold_lock(output) as lock:
        runner = replace(runner, lock=lock)
        for point in find_changeable(points):
            try:
                check_records([point.run])
            except PlanError:
                set_aside(point.run.folder)
                (point.run.folder / RECORD).unlink()
        setups = {point.setup.data_dir: point.setup for point in points if point.run.kind == "training"}
        runs = [point.run for point in points]
        announce_runs(runs, [*setups.values()], runner.size, {})
        for setup in setups.values():
            provide_data(setup, runner)
        execute_plan(runs, runner, describe_run)
        evaluations = [point.evaluation for point in points if point.evaluation and is_finished(point.run)]
        if evaluations:
            execute_plan(evaluations, runner)


# -- what the runs have measured ----------------------------------------------------------------------------


def collect_runs(points: Sequence[StudyPoint], curves: Sequence[CurveSpec]) -> list[StudyRun]:
    """Return what the runs have measured so far, in the order of the points.

    curves: the lines of one may be told apart by several names, joined by "+"; the runs get these as one value.
    """
    runs = add_efficiency([_collect_run(point) for point in points])
    for by in {curve.by for curve in curves if "+" in curve.by}:
        runs = [
            replace(
                run,
                values=run.values | {by: " ".join(name_value(name, run.get(name)) for name in by.split("+"))},
            )
            for run in runs
        ]
    return runs


def add_efficiency(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Return the runs with the quantity `efficiency`, by the fewest units among runs of one benchmark and label."""
    groups: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    rated = []
    for run in runs:
        group = groups.setdefault((run.values.get("benchmark"), run.values.get("label")), {})
        speed = run.quantities.get("flop_per_s", run.quantities.get("samples_per_s", 0.0))
        rate = speed / run.quantities.get("units", math.inf)
        if rate:
            group.setdefault(run.quantities["units"], []).append(rate)
        rated.append((run, rate, group))
    return [
        replace(run, quantities=run.quantities | {"efficiency": rate / fmean(group[min(group)])})
        if rate and len(group) > 1
        else run
        for run, rate, group in rated
    ]


def format_command(run: PlannedRun) -> str:
    """Return the command that makes a run, with its environment."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in run.environment.items()]
    return " ".join([*assign_folders(), *variables, shlex.join(run.command("python"))])


def describe_run(run: PlannedRun) -> str:
    """Return what a finished run has reached, for its line of progress."""
    figure = dict(_read_figure(run.folder))
    texts = [f"{name} {figure[name]:.4g}" for name in ("samples_per_s", "quality", "minutes") if name in figure]
    return ", ".join(texts) or "done"


def _collect_run(point: StudyPoint) -> StudyRun:
    run, ending = point.run, read_ending(point.run.folder)
    kept = {key: value for key, value in (read_record(run.folder) or {}).items() if key in ("overrides", "environment")}
    command = format_command(replace(run, folder=Path("again", *run.folder.parts[-3:]), **kept))  # makes it again
    record = StudyRun(run.title, point.values, command=command)
    if not is_finished(run):
        return replace(record, problem=_explain_missing(run.folder))
    quantities = dict(_read_figure(run.folder))
    if run.kind == "training":
        quantities |= dict(_read_training(run, quantities))
    if point.evaluation is not None and is_finished(point.evaluation):
        content = _read_json(point.evaluation.result_file)
        quantities["ensemble_quality"] = content.get("ensemble", content["members"][0]["quality"])
    problem = ending.text if ending and ending.how in (DIVERGED, STOPPED_EARLY) else ""
    return replace(record, quantities=quantities, problem=problem)


def _explain_missing(folder: Path) -> str:
    """Return why a run has no result, by its own record or the newest of its attempts."""
    attempts = sorted(
        (folder.parent / SET_ASIDE).glob(f"{folder.name}-*"),
        key=lambda path: path.stat().st_mtime,
    )
    for path in (folder, *reversed(attempts)):
        if ending := read_ending(path):
            return ending.text
        if problem := read_error(path) or "".join(read_last_lines(path / OUTPUT, 1)):
            return problem
    return "not run"


def _read_figure(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the quantities in the figure of merit of a run."""
    figure = _read_json(folder / FIGURE)
    for name, quantity in QUANTITIES.items():
        number = figure.get(quantity.field or name)
        number = median(number) if isinstance(number, list) else number
        if isinstance(number, int | float) and math.isfinite(number):
            yield name, number * quantity.scale


def _read_training(run: PlannedRun, figure: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield what the log of a training and its figure of merit together tell; of a job, means over instances."""
    logs = [log for folder in run.result_folders if (log := folder / LOG_NAME).exists()]
    trainings = [read_run(str(log)).details for log in logs]
    best = min if require_reference(run.benchmark).target.lower_is_better else max
    if qualities := [best(each.value for each in details.evaluations) for details in trainings if details.evaluations]:
        yield "best_quality", fmean(qualities)
    if seconds := [length for details in trainings for length in details.epoch_seconds]:
        yield "epoch_s", fmean(seconds)
    if "models" not in figure and "minutes" in figure:
        yield "models_per_min", 1 / figure["minutes"]
        trained_s = _read_json(run.folder / FIGURE).get("epoch_train_s")
        if "flop_per_s" in figure and trained_s:
            yield (
                "flop",
                float(f"{figure['flop_per_s'] * sum(trained_s):.12g}"),
            )  # 12 digits: equal work, equal number


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file that a run has written; {} without the file, as of a training without an epoch."""
    return dict(load_json(ANYWHERE.read(path, 1 << 24))) if path.exists() else {}
