"""Evaluate the network, either on the ranks that train it or on separate ranks while training goes on.

Evaluation takes a large share of a big run: for OC20 it reads half as many samples as an epoch of training. With
`train.eval_ranks` the last ranks only evaluate: they get the weights after each epoch, and training goes on.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import Final

import torch
from torch import nn

from common.precision import Precision
from common.ranks.dist import Dist
from common.stop import STOP
from common.training.benchmark import Problem

ALIGNMENT: Final = 16
"""Of a tensor in the message of the weights, in bytes: a multiple of the size of any number."""


class Evaluator:
    """Evaluates the network on the ranks that train it, between two epochs."""

    def __init__(self, problem: Problem, precision: Precision) -> None:
        self.problem, self.precision = problem, precision
        self._quality = float("nan")

    def begin(self) -> None:
        """Start evaluating the network as it is now. A collective call."""
        self.problem.model.eval()
        with torch.inference_mode(), self.precision.autocast():
            self._quality = self.problem.evaluate()

    def quality(self, wait: bool) -> float | None:
        """Return the quality that the latest `begin` asked for, the same on all ranks; None if it is not known yet.

        wait: wait until it is known. A collective call.
        """
        return self._quality

    def close(self) -> None:
        """End the evaluations."""


class RemoteEvaluator(Evaluator):
    """Has the network evaluated by separate ranks, which run `serve`; `link` is None on all ranks but 0."""

    def __init__(self, problem: Problem, precision: Precision, dist: Dist, link: Dist | None) -> None:
        super().__init__(problem, precision)
        self.dist, self.link = dist, link
        # gloo cannot tell whether a message has arrived, but a thread can wait for it.
        self._thread = ThreadPoolExecutor(1)
        self._answer: Future[tuple[float, int]] = Future()

    def begin(self) -> None:
        if self.link is not None:
            self.link.broadcast(torch.tensor(True))
            _send_weights(self.problem.model, self.link)
            self._answer = self._thread.submit(_exchange_answer, self.link)

    def quality(self, wait: bool) -> float | None:
        quality: float | None = None
        if self.link is not None and (wait or self._answer.done()):
            quality, stop_signal = self._answer.result()
            if stop_signal and not STOP.number:
                STOP.ask(stop_signal)  # the training ranks heed it as if this one had got it
        agreed: float | None = self.dist.broadcast_json(quality)
        return agreed

    def close(self) -> None:
        self._thread.shutdown()  # after the last answer
        if self.link is not None:
            self.link.broadcast(torch.tensor(False))


def serve(problem: Problem, precision: Precision, dist: Dist, link: Dist) -> None:
    """Evaluate the networks that the training ranks send until they are done; for each rank that only evaluates.

    dist: the ranks that evaluate. A stop signal that one of them gets goes to the training ranks with the next answer.
    """
    local = Evaluator(problem, precision)
    with STOP.deferring():  # the training ranks heed signals and then end this loop
        while link.broadcast(torch.tensor(False)):
            _send_weights(problem.model, link)
            local.begin()
            stop_signal = int(dist.all_reduce(torch.tensor(STOP.number), "max"))
            _exchange_answer(link, local.quality(wait=True), stop_signal)


def _send_weights(model: nn.Module, link: Dist) -> None:
    """Copy the weights and statistics of rank 0's network to all ranks of the link, in one message."""
    tensors = [tensor.detach() for tensor in model.state_dict().values()]
    starts = list(accumulate((-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors), initial=0))
    packed = torch.empty(starts[-1], dtype=torch.uint8, device=tensors[0].device)
    parts = [
        packed[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for start, tensor in zip(starts, tensors, strict=False)
    ]
    on_cpu = packed.device.type == "cpu"
    message = packed if on_cpu else torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    if link.rank == 0:
        for tensor, part in zip(tensors, parts, strict=True):
            part.copy_(tensor)
        message.copy_(packed)
    link.broadcast(message)
    if link.rank:
        packed.copy_(message)
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part)


def _exchange_answer(link: Dist, quality: float | None = None, stop_signal: int = 0) -> tuple[float, int]:
    """Return the quality of the ranks of `serve`, and a stop signal that they got or 0; they pass both in."""
    answer = link.broadcast(torch.tensor([quality or 0.0, stop_signal], dtype=torch.float64), 1).tolist()
    return answer[0], int(answer[1])
