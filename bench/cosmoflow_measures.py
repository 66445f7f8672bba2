"""Our side of `bench/cosmoflow.py`: steps of training by the code that `python -m cosmoflow.train` runs.

    python bench/cosmoflow_measures.py CASE          steps on a batch that lies on the device
    python bench/cosmoflow_measures.py CASE FOLDER   steps on batches that are read from the files of a folder

A step is log(1 + counts), forward, backward and SGD with momentum.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from steps import Training, counted, serve_reading, serve_steps
from torch import Tensor, nn
from workers import given_case

from common.data.prefetch import read_batches
from common.precision import DTYPES
from common.training.optim import OptimConfig
from cosmoflow import model
from cosmoflow.data import dataset as data


def main() -> None:
    case = given_case()

    def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the losses of int16 counts (B, D, H, W, 4) with labels (B, 4)."""
        prediction = network(data.to_input(x, True, DTYPES[case.dtype])).float()
        return (prediction - y).square().mean(dim=1).sum()

    shape = (case.side,) * 3 + (4,)
    network = model.build_model(model.ModelConfig(conv_size=case.channels, conv_layers=case.layers), shape, seed=0)
    training = Training(case, network, loss, OptimConfig(), counted(network, shape))
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
        dataset = data.Dataset(folder / "train", data.DataConfig(folder, sample_shape=shape))
        serve_reading(training, dataset, read_batches)
    else:
        counts = np.random.default_rng(0).poisson(1.0, (case.batch, *shape)).astype(np.int16)
        serve_steps(training, torch.from_numpy(counts), torch.rand(case.batch, 4))


if __name__ == "__main__":
    main()
