"""The figure of merit of a training, from its log and its power files."""

from __future__ import annotations

import statistics
from datetime import date
from pathlib import Path

import torch

from common.files import LOG_NAME, POWER
from common.measure.accelerators import rate_device
from common.measure.fom import TrainedRun
from common.measure.power.recorder import energy_j
from common.ranks.device import read_model_name
from common.ranks.dist import Dist
from common.record import read_run_times
from common.training.loop import Fit


def compute_figure(benchmark: str, run: Fit, ranks: Dist, folder: Path) -> TrainedRun | None:
    """Return the figure of merit of a run that has ended; None if no epoch was evaluated.

    ranks: all of the run, also those that only evaluate. folder: that of the run, with its log.
    """
    history, clock = run.history, read_run_times(folder / LOG_NAME)
    if not history or clock is None:
        return None
    rates = [epoch.samples_per_s for epoch in history]
    rate = statistics.median(rates)
    seconds = (clock[1] - clock[0]) / 1000
    utilization, peak_format = _rate_run(run, ranks, seconds)
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
        minutes=seconds / 60,
        epochs=history[-1].epoch,
        quality=history[-1].quality,
        target=run.target.value,
        target_met=run.meets_target(),
        energy_j=joules,
        energy_scope=scope,
        samples_per_j=sum(epoch.samples_per_s * epoch.train_s for epoch in history) / joules if joules else None,
        utilization=utilization,
        peak_format=peak_format,
    )


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
