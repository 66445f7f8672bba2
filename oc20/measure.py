"""`python -m oc20.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial
from pathlib import Path

from common.training import measure_command
from common.training.flops import StepFlops
from common.training.measure_command import Measurable
from oc20.flops import counted, table3
from oc20.graphs import collate
from oc20.train import BENCHMARK, Oc20

COUNTED = 32
"""The most frames whose operations are counted; of more, evenly chosen ones."""


def provide(folder: Path, variant: str) -> None:
    """Generate a few frames in a folder."""
    from oc20 import synthesize  # needs ase, which measuring on given data does not

    synthesize.SYNTHESIS.provide_few(folder, variant)


def flops(problem: Oc20) -> StepFlops:
    """Return the operations of a training step for a frame, on average."""
    frames = problem.sets["train"]
    chosen = range(0, len(frames), -(-len(frames) // COUNTED))
    graph = collate([frames.read(i) for i in chosen])
    config = problem.config.model
    return StepFlops(counted(config, graph).training / len(chosen), table3(config, graph).training / len(chosen))


main = partial(measure_command.main, Measurable(BENCHMARK, provide, flops))

if __name__ == "__main__":
    sys.exit(main())
