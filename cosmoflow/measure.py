"""`python -m cosmoflow.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from dataclasses import replace
from functools import partial

import torch

from common.commands import measure
from common.commands.measure import Measurable
from common.training.flops import StepFlops, step_flops
from cosmoflow import model
from cosmoflow.synthesize import SYNTHESIS
from cosmoflow.train import BENCHMARK, CosmoFlow


def count_flops(problem: CosmoFlow) -> StepFlops:
    """Return the operations of a training step for one sample, with torch's own kernels, which can be counted."""
    shape = problem.config.data.sample_shape
    with torch.device("meta"):
        network = model.CosmoFlow(replace(problem.config.model, kernels="torch"), shape)
        return step_flops(network, torch.empty(1, *shape))


main = partial(measure.main, Measurable(BENCHMARK, SYNTHESIS.provide_few, count_flops))

if __name__ == "__main__":
    sys.exit(main())
