"""A command whose extra is not installed says so in one line.

Commands import torch, numpy and others at the top, as every module does, so the import fails before any line of theirs
runs, and Python would end with a traceback. In a process that `python -m` started for such a command, the last word on
an uncaught exception is changed instead; programs that import the suite are left alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from common.version import DISTRIBUTION

EXTRAS: Final = {"common": "[train]", "compliance": "", "submission": ""}
"""The extra that the commands of a package need; a benchmark's own has the name of its package."""


def missing_extra(error: BaseException, module: str) -> str | None:
    """Return what to install so that `module` can be imported; None if the error is not about an optional package."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    name, package = error.name.partition(".")[0], module.partition(".")[0]
    from importlib.util import find_spec  # here, because a check of one log should start at once

    if name in sys.modules or find_spec(name) is not None:  # it is there, and lacks something: not for pip
        return None
    extra = EXTRAS.get(package, f"[{package}]")
    checkout = os.path.dirname(os.path.dirname(__file__))
    source = checkout if os.path.exists(os.path.join(checkout, "setup.cfg")) else DISTRIBUTION
    return f"{module.removesuffix('.__main__')} needs {name}: pip install '{source}{extra}'"


def explain_missing(package: str) -> None:
    """Let the commands of a package say which extra is missing, if `python -m` is starting one of them."""
    if sys.argv[0] == "-m":  # so it reads only until the module is found
        sys.excepthook = partial(_report, package, sys.excepthook)


def _report(package: str, otherwise: Callable[..., Any], kind: type[BaseException], *raised: Any) -> None:
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec else ""
    problem = missing_extra(raised[0], module) if module.startswith(f"{package}.") else None
    if problem is None:
        otherwise(kind, *raised)
    else:
        print(f"error: {problem}", file=sys.stderr)
