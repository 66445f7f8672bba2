"""On which files and folders of a package the official checker (mlperf-logging 4.1.68) ends with a traceback.

A traceback leaves the whole package without a verdict. What is wrong inside a log is in `compliance/logs/official.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from common.tree import RefusedFileError, Tree
from compliance.benchmarks import benchmarks_of
from compliance.model.layout import PARAMETERS_FILE, RESULTS, STRONG, SYSTEMS, WEAK, subfolders

MOST_BYTES: Final = 1 << 16


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
    for path in _matching_files(os.path.join(root, SYSTEMS), "*.json"):
        if os.path.isdir(path):
            yield path, "is a folder with the name of a system description"
    folders = [folder for system, _, benchmark in _benchmark_folders(root, tree) for folder in (system, benchmark)]
    for folder in dict.fromkeys(folders):
        yield from _find_unreadable(os.path.join(folder, PARAMETERS_FILE), tree)


def _benchmark_folders(root: str, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield the folders of a system, a scaling and a benchmark that the official tool looks into."""
    for system in subfolders(os.path.join(root, RESULTS), tree):
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
    return [os.path.join(folder, name) for name in sorted(names) if name[0] != "." and fnmatchcase(name, pattern)]
