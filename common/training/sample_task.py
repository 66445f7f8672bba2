"""What benchmarks of independent samples share: which samples a rank trains on and evaluates, from where, and when."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from common.data.sampling import Batching, permutation, share
from common.distributed.dist import Dist
from common.staging import stage
from common.staging.stage import Staged
from common.training.loop import Batch


class SampleSet(Protocol):
    """The samples of a split."""

    def __len__(self) -> int: ...

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name of each file below the data's folder and the number of its sample, None for all samples."""

    def moved(self, locate: Callable[[str], Path]) -> Self:
        """Return the same samples, each file read from where `locate` says that it is."""


B = TypeVar("B", bound=Batch)


class SampleTask(ABC, Generic[B]):
    """The part of a `Problem` that is the same for samples of any kind; config: a RunConfig with `data`.

    Epochs and steps count from 0.
    """

    model: nn.Module

    def __init__(self, config: Any, dist: Dist, seed: int, sets: Mapping[str, Any]) -> None:
        self.config, self.dist, self.seed = config, dist, seed
        self.sets = dict(sets)
        self.train_samples, self.eval_samples = len(self.sets["train"]), len(self.sets["validation"])
        self.batching = Batching(config.train.global_batch_size, config.train.tail, config.train.accumulation)

    @abstractmethod
    def read(self, samples: Any, indices: Iterable[np.ndarray]) -> Generator[B]:
        """Yield the batch of each array of indices."""

    @abstractmethod
    def score(self, batch: B) -> Tensor:
        """Return the sum of the qualities of a batch and their number; float64 (2,)."""

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of the training samples in an epoch."""
        return permutation(self.train_samples, self.seed, epoch)

    def augmented(self, batch: B, epoch: int) -> B:
        """Return a training batch as the network sees it in this epoch."""
        return batch

    def penalty(self) -> Tensor | None:
        """Return what is added to the mean loss of a step."""
        return None

    def stage(self) -> Staged:
        """Bring the samples to the nodes; a collective call."""
        folder = self.config.data.data_dir
        files = stage.source_files(folder, self.names()) if self.dist.is_main else []
        staged = stage.stage(files, folder, self.config.staging, self.dist, self.counts())
        self.sets = {split: samples.moved(staged.path) for split, samples in self.sets.items()}
        return staged

    def names(self) -> dict[str, Any]:
        """Return the files below the data's folder, each with the number of its sample."""
        return {name: number for samples in self.sets.values() for name, number in samples.files()}

    def counts(self) -> dict[str, int]:
        """Return how many samples there must be in each folder."""
        return {split: len(samples) for split, samples in self.sets.items()}

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.batching.steps(self.train_samples)

    def step_samples(self, epoch: int, step: int) -> int:
        """Return the samples of a global batch; the last one may be smaller."""
        size = self.batching.global_batch_size
        return min(size, self.train_samples - step * size)

    def step_weight(self, epoch: int, step: int) -> float:
        """Return what the sum of the losses of a step is divided by."""
        return self.step_samples(epoch, step)

    def batches(self, epoch: int, first_step: int) -> Generator[B]:
        """Yield this rank's parts of each global batch from a step on."""
        shares = self.batching.batches(self.order(epoch), self.dist.rank, self.dist.world_size, first_step)
        indices = (part for batch in shares for part in batch.parts)
        with contextlib.closing(self.read(self.sets["train"], indices)) as batches:
            for batch in batches:
                yield self.augmented(batch, epoch)

    def eval_share(self) -> np.ndarray:
        """Return the validation samples of this rank; every sample is of one rank."""
        return share(np.arange(self.eval_samples), self.dist.rank, self.dist.world_size)

    def evaluate(self) -> float:
        """Return the mean quality over all validation samples, each counted once; a collective call."""
        indices = self.eval_share()
        size = max(1, self.batching.global_batch_size // self.dist.world_size // self.batching.accumulation)
        parts = (indices[start : start + size] for start in range(0, len(indices), size))
        scores = torch.zeros(2, dtype=torch.float64, device=self.dist.device)
        with contextlib.closing(self.read(self.sets["validation"], parts)) as batches:
            for batch in batches:
                scores += self.score(batch)
        total, count = self.dist.all_reduce(scores).tolist()
        return float(total / count)
