"""The one list of benchmarks; everything else asks here for names, rounds and facts."""

from importlib import import_module
from typing import Final

from common.reference import MINI, Reference
from compliance import openfold

PACKAGES: Final = (
    "cosmoflow",
    "deepcam",
    "oc20",
)
"""Benchmarks that have a package at the top of the tree; the facts are in its reference.py."""

_FACTS: Final = {name: import_module(f"{name}.reference") for name in PACKAGES}

REFERENCES: Final[dict[str, Reference]] = {
    **{name: facts.REFERENCE for name, facts in _FACTS.items()},
    "openfold": openfold.REFERENCE,
}
MINIS: Final[dict[str, Reference]] = {name: facts.MINI for name, facts in _FACTS.items()}
"""The mini problems of the benchmarks that have one."""


def names_in_words() -> str:
    """Return all names as a choice: `a, b or c`."""
    *others, last = REFERENCES
    return f"{', '.join(others)} or {last}"


def benchmarks_of(round_: str) -> tuple[str, ...]:
    """Return the names of the benchmarks that a round has."""
    return tuple(name for name, reference in REFERENCES.items() if round_ in reference.rounds)


def reference_of(benchmark: str | None, variant: str) -> Reference | None:
    """Return the facts of a benchmark's variant; None if there is no such benchmark, or no mini problem of it."""
    return (MINIS if variant == MINI else REFERENCES).get(benchmark or "")
