"""Evaluate an ensemble: the networks of several runs, whose predictions are averaged (HPC AI500 V3).

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
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from common.config import leaves, shown, to_dict
from common.data.bagging import drawn_samples, out_of_bag
from common.errors import UsageError
from common.precision import Precision
from common.reference import Target
from common.settings.run import RunConfig
from common.training.benchmark import Benchmark, Problem

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
    for leaf in leaves(benchmark.config):
        if leaf.name not in SHARED and not (leaf.name.startswith(SHARED_SECTIONS) and leaf.key.role.computes):
            continue
        for other in others:
            value, other_value = leaf.of(tree), leaf.of(to_dict(other.config))
            if value != other_value:
                raise UsageError(
                    f"{other.checkpoint}: {leaf.name} is {shown(other_value)}, but {shown(value)} in "
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
    hidden = None if problem.dist.is_main else True  # None: shown on a terminal only
    with (
        torch.inference_mode(),
        problem.evaluating(),
        precision.autocast(),
        contextlib.closing(batches),
        tqdm(batches, "evaluate", len(parts), leave=False, unit="batch", disable=hidden) as bar,
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
