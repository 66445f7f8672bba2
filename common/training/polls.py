"""What the ranks tell each other every few steps: their loss, and whether one of them was asked to stop.

An accelerator computes steps that the host has long asked for. So that neither waits for the other, an answer is read
there when the next one is asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from common.distributed.dist import Dist
from common.stop import SIGNALS, signal_name
from common.training.checkpoint import Position


class Answer(NamedTuple):
    """The same on all ranks. loss: the sum over the ranks; stopped_by: the signal that one of them got, or "".

    weight and position are those that were asked with.
    """

    loss: float
    stopped_by: str
    weight: float
    position: Position


@dataclass(slots=True)
class _Asked:
    weight: float
    position: Position
    values: Tensor
    arrived: torch.Event | None


class Polls:
    """Asks all ranks; the calls are collective. late: how many answers are left to arrive while work goes on."""

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        self.late = 0 if dist.device.type == "cpu" else 1
        self._asked: deque[_Asked] = deque()

    def ask(self, summed: Tensor, weight: float, signal: int, position: Position) -> None:
        """Ask for the sum of `summed` (), which is then set to 0, and for requests to stop, by one small message.

        signal: the number of the stop signal that this rank got, 0 if none.
        """
        values = summed.new_zeros(1 + len(SIGNALS))
        values[0].copy_(summed)
        summed.zero_()
        if signal:
            values[1 + SIGNALS.index(signal)].fill_(1)
        self.dist.all_reduce(values)
        arrived = None
        if values.device.type != "cpu":
            values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            arrived = torch.Event(self.dist.device)
            arrived.record()
        self._asked.append(_Asked(weight, position, values, arrived))

    def answers(self, all_of_them: bool) -> list[Answer]:
        """Return the answers not returned yet; on an accelerator all but the latest, unless all are wanted."""
        kept = 0 if all_of_them else self.late
        return [_answer(self._asked.popleft()) for _ in range(len(self._asked) - kept)]


def _answer(asked: _Asked) -> Answer:
    if asked.arrived is not None:
        asked.arrived.synchronize()
    loss, *requests = asked.values.tolist()
    numbers = [number for number, count in zip(SIGNALS, requests, strict=True) if count]
    return Answer(loss, signal_name(max(numbers, default=0)), asked.weight, asked.position)
