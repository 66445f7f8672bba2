"""The former command `python -m submission.compare`, which names its present call."""

import sys

from submission.cli import answer_renamed

if __name__ == "__main__":
    sys.exit(answer_renamed("compare"))
