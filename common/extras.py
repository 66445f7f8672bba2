"""A command whose extra is not installed says in one line what to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from common.benchmarks import ROOT, find_package
from common.command import as_called
from common.errors import NEEDS_POSIX
from common.styles import print_error
from common.version import DISTRIBUTION

EXTRAS: Final = {"common": "[train]", "compliance": "", "submission": ""}
"""The extra that the commands of a package need; a benchmark's own has the name of its package."""
POSIX: Final = ("fcntl", "pwd", "resource")
"""Modules of Python that Windows lacks."""
TRAINING: Final = ("torch", "numpy", "mlperf_logging", "safetensors")
"""What every training imports."""


def missing_extra(error: BaseException, module: str, extra: str = "") -> str | None:
    """Return what `module` needs, to be imported; None if the error is not about an optional package or Windows.

    extra: `[NAME]` where it is not that of the module.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    name = error.name.partition(".")[0]
    command = as_called(f"python -m {module}").removesuffix(".__main__")
    if name in POSIX:
        return f"{command} {NEEDS_POSIX}"
    if name in sys.modules or find_spec(name) is not None:  # it is there, and lacks something: not for pip
        return None
    package = module.partition(".")[0]
    benchmark = find_package(package)
    if benchmark and benchmark.distribution and not extra:  # which says what it needs
        requirement = benchmark.distribution
    else:
        extra = extra or ("[train]" if benchmark and benchmark.origin else EXTRAS.get(package, f"[{package}]"))
        requirement = f"{ROOT if (ROOT / 'setup.cfg').exists() else DISTRIBUTION}{extra}"
    return f"{command} needs {name}: pip install '{requirement}'"


def require_training(benchmark: str) -> None:
    """End `python -m BENCHMARK.train`, before its imports, with one line if training is not installed."""
    for name in (*POSIX, *TRAINING):
        if find_spec(name) is None:
            print_error(f"{missing_extra(ModuleNotFoundError(name=name), f'{benchmark}.train')}")
            sys.exit(1)
