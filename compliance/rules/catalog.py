"""The modules with the rules of the suite. Importing a module registers its rules; a new module is one name here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from compliance.rules.rule import RULES, Rule

LOG_MODULES: Final = (
    "amounts closed damage epochs evaluations evidence form order pace privacy quality settings".split()
)
"""Rules about one log."""
RESULT_MODULES: Final = (
    "convergence copies implementations metering official package power repository runs system".split()
)
"""Rules about results, packages and everything that is checked together; a single log does not need them."""


@cache
def import_log_rules() -> None:
    """Register the rules about one log."""
    for name in LOG_MODULES:
        import_module(f"compliance.rules.{name}")


@cache
def import_all_rules() -> None:
    """Register every rule of the suite."""
    import_log_rules()
    for name in RESULT_MODULES:
        import_module(f"compliance.rules.{name}")


def all_rules() -> dict[str, type[Rule]]:
    """Return every rule by id: those of the suite, and rules of your own that are loaded."""
    import_all_rules()
    return RULES
