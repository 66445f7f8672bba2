"""`python -m newbenchmark.evaluate CHECKPOINT`: the error of saved weights on the validation set."""

import sys
from functools import partial

from common.commands import evaluate

from newbenchmark.train import BENCHMARK

main = partial(evaluate.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
