"""Import a script of bench/ that writes what a test compares with."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

BENCH = str(Path(__file__).resolve().parents[1] / "bench")


def bench_script(name: str) -> ModuleType:
    """Return the script as a module.

    Its folder does not stay on the path: it has files with the names of our packages, which processes that later tests
    start would import instead.
    """
    sys.path.insert(0, BENCH)
    try:
        return import_module(name)
    finally:
        sys.path.remove(BENCH)
