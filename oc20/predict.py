"""`python -m oc20.predict RUN -o FILE`: energies and forces that saved weights predict, and the truth."""

import sys
from functools import partial

from common.commands import predict
from oc20.train import BENCHMARK

main = partial(predict.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
