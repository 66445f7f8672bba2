"""The facts of all benchmarks; everything else asks here for names, rounds and facts."""

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Final

from common.benchmarks import FACTS, PACKAGES, ROOT, Package, PluginError, find_package, import_facts, require_package
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
        fix = f"there is no {folder}: bring it back, or remove its line from that file"
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
_judged: Final[list[str]] = []
"""The files and folders that are judged: no plug-in is imported from there."""


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
    if benchmark is None or benchmark in REFERENCES or not benchmark.isidentifier():
        return None
    return find_package(benchmark)


def describe_plugin(benchmark: str | None) -> str:
    """Return what a benchmark from outside the suite is: `wave_speed of wave-speed 0.1.0: …`; "" for any other."""
    package = find_plugin(benchmark)
    return f"{package.name} of {package.origin}: not an MLPerf benchmark" if package else ""


def refuse_plugins_in(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Import no plug-in from these folders or from beside these files, as they are judged."""
    _judged[:] = [os.path.realpath(path) for path in paths]
    _broken.clear()
    for cached in (load_plugin, list_references, reference_of):
        cached.cache_clear()


def list_judged_paths() -> list[str]:
    """Return the paths that `refuse_plugins_in` got, for another process."""
    return [*_judged]


def _find_judged(package: Package) -> str | None:
    """Return the judged file or folder that a plug-in, or the facts of its distribution, comes from; None if none."""
    home, folder, facts = (os.path.realpath(path) for path in (package.home, package.folder, package.folder / FACTS))
    around = os.path.join(home, "") if package.origin != str(package.home) else None  # metadata above what is judged
    for path in _judged:
        if around and path.startswith(around) and around.startswith(os.path.join(os.path.realpath("."), "")):
            return path
        if os.path.isdir(path):
            inside = any(part.startswith(os.path.join(path, "")) for part in (os.path.join(home, ""), folder, facts))
        else:
            inside = os.path.dirname(path) in (home, folder, os.path.dirname(folder))
        if inside:
            return path
    return None


@cache
def load_plugin(benchmark: str) -> tuple[Reference, ...]:
    """Return the facts of a benchmark from outside the suite, the full problem's first; PluginError if it is broken.

    Raises PluginError for an unknown benchmark, too.
    """
    package = require_package(benchmark)
    if judged := _find_judged(package):
        origin = f"benchmark {benchmark!r} of {package.origin}"
        raise PluginError(
            f"{origin} is in or beside {judged}, which is judged: its code is not run; install it elsewhere"
        )
    with redirect_stdout(sys.stderr):  # a report may be on standard output
        facts = import_facts(package)
    return (facts.REFERENCE, *facts.MINIS)


def require_references(benchmark: str) -> tuple[Reference, ...]:
    """Return the facts of a benchmark, the full problem's first; PluginError for an unknown or a broken one."""
    return list_references(benchmark) or load_plugin(benchmark)


def require_reference(benchmark: str) -> Reference:
    """Return the facts of a benchmark's full problem; PluginError for an unknown or a broken one."""
    return require_references(benchmark)[0]


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
        report_broken(benchmark or "", str(error))
        return ()


def report_broken(benchmark: str, cause: str) -> None:
    """Note why a plug-in cannot be used, for `list_broken_plugins`."""
    _broken[benchmark] = cause


def read_name(value: object) -> str:
    """Return a logged name of a benchmark without blanks and in lower case; "" for what is no text."""
    return value.strip().lower() if isinstance(value, str) else ""


def find_reference(benchmark: str | None) -> Reference | None:
    """Return the facts of a benchmark's full problem; None for an unknown one and for a broken plug-in."""
    return next(iter(list_references(benchmark)), None)


def has_round(benchmark: str | None, round_: str) -> bool:
    """Tell whether a round has a benchmark of this name."""
    reference = find_reference(benchmark)
    return reference is not None and round_ in reference.rounds


@lru_cache(maxsize=256)  # asked many times for each log
def reference_of(benchmark: str | None, variant: str) -> Reference | None:
    """Return the facts of a benchmark's variant; None if there is no such benchmark, or no mini problem of it."""
    return next((reference for reference in list_references(benchmark) if reference.variant == variant), None)
