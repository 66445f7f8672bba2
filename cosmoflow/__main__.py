"""`python -m cosmoflow COMMAND`: train, evaluate, predict and measure, and the commands of the data."""

import sys
from functools import partial

from common.commands import entry

main = partial(entry.main, "cosmoflow")

if __name__ == "__main__":
    sys.exit(main())
