"""`python -m deepcam.evaluate CHECKPOINT`: the mean IoU of saved weights on the validation set."""

import sys
from functools import partial

from common import evaluation
from deepcam.train import BENCHMARK

main = partial(evaluation.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
