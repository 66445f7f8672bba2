"""The one list of benchmarks; everything else asks here for names, rounds and facts."""

import os
import sys
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Final

from common.reference import Reference
from compliance.facts import openfold

PACKAGES: Final = (
    "cosmoflow",
    "deepcam",
    "oc20",
)
"""Benchmarks that have a package at the top of the tree; the facts are in its reference.py."""


def _import_facts(name: str) -> ModuleType:
    """Return the module with the facts of a benchmark; without its package, every command ends here, in one line."""
    try:
        return import_module(f"{name}.reference")
    except ModuleNotFoundError as error:
        if error.name not in (name, f"{name}.reference"):
            raise
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), name)
    if os.path.exists(folder):
        fix = f"Python does not find {folder}: repeat `pip install --editable .`, or run from its parent folder"
    else:
        fix = f"there is no {folder}: bring it back, or remove the benchmark as docs/guide/new-benchmark.md says"
    sys.exit(f"error: compliance/benchmarks.py lists {name!r}, but {fix}")


_FACTS: Final = {name: _import_facts(name) for name in PACKAGES}

REFERENCES: Final[dict[str, Reference]] = {
    **{name: facts.REFERENCE for name, facts in _FACTS.items()},
    "openfold": openfold.REFERENCE,
}
MINIS: Final[dict[str, tuple[Reference, ...]]] = {name: facts.MINIS for name, facts in _FACTS.items()}
"""The mini problems of the benchmarks that have some, the current one first."""


def names_in_words() -> str:
    """Return all names as a choice: `a, b or c`."""
    *others, last = REFERENCES
    return f"{', '.join(others)} or {last}"


def benchmarks_of(round_: str) -> tuple[str, ...]:
    """Return the names of the benchmarks that a round has."""
    return tuple(name for name, reference in REFERENCES.items() if round_ in reference.rounds)


@lru_cache(maxsize=256)  # asked many times for each log
def reference_of(benchmark: str | None, variant: str) -> Reference | None:
    """Return the facts of a benchmark's variant; None if there is no such benchmark, or no mini problem of it."""
    candidates = (REFERENCES.get(benchmark or ""), *MINIS.get(benchmark or "", ()))
    return next((reference for reference in candidates if reference and reference.variant == variant), None)
