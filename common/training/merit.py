"""The figure of merit of a training, from its log and its power files."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import torch

from common.files import LOG_NAME, POWER
from common.measure.accelerators import rate_device
from common.measure.fom import NAME, TrainedRun
from common.measure.power.recorder import energy_j
from common.ranks.device import read_model_name
from common.ranks.dist import Dist
from common.record import read_run_times, read_value
from common.reference import NoTarget
from common.training.loop import Fit

FLOP_PER_SAMPLE: Final = "flop_per_sample"
"""The key of a log with the operations of the network for a sample in training and in evaluation."""


def compute_figure(benchmark: str, run: Fit, ranks: Dist, folder: Path) -> TrainedRun | None:
    """Return the figure of merit of a run that has ended; None if no epoch was evaluated.

    ranks: all of the run, also those that only evaluate. folder: that of the run, with its log.
    """
    history, clock = run.history, read_run_times(folder / LOG_NAME)
    if not history or clock is None:
        return None
    rates = [epoch.samples_per_s for epoch in history]
    rate = statistics.median(rates)
    minutes = (clock[1] - clock[0]) / 60_000
    utilization, peak_format = _rate_run(run, ranks, 60 * minutes)
    joules, scope = energy_j(folder / POWER, ranks.nodes, *clock) or (None, None)
    return TrainedRun(
        benchmark=benchmark,
        samples_per_s=rate,
        units=ranks.world_size,
        batch=run.config.global_batch_size,
        dtype=run.precision.name,
        spread=statistics.stdev(rates) / rate if len(rates) > 1 else 0.0,
        network=run.problem.reference.variant,
        nodes=ranks.nodes,
        device=ranks.device.type,
        samples_per_s_per_unit=rate / ranks.world_size,
        date=date.today().isoformat(),
        torch=torch.__version__,
        epoch_samples_per_s=tuple(rates),
        minutes=minutes,
        epochs=history[-1].epoch,
        quality=history[-1].quality,
        target=None if isinstance(run.target, NoTarget) else run.target.value,
        target_met=run.meets_target(),
        energy_j=joules,
        energy_scope=scope,
        samples_per_j=sum(epoch.samples_per_s * epoch.train_s for epoch in history) / joules if joules else None,
        utilization=utilization,
        peak_format=peak_format,
    )


def merge_figures(folders: Sequence[Path], at_once: int, models_per_minute: float) -> str:
    """Return the line of a job of several instances, "" if one has no figure of merit.

    folders: of the instances that count as models. at_once: how many are trained at a time; samples/s and flop/s are
    the sum over the instances, or over as many as that.
    """
    active = min(at_once, len(folders))
    try:
        figures = [json.loads((folder / NAME).read_text(encoding="utf-8")) for folder in folders]
        first, rates = figures[0], [float(figure["samples_per_s"]) for figure in figures]
        line = (
            f"FOM {first['benchmark']} samples/s {statistics.fmean(rates) * active:.6g} "
            f"units {active * first['units']} batch {active * first['batch']} dtype {first['dtype']} "
            f"spread {statistics.stdev(rates) / statistics.fmean(rates) if rates[1:] else 0.0:.3f} "
            f"models {len(rates)} models/min {models_per_minute:.4g}"
        )
        flops = [float(read_value(folder / LOG_NAME, FLOP_PER_SAMPLE)["training"]) for folder in folders]
    except (OSError, ValueError, LookupError, TypeError):  # such as an instance that an earlier version trained
        return ""
    total = statistics.fmean(flop * rate for flop, rate in zip(flops, rates, strict=True)) * active
    return f"{line} flop/s {total:.6g}"


def _rate_run(run: Fit, ranks: Dist, seconds: float) -> tuple[float | None, str | None]:
    """Return the share of the peak of all units that training and evaluation reach, and the format of the peak."""
    model = read_model_name(ranks.device)
    if seconds <= 0 or rate_device(model, run.precision.name, 0.0)[0] is None:
        return None, None  # before the operations are counted, which takes time
    flops = run.problem.count_flops()
    if flops is None:
        return None, None
    trained = sum(epoch.samples_per_s * epoch.train_s for epoch in run.history)
    evaluated = len(run.history) * run.problem.eval_samples
    flop = flops.training * trained + flops.evaluation * evaluated
    return rate_device(model, run.precision.name, flop / seconds / ranks.world_size)
