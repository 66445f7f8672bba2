"""`python -m oc20.evaluate CHECKPOINT`: the error of the forces of saved weights on the validation set."""

import sys
from functools import partial

from common.commands import evaluate
from oc20.train import BENCHMARK

main = partial(evaluate.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
