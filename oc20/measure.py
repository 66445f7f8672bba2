"""`python -m oc20.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial
from pathlib import Path

from common.training import measure_command
from oc20.train import BENCHMARK


def provide(folder: Path, variant: str) -> None:
    """Generate a few frames in a folder."""
    from oc20 import synthesize  # needs ase, which measuring on given data does not

    synthesize.SYNTHESIS.provide_few(folder, variant)


main = partial(measure_command.main, BENCHMARK, provide)

if __name__ == "__main__":
    sys.exit(main())
