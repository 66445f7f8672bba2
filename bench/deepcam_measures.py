"""Our side of `bench/deepcam.py`: steps of training by the code that `python -m deepcam.train` runs.

    python bench/deepcam_measures.py CASE          steps on a batch that lies on the device
    python bench/deepcam_measures.py CASE FOLDER   steps on batches that are read from the files of a folder

A step is the normalisation of the channels, forward, loss, backward and the optimizer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from deepcam_plain import snapshots
from steps import Training, counted, serve_reading, serve_steps
from torch import Tensor, nn
from workers import given_case

from common.data.prefetch import read_batches
from common.precision import DTYPES
from common.training.optim import OptimConfig
from deepcam import model
from deepcam.data import dataset, values
from deepcam.predictor import cross_entropy
from deepcam.reference import CLASS_WEIGHTS


def main() -> None:
    case = given_case()
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    device, channels = torch.device(case.device), tuple(range(case.channels))
    zeros, ones = np.zeros(case.channels), np.ones(case.channels)
    # The values of the resident batch must stay what they are.
    unchanging = values.Stats(1, zeros, ones, minval=zeros, maxval=ones)
    known = values.read_stats(folder / values.NAME) if folder else unchanging
    normalise, weights = dataset.Normalization(known, channels, device), torch.tensor(CLASS_WEIGHTS, device=device)

    def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(network(normalise(x, DTYPES[case.dtype])), y, weights)

    network = model.build_model(model.ModelConfig(**case.model), case.channels, seed=0)
    config = OptimConfig(name=case.optimizer, eps=1e-6, weight_decay=0.01)
    training = Training(case, network, loss, config, counted(network, (case.height, case.width, case.channels)))
    if folder:
        given = dataset.DataConfig(folder, height=case.height, width=case.width, format=folder.name)  # type: ignore[arg-type]
        serve_reading(training, dataset.Dataset(folder / "train", given), read_batches)
    else:
        serve_steps(training, *snapshots(case))


if __name__ == "__main__":
    main()
