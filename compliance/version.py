"""The version of the suite, as in setup.cfg."""

from typing import Final

VERSION: Final = "0.1.0"
