"""`python -m cosmoflow.train CONFIG.yaml`: train CosmoFlow and write its result log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from common import schedule, staging, trainer
from common.dist import Dist
from common.manifest import NAME as MANIFEST
from common.reference import FULL, MINI
from common.sampling import Batching, permutation, sample_seed, share
from common.staging import Staged
from cosmoflow import data, model, synthesize
from cosmoflow.augment import augment
from cosmoflow.data import Batch, DataConfig, Dataset, DatasetError
from cosmoflow.model import ModelConfig
from cosmoflow.reference import MINI as MINI_REFERENCE
from cosmoflow.reference import REFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(trainer.RunConfig):
    """The configuration of a CosmoFlow run.

    variant: "full", or "mini" for the mini problem, whose data are generated if they are not there.
    """

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    variant: Literal["full", "mini"] = FULL


class CosmoFlow:
    """Predict four cosmological parameters of a universe from its matter distribution. See `common.trainer.Problem`."""

    def __init__(self, config: Config, dist: Dist, seed: int) -> None:
        self.config, self.dist, self.seed = config, dist, seed
        self.reference = MINI_REFERENCE if config.variant == MINI else REFERENCE
        self.batching = Batching(config.train.global_batch_size, config.train.tail, config.train.accumulation)
        self.train_set = Dataset(config.data.data_dir / "train", config.data, config.data.train_samples)
        self.eval_set = Dataset(config.data.data_dir / "validation", config.data, config.data.eval_samples)
        if dist.is_main:
            self.train_set.read(0)  # wrong shapes are found before the run begins
        self.train_samples, self.eval_samples = len(self.train_set), len(self.eval_set)
        self.model = model.build(config.model, config.data.sample_shape, seed).to(dist.device)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The hyperparameters by their keys in the log."""
        config = self.config
        return {
            "global_batch_size": config.train.global_batch_size,
            "gradient_accumulation_steps": config.train.accumulation,
            "opt_name": config.optim.log_name,
            **({"sgd_opt_momentum": config.optim.momentum} if config.optim.name == "sgd" else {}),
            **schedule.logged(config.schedule, config.train.global_batch_size),
            "dropout": config.model.dropout,
            "opt_weight_decay": config.model.l2 or config.optim.weight_decay,
        }

    def describe(self) -> str:
        """Return a line for the user: data and model."""
        shape = "×".join(map(str, self.config.data.sample_shape))
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"data: {self.train_samples:,} training and {self.eval_samples:,} validation samples of {shape} voxels in "
            f"{self.config.data.data_dir}; network: {parameters:,} parameters"
        )

    def stage(self) -> Staged:
        """Bring the samples to the nodes; a collective call."""
        folder = self.config.data.data_dir
        sets = {"train": self.train_set, "validation": self.eval_set}
        names = {f"{split}/{name}": number for split, chosen in sets.items() for name, number in chosen.files()}
        files = staging.source_files(folder, names) if self.dist.is_main else []
        counts = {split: len(chosen) for split, chosen in sets.items()}
        staged = staging.stage(files, folder, self.config.staging, self.dist, counts)
        self.train_set = self.train_set.moved(lambda name: staged.path(f"train/{name}"))
        self.eval_set = self.eval_set.moved(lambda name: staged.path(f"validation/{name}"))
        return staged

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.batching.steps(self.train_samples)

    def step_weight(self, epoch: int, step: int) -> float:
        """Return the samples of a global batch; the last one may be smaller."""
        size = self.config.train.global_batch_size
        return min(size, self.train_samples - step * size)

    def batches(self, epoch: int, first_step: int) -> Generator[Batch]:
        """Yield this rank's part of each global batch, with the epoch's augmentation."""
        order = permutation(self.train_samples, self.seed, epoch)
        shares = self.batching.batches(order, self.dist.rank, self.dist.world_size, first_step)
        indices = (part for batch in shares for part in batch.parts)
        with contextlib.closing(data.batches(self.train_set, indices, self.dist.device)) as batches:
            for batch in batches:
                yield self._augmented(batch, epoch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum over the samples of the mean squared error of the four parameters."""
        return (self._predict(model, batch) - batch.y).square().mean(dim=1).sum()

    def penalty(self) -> Tensor | None:
        """Return the L2 regularisation of the two hidden dense layers."""
        return self.model.l2_penalty() if self.config.model.l2 else None

    def evaluate(self) -> float:
        """Return the mean absolute error over all validation samples and parameters; a collective call."""
        indices = share(np.arange(self.eval_samples), self.dist.rank, self.dist.world_size)
        size = max(1, self.config.train.global_batch_size // self.dist.world_size // self.config.train.accumulation)
        parts = (indices[start : start + size] for start in range(0, len(indices), size))
        errors = torch.zeros(2, dtype=torch.float64, device=self.dist.device)
        with contextlib.closing(data.batches(self.eval_set, parts, self.dist.device)) as batches:
            for batch in batches:
                wrong = (self._predict(self.model, batch) - batch.y).abs()
                errors += torch.stack((wrong.sum(dtype=torch.float64), torch.tensor(wrong.numel()).to(wrong.device)))
        total, count = self.dist.all_reduce(errors).tolist()
        return float(total / count)

    def _augmented(self, batch: Batch, epoch: int) -> Batch:
        if self.config.data.augment == "none":
            return batch
        seeds = sample_seed(self.seed, epoch, batch.indices)
        return replace(batch, x=augment(batch.x, seeds, self.config.data.roll_step))

    def _predict(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BDHWC = data.to_input(batch.x, self.config.data.apply_log)
        if (self.config.data.shift, self.config.data.scale) != (0.0, 1.0):
            x_BDHWC = (x_BDHWC - self.config.data.shift) / self.config.data.scale
        prediction: Tensor = model(x_BDHWC)
        return prediction.float()


def provide(config: Config) -> None:
    """The data of the mini problem are there: generated now if they are not, or not complete."""
    if config.variant == MINI and not (config.data.data_dir / MANIFEST).exists():
        print(f"{config.data.data_dir} holds no data yet: the mini problem is generated, once", flush=True)
        if synthesize.main([str(config.data.data_dir)]):
            raise DatasetError(f"the data of the mini problem could not be generated in {config.data.data_dir}")


BENCHMARK = trainer.Benchmark("cosmoflow", Config, provide, CosmoFlow)
main = partial(trainer.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
