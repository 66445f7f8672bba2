"""Open the packages, result sets and single logs below the paths, and determine what each log is judged by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from common.reference import ROUNDS
from common.tree import Tree
from compliance.benchmarks import benchmarks_of
from compliance.engine.log_checker import LogTask
from compliance.engine.options import Options
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
from compliance.rules.rule import STRICT

OpenedSet = tuple[ResultSet, SetPlace]


@dataclass(slots=True)
class Opened:
    """What is below the paths, before any log is read.

    rounds: by which round each input is judged, and why. sets: each with its place, without runs.
    tasks: the logs to examine: those of the sets in order, counted and pruned, then those outside sets.
    waivers: those that were given, by the name of their result.
    """

    rounds: list[tuple[str, str, str]] = field(default_factory=list)
    packages: list[Package] = field(default_factory=list)
    sets: list[OpenedSet] = field(default_factory=list)
    tasks: list[LogTask] = field(default_factory=list)
    waivers: dict[str, Waiver] = field(default_factory=dict)


def open_paths(paths: Iterable[str | os.PathLike[str]], options: Options) -> Opened:
    """Return what is below the paths; read descriptions and parameters, but no logs.

    Raises UsageError for a waiver that can mean no result.
    """
    opened = Opened(waivers=checked(options.waivers))
    places = discover([os.fspath(path) for path in paths])

    def round_for(path: str, flat: bool = False) -> tuple[str, str]:
        round_, why = choose_round(path, flat, options)
        opened.rounds.append((path, round_, why))
        return round_, why

    def add(sets: list[OpenedSet], why: str) -> None:
        opened.sets += sets
        for results, found in sets:
            waiver = opened.waivers.get(waiver_name(results))
            results.waiver = waiver.reason if waiver else ""
            opened.tasks += _set_tasks(results, found, why, options)

    for place in places.packages:
        round_, why = round_for(place.root, place.flat)
        package, sets = _open_package(place, round_, options)
        opened.packages.append(package)
        add(sets, why)
    for folder in places.folders:
        round_, why = round_for(folder.folder)
        add([(_open_folder(folder, round_, options), folder)], why)
    for path in places.logs:
        round_, why = round_for(path)
        opened.tasks.append(log_task(path, round_, why, options))
    return opened


def log_task(path: str, round_: str, why: str, options: Options) -> LogTask:
    """Return what to examine of a log that the user names; why: how its round was chosen."""
    asked = (options.profile, options.division, options.benchmark)
    return LogTask(path, round_, *asked, allow_mini=options.allow_mini, details=options.details, round_why=why)


def choose_round(path: str, flat: bool, options: Options) -> tuple[str, str]:
    """Return the round that an input is judged by, and why."""
    if options.round:
        return options.round, "as asked for"
    if flat:
        return "0.7", FLAT
    named = round_of_path(path) if path != "-" else None
    return (named, NAMED) if named else (ROUNDS[-1], "the newest")


def _open_package(place: PackagePlace, round_: str, options: Options) -> tuple[Package, list[OpenedSet]]:
    package = Package(place.root, place.organisation, round_, options.profile, place.flat, tree=place.tree)
    package.unexpected, package.missing, package.contents = place.unexpected, place.missing, contents_of(place.root)
    package.crashes = list(
        unreadable(place.root, place.tree) if package.strict else crashes(place.root, round_, place.tree)
    )
    for path in place.systems:
        if not package.strict and os.path.basename(path).startswith("."):
            continue  # the official tool does not see it
        description = read_description(path, place.tree)
        package.descriptions[description.name] = description
    files = read_parameters(place.root, package.contents, place.tree)
    package.bypasses = [bypass for file in files for bypass in file.asked]
    pairs = [(_open_set(found, package, options), found) for found in place.sets]
    code = SuiteCode(package.contents)
    for results, found in pairs:
        results.suite_code = code.made(found.benchmark, found.system)
        _note_bypasses(results, package, files)
    package.sets = [results for results, _ in pairs]
    return package, pairs


def _open_set(place: SetPlace, package: Package, options: Options) -> ResultSet:
    description = package.descriptions.get(place.system)
    results = ResultSet(place.folder, package.round, options.profile, place.scaling)
    results.organisation, results.system, results.folder_benchmark = package.organisation, place.system, place.benchmark
    results.description, results.other_files, results.power = description, place.others, place.power
    known = place.benchmark.lower() if options.profile == STRICT else place.benchmark
    results.benchmark = options.benchmark or (known if known in benchmarks_of(package.round) else None)
    if description is not None:
        official = "closed" if description.official_closed else "open"
        results.division = description.division if options.profile == STRICT else official
    if options.profile != STRICT:
        results.unchecked = results.benchmark is None or (package.flat and package.round != ROUNDS[0])
    results.division = options.division or results.division
    results.scaling_file = read_scaling(place.scaling_file, results.strict, place.tree)
    return results


def _note_bypasses(results: ResultSet, package: Package, files: list[ParameterFile]) -> None:
    """Fill in who asked to leave checks of this result out, and what the official tool would leave out."""
    folder = os.path.relpath(results.folder, package.root).replace(os.sep, "/")
    results.bypasses = [bypass for bypass in package.bypasses if bypass.about_convergence and bypass.covers(folder)]
    if not results.strict:
        read = (folder, folder.rpartition("/")[0].rpartition("/")[0])
        obeyed = [file.obeyed for file in files if file.exact and file.folder in read]
        results.officially_bypassed = frozenset().union(*obeyed)


def _open_folder(place: SetPlace, round_: str, options: Options) -> ResultSet:
    results = ResultSet(place.folder, round_, options.profile, loose=True)
    results.folder_benchmark, results.power = place.benchmark, place.power
    results.division, results.benchmark = options.division, options.benchmark
    return results


def _set_tasks(results: ResultSet, place: SetPlace, why: str, options: Options) -> Iterator[LogTask]:
    power = results.power or {}
    task = _task(results, why, options, place.tree)
    for path in place.logs:
        yield replace(task, path=path, power=power.get(result_name(path)))
    for path in place.pruned:
        yield replace(task, path=path)


def _task(results: ResultSet, why: str, options: Options, tree: Tree) -> LogTask:
    return LogTask(
        "",
        results.round,
        options.profile,
        options.division,
        options.benchmark,
        division_hint=results.division,
        benchmark_hint=results.benchmark,
        allow_mini=options.allow_mini,
        suite_code=results.suite_code,
        details=options.details,
        tree=tree,
        round_why=why,
    )
