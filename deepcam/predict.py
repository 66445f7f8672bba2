"""`python -m deepcam.predict RUN -o FILE`: maps that saved weights predict, and the truth."""

import sys
from functools import partial

from common.training import predict_command
from deepcam.train import BENCHMARK

main = partial(predict_command.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
