"""`python -m deepcam.evaluate CHECKPOINT`: the mean IoU of saved weights on the validation set."""

import sys
from functools import partial

from common.commands import evaluate
from deepcam.train import BENCHMARK

main = partial(evaluate.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
