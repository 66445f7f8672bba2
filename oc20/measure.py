"""`python -m oc20.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial
from pathlib import Path

from common.training import measure_command
from common.training.measure_command import Measurable
from oc20.flops import counted
from oc20.graphs import collate
from oc20.train import BENCHMARK, Oc20

COUNTED = 32
"""The most frames whose operations are counted; of more, evenly chosen ones."""


def provide(folder: Path, variant: str) -> None:
    """Generate a few frames in a folder."""
    from oc20 import synthesize  # needs ase, which measuring on given data does not

    synthesize.SYNTHESIS.provide_few(folder, variant)


def flop(problem: Oc20) -> float:
    """Return the operations of a training step for a frame, on average."""
    frames = problem.sets["train"]
    chosen = range(0, len(frames), -(-len(frames) // COUNTED))
    graph = collate([frames.read(i) for i in chosen])
    return counted(problem.config.model, graph).training / len(chosen)


main = partial(measure_command.main, Measurable(BENCHMARK, provide, flop))

if __name__ == "__main__":
    sys.exit(main())
