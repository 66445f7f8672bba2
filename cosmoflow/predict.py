"""`python -m cosmoflow.predict RUN -o FILE`: parameters that saved weights predict, and the truth."""

import sys
from functools import partial

from common.commands import predict
from cosmoflow.train import BENCHMARK

main = partial(predict.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
