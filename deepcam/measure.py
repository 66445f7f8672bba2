"""`python -m deepcam.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial

import torch

from common.commands import measure
from common.commands.measure import Measurable
from common.training.flops import StepFlops, step_flops
from deepcam import model
from deepcam.synthesize import SYNTHESIS
from deepcam.train import BENCHMARK, DeepCam


def count_flops(problem: DeepCam) -> StepFlops:
    """Return the operations of a training step for one sample, on a network that needs no other ranks."""
    data = problem.config.data
    with torch.device("meta"):
        network = model.DeepLab(problem.config.model, len(data.channels))
        return step_flops(network, torch.empty(1, *data.sample_shape))


main = partial(measure.main, Measurable(BENCHMARK, SYNTHESIS.provide_few, count_flops))

if __name__ == "__main__":
    sys.exit(main())
