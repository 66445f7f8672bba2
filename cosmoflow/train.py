"""`python -m cosmoflow.train CONFIG.yaml`: train CosmoFlow and write its result log."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds: a signal stops the run in order
    from common.commands.entry import start_training

    start_training("cosmoflow")

import sys
from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from common.candidate import Candidate
from common.commands import train
from common.data.prefetch import TensorBatch, read_batches
from common.data.sampling import sample_seed
from common.data.values import Content
from common.precision import check_kernels
from common.ranks.dist import Dist
from common.reference import variant_of
from common.spatial.halo import PaddedConv3d
from common.training.benchmark import Benchmark, SampleProblem
from common.training.predictions import absolute_errors
from common.training.trainer import Trainer
from cosmoflow import model, spatial, synthesize
from cosmoflow.data import dataset, values
from cosmoflow.data.dataset import Dataset, augment_batch, turn_labels
from cosmoflow.model import COPIES, round_weights
from cosmoflow.predictor import Predictor, Report
from cosmoflow.reference import MINIS, REFERENCE
from cosmoflow.settings import Config

PACKED: Final = Candidate("cosmoflow-packed")
"""Packed samples go to the device as they are in their files, and are decoded there."""


class CosmoFlow(SampleProblem[TensorBatch]):
    """Predict four cosmological parameters of a universe from its matter distribution."""

    dataset = Dataset

    def __init__(self, config: Config, dist: Dist, seed: int) -> None:
        self.block = spatial.block_with_halo(config, dist)
        read = self.block if config.data.augment == "none" else None  # a turned sample has other voxels there
        sets = self.open_sets(config, dist, train={"block": read}, validation={"block": self.block})
        super().__init__(config, dist, seed, sets)
        self.reference = variant_of((REFERENCE, *MINIS), config.variant, config.train.target)
        check_kernels(config.model.kernels, dist.device)  # so that an impossible choice is found before the run starts
        shape = config.data.sample_shape
        self.model = self.choose_network(lambda: model.build_model(config.model, shape, seed)).to(dist.device)
        if isinstance(self.model, model.CosmoFlow):
            self.model.convs = nn.ModuleList(map(PaddedConv3d, self.model.convs))  # right for thin inputs, too
            spatial.share_layers(self.model, config, dist)
        elif dist.sharing.world_size > 1:
            raise ValueError("dist.spatial divides the benchmark's network, but this is one of your own: set it to 1")

    def shapes_alone(self) -> tuple[nn.Module, Tensor]:
        """Return the network with torch's own kernels, and a sample; both without numbers."""
        shape = self.config.data.sample_shape
        with torch.device("meta"):
            return model.CosmoFlow(replace(self.config.model, kernels="torch"), shape), torch.empty(1, *shape)

    def describe(self) -> str:
        """Return a line for the user: data and model."""
        shape = "×".join(map(str, self.config.data.sample_shape))
        return self.describe_data(f"samples of {shape} voxels") + spatial.shared_text(self.config, self.dist)

    def read(self, samples: Dataset, indices: Iterable[np.ndarray]) -> Generator[TensorBatch]:
        """Yield batches of counts, int16 (B, D, H, W, C), and labels, float32 (B, 4)."""
        if self.config.data.pipeline == "dali":
            from cosmoflow.data import dali  # an optional package, and it takes a second to import

            return dali.load_batches(samples, indices, self.dist.device)
        return read_batches(samples.undecoded() if self.unpacks else samples, indices, self.dist.device)

    @property
    def unpacks(self) -> bool:
        """Whether packed samples are decoded on the device: `read` then yields the bytes of files, uint8 (B, N)."""
        data = self.config.data
        return (
            PACKED.enabled and data.format == "packed" and data.apply_log and data.augment == "none" and not data.cache
        )

    def synthetic(self, split: str, size: int) -> TensorBatch:
        """Return a batch of made-up samples as `read` would; packed ones have only zeros."""
        batch = super().synthetic(split, size)
        if self.unpacks:
            x, _ = self.sets[split].undecoded().buffer(size, pinned=False)
            batch = replace(batch, x=x.zero_().to(self.dist.device))
        return batch

    def list_contents(self, split: str, index: int) -> tuple[str, Iterable[Content]]:
        """Return the contents of a sample, or of this rank's part."""
        return "", values.list_contents(*self.sets[split].read(index))

    def prepared(self, batch: TensorBatch) -> TensorBatch:
        """Return the batch with the network's input instead of the counts, rounded once to the compute format."""
        if batch.x.dtype == torch.uint8:
            from cosmoflow import unpack  # an optional package, slow to import

            return replace(batch, x=unpack.unpack_input(batch.x, self.count_inputs, self.config.data.sample_shape))
        return replace(batch, x=dataset.scaled_input(batch.x, self.config.data, self.input_dtype))

    @cached_property
    def count_inputs(self) -> Tensor:
        """The network's input for each int16 count, from -32,768 on."""
        counts = torch.arange(-(2**15), 2**15, dtype=torch.int16, device=self.dist.device)
        return dataset.scaled_input(counts, self.config.data, self.input_dtype)

    def predictions(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the four parameters of each sample."""
        if COPIES.enabled and model is self.model and not self.has_own_network:
            return functional_call(model, round_weights(model, self.input_dtype), (batch.x,)).float()
        return model(batch.x).float()

    def loss(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the sum over the samples of the mean squared error of the four parameters, or this rank's share."""
        wrong_BP = self.predictions(model, batch) - batch.y
        return wrong_BP.square().mean(dim=1).sum() / self.dist.sharing.world_size

    def penalty(self) -> Tensor | None:
        """Return the L2 regularisation of the two hidden dense layers; of a network of your own there is none."""
        return self.model.l2_penalty() if self.config.model.l2 and not self.has_own_network else None

    def errors(self, votes: Tensor, batch: TensorBatch) -> Tensor:
        """Return the errors of the four parameters."""
        return votes - batch.y

    def judge(self, predictions: Tensor, batch: TensorBatch) -> Tensor:
        """Return the sum of the absolute errors of all parameters of all samples, and their number."""
        return absolute_errors(predictions, batch.y)

    def augmented(self, batch: TensorBatch, epoch: int) -> TensorBatch:
        """Return the batch under the epoch's random symmetries."""
        data = self.config.data
        if data.augment == "none":
            return batch
        seeds = sample_seed(self.seed, epoch, batch.indices)
        x = augment_batch(batch.x, seeds, data.roll_step)
        y = turn_labels(batch.y, seeds) if data.augment == "vector_symmetries" else batch.y
        return replace(batch, x=x[:, *self.block.slices] if self.block else x, y=y)


BENCHMARK = Benchmark(
    config=Config,
    problem=CosmoFlow,
    predictor=Predictor,
    make_mini=synthesize.SYNTHESIS.provide_data,
    report=Report,
)
main = partial(train.main, BENCHMARK)
trainer = Trainer(BENCHMARK)
run, load = trainer.run, trainer.load

if __name__ == "__main__":
    sys.exit(main())
