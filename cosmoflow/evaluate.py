"""`python -m cosmoflow.evaluate CHECKPOINT`: the mean absolute error of saved weights on the validation set."""

import sys
from functools import partial

from common.commands import evaluate
from cosmoflow.train import BENCHMARK

main = partial(evaluate.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
