"""`python -m deepcam.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial

from common.training import measure_command
from deepcam.synthesize import SYNTHESIS
from deepcam.train import BENCHMARK

main = partial(measure_command.main, BENCHMARK, SYNTHESIS.provide_few)

if __name__ == "__main__":
    sys.exit(main())
