"""What the ranks exchange every few steps: their loss, and whether one of them got a stop signal.

An accelerator computes steps that the host has long asked for. So that neither waits for the other, an answer is read
there when the next one is asked for.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import torch
from torch import Tensor

from common.distributed.dist import Dist
from common.stop import SIGNALS, signal_name
from common.training.checkpoint import Position

POLL_STEPS: Final = 10
"""How often several ranks, or one with an accelerator, learn of loss and stop requests."""


class MadeStep(NamedTuple):
    """What the host knows of a step: where it is, and what went into it. weight: see `SampleProblem.step_weight`."""

    position: Position
    weight: float
    samples: int
    rate: float
    wait_s: float


class Answer(NamedTuple):
    """About the steps since the question before. stopped_by: the signal that one of the ranks got, or "".

    sums: of the losses up to and including each step, over all ranks. norms: of this rank's gradient in each step.
    """

    steps: list[MadeStep]
    sums: list[float]
    norms: list[float]
    stopped_by: str

    @property
    def loss(self) -> float:
        """The sum of the losses of all steps; the same on all ranks."""
        return self.sums[-1]

    @property
    def weight(self) -> float:
        """The sum of the weights of all steps."""
        return sum(step.weight for step in self.steps)


class Polls:
    """Asks all ranks; the calls are collective. late: how many answers are left to arrive while work goes on."""

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        self.late = 0 if dist.device.type == "cpu" else 1
        self.every = 1 if dist.world_size == 1 and dist.device.type == "cpu" else POLL_STEPS
        self._questions: deque[tuple[list[MadeStep], Tensor, torch.Event | None]] = deque()
        self._steps: list[MadeStep] = []
        self._results = torch.zeros(self.every, 2, dtype=torch.float64, device=dist.device)

    def add_step(self, step: MadeStep, results: Tensor) -> None:
        """Note a step, one of at most `every` until the next question.

        results: of this rank's device then: the sum of the losses since the last question, and the gradient's norm.
        """
        self._results[len(self._steps)].copy_(results)
        self._steps.append(step)

    def ask_ranks(self, summed: Tensor, signal: int) -> None:
        """Ask for the sums of the losses, by one small message; `summed` () is then set to 0.

        signal: the number of the stop signal that this rank got, 0 if none.
        """
        steps, self._steps = self._steps, []
        count = len(steps)
        shared = count + len(SIGNALS)
        values = self._results.new_zeros(shared + count)
        values[:count].copy_(self._results[:count, 0])
        values[shared:].copy_(self._results[:count, 1])
        summed.zero_()
        if signal:
            values[count + SIGNALS.index(signal)].fill_(1)
        self.dist.all_reduce(values[:shared])
        arrived = None
        if values.device.type != "cpu":
            values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            arrived = torch.Event(self.dist.device)
            arrived.record()
        self._questions.append((steps, values, arrived))

    def take_answers(self, wait: bool) -> list[Answer]:
        """Return the answers not returned yet; on an accelerator all but the latest. wait: wait for that, too."""
        answers = []
        while len(self._questions) > (0 if wait else self.late):
            steps, arriving, arrived = self._questions.popleft()
            if arrived is not None:
                arrived.synchronize()
            values, count = arriving.tolist(), len(steps)
            shared = count + len(SIGNALS)
            signals = [number for number, of_ranks in zip(SIGNALS, values[count:shared], strict=True) if of_ranks]
            answers.append(Answer(steps, values[:count], values[shared:], signal_name(max(signals, default=0))))
        return answers
