"""`python -m deepcam.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial

import torch

from common.training import measure_command
from common.training.flops import count
from common.training.measure_command import Measurable
from deepcam.synthesize import SYNTHESIS
from deepcam.train import BENCHMARK, DeepCam


def flop(problem: DeepCam) -> float:
    """Return the operations of a training step for one sample."""
    return float(count(problem.model, torch.empty(1, *problem.config.data.sample_shape, device="meta")).training)


main = partial(measure_command.main, Measurable(BENCHMARK, SYNTHESIS.provide_few, flop))

if __name__ == "__main__":
    sys.exit(main())
