"""The figure of merit of a training, from its log and its power files."""

from __future__ import annotations

import statistics
from datetime import date
from pathlib import Path

import torch

from common.files import LOG_NAME, POWER
from common.measure.fom import TrainedRun
from common.measure.power.recorder import energy_j
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
        minutes=(clock[1] - clock[0]) / 60_000,
        epochs=history[-1].epoch,
        quality=history[-1].quality,
        target=run.target.value,
        target_met=run.meets_target(),
        energy_j=joules,
        energy_scope=scope,
        samples_per_j=sum(epoch.samples_per_s * epoch.train_s for epoch in history) / joules if joules else None,
    )
