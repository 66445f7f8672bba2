"""One optimizer step, as work on tensors that stay where they are, so that it can be recorded as a CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.distributed.dist import Dist
from common.spatial.shards import average_gradients, gradient_norm, share_weights
from common.training.benchmark import Problem
from common.training.graph import Replay, say_why_not
from common.training.optim import set_rate
from common.training.precision import Precision


class Step:
    """Makes optimizer steps of a problem. norms: also compute the norm of each step's gradient.

    found: what the device has found, (2,): the sum of this rank's losses since `summed`, a view of it, was last set to
    0, and the norm of the latest gradient, which is that of all ranks.

    Ranks reduce their gradients by the wrapper that `Dist.wrap` makes, which does so during the backward pass; where
    steps are recorded, or samples shared, in one message after it. That message is part of no recording: NCCL wants all
    ranks to record and replay the same message, but batches differ by rank in shape, and so in what was recorded.
    """

    def __init__(
        self, problem: Problem, optimizer: Optimizer, precision: Precision, dist: Dist, *, norms: bool = True
    ) -> None:
        self.problem, self.optimizer, self.precision, self.dist = problem, optimizer, precision, dist
        self.norms = norms
        self.found = torch.zeros(2, dtype=torch.float64, device=dist.device)
        self.summed = self.found[0]
        self._scale = torch.ones((), dtype=torch.float64, device=dist.device)
        recorder = problem.recorder
        if recorder is not None and not all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
            say_why_not(dist, f"{type(optimizer).__name__} takes its rate as a number")
            recorder = None
        self._one_message = dist.world_size > 1 and (recorder is not None or dist.sharing.world_size > 1)
        self._module: nn.Module = problem.model
        if self._one_message:
            share_weights(problem.model, dist)
        else:
            self._module = dist.wrap(problem.model)  # once: the wrapper has communication buffers
        self._part = Replay(self._work, recorder, dist)
        self._update = Replay(lambda _no_batch: self._apply(), recorder, dist)

    def __call__(self, batches: Iterator[Any], parts: int, weight: float, rate: float) -> float:
        """Make a step on the next batches, one per part; return the seconds that this rank waited for them.

        weight: the divisor that turns the sum of losses over all ranks into the mean.
        """
        waited = 0.0
        set_rate(self.optimizer, rate)
        # Gradients are averaged over the ranks, and each rank has only its share of the sum.
        self._scale.fill_(self.dist.world_size / weight)
        for part in range(parts):
            batch = next(batches)
            waited += batch.wait_s
            self._part(batch, part == 0, part + 1 == parts)
        if self._one_message:
            average_gradients(self._module, self.dist)
            self._update(())
        return waited

    def _work(self, batch: Any, first: bool, last: bool) -> None:
        """Add the gradients of a batch; after a step's last, make the optimizer's step unless a message comes first."""
        if first:
            # Gradients that several recordings write or read must stay where they are.
            apart = not self._one_message and (last or self._part.recorder is None)
            clear_gradients(self.optimizer, drop=apart)
        with contextlib.nullcontext() if last or self._one_message else self.dist.no_sync(self._module):
            with self.precision.autocast():
                summed = self.problem.loss(self._module, batch)
            loss = summed * self._scale.to(summed.dtype)
            penalty = self.problem.penalty() if last else None
            self.precision.backward(loss if penalty is None else loss + penalty)
        self.summed += summed.detach()
        if last and not self._one_message:
            self._apply()

    def _apply(self) -> None:
        """Make the optimizer's step with the gradients, which are those of all ranks now."""
        if self.norms:
            self.found[1].copy_(self.precision.unscaled(gradient_norm(self.problem.model.parameters())))
        self.precision.step(self.optimizer)


def clear_gradients(optimizer: Optimizer, *, drop: bool) -> None:
    """Drop the gradients, or fill those that are there with zeros, in the memory in which they are.

    Not by `zero_grad`: NVIDIA's FusedLAMB and FusedAdam have one without arguments.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if drop:
        for parameter in parameters:
            parameter.grad = None
    elif gradients := [parameter.grad for parameter in parameters if parameter.grad is not None]:
        torch._foreach_zero_(gradients)
