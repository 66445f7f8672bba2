"""Find the packages of benchmarks: those of the suite, and plug-ins, which other distributions or folders bring.

A distribution names its benchmark as an entry point of the group `mlperf_hpc.benchmarks`: `wave_speed = wave_speed`.
The name is that in logs and of the package at the top of the distribution. Nothing is imported until a log or a command
names it, and nothing is looked for while all names are of the suite.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from common.command import FOLDERS_VARIABLE as FOLDERS_VARIABLE
from common.command import suggest_name
from common.errors import UsageError
from common.own_code import execute_spec
from common.reference import Reference, Setting, Target

ROOT: Final = Path(__file__).parent.parent
"""The folder of the suite's packages."""
PACKAGES: Final = (
    "cosmoflow",
    "deepcam",
    "oc20",
)
"""The benchmarks of the suite that have a package at the top of the tree."""
SHARED: Final = ("common", "compliance", "submission")
"""The packages of the suite beside them."""
GROUP: Final = "mlperf_hpc.benchmarks"
PLUGINS_VARIABLE: Final = "MLPERF_HPC_PLUGINS"
"""`off`: benchmarks of the suite only."""
FACTS: Final = "reference.py"
WITHOUT: Final = "torch"
"""The package that facts do without, so that logs are checked where it is not installed."""


class PluginError(UsageError):
    """A benchmark from outside the suite cannot be used; the message names it and its origin."""


@dataclass(frozen=True, slots=True)
class Package:
    """A benchmark's package.

    origin: the distribution and its version, or the folder that it is in; "": the suite. home: the folder with the
    facts of the distribution, or that folder. distribution: its name; "" in a folder and for the suite.
    """

    name: str
    folder: Path
    origin: str = ""
    home: Path = ROOT
    distribution: str = ""


def find_package(name: str) -> Package | None:
    """Return the package of a benchmark; None if there is none. Imports nothing."""
    return Package(name, ROOT / name) if name in PACKAGES else find_plugins().get(name)


def require_package(name: str) -> Package:
    """Return the package of a benchmark; PluginError if there is none."""
    if package := find_package(name):
        return package
    names = list_benchmarks()
    raise PluginError(f"{name!r} is not a benchmark{suggest_name(name, names)}; expected one of {', '.join(names)}")


def locate_package(name: str) -> Path:
    """Return the folder of a benchmark's package, or of another package of the suite."""
    package = None if name in SHARED else find_package(name)
    return package.folder if package else ROOT / name


def list_benchmarks() -> tuple[str, ...]:
    """Return the names of all benchmarks with a package, those of the suite first."""
    return (*PACKAGES, *sorted(find_plugins()))


@cache
def find_plugins() -> MappingProxyType[str, Package]:
    """Return the benchmarks from outside the suite by name; a folder that was named goes before a distribution.

    The current folder, which Python searches first with `-m`, is left out: a log's folder may not bring code.
    """
    if os.environ.get(PLUGINS_VARIABLE) == "off":
        return MappingProxyType({})
    packages = [
        Package(file.parent.name, file.parent, folder, Path(folder))
        for folder in filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))
        for file in sorted(Path(folder).glob(f"*/{FACTS}"))
    ]
    path = sys.path[1:] if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(".") else sys.path
    for distribution in importlib.metadata.distributions(path=path):
        try:
            for entry in distribution.entry_points.select(group=GROUP):
                folder = _find_folder(entry.name, path)
                origin, home = f"{distribution.name} {distribution.version}", Path(str(distribution.locate_file("")))
                packages += [Package(entry.name, folder, origin, home, distribution.name)] if folder else []
        except Exception:  # whatever importlib.metadata raises on damaged files, which name no benchmark
            continue
    return MappingProxyType({package.name: package for package in reversed(packages) if package.name not in PACKAGES})


def use_folders(folders: Sequence[str]) -> None:
    """Also find packages in these folders, in this process and in those that it starts. PluginError for no folder."""
    for folder in map(os.path.abspath, folders):
        if not os.path.isdir(folder):
            raise PluginError(f"--benchmarks-from {folder}: no such folder; expected one with a package per benchmark")
        for variable in (FOLDERS_VARIABLE, "PYTHONPATH"):
            others = os.environ.get(variable)
            os.environ[variable] = f"{folder}{os.pathsep}{others}" if others else folder
        sys.path.append(folder)  # which processes that multiprocessing spawns take over
    find_plugins.cache_clear()


def forbid_plugins() -> None:
    """Find benchmarks of the suite only, in this process and in those that it starts."""
    os.environ[PLUGINS_VARIABLE] = "off"
    find_plugins.cache_clear()


def load_package(package: Package) -> None:
    """Import a plug-in's package from its folder, whatever the current folder holds; its modules follow it."""
    if package.origin and package.name not in sys.modules:
        folder, file = str(package.folder), package.folder / "__init__.py"
        execute_spec(spec_from_file_location(package.name, file, submodule_search_locations=[folder]))


def import_facts(package: Package) -> ModuleType:
    """Import the facts of a plug-in; torch cannot be imported meanwhile.

    Raises PluginError for anything that a plug-in raises, also if it ends the process.
    """
    guard = _Guard()
    sys.meta_path.insert(0, guard)
    try:
        load_package(package)
        facts = importlib.import_module(".reference", package.name)
        for reference in (facts.REFERENCE, *facts.MINIS):
            _check_reference(reference, package.name)
        if facts.REFERENCE.trained_by:
            importlib.import_module(facts.REFERENCE.trained_by)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the code raises, SystemExit too
        cause = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PluginError(
            f"benchmark {package.name!r} of {package.origin} cannot be used: {cause}; repair or uninstall it"
        ) from error
    finally:
        sys.meta_path.remove(guard)
    return facts


def _check_reference(reference: Any, name: str) -> None:
    """Raise PluginError, or what Python raises, unless these are facts of the benchmark that logs can be judged by."""
    if not isinstance(reference, Reference) or not isinstance(reference.target, Target):
        raise PluginError(f"expected common.reference.Reference, with a Target, found {reference!r:.60}")
    if reference.name != name:
        raise PluginError(f"REFERENCE.name is {reference.name!r}")
    if not (
        type(reference.runs) is int and isinstance(reference.points, str) and isinstance(reference.target.key, str)
    ):
        raise PluginError("expected runs to be a whole number, points and target.key to be texts")
    reference.target.met(reference.target.value)
    for round_ in reference.rounds:
        if not all(isinstance(setting, Setting) for setting in reference.settings_of(round_, "closed")):
            raise PluginError("expected settings of common.reference.Setting")


class _Guard(PathFinder):
    """Refuses the import of torch."""

    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == WITHOUT:
            raise ImportError(f"facts must not import {WITHOUT}: reference.py and settings.py do without")
        return None


def _find_folder(name: str, path: Sequence[str]) -> Path | None:
    """Return the folder of a package on the path, or that an editable installation names; None without one."""
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    specs = [PathFinder.find_spec(name, path), *(finder.find_spec(name, None) for finder in finders)]
    origins = (Path(spec.origin) for spec in specs if spec and spec.origin)
    return next((origin.parent for origin in origins if (origin.parent / FACTS).is_file()), None)
