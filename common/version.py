"""The suite's names: of its distribution, its version, which setup.cfg reads, with their order, and its variable."""

import re
from typing import Any, Final

DISTRIBUTION: Final = "mlperf-hpc-suite"
PROGRAM: Final = "mlperf-hpc"
"""The console script, whose commands run the modules: common/command.py."""
VERSION: Final = "0.4.0.dev0"
FOLDERS_VARIABLE: Final = "MLPERF_HPC_BENCHMARKS_FROM"
"""Folders with packages of benchmarks, as in PATH: what --benchmarks-from sets, also for child processes."""
_FORM: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\D.{0,40})?")


def version_numbers(version: Any) -> tuple[int, ...]:
    """Return the three numbers by which versions are ordered: (0, 3, 0) for 0.3.0 and for 0.3.0.dev0.

    Anything else, such as None, has no numbers, and thus comes before all versions.
    """
    form = _FORM.fullmatch(version) if isinstance(version, str) else None
    return tuple(int(number or 0) for number in form.groups()) if form else ()
