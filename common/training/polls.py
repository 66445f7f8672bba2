"""What the ranks tell each other every few steps: their loss, and whether one of them was asked to stop.

An accelerator computes steps that the host has long asked for. So that neither waits for the other, an answer is read
there when the next one is asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from common.distributed.dist import Dist
from common.stop import SIGNALS, signal_name
from common.training.checkpoint import Position

POLL_STEPS: Final = 10
"""How often several ranks, or one with an accelerator, learn of loss and stop requests."""


class Made(NamedTuple):
    """What the host knows of a step: where it is, and what went into it. weight: see `Problem.step_weight`."""

    position: Position
    weight: float
    samples: int
    rate: float
    wait_s: float


class Answer(NamedTuple):
    """About the steps since the question before. stopped_by: the signal that one of the ranks got, or "".

    sums: of the losses up to and including each step, over all ranks. norms: of this rank's gradient in each step.
    """

    steps: list[Made]
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


@dataclass(slots=True)
class _Asked:
    steps: list[Made]
    values: Tensor
    arrived: torch.Event | None


class Polls:
    """Asks all ranks; the calls are collective. late: how many answers are left to arrive while work goes on."""

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        self.late = 0 if dist.device.type == "cpu" else 1
        self.every = 1 if dist.world_size == 1 and dist.device.type == "cpu" else POLL_STEPS
        self._asked: deque[_Asked] = deque()
        self._steps: list[Made] = []
        self._found = torch.zeros(self.every, 2, dtype=torch.float64, device=dist.device)

    def made(self, step: Made, found: Tensor) -> None:
        """Note a step, one of at most `every` until the next question.

        found: what this rank's device has then: the sum of the losses since the last question, and the gradient's norm.
        """
        self._found[len(self._steps)].copy_(found)
        self._steps.append(step)

    def ask(self, summed: Tensor, signal: int) -> None:
        """Ask for the sums of the losses, by one small message; `summed` () is then set to 0.

        signal: the number of the stop signal that this rank got, 0 if none.
        """
        steps, self._steps = self._steps, []
        count = len(steps)
        shared = count + len(SIGNALS)
        values = self._found.new_zeros(shared + count)
        values[:count].copy_(self._found[:count, 0])
        values[shared:].copy_(self._found[:count, 1])
        summed.zero_()
        if signal:
            values[count + SIGNALS.index(signal)].fill_(1)
        self.dist.all_reduce(values[:shared])
        arrived = None
        if values.device.type != "cpu":
            values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            arrived = torch.Event(self.dist.device)
            arrived.record()
        self._asked.append(_Asked(steps, values, arrived))

    def answers(self, all_of_them: bool) -> list[Answer]:
        """Return the answers not returned yet; on an accelerator all but the latest, unless all are wanted."""
        kept = 0 if all_of_them else self.late
        return [_answer(self._asked.popleft()) for _ in range(len(self._asked) - kept)]


def _answer(asked: _Asked) -> Answer:
    if asked.arrived is not None:
        asked.arrived.synchronize()
    values, count = asked.values.tolist(), len(asked.steps)
    shared = count + len(SIGNALS)
    numbers = [number for number, of_ranks in zip(SIGNALS, values[count:shared], strict=True) if of_ranks]
    return Answer(asked.steps, values[:count], values[shared:], signal_name(max(numbers, default=0)))
