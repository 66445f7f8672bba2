"""`python -m newbenchmark.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from functools import partial

from common.commands import measure
from common.commands.measure import Measurable

from newbenchmark.synthesize import SYNTHESIS
from newbenchmark.train import BENCHMARK

main = partial(measure.main, Measurable(BENCHMARK, SYNTHESIS.provide_few))

if __name__ == "__main__":
    sys.exit(main())
