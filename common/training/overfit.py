"""A self-test: whether the network learns one batch by heart.

If network, loss, gradients, optimizer and data work together, the loss on a batch that comes again and again falls to
nearly nothing. Where it does not, a longer training or more data help as little.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Final

import numpy as np
import torch

from common.command import UsageError
from common.data.prefetch import map_tensors
from common.ending import EXIT_STATUS, TARGET_MET, TARGET_NOT_MET
from common.precision import Precision
from common.processes import keep_freed_memory
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.settings.run import RunConfig
from common.training import optim
from common.training.benchmark import Benchmark
from common.training.faults import check_samples, check_some_samples, explain_out_of_memory
from common.training.run import TRAINING_ERRORS
from common.training.step import Step

LEARNED_SHARE: Final = 0.1
"""The share of the first loss below which the batch counts as learned."""


def overfit_one_batch(benchmark: Benchmark, config: RunConfig, steps: int) -> int:
    """Train on the first batch alone, at the highest rate of the schedule; return 0 if it was learned, otherwise 4.

    Nothing is written but, for a mini problem, its data. Raises UsageError for instances, ranks that evaluate and
    staging.source, DataFaultError for samples with numbers that are not finite, and FloatingPointError if the loss is
    not finite.
    """
    if config.instances.count > 1 or config.train.eval_ranks or config.staging.source:
        raise UsageError(
            "--overfit-one-batch trains one network on all ranks, and reads data.data_dir: leave instances, eval_ranks "
            "and staging.source out"
        )
    with connect(config.dist, TRAINING_ERRORS) as dist, explain_out_of_memory(config, dist):
        if dist.device.type == "cpu":
            keep_freed_memory(config.dist.sharing)
        benchmark.provide_mini(config, dist)
        dist.barrier()
        first, last = _repeat_steps(benchmark, config, dist, steps)
    learned = last <= LEARNED_SHARE * first
    if dist.is_main:
        share = f"the loss is {last:.4g} after {steps:,} steps on one batch, {last / first:.1%} of the first"
        advice = (
            "network, loss, gradients and optimizer work together"
            if learned
            else f"expected at most {LEARNED_SHARE:.0%}: take more steps if it still falls; see the rate "
            "(schedule.base_lr), dropout and weight decay, which may be 0 for this test, and whether the truth follows "
            "from the inputs"
        )
        print(f"{share}: {advice}", flush=True)
    return EXIT_STATUS[TARGET_MET if learned else TARGET_NOT_MET]


def _repeat_steps(benchmark: Benchmark, config: RunConfig, dist: Dist, steps: int) -> tuple[float, float]:
    """Make the steps; return the mean losses of the first and of the last one, over all ranks."""
    seed = config.train.seed or 0
    torch.manual_seed(seed)
    problem = benchmark.build_problem(config, dist, seed)
    optimizer = optim.build(config.optim, problem.model.parameters(), config.schedule.base_lr)
    rate_of = partial(config.schedule.rate, config.train.global_batch_size)
    rate = max(rate_of(epoch, 0, problem.steps(epoch)) for epoch in range(config.train.epochs))
    (batch, *_) = problem.batching.batches(problem.order(0), dist.data_rank, dist.data_size)
    weight = problem.step_weight(0, 0)
    step = Step(problem, optimizer, Precision(config.precision, dist.device), dist, norms=False)
    losses = []
    with contextlib.closing(problem), contextlib.closing(step):
        with contextlib.closing(problem.read(problem.sets["train"], iter(batch.parts))) as read:
            parts = [map_tensors(problem.prepared(part), torch.clone) for part in read]
        problem.model.train()
        check_some_samples(problem)
        for number in range(1, steps + 1):
            step(iter(parts), len(parts), weight, rate)
            losses.append(float(dist.all_reduce(step.summed.clone())) / weight)
            step.summed.zero_()
            if not math.isfinite(losses[-1]):
                check_samples(problem, "train", np.concatenate(batch.parts).tolist())
                raise FloatingPointError(
                    f"the loss is {losses[-1]} at step {number} on one batch of right samples: lower schedule.base_lr"
                )
            if not losses[0]:
                raise ValueError("the loss is 0 before the first update, so there is nothing to learn: see the labels")
            if dist.is_main and (number == 1 or number % max(1, steps // 15) == 0):  # some 15 lines in all
                print(f"step {number:,}: loss {losses[-1]:.4g}", flush=True)
    return losses[0], losses[-1]
