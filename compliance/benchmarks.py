"""The facts of all benchmarks; everything else asks here for names, rounds and facts."""

import os
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Final

from common.benchmarks import PACKAGES, ROOT, Package, PluginError, find_package, import_facts
from common.reference import Reference
from compliance.facts import openfold


def _import_own_facts(name: str) -> ModuleType:
    """Return the module with the facts of a benchmark; without its package, every command ends here, in one line."""
    try:
        return import_module(f"{name}.reference")
    except ModuleNotFoundError as error:
        if error.name not in (name, f"{name}.reference"):
            raise
    folder = os.path.join(ROOT, name)
    if os.path.exists(folder):
        fix = f"Python does not find {folder}: repeat `pip install --editable .`, or run from its parent folder"
    else:
        fix = f"there is no {folder}: bring it back, or remove the benchmark as docs/guide/new-benchmark.md says"
    sys.exit(f"error: common/benchmarks.py lists {name!r}, but {fix}")


_FACTS: Final = {name: _import_own_facts(name) for name in PACKAGES}

REFERENCES: Final[dict[str, Reference]] = {
    **{name: facts.REFERENCE for name, facts in _FACTS.items()},
    "openfold": openfold.REFERENCE,
}
"""The benchmarks of MLPerf HPC; `find_reference` also knows those from outside the suite."""
MINIS: Final[dict[str, tuple[Reference, ...]]] = {name: facts.MINIS for name, facts in _FACTS.items()}
"""The mini problems of the benchmarks that have some, the current one first."""
_broken: Final[dict[str, str]] = {}


def list_broken_plugins() -> Mapping[str, str]:
    """Return why the plug-ins cannot be used that were asked for and failed, by name."""
    return _broken


def names_in_words() -> str:
    """Return all names as a choice: `a, b or c`."""
    *others, last = REFERENCES
    return f"{', '.join(others)} or {last}"


def benchmarks_of(round_: str) -> tuple[str, ...]:
    """Return the names of the benchmarks that a round has."""
    return tuple(name for name, reference in REFERENCES.items() if round_ in reference.rounds)


def find_plugin(benchmark: str | None) -> Package | None:
    """Return the package of a benchmark from outside the suite; None for one of the suite, and for none."""
    return None if benchmark is None or benchmark in REFERENCES else find_package(benchmark)


@cache
def load_plugin(benchmark: str) -> tuple[Reference, ...]:
    """Return the facts of a benchmark from outside the suite, the full problem's first; PluginError if it is broken.

    Raises PluginError for an unknown benchmark, too.
    """
    package = find_plugin(benchmark)
    if package is None:
        raise PluginError(f"there is no benchmark {benchmark!r}; expected {names_in_words()}, or an installed plug-in")
    facts = import_facts(package)
    return (facts.REFERENCE, *facts.MINIS)


@lru_cache(maxsize=256)
def list_references(benchmark: str | None) -> tuple[Reference, ...]:
    """Return the facts of a benchmark, the full problem's first; () for an unknown one and for a broken plug-in."""
    if benchmark in REFERENCES:
        return (REFERENCES[benchmark], *MINIS.get(benchmark, ()))
    if find_plugin(benchmark) is None:
        return ()
    try:
        return load_plugin(benchmark or "")
    except PluginError as error:
        _broken[benchmark or ""] = str(error)
        return ()


def find_reference(benchmark: str | None) -> Reference | None:
    """Return the facts of a benchmark's full problem; None for an unknown one and for a broken plug-in."""
    return next(iter(list_references(benchmark)), None)


@lru_cache(maxsize=256)  # asked many times for each log
def reference_of(benchmark: str | None, variant: str) -> Reference | None:
    """Return the facts of a benchmark's variant; None if there is no such benchmark, or no mini problem of it."""
    return next((reference for reference in list_references(benchmark) if reference.variant == variant), None)
