"""`python -m newbenchmark.train CONFIG.yaml`: train New Benchmark and write its result log."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds: a signal stops the run in order
    from common.commands.entry import start_training

    start_training("newbenchmark")

import sys
from collections.abc import Generator, Iterable
from functools import partial

import numpy as np
import torch
from common.commands import train
from common.data.prefetch import TensorBatch, read_batches
from common.ranks.dist import Dist
from common.reference import variant_of
from common.training.benchmark import Benchmark, SampleProblem
from common.training.predictions import absolute_errors
from common.training.trainer import Trainer
from torch import Tensor, nn

from newbenchmark import model, synthesize
from newbenchmark.data.dataset import Dataset
from newbenchmark.predictor import Predictor
from newbenchmark.reference import MINIS, REFERENCE
from newbenchmark.report import Report
from newbenchmark.settings import Config


class NewBenchmark(SampleProblem[TensorBatch]):
    """Predict the diffusivity of a plate from a picture of its temperature."""

    dataset = Dataset

    def __init__(self, config: Config, dist: Dist, seed: int) -> None:
        data = config.data
        sets = {
            "train": self.dataset(data.data_dir / "train", data, data.train_samples),
            "validation": self.dataset(data.data_dir / "validation", data, data.eval_samples),
        }
        super().__init__(config, dist, seed, sets)
        self.reference = variant_of((REFERENCE, *MINIS), config.variant, config.train.target)
        self.model = self.choose_network(lambda: model.build_model(config.model, seed)).to(dist.device)

    def shapes_alone(self) -> tuple[nn.Module, Tensor]:
        """Return the network, and a sample without numbers."""
        side = self.config.data.side
        return self.model, torch.empty(1, side, side, device="meta")

    def describe(self) -> str:
        """Return a line for the user: data and network."""
        return self.describe_data("plates")

    def read(self, samples: Dataset, indices: Iterable[np.ndarray]) -> Generator[TensorBatch]:
        """Yield batches of fields and labels."""
        return read_batches(samples, indices, self.dist.device)

    def predictions(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the diffusivities of the samples."""
        return model(batch.x).float()

    def loss(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the sum of the squared errors of the samples."""
        return (self.predictions(model, batch) - batch.y).square().sum()

    def errors(self, votes: Tensor, batch: TensorBatch) -> Tensor:
        """Return the errors of the samples."""
        return votes - batch.y

    def judge(self, predictions: Tensor, batch: TensorBatch) -> Tensor:
        """Return the sum of the absolute errors of the samples, and their number."""
        return absolute_errors(predictions, batch.y)


BENCHMARK = Benchmark(
    config=Config,
    problem=NewBenchmark,
    predictor=Predictor,
    make_mini=synthesize.SYNTHESIS.provide_data,
    report=Report,
)
main = partial(train.main, BENCHMARK)
trainer = Trainer(BENCHMARK)
run, load = trainer.run, trainer.load

if __name__ == "__main__":
    sys.exit(main())
