"""The former command `python -m deepcam.baselines`: answers with its present call."""

from common.command import RENAMED
from common.console import print_error

if __name__ == "__main__":
    print_error(f"baselines is now {RENAMED['baselines']}")
    raise SystemExit(2)
