"""The rules: modules of the suite, whose import registers them, and rules of your own. A new module is one name here.

Your own come from a module, a Python file or an installed package. Loading runs the code of the module or file. An
installed package names its modules in the entry-point group `mlperf_hpc.rules`; these are loaded without being asked
for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from common.benchmarks import list_search_path
from common.errors import UsageError
from common.own_code import FILE, import_source
from common.rounds import HPC, TRAINING
from common.values import group_pairs
from common.version import FOLDERS_VARIABLE
from compliance.rules.rule import RULES, Rule, rules_of

LOG_MODULES: Final = (
    "amounts census closed damage epochs evaluations evidence form learning_rate order pace privacy quality "
    "reports settings text".split()
)
"""Rules about one log."""
COMMITTEE_MODULE: Final = "committee"
"""Rules about one log of MLPerf Training; HPC's logs do not pay for the reader of rule files."""
RESULT_MODULES: Final = "convergence copies implementations metering package power repository runs system".split()
"""Rules about results, packages and everything that is checked together; a single log does not need them."""


@cache
def import_log_rules(usage: str = HPC) -> None:
    """Register the rules about one log of a suite."""
    for name in (*LOG_MODULES, COMMITTEE_MODULE) if usage == TRAINING else LOG_MODULES:
        import_module(f"compliance.rules.{name}")


@cache
def import_all_rules() -> None:
    """Register every rule of the suite."""
    import_log_rules(TRAINING)
    for name in RESULT_MODULES:
        import_module(f"compliance.rules.{name}")


def all_rules() -> dict[str, type[Rule]]:
    """Return every rule by id: those of the suite, and rules of your own that are loaded."""
    import_all_rules()
    return RULES


GROUP = "mlperf_hpc.rules"


def load_rules(sources: Iterable[str] = ()) -> None:
    """Register the rules of these modules or Python files, and those of installed packages.

    What is loaded already is not loaded again. Raises UsageError, and registers nothing of a source that fails.
    """
    _load_installed()
    for source in sources:
        _load_source(source, source)


def own_rules() -> dict[str, list[str]]:
    """Return the ids of the rules that are not the suite's, by the file or module that they come from."""
    own = ((rule.__module__, id_) for id_, rule in sorted(RULES.items()) if not rule.is_suite_rule())
    return group_pairs((module.removeprefix(FILE), id_) for module, id_ in own)


def _load_source(source: str, name: str) -> None:
    """Import one source; `name` is what a message calls it."""
    before = dict(RULES)
    try:
        with redirect_stdout(sys.stderr):  # a report may be on standard output
            module = import_source(source, name)
    except UsageError:
        for id_ in set(RULES) - set(before):
            sys.modules.pop(RULES.pop(id_).__module__, None)
        RULES.update(before)  # what the source may have replaced
        rules_of.cache_clear()
        raise
    own = [rule for rule in RULES.values() if not rule.is_suite_rule()]
    # A rule may be defined in a part of the module, if it is a package.
    if not any(f"{rule.__module__}.".startswith(f"{module.__name__}.") for rule in own):
        raise UsageError(
            f"{name}: no rule of your own in it; expected a class derived from LogRule, SetRule, PackageRule or "
            "SubmissionsRule of compliance.rules.rule, with an id"
        )


# -- installed packages ------------------------------------------------------------------------------------


@cache
def _load_installed() -> None:
    """Load the modules that installed packages name in the entry-point group."""
    named = filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))
    for_benchmarks = set(map(os.path.realpath, named))  # which may be what is judged
    path = [folder for folder in list_search_path() if os.path.realpath(folder) not in for_benchmarks]
    files = (file for folder in path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(os.access(file, os.R_OK) and GROUP.encode() in file.read_bytes() for file in files):
        return
    from importlib.metadata import distributions  # costs as much as reading a log: only where there is something

    for distribution in distributions(path=path):
        for point in distribution.entry_points.select(group=GROUP):
            _load_source(point.module, f"{point.module} (an installed package, entry point {GROUP})")
