"""`python -m newbenchmark.predict RUN -o FILE`: diffusivities that saved weights predict, and the truth."""

import sys
from functools import partial

from common.commands import predict

from newbenchmark.train import BENCHMARK

main = partial(predict.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
