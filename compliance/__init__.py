"""Check result logs of MLPerf HPC.

On the command line it is `python -m compliance.check logs/`; from Python:

>>> import compliance
>>> report = compliance.check(["results/"], profile="strict")   # doctest: +SKIP
>>> report.verdict, report.exit_code                            # doctest: +SKIP
('PASS', 0)

`compliance.check` is both the module behind the command and, called, the function; see its documentation.
"""

from typing import Any

from common.version import VERSION as __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    if name == "check":
        import importlib

        return importlib.import_module("compliance.check")
    raise AttributeError(f"module 'compliance' has no attribute {name!r}")
