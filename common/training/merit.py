"""The figure of merit of a training, from its log and its power files."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import date
from operator import mul
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from common.files import LOG_NAME, POWER
from common.measure.accelerators import rate_device
from common.measure.fom import EXPONENTS, NAME, N, TrainedEnsemble, TrainedRun, find_valid_share
from common.measure.power.limits import find_lowest, read_limits, read_model_name
from common.measure.power.recorder import UNKNOWN, read_energy
from common.ranks.dist import Dist
from common.record import read_run_times, read_value
from common.reference import NoTarget
from common.spatial.shards import whole_size
from common.training.loop import Fit

FLOP_PER_SAMPLE: Final = "flop_per_sample"
"""The key of a log with the operations of the network for a sample in training and in evaluation."""


def compute_figure(benchmark: str, run: Fit, ranks: Dist, folder: Path, own_code: str = "") -> TrainedRun | None:
    """Return the figure of merit of a run that has ended; None if no epoch was evaluated.

    ranks: all of the run, also those that only evaluate. folder: that of the run, with its log. own_code: what
    computed in place of the suite's code.
    """
    log, history = folder / LOG_NAME, run.history
    clock = read_run_times(log)
    if not history or clock is None:
        return None
    rates = [epoch.samples_per_s for epoch in history]
    rate, train_s = statistics.median(rates), [epoch.train_s for epoch in history]
    samples = sum(map(mul, rates, train_s))
    flop = read_value(log, FLOP_PER_SAMPLE) or {}
    quality, minutes = history[-1].quality, (clock[1] - clock[0]) / 60_000
    flop_per_s = flop["training"] * samples / sum(train_s) if flop else None
    share = find_valid_share(run.problem.reference.target, quality, EXPONENTS.get(benchmark, N))
    whole_rate = None
    if flop and minutes > 0:
        whole = flop["training"] * samples + flop["evaluation"] * len(history) * run.problem.eval_samples
        whole_rate = whole / (60 * minutes)
    return TrainedRun(
        benchmark=benchmark,
        samples_per_s=rate,
        batch=run.config.global_batch_size,
        own_code=own_code or None,
        spread=statistics.stdev(rates) / rate if len(rates) > 1 else 0.0,
        network=run.problem.reference.variant,
        samples_per_s_per_unit=rate / ranks.world_size,
        epoch_samples_per_s=tuple(rates),
        minutes=minutes,
        epochs=history[-1].epoch,
        quality=quality,
        target=None if isinstance(run.target, NoTarget) else run.target.value,
        target_met=run.meets_target(),
        steps=sum(map(run.count_steps, range(len(history)))),
        train_samples=run.problem.train_samples,
        parameters=count_parameters(run.problem.model),
        loss=history[-1].loss,
        epoch_train_s=tuple(train_s),
        epoch_eval_s=tuple(epoch.eval_s for epoch in history),
        flop_per_s=flop_per_s,
        vflop_per_s=None if flop_per_s is None or share is None else flop_per_s * share,
        **describe_units(ranks, run.precision.name, whole_rate),
        **describe_energy(folder / POWER, ranks, clock, samples),
    )


def describe_units(dist: Dist, dtype: str, flop_per_s: float | None) -> dict[str, Any]:
    """Return the fields of a figure of merit about the ranks and their devices. flop_per_s: of all ranks."""
    utilization, peak_format = None, None
    if flop_per_s is not None:
        utilization, peak_format = rate_device(read_model_name(dist.device), dtype, flop_per_s / dist.world_size)
    return {
        "units": dist.world_size,
        "nodes": dist.nodes,
        "device": dist.device.type,
        "dtype": dtype,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "utilization": utilization,
        "peak_format": peak_format,
        **asdict(find_lowest(read_limits(dist.device, dist.local_size))),
    }


def describe_energy(folder: Path, dist: Dist, clock: tuple[float, float], samples: float) -> dict[str, Any]:
    """Return the fields about the energy of all nodes; print that it is unknown where the folder has power files.

    clock: begin and end of the time in which the samples were trained, in ms since 1970.
    """
    energy = read_energy(folder, dist.nodes, *clock)
    if energy.energy_j is None and folder.exists():
        print(f"{folder}: {UNKNOWN}", flush=True)
    return {**asdict(energy), "samples_per_j": samples / energy.energy_j if energy.energy_j else None}


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters that are trained, over all ranks that share a sample."""
    return sum(whole_size(parameter) for parameter in model.parameters() if parameter.requires_grad)


def count_minutes(clocks: Collection[tuple[int, int]]) -> float:
    """Return the minutes from the first start to the last stop. clocks: starts and stops in ms."""
    return (max(stop for _, stop in clocks) - min(start for start, _ in clocks)) / 60_000


def merge_figures(models: Mapping[Path, tuple[int, int]], at_once: int, nodes: int) -> TrainedEnsemble | None:
    """Return the figure of merit of a job of several instances, None if one has none, or there are no models.

    models: the folders of the instances that count, with start and stop in ms. at_once: how many are trained at a time.
    nodes: of the job.
    """
    try:
        figures = [json.loads((folder / NAME).read_text(encoding="utf-8")) for folder in models]
        first, rates = figures[0], [float(figure["samples_per_s"]) for figure in figures]
        active, rate, minutes = min(at_once, len(models)), statistics.fmean(rates), count_minutes(models.values())

        def add_rates(name: str) -> float | None:
            numbers = [figure[name] for figure in figures]
            return None if None in numbers else statistics.fmean(numbers) * active

        qualities = tuple(float(figure["quality"]) for figure in figures)
        return TrainedEnsemble(
            **{name: first[name] for name in ("benchmark", "dtype", "network", "device", "date", "torch", "own_code")},
            samples_per_s=rate * active,
            units=active * first["units"],
            batch=active * first["batch"],
            spread=statistics.stdev(rates) / rate if rates[1:] else 0.0,
            nodes=nodes,
            samples_per_s_per_unit=rate / first["units"],
            models=len(rates),
            models_per_min=len(rates) / minutes,
            minutes=minutes,
            quality=statistics.fmean(qualities),
            qualities=qualities,
            flop_per_s=add_rates("flop_per_s"),
            vflop_per_s=add_rates("vflop_per_s"),
        )
    except (OSError, ValueError, LookupError, TypeError):  # such as an instance that an earlier version trained
        return None
