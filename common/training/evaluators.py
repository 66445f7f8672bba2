"""Evaluate the network, by the training ranks between two epochs, or by separate ranks meanwhile.

Evaluations take a good part of a large run: for OC20 they have half as many samples as an epoch of training. With
`train.eval_ranks` the last ranks do nothing else: after each epoch they get the weights, and training goes on.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import nn

from common.distributed.dist import Dist, Link
from common.training.benchmark import Problem
from common.training.precision import Precision
from common.training.stop import StopRequest


class Evaluator:
    """Evaluates the network at once, on the training ranks."""

    def __init__(self, problem: Problem, precision: Precision) -> None:
        self.problem, self.precision = problem, precision
        self._quality = float("nan")

    def begin(self) -> None:
        """Evaluate the current network; a collective call."""
        self.problem.model.eval()
        with torch.inference_mode(), self.precision.autocast():
            self._quality = self.problem.evaluate()

    def quality(self, wait: bool) -> float | None:
        """Return the quality of the latest evaluation, the same on all ranks; None if it is not known yet.

        wait: until it is known. A collective call.
        """
        return self._quality

    def close(self) -> None:
        """End the evaluation."""


class RemoteEvaluator(Evaluator):
    """Evaluates the network on separate ranks, which run `serve`; `link` is None on all ranks but 0."""

    def __init__(self, problem: Problem, precision: Precision, dist: Dist, link: Link | None) -> None:
        super().__init__(problem, precision)
        self.dist, self.link = dist, link
        # gloo cannot be asked whether something has come, but a thread can wait for it.
        self._thread = ThreadPoolExecutor(1)
        self._answer: Future[float] = Future()

    def begin(self) -> None:
        if self.link is not None:
            self.link.broadcast(torch.tensor(True))
            _send(self.problem.model, self.link)
            self._answer = self._thread.submit(_answer, self.link)

    def quality(self, wait: bool) -> float | None:
        known = None
        if self.link is not None and (wait or self._answer.done()):
            known = self._answer.result()
        quality: float | None = self.dist.broadcast_object(known)
        return quality

    def close(self) -> None:
        self._thread.shutdown()  # after the last answer
        if self.link is not None:
            self.link.broadcast(torch.tensor(False))


def serve(problem: Problem, precision: Precision, link: Link) -> None:
    """Evaluate what the training ranks send, until they end; called by each rank that only evaluates."""
    local = Evaluator(problem, precision)
    with StopRequest():  # signals are for the training ranks: they finish, and say so
        while link.broadcast(torch.tensor(False)):
            _send(problem.model, link)
            local.begin()
            _answer(link, local.quality(wait=True))


def _send(model: nn.Module, link: Link) -> None:
    """Copy the weights and statistics of rank 0 to the networks of all ranks of the link."""
    for tensor in model.state_dict().values():
        there = tensor.detach().cpu()
        link.broadcast(there)
        if link.rank:
            tensor.copy_(there)


def _answer(link: Link, quality: float | None = None) -> float:
    """Return the quality that the ranks of `serve` found, given by them."""
    return float(link.broadcast(torch.tensor(quality or 0.0, dtype=torch.float64), 1))
