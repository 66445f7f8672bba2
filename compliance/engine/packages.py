"""Open a package: its layout, system descriptions, code and parameter files, and the folders of its results.

What the official tool cannot read ends it with a traceback; the paths where that happens are noted, too.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec.structs import replace

from common.reference import ROUNDS
from common.rounds import TRAINING, find_usage
from common.tree import Tree
from compliance.benchmarks import benchmarks_of
from compliance.model.judging import Case
from compliance.model.layout import (
    PARAMETERS_FILE,
    RESULTS,
    STRONG,
    SYSTEMS,
    WEAK,
    PackagePlace,
    SetPlace,
    name_below,
    subfolders,
)
from compliance.model.package import Package
from compliance.model.package_files import Code, ParameterFile, contents_of, read_parameters, read_scaling
from compliance.model.result_set import ResultSet
from compliance.model.system import read_description


def open_package(layout: PackagePlace, case: Case) -> tuple[Package, list[ResultSet]]:
    """Return a package and its results, still without runs. case: what the package is judged by."""
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
        benchmarks=case.benchmarks,
    )
    return package, [_open_set(folder, package, case, files) for folder in layout.sets]


def _open_set(layout: SetPlace, package: Package, case: Case, files: list[ParameterFile]) -> ResultSet:
    """Return the result in a folder. case: of the package. files: parameter files of the official tool."""
    if case.strict and layout.benchmark in (STRONG, WEAK):  # the levels are swapped, as PKG01 says
        layout = replace(layout, scaling=layout.benchmark, benchmark=layout.folder.split("/")[-2])
    description = package.descriptions.get(layout.system)
    name = layout.benchmark.lower() if case.strict else layout.benchmark
    benchmark = case.benchmark or (name if name in case.benchmarks else None)
    division = case.division
    if description is not None and division is None:
        # The official tool takes it for closed by the exact spelling only.
        official = "closed" if description.fields.get("division") == "closed" else "open"
        division = description.division if case.strict else official
    folder = name_below(package.root, layout.folder)
    read = (folder, folder.rpartition("/")[0].rpartition("/")[0])
    obeyed = [file for file in files if not case.strict and file.exact and file.folder in read]
    made_by_suite = package.code.is_of_suite(layout.benchmark, layout.system)
    return ResultSet(
        layout.folder,
        replace(case, benchmark=benchmark, division=division, suite_code=made_by_suite),
        layout.scaling,
        package.organisation,
        layout.system,
        layout.benchmark,
        other_files=layout.others,
        description=description,
        unchecked=not case.strict and (benchmark is None or not _reads_layout(package)),
        power=layout.power,
        scaling_file=read_scaling(layout.scaling_file, case.strict, layout.tree),
        bypasses=[bypass for bypass in package.bypasses if bypass.concerns_convergence(folder)],
        officially_bypassed=frozenset().union(*(file.obeyed for file in obeyed)),
    )


def _reads_layout(package: Package) -> bool:
    """Tell whether the official tool looks into the results, where it expects a level for the scaling or none."""
    if find_usage(package.round) == TRAINING:
        return package.flat
    return not package.flat or package.round == ROUNDS[0]


def crashes(root: str, round_: str, tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) for each file or folder on which the official tool ends with a traceback."""
    yield from unreadable(root, tree)
    if find_usage(round_) == TRAINING:
        return
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
    descriptions = _matching_files(posixpath.join(root, SYSTEMS), "*.json")
    yield from (
        (path, "is a folder with the name of a system description") for path in filter(os.path.isdir, descriptions)
    )
    folders = [folder for system, _, benchmark in _benchmark_folders(root, tree) for folder in (system, benchmark)]
    for path in dict.fromkeys(posixpath.join(folder, PARAMETERS_FILE) for folder in folders):
        try:
            if os.path.exists(path):
                tree.read(path, 1 << 16).decode("utf-8")
        except OSError as error:
            yield path, error.strerror or str(error)
        except ValueError:
            yield path, "is not text in UTF-8"


def _benchmark_folders(root: str, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield the folders of a system, a scaling and a benchmark that the official tool looks into."""
    yield from (
        (system, scaling, benchmark)
        for system in subfolders(posixpath.join(root, RESULTS), tree)
        for scaling in subfolders(system, tree)
        for benchmark in subfolders(scaling, tree)
    )


def _matching_files(folder: str, pattern: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [posixpath.join(folder, name) for name in sorted(names) if name[0] != "." and fnmatchcase(name, pattern)]
