"""Open the packages, result sets and single logs below the paths, and determine what each log is judged by."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from common.reference import FIRST_RUNS_MS, ROUNDS
from common.tree import RefusedFileError, Tree
from compliance.benchmarks import benchmarks_of
from compliance.engine.log_checker import LogTask, Options
from compliance.model.judging import STRICT, Case
from compliance.model.layout import (
    FLAT,
    NAMED,
    NEWEST,
    PARAMETERS_FILE,
    RESULTS,
    STRONG,
    SYSTEMS,
    WEAK,
    PackagePlace,
    SetPlace,
    discover,
    name_below,
    result_name,
    round_of_path,
    subfolders,
)
from compliance.model.package import Package
from compliance.model.package_files import Code, ParameterFile, contents_of, read_parameters, read_scaling
from compliance.model.result_set import ResultSet
from compliance.model.system import read_description
from compliance.model.waivers import Waiver, checked, waiver_name

OpenedSet = tuple[ResultSet, list[LogTask], list[LogTask]]
"""A result without its runs, and the logs that are to be judged: those that count, and the pruned ones."""


class Inputs(Struct, frozen=True):
    """What is below the paths, before any log is read.

    rounds: by which round each input is judged, why, and what it is; a folder of logs outside packages is a result.
    packages: without their results, beside these. folders: of logs outside packages. logs: that the user names.
    waivers: by the name of their result. unread: files with the name of a log that are not judged.
    """

    rounds: list[tuple[str, str, str, str]]
    packages: list[tuple[Package, list[OpenedSet]]]
    folders: list[OpenedSet]
    logs: list[LogTask]
    waivers: dict[str, Waiver]
    unread: list[str]

    @property
    def tasks(self) -> list[LogTask]:
        """All logs to judge: of packages, of folders, and those that the user names."""
        sets = chain(*(sets for _, sets in self.packages), self.folders)
        return [*chain.from_iterable((*counted, *pruned) for _, counted, pruned in sets), *self.logs]


def open_paths(paths: Iterable[str | os.PathLike[str]], options: Options) -> Inputs:
    """Return what is below the paths; read descriptions and parameters, but no logs.

    Raises UsageError for a waiver that can mean no result.
    """
    waivers = checked(options.waivers)
    places = discover([os.fspath(path) for path in paths])
    rounds = []

    def open_case(path: str, kind: str, flat: bool = False) -> Case:
        case = initial_case(path, options, flat)
        rounds.append((path, case.round, case.round_why, kind))
        return case

    packages = []
    for package in places.packages:
        flat = package.flat and not (options.profile == STRICT and _is_later(package))
        case = open_case(package.part or package.root, "result" if package.part else "package", flat)
        packages.append(_open_package(package, case, options, waivers))
    folders = []
    for place in places.folders:
        case = open_case(place.folder, "result")
        results = ResultSet(place.folder, case, folder_benchmark=place.benchmark, power=place.power, loose=True)
        folders.append(_with_logs(results, place, options, waivers))
    logs = [LogTask(path, open_case(path, "log"), options) for path in places.logs]
    return Inputs(rounds, packages, folders, logs, waivers, places.unread)


def _is_later(package: PackagePlace) -> bool:
    """Tell whether the logs are of a time after the round of the flat layout, which then is a mistake."""
    logs = (log for results in package.sets for log in results.logs)
    times = TIME.search(package.tree.begin(next(logs, ""), MOST_BYTES))
    return times is not None and int(times[1]) > FIRST_RUNS_MS[ROUNDS[1]]


def initial_case(path: str, options: Options, flat: bool = False) -> Case:
    """Return what an input is judged by as far as the user and its path say.

    flat: the path is that of a package with the layout of round 0.7.
    """
    in_path = round_of_path(path) if path != "-" else None
    round_, why = (in_path, NAMED) if in_path else (ROUNDS[-1], NEWEST)
    if options.round:
        round_, why = options.round, "as asked for"
    elif flat:
        round_, why = "0.7", FLAT
    return Case(
        round_, options.profile, options.division, options.benchmark, allow_mini=options.allow_mini, round_why=why
    )


def _open_package(
    layout: PackagePlace, case: Case, options: Options, waivers: dict[str, Waiver]
) -> tuple[Package, list[OpenedSet]]:
    contents = contents_of(layout.root)
    # The official tool does not see hidden files.
    systems = [path for path in layout.systems if case.strict or not os.path.basename(path).startswith(".")]
    descriptions = [read_description(path, layout.tree) for path in systems]
    files = read_parameters(layout.root, contents, layout.tree)
    package = Package(
        layout.root,
        layout.organisation,
        case.round,
        case.profile,
        layout.flat,
        descriptions={description.name: description for description in descriptions},
        unexpected=layout.unexpected,
        missing=layout.missing,
        contents=contents,
        code=Code(layout.root, contents),
        bypasses=[bypass for file in files for bypass in file.asked],
        crashes=list(
            unreadable(layout.root, layout.tree) if case.strict else crashes(layout.root, case.round, layout.tree)
        ),
        tree=layout.tree,
        whole=not layout.part,
    )
    opened = []
    for folder in layout.sets:
        made_by_suite = package.code.is_of_suite(folder.benchmark, folder.system)
        results = _open_set(folder, package, replace(case, suite_code=made_by_suite), files)
        opened.append(_with_logs(results, folder, options, waivers))
    return package, opened


def _open_set(layout: SetPlace, package: Package, case: Case, files: list[ParameterFile]) -> ResultSet:
    """Return the result in a folder. case: of the package. files: parameter files of the official tool."""
    description = package.descriptions.get(layout.system)
    name = layout.benchmark.lower() if case.strict else layout.benchmark
    benchmark = case.benchmark or (name if name in benchmarks_of(case.round) else None)
    division = case.division
    if description is not None and division is None:
        # The official tool takes it for closed by the exact spelling only.
        official = "closed" if description.fields.get("division") == "closed" else "open"
        division = description.division if case.strict else official
    folder = name_below(package.root, layout.folder)
    read = (folder, folder.rpartition("/")[0].rpartition("/")[0])
    obeyed = [file for file in files if not case.strict and file.exact and file.folder in read]
    return ResultSet(
        layout.folder,
        replace(case, benchmark=benchmark, division=division),
        layout.scaling,
        package.organisation,
        layout.system,
        layout.benchmark,
        other_files=layout.others,
        description=description,
        unchecked=not case.strict and (benchmark is None or (package.flat and case.round != ROUNDS[0])),
        power=layout.power,
        scaling_file=read_scaling(layout.scaling_file, case.strict, layout.tree),
        bypasses=[bypass for bypass in package.bypasses if bypass.about_convergence and bypass.covers(folder)],
        officially_bypassed=frozenset().union(*(file.obeyed for file in obeyed)),
    )


def _with_logs(results: ResultSet, layout: SetPlace, options: Options, waivers: dict[str, Waiver]) -> OpenedSet:
    power = results.power or {}
    task = LogTask("", results.case, options, tree=layout.tree)
    waiver = waivers.get(waiver_name(results))
    return (
        replace(results, waiver=waiver.reason if waiver else ""),
        [replace(task, path=path, power=power.get(result_name(path))) for path in layout.logs],
        [replace(task, path=path) for path in layout.pruned],
    )


MOST_BYTES: Final = 1 << 16
TIME: Final = re.compile(rb'"time_ms": *([0-9]{13})\b')


def crashes(root: str, round_: str, tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) for each file or folder on which the official tool ends with a traceback."""
    yield from unreadable(root, tree)
    for _, scaling, benchmark in _benchmark_folders(root, tree):
        if os.path.basename(scaling) not in (STRONG, WEAK):
            yield benchmark, f"is a folder in {os.path.basename(scaling)!r}, which is neither strong nor weak"
        elif os.path.basename(benchmark) in benchmarks_of(round_):
            for path in _matching_files(benchmark, "result_*.txt"):
                if os.path.isdir(path):
                    yield path, "is a folder with the name of a log"
                elif not os.path.exists(path):
                    yield path, "is a link to nothing with the name of a log"


def unreadable(root: str, tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) for each file beside the logs that the official tool cannot read."""
    for path in _matching_files(posixpath.join(root, SYSTEMS), "*.json"):
        if os.path.isdir(path):
            yield path, "is a folder with the name of a system description"
    folders = [folder for system, _, benchmark in _benchmark_folders(root, tree) for folder in (system, benchmark)]
    for folder in dict.fromkeys(folders):
        yield from _find_unreadable(posixpath.join(folder, PARAMETERS_FILE), tree)


def _benchmark_folders(root: str, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield the folders of a system, a scaling and a benchmark that the official tool looks into."""
    for system in subfolders(posixpath.join(root, RESULTS), tree):
        for scaling in subfolders(system, tree):
            for benchmark in subfolders(scaling, tree):
                yield system, scaling, benchmark


def _find_unreadable(path: str, tree: Tree) -> Iterator[tuple[str, str]]:
    if not os.path.exists(path):
        return
    try:
        tree.read(path, MOST_BYTES).decode("utf-8")
    except RefusedFileError as error:
        yield path, error.reason
    except OSError as error:
        yield path, error.strerror or str(error)
    except ValueError:
        yield path, "is not text in UTF-8"


def _matching_files(folder: str, pattern: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [posixpath.join(folder, name) for name in sorted(names) if name[0] != "." and fnmatchcase(name, pattern)]
