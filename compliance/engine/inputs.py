"""Open the packages, result sets and single logs below the paths, and determine what each log is judged by."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from common.reference import ROUNDS
from compliance.benchmarks import benchmarks_of
from compliance.engine.log_checker import LogTask
from compliance.engine.options import Options
from compliance.model.case import Case
from compliance.model.layout import FLAT, NAMED, PackagePlace, SetPlace, discover, result_name, round_of_path
from compliance.model.official_package import crashes, unreadable
from compliance.model.package import Package
from compliance.model.package_files import contents_of
from compliance.model.parameters import ParameterFile, read_parameters
from compliance.model.result_set import ResultSet
from compliance.model.scaling import read_scaling
from compliance.model.suite_code import SuiteCode
from compliance.model.system import read_description
from compliance.model.waivers import Waiver, checked, waiver_name

OpenedSet = tuple[ResultSet, list[LogTask], list[LogTask]]
"""A result without its runs, and the logs that are to be judged: those that count, and the pruned ones."""


class Inputs(Struct, frozen=True):
    """What is below the paths, before any log is read.

    rounds: by which round each input is judged, and why. packages: without their results, each beside these.
    folders: of logs outside packages. logs: that the user names. waivers: by the name of their result.
    """

    rounds: list[tuple[str, str, str]]
    packages: list[tuple[Package, list[OpenedSet]]]
    folders: list[OpenedSet]
    logs: list[LogTask]
    waivers: dict[str, Waiver]

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

    def open_case(path: str, flat: bool = False) -> Case:
        case = initial_case(path, options, flat)
        rounds.append((path, case.round, case.round_why))
        return case

    packages = [_open_package(place, open_case(place.root, place.flat), options, waivers) for place in places.packages]
    folders = [_open_folder(place, open_case(place.folder), options, waivers) for place in places.folders]
    logs = [LogTask(path, open_case(path), options) for path in places.logs]
    return Inputs(rounds, packages, folders, logs, waivers)


def initial_case(path: str, options: Options, flat: bool = False) -> Case:
    """Return what an input is judged by as far as the user and its path say.

    flat: the path is that of a package with the layout of round 0.7.
    """
    round_, why = _choose_round(path, options, flat)
    return Case(
        round_,
        options.profile,
        options.division,
        options.benchmark,
        allow_mini=options.allow_mini,
        round_why=why,
    )


def _choose_round(path: str, options: Options, flat: bool) -> tuple[str, str]:
    """Return the round that an input is judged by, and why."""
    if options.round:
        return options.round, "as asked for"
    if flat:
        return "0.7", FLAT
    in_path = round_of_path(path) if path != "-" else None
    return (in_path, NAMED) if in_path else (ROUNDS[-1], "the newest")


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
        bypasses=[bypass for file in files for bypass in file.asked],
        crashes=list(
            unreadable(layout.root, layout.tree) if case.strict else crashes(layout.root, case.round, layout.tree)
        ),
        tree=layout.tree,
    )
    code = SuiteCode(contents)
    opened = []
    for folder in layout.sets:
        made_by_suite = code.made(folder.benchmark, folder.system)
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
        official = "closed" if description.official_closed else "open"
        division = description.division if case.strict else official
    folder = os.path.relpath(layout.folder, package.root).replace(os.sep, "/")
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
        officially_bypassed=frozenset() if case.strict else _officially_bypassed(folder, files),
    )


def _officially_bypassed(folder: str, files: list[ParameterFile]) -> frozenset[str]:
    """Return the checks of a result that the official tool leaves out; folder: relative to the organisation's."""
    read = (folder, folder.rpartition("/")[0].rpartition("/")[0])
    return frozenset().union(*(file.obeyed for file in files if file.exact and file.folder in read))


def _open_folder(layout: SetPlace, case: Case, options: Options, waivers: dict[str, Waiver]) -> OpenedSet:
    results = ResultSet(layout.folder, case, folder_benchmark=layout.benchmark, power=layout.power, loose=True)
    return _with_logs(results, layout, options, waivers)


def _with_logs(results: ResultSet, layout: SetPlace, options: Options, waivers: dict[str, Waiver]) -> OpenedSet:
    power = results.power or {}
    task = LogTask("", results.case, options, tree=layout.tree)
    waiver = waivers.get(waiver_name(results))
    return (
        replace(results, waiver=waiver.reason if waiver else ""),
        [replace(task, path=path, power=power.get(result_name(path))) for path in layout.logs],
        [replace(task, path=path) for path in layout.pruned],
    )
