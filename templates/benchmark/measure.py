"""`python -m newbenchmark.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial

import torch

from common.commands import measure
from common.commands.measure import Measurable
from common.training.flops import StepFlops, step_flops
from newbenchmark.synthesize import SYNTHESIS
from newbenchmark.train import BENCHMARK, NewBenchmark


def count_flops(problem: NewBenchmark) -> StepFlops:
    """Return the operations of a training step for one sample."""
    side = problem.config.data.side
    return step_flops(problem.model, torch.empty(1, side, side, device="meta"))


main = partial(measure.main, Measurable(BENCHMARK, SYNTHESIS.provide_few, count_flops))

if __name__ == "__main__":
    sys.exit(main())
