"""Find the packages of benchmarks: those of the suite, and plug-ins, which other distributions or folders bring.

A distribution names its benchmark as an entry point of the group `mlperf_hpc.benchmarks`: `wave_speed = wave_speed`.
The name is that in logs and of the package at the top of the distribution. Nothing is imported until a log or a command
names it, and nothing is looked for while all names are of the suite.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from os.path import samestat
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from common.errors import UsageError
from common.own_code import execute_spec
from common.reference import Reference, Setting, Target
from common.values import is_number
from common.version import FOLDERS_VARIABLE

if TYPE_CHECKING:
    from importlib.metadata import Distribution

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
NAME: Final = re.compile("[a-z][a-z0-9_]{0,19}")
"""What a benchmark's name looks like."""
OFFICIAL: Final = (*PACKAGES, "openfold")
MOST_RUNS: Final = 1000
"""Of a result, as facts may ask for."""
MOST_POINTS_BYTES: Final = 16 << 20
WITHOUT: Final = "torch"
"""The package that facts do without, so that logs are checked where it is not installed."""


class PluginError(UsageError):
    """A benchmark from outside the suite cannot be used; the message names it and its origin."""


class Package(NamedTuple):
    """A benchmark's package.

    origin: the distribution and its version, or the folder that it is in; "": the suite. home: the folder with the
    facts of the distribution, or that folder. problem: why it cannot be used; "": nothing is known to be wrong.
    distribution: its name; "" in a folder and for the suite.
    """

    name: str
    folder: Path
    origin: str = ""
    home: Path = ROOT
    problem: str = ""
    distribution: str = ""


def find_package(name: str) -> Package | None:
    """Return the package of a benchmark; None if there is none. Imports nothing."""
    return Package(name, ROOT / name) if name in PACKAGES else find_plugins().get(name)


def require_package(name: str) -> Package:
    """Return the package of a benchmark; PluginError if there is none, or it cannot be used."""
    if package := find_package(name):
        if package.problem:
            raise _explain_failure(package, package.problem)
        return package
    from common.command import suggest_name  # which needs a package, as other functions here do not

    names = list_benchmarks()
    raise PluginError(
        f"{name!r} is not a benchmark{suggest_name(name, names)}; expected one of {', '.join(names)}"
        + "; several are separated by blanks" * ("," in name)
    )


def locate_package(name: str) -> Path:
    """Return the folder of a benchmark's package, or of another package of the suite."""
    package = None if name in SHARED else find_package(name)
    return package.folder if package else ROOT / name


def list_benchmarks() -> tuple[str, ...]:
    """Return the names of all benchmarks with a package, those of the suite first."""
    return (*PACKAGES, *sorted(find_plugins()))


def looks_official(text: str) -> bool:
    """Tell whether people could take a name or a title for one of MLPerf's."""
    letters = re.sub(r"[\W_]", "", text).lower()
    return letters in OFFICIAL or any(word in letters for word in ("mlperf", "mlcommons"))


@cache
def find_plugins() -> MappingProxyType[str, Package]:
    """Return the benchmarks from outside the suite by name; a folder that was named goes before a distribution.

    PluginError for a folder that cannot be taken.
    """
    if os.environ.get(PLUGINS_VARIABLE) == "off":
        return MappingProxyType({})
    folders = {os.path.realpath(folder): folder for folder in _list_folders()}.values()
    packages = [
        Package(file.parent.name, file.parent, folder, Path(folder))
        for folder in map(_check_folder, folders)
        for file in sorted(Path(folder).glob(f"*/{FACTS}"))
    ]
    chosen = _choose_packages(_list_installed()) | _choose_packages(packages)
    return MappingProxyType(
        {name: chosen[name] for name in chosen if NAME.fullmatch(name) and not looks_official(name)}
    )


def choose_plugins(folders: Sequence[str], suite_only: bool = False) -> None:
    """Also find packages in these folders, or benchmarks of the suite only, here and in processes that start here.

    PluginError for both, and for a folder that cannot be taken.
    """
    if suite_only:
        if folders:
            raise PluginError(f"--no-plugins leaves out --benchmarks-from {folders[0]}, too: give one of them")
        os.environ[PLUGINS_VARIABLE] = "off"
    else:
        use_folders(folders)
    find_plugins.cache_clear()


def use_folders(folders: Sequence[str]) -> None:
    """Also find packages in these folders, in this process and in those that it starts; PluginError for a bad one."""
    every = list(dict.fromkeys((*map(os.path.abspath, folders), *_list_folders())))
    if every:
        os.environ[FOLDERS_VARIABLE] = os.pathsep.join(map(_check_folder, every))
        modules = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys((*modules, *every)))
        sys.path += [folder for folder in every if folder not in sys.path]  # which spawned processes take over
    find_plugins.cache_clear()


def list_search_path() -> list[str]:
    """Return where Python finds modules, without the current folder: a log's folder may not bring code."""
    current = os.stat(os.curdir)  # also of a folder that was removed
    return [path for path in sys.path if path and not (os.path.exists(path) and samestat(os.stat(path), current))]


def _list_folders() -> list[str]:
    """Return the folders that FOLDERS_VARIABLE names."""
    return [os.path.abspath(folder) for folder in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if folder]


def _check_folder(folder: str) -> str:
    """Return a folder to find packages in; PluginError if there is none, or if it would hide modules from Python."""
    origin = f"{folder}, which --benchmarks-from or {FOLDERS_VARIABLE} names"
    if not os.path.isdir(folder):
        raise PluginError(f"{origin}: no such folder; expected one with a package per benchmark")
    outside = set(map(os.path.realpath, (folder, *_list_folders())))
    path = [other for other in list_search_path() if os.path.realpath(other) not in outside]
    for file in sorted(Path(folder).iterdir()):
        name = file.name if (file / "__init__.py").exists() else ""
        if file.suffix == ".py":
            name = file.stem
        hides = name in (*PACKAGES, *SHARED, *sys.stdlib_module_names)
        if name not in ("", "tests") and (hides or (not (file / FACTS).exists() and PathFinder.find_spec(name, path))):
            raise PluginError(
                f"{origin}: its {file.name} would hide the module {name}; move it, or name another folder"
            )
    return folder


def _list_installed() -> Iterator[Package]:
    """Yield the packages that distributions name; of two distributions with one name, Python takes the first."""
    from importlib.metadata import distributions  # only a benchmark that the suite lacks pays for it

    names = set()
    for distribution in distributions(path=list_search_path()):
        try:
            entries = distribution.entry_points.select(group=GROUP)
            if not entries or not distribution.name or distribution.name in names:
                continue
            names.add(distribution.name)
            origin, home = f"{distribution.name} {distribution.version}", Path(str(distribution.locate_file("")))
            for name in sorted({entry.name for entry in entries}):
                folder = _find_folder(name, distribution)
                problem = "" if folder else f"that distribution has no package {name} with {FACTS}"
                yield Package(name, folder or home / name, origin, home, problem, distribution.name)
        except Exception:  # whatever importlib.metadata raises on damaged files, which name no benchmark
            continue


def _choose_packages(packages: Iterable[Package]) -> dict[str, Package]:
    """Return the packages by name; one that several have cannot be used."""
    chosen: dict[str, Package] = {}
    for package in packages:
        if other := chosen.get(package.name):
            package = other._replace(
                origin=f"{other.origin} and {package.origin}", problem="several have that name: keep one of them"
            )
        chosen[package.name] = package
    return chosen


def load_package(package: Package) -> None:
    """Import a plug-in's package from its folder, whatever the current folder holds; its modules follow it."""
    if package.origin and package.name not in sys.modules:
        folder, file = str(package.folder), package.folder / "__init__.py"
        execute_spec(spec_from_file_location(package.name, file, submodule_search_locations=[folder]))


def import_facts(package: Package) -> ModuleType:
    """Import the facts of a plug-in; torch cannot be imported meanwhile.

    Raises PluginError for anything that a plug-in raises, also if it ends the process.
    """
    from traceback import extract_tb  # only a plug-in pays for it

    guard = _Guard()
    sys.meta_path.insert(0, guard)
    try:
        load_package(package)
        facts = importlib.import_module(".reference", package.name)
        references = (facts.REFERENCE, *facts.MINIS)
        if len({getattr(reference, "variant", None) for reference in references}) < len(references):
            raise PluginError("REFERENCE and MINIS must be of different variants")
        for reference in references:
            _check_reference(reference, package)
        if facts.REFERENCE.trained_by:
            importlib.import_module(facts.REFERENCE.trained_by)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the code raises, SystemExit too
        lines = [
            frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(package.folder)
        ]
        cause = f"{type(error).__name__}: {error}".partition("\n")[0]
        cause += f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
        raise _explain_failure(package, cause) from error
    finally:
        sys.meta_path.remove(guard)
    return facts


def _explain_failure(package: Package, cause: str) -> PluginError:
    return PluginError(
        f"benchmark {package.name!r} of {package.origin} cannot be used: {cause}; repair or uninstall it"
    )


def _check_reference(reference: Any, package: Package) -> None:
    """Raise PluginError, or what Python raises, unless these are facts of the benchmark that logs can be judged by."""
    if not isinstance(reference, Reference) or not isinstance(reference.target, Target):
        raise PluginError(f"expected common.reference.Reference, with a Target, found {reference!r:.60}")
    if reference.name != package.name:
        raise PluginError(f"REFERENCE.name is {reference.name!r}")
    target = reference.target
    if not (type(reference.runs) is int and 1 <= reference.runs <= MOST_RUNS):
        raise PluginError(f"expected runs to be a whole number, 1 to {MOST_RUNS}, found {reference.runs!r:.60}")
    if not (isinstance(target.key, str) and is_number(target.value)):
        raise PluginError("expected target to have a text and a finite number")
    _check_points(package.folder, reference.points)
    target.met(target.value)
    for round_ in reference.rounds:
        if not all(isinstance(setting, Setting) for setting in reference.settings_of(round_, "closed")):
            raise PluginError("expected settings of common.reference.Setting")


def _check_points(folder: Path, points: str) -> None:
    """Raise PluginError unless the table of reference points, which may be missing, is a file in the package."""
    path = folder.parent / points
    inside = points.startswith(f"{folder.name}/") and path.resolve().is_relative_to(folder.resolve())
    if not inside or (path.exists() and not (path.is_file() and path.stat().st_size <= MOST_POINTS_BYTES)):
        raise PluginError(
            f"points is {points!r:.100}; expected a file of at most {MOST_POINTS_BYTES >> 20} MiB in the package, such "
            f"as {folder.name}/rcps.yaml"
        )


class _Guard(PathFinder):
    """Refuses the import of torch."""

    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == WITHOUT:
            raise ImportError(f"facts must not import {WITHOUT}: reference.py and settings.py do without")
        return None


def _find_folder(name: str, distribution: Distribution) -> Path | None:
    """Return the folder of a distribution's own package, also of an editable installation; None without one."""
    import json  # only a plug-in pays for these
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = json.loads(distribution.read_text("direct_url.json") or "{}")
    files, folders = distribution.files, []
    if files is None or any(file.parts[0] == name for file in files):
        folders = [Path(str(distribution.locate_file(name)))]
    if url.get("dir_info", {}).get("editable"):
        root = Path(url2pathname(urlsplit(url["url"]).path)).resolve()
        path = [folder for folder in sys.path if Path(folder).resolve().is_relative_to(root)]
        finders = (finder for finder in sys.meta_path if finder is not PathFinder)
        specs = [PathFinder.find_spec(name, path), *(finder.find_spec(name, None) for finder in finders)]
        origins = [Path(spec.origin).resolve() for spec in specs if spec and spec.origin]
        folders += [origin.parent for origin in origins if origin.is_relative_to(root)]
    return next((folder for folder in folders if (folder / FACTS).is_file()), None)
