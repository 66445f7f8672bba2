"""The name of the suite's distribution, and its version, as in setup.cfg."""

from typing import Final

DISTRIBUTION: Final = "mlperf-hpc-suite"
VERSION: Final = "0.2.0"
