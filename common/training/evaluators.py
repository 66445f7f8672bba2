"""Evaluate the network, either on the ranks that train it or on separate ranks while training goes on.

Evaluation takes a large share of a big run: for OC20 it reads half as many samples as an epoch of training. With
`train.eval_ranks` the last ranks only evaluate: they get the weights after each epoch, and training goes on.

Evaluate an ensemble: the networks of several runs, whose predictions are averaged (HPC AI500 V3).

The members predict batch by batch, and only sums are kept. So the device holds the weights of all members, one network,
and for one batch the predictions of each (of classes: their mean); the data are read once. An evaluation costs as much
time as that of each member by itself, less the reading.

Out of bag, each training sample is predicted by the members that did not draw it, so that no validation set is needed.
Samples that the same members drew are then put together in batches.

"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from common.config import list_leaves, quote_value, to_dict
from common.data.sampling import drawn_samples, out_of_bag
from common.errors import UsageError
from common.precision import Precision
from common.ranks.dist import Dist
from common.reference import Target
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.benchmark import Benchmark, Problem

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

    def poll(self) -> Sequence[float]:
        """Return numbers whose sums over the ranks tell whether the latest quality is known, and which it is.

        Nothing is waited for. No numbers: `quality` tells, without waiting.
        """
        return ()

    def quality(self, wait: bool) -> float | None:
        """Return the quality that the latest `begin` asked for, the same on all ranks; None if not all know it.

        wait: wait until they do. A collective call then.
        """
        return self._quality

    def close(self) -> None:
        """End the evaluations."""


class RemoteEvaluator(Evaluator):
    """Has the network evaluated by separate ranks, which run `serve_evaluations`; `link` is None on all ranks but 0."""

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

    def poll(self) -> Sequence[float]:
        return (1.0, self._take_answer()) if self._answer.done() else (0.0, 0.0)

    def quality(self, wait: bool) -> float | None:
        return float(self.dist.broadcast_json(self._take_answer() if self.link else None)) if wait else None

    def _take_answer(self) -> float:
        """Return the quality on rank 0, once it is there."""
        quality, stop_signal = self._answer.result()
        if stop_signal and not STOP.number:
            STOP.ask_to_stop(stop_signal)  # the training ranks heed it as if this one had got it
        return quality

    def close(self) -> None:
        self._thread.shutdown()  # after the last answer
        if self.link is not None:
            self.link.broadcast(torch.tensor(False))


def serve_evaluations(problem: Problem, precision: Precision, dist: Dist, link: Dist) -> None:
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
    """Return the quality of the ranks that evaluate, and a stop signal that they got or 0; they pass both in."""
    answer = link.broadcast(torch.tensor([quality or 0.0, stop_signal], dtype=torch.float64), 1).tolist()
    return answer[0], int(answer[1])


SHARED: Final = ("variant", "data.data_dir")
SHARED_SECTIONS: Final = ("data.", "model.")
"""Keys that all members have alike: these, and those of the sections that change what is computed."""


@dataclass(frozen=True, slots=True)
class Member:
    """A trained network. checkpoint: its file. seed: of its run. epochs: that it was trained.

    warn: prints which newer checkpoints are damaged.
    """

    checkpoint: Path
    config: RunConfig
    seed: int
    epochs: int
    weights: dict[str, Tensor]
    warn: Callable[[], None]

    @property
    def instance(self) -> int:
        """The number of the instance."""
        return self.config.instances.number


class Part(NamedTuple):
    """A batch: numbers of samples, and of the members that predict them."""

    samples: np.ndarray
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Squares:
    """Mean squares over all that is predicted: mse of the ensemble is members minus variance, but for rounding.

    members: mean over the members of their mean squared errors. variance: mean of the variance of their predictions
    (ddof 0).
    """

    ensemble: float
    members: float
    variance: float

    @property
    def difference(self) -> float:
        """How much the two sides of the identity differ."""
        return abs(self.ensemble - (self.members - self.variance))


@dataclass(frozen=True, slots=True)
class Judged:
    """The quality of each member and of the ensemble. samples: that each was judged by. squares: None for classes.

    predicted: samples that at least one member predicted, of all that there are.
    """

    members: list[float]
    samples: list[int]
    ensemble: float
    squares: Squares | None
    predicted: int
    there: int

    @property
    def mean(self) -> float:
        """The mean quality of the members."""
        return float(np.nanmean(self.members))

    @property
    def spread(self) -> float:
        """The standard deviation of the members' qualities (ddof 0)."""
        return float(np.nanstd(self.members))

    def find_best(self, target: Target) -> int:
        """Return the index of the best member."""
        return int(np.nanargmin(self.members) if target.lower_is_better else np.nanargmax(self.members))


def check_alike(benchmark: Benchmark, members: Sequence[Member]) -> None:
    """Raise UsageError, naming the first key that differs, unless all members have the same network and data."""
    first, *others = members
    tree = to_dict(first.config)
    for leaf in list_leaves(benchmark.config):
        if leaf.name not in SHARED and not (leaf.name.startswith(SHARED_SECTIONS) and leaf.key.role.computes):
            continue
        for other in others:
            value, other_value = leaf.find_value(tree), leaf.find_value(to_dict(other.config))
            if value != other_value:
                raise UsageError(
                    f"{other.checkpoint}: {leaf.name} is {quote_value(other_value)}, but {quote_value(value)} in "
                    f"{first.checkpoint}: the members of an ensemble have the same network and data"
                )


def check_distinct(members: Sequence[Member]) -> None:
    """Raise UsageError, naming both, for two members that are one run, or whose runs had one seed."""
    by_seed: dict[int, Member] = {}
    for member in members:
        other = by_seed.setdefault(member.seed, member)
        if other is member:
            continue
        if other.checkpoint.resolve() == member.checkpoint.resolve():
            raise UsageError(f"{member.checkpoint}: given twice; name each run once")
        raise UsageError(
            f"{other.checkpoint} and {member.checkpoint}: both runs have the seed {member.seed}; the members of an "
            "ensemble have different seeds: leave one of the two out, or train it with another train.seed"
        )


def list_validation_parts(problem: Problem, members: Sequence[Member]) -> list[Part]:
    """Return this rank's batches of the validation set, each for all members."""
    everyone = tuple(range(len(members)))
    return [Part(samples, everyone) for samples in problem.eval_parts(problem.eval_share())]


def list_out_of_bag_parts(problem: Problem, members: Sequence[Member]) -> list[Part]:
    """Return this rank's batches of training samples, each for the members that did not draw them.

    Raises UsageError if a member was trained without bagging.
    """
    there = len(problem.sets["train"])
    left_out: np.ndarray = np.zeros((len(members), there), bool)
    for number, member in enumerate(members):
        instances = member.config.instances
        if not instances.bags:
            raise UsageError(
                f"{member.checkpoint}: trained without bagging (instances.bagging=none), so that no training sample "
                "is out of its bag: leave out --out-of-bag"
            )
        left_out[number, out_of_bag(drawn_samples(instances, member.seed, there), there)] = True

    def members_of(sample: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(left_out[:, sample]).tolist())

    samples = sorted(np.flatnonzero(left_out.any(axis=0)).tolist(), key=members_of)
    parts = [
        Part(batch, predicting)
        for predicting, alike in groupby(samples, members_of)
        for batch in problem.eval_parts(np.array(list(alike)))
    ]
    return parts[problem.dist.rank :: problem.dist.world_size]


def judge_members(problem: Problem, members: Sequence[Member], split: str, parts: Sequence[Part]) -> Judged:
    """Return how good members and ensemble are on this and all other ranks' batches of a split. A collective call."""
    tally = _Tally(problem, members)
    problem.model.eval()
    precision = Precision(problem.config.precision, problem.dist.device)
    batches = problem.read(problem.sets[split], (part.samples for part in parts))
    with (
        torch.inference_mode(),
        problem.evaluating(),
        precision.autocast(),
        contextlib.closing(batches),
        tqdm(
            batches,
            "evaluate",
            len(parts),
            leave=False,
            unit="batch",
            disable=None if problem.dist.is_main else True,  # None: shown on a terminal only
        ) as bar,
    ):
        for part, batch in zip(parts, bar, strict=True):
            tally.add_batch(part, problem.prepared(batch))
        return tally.compute_qualities(len(problem.sets[split]))


class _Tally:
    """Sums over the batches of this rank.

    qualities: sum and number for each member and, last, for the ensemble. squares: of the ensemble's errors, mean over
    the members of their errors', and variance over the members. samples: that each member predicted, and, last, any.
    """

    def __init__(self, problem: Problem, members: Sequence[Member]) -> None:
        self.problem, device = problem, problem.dist.device
        self.weights = [{name: tensor.to(device) for name, tensor in m.weights.items()} for m in members]
        self.qualities = torch.zeros(len(members) + 1, 2, dtype=torch.float64, device=device)
        self.squares = torch.zeros(3, dtype=torch.float64, device=device)
        self.samples = torch.zeros(len(members) + 1, dtype=torch.float64, device=device)
        self.numbers = False

    def add_batch(self, part: Part, batch: Any) -> None:
        """Add a batch."""
        problem, size = self.problem, len(part.samples)
        total: Tensor | None = None
        errors: list[Tensor] = []
        for number in part.members:
            problem.model.load_state_dict(self.weights[number])
            predictions = problem.predictions(problem.model, batch)
            self.qualities[number] += problem.judge(predictions, batch)
            self.samples[number] += size
            votes = problem.votes(predictions).detach()
            member_errors = problem.errors(votes, batch)
            if member_errors is not None:
                errors.append(member_errors)
            total = votes if total is None else total.add_(votes)
        assert total is not None
        mean = total.div_(len(part.members))
        self.samples[-1] += size
        self.qualities[-1] += problem.judge(mean, batch)
        mean_errors = problem.errors(mean, batch)
        if mean_errors is not None:
            self.numbers = True
            of_members = torch.stack(errors)
            self.squares[0] += mean_errors.square().sum(dtype=torch.float64)
            self.squares[1] += of_members.square().mean(dim=0).sum(dtype=torch.float64)
            self.squares[2] += of_members.var(dim=0, correction=0).sum(dtype=torch.float64)

    def compute_qualities(self, there: int) -> Judged:
        """Return the qualities from the sums of all ranks. A collective call."""
        numbers = torch.full((1,), float(self.numbers), dtype=torch.float64, device=self.squares.device)
        sums = torch.cat((self.qualities.flatten(), self.squares, self.samples, numbers))
        qualities, squares, samples, numbers = self.problem.dist.all_reduce(sums).split(
            [self.qualities.numel(), 3, len(self.samples), 1]
        )
        pairs: list[list[float]] = qualities.view(-1, 2).tolist()
        *of_members, of_ensemble = [total / count if count else math.nan for total, count in pairs]
        counted = pairs[-1][1]
        return Judged(
            members=of_members,
            samples=[int(count) for count in samples[:-1].tolist()],
            ensemble=of_ensemble,
            squares=Squares(*(squares / counted).tolist()) if numbers.item() and counted else None,
            predicted=int(samples[-1].item()),
            there=there,
        )
