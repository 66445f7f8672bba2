"""Find logs: the only place that knows the folder and file names of a submission.

Round 0.7:  <organisation>/results/<system>/<benchmark>/result_<i>.txt
Since 1.0:  <organisation>/results/<system>/{strong,weak}/<benchmark>/result_<i>.txt [pruned_results/result_<i>.txt]
All:        …/<benchmark>/power/result_<i>/{node,sw}_<j>.txt, where power was measured
            <organisation>/systems/<system>.json, <organisation>/benchmarks/<benchmark>/implementations/<name>/…
            <organisation>/benchmarks/<benchmark>/<system>/{<system>_<name>.json, README.md, setup.sh, …}
Source: submission_rules.adoc#submission-structure, hpc_training_rules.adoc#results; for power the README of
mlperf_logging/mllog/examples/power.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from msgspec import Struct

from common.console import ACTIVITY
from common.errors import UsageError
from common.rounds import HPC, TRAINING
from common.tree import ANYWHERE, Tree
from common.tree import NAMED as NAMED_BY_USER
from common.values import group_pairs

STRONG, WEAK = "strong", "weak"
RESULTS, SYSTEMS, BENCHMARKS, PRUNED = "results", "systems", "benchmarks", "pruned_results"
POWER = "power"
IMPLEMENTATIONS = "implementations"
PROVENANCE_FILE = "provenance.json"
README_FILE = "README.md"
SCRIPTS = ("setup.sh", "init_datasets.sh", "run_and_time.sh")
SCALING_FILE = "scaling.json"
PARAMETERS_FILE = "package_checker_params"
RESULT_NAME = r"result_[^/]*\.txt(\.gz)?$"
POWER_NAME = r"(node|sw)_([0-9]+)\.txt"
LOG_NAME = r".*\.(txt|log|out)(\.gz)?$"
ROUND_NAMES = {
    HPC: r"(?i)(?:[a-z_-]*hpc[a-z_-]*)?v?(0\.7|1\.0|2\.0|3\.0)(?:\.0)?",
    TRAINING: r"(?i)(?:[a-z_-]*training[a-z_-]*)?v?([0-9]\.[01])(?:\.0)?",
}
"""A folder of a round's submissions, by suite: `hpc_results_v3.0`, `v3.0`, `3.0`."""
UNFINISHED = r"\..+\.[0-9a-f]{16}\.tmp"
"""The folder of a package that `submission.assemble` is writing, or did not finish."""
FLAT, NAMED, NEWEST = "the layout is flat", "a folder above is named so", "the newest"
DATED = "its logs are of that time; --round chooses another"
"""Why a round is that of the folder; NEWEST: nothing says it."""
MAX_FILE_BYTES = 50 << 20
MAX_DEPTH = 12
MOST_FOLDERS = 100_000  # the trees of all rounds together have a hundredth of them


class PowerPlace(Struct):
    """A folder with the power files of one run: of nodes, of switches, and files with other names."""

    folder: str
    nodes: list[str] = []
    switches: list[str] = []
    others: list[str] = []


class SetPlace(Struct):
    """A folder with the logs of one result.

    power: by result (result_1, …); None if no power was measured. tree: the package, whose files are read.
    """

    folder: str
    system: str = ""
    scaling: str = STRONG
    benchmark: str = ""
    logs: list[str] = []
    pruned: list[str] = []
    others: list[str] = []
    scaling_file: str = ""
    power: dict[str, PowerPlace] | None = None
    tree: Tree = ANYWHERE


class PackagePlace(Struct):
    """An organisation's folder; links that leave it are not followed.

    unexpected: folders that fit no layout, and what was expected there. tree: reads its files.
    part: the folder in it that alone is to be judged; "" for all of it.
    """

    root: str
    organisation: str
    part: str = ""
    flat: bool = False
    sets: list[SetPlace] = []
    systems: list[str] = []
    unexpected: list[tuple[str, str]] = []
    missing: list[str] = []
    tree: Tree = ANYWHERE


class Places(Struct):
    """What is below the given paths: single logs, loose folders of logs, packages.

    unread: files with the name of a log that are not judged: beside result_* files, beside some that the user names,
    and outside packages.
    """

    logs: list[str] = []
    folders: list[SetPlace] = []
    packages: list[PackagePlace] = []
    unread: list[str] = []


def discover(paths: list[str]) -> Places:
    """Return where the logs are; treat a path that does not exist as an unreadable log.

    Several logs that the user names are loose logs of their folders; one is judged as a log.
    """
    places = Places()
    by_real_path: dict[str, str] = {}
    for path in map(write_slashes, paths):
        by_real_path.setdefault(os.path.realpath(path) if path != "-" else path, path)
    for path in by_real_path.values():
        if path == "-" or not os.path.isdir(path):
            places.logs.append(path)
        else:
            _discover_folder(path.rstrip("/") or path, places)
    sets = chain(places.folders, *(package.sets for package in places.packages))
    inside = {os.path.realpath(log) for layout in sets for log in layout.logs} if places.logs else ()
    named = [path for path in places.logs if path != "-" and os.path.realpath(path) not in inside]
    alone = named if len(named) == 1 else []
    places.logs = [path for path in places.logs if path == "-" or path in alone]
    if not alone:  # as if they lay loose in their folders
        for folder, logs in group_pairs((posixpath.dirname(path) or ".", path) for path in named).items():
            places.folders.append(SetPlace(folder, logs=logs, tree=NAMED_BY_USER))
            places.unread += list_results(folder)
    if places.unread:
        judged = {*by_real_path, *(os.path.realpath(log) for layout in places.folders for log in layout.logs)}
        places.unread = [path for path in dict.fromkeys(places.unread) if os.path.realpath(path) not in judged]
    return places


def round_of_path(path: str, usage: str = HPC) -> str | None:
    """Return the version of a suite's round in the name of the nearest folder above the organisation, then in its own.

    The names in an organisation's `results` are those of systems.
    """
    *above, last = write_slashes(os.path.abspath(path)).split("/")
    for at, name in enumerate(above):
        if name == RESULTS and os.path.isdir("/".join([*above[:at], SYSTEMS])):
            *above, last = above[:at]
            break
    names = (re.fullmatch(ROUND_NAMES[usage], name) for name in (*reversed(above), last))
    return next((name[1] for name in names if name), None)


def _discover_folder(path: str, places: Places) -> None:
    packages, unread = [], []
    for folder, below, names in _walk_sorted(path, most_levels=4):  # as deep as packages are in a repository
        is_package = SYSTEMS in below or (RESULTS in below and _has_logs(posixpath.join(folder, RESULTS)))
        pattern = LOG_NAME if folder == path and not is_package else RESULT_NAME
        files = [posixpath.join(folder, name) for name in names if re.fullmatch(pattern, name)]
        unread += [file for file in files if _is_file(file)]
        below[:] = [name for name in below if not (is_package or re.fullmatch(UNFINISHED, name))]
        if is_package:
            packages.append(folder)
    if packages:
        places.unread += unread
        places.packages += map(_read_package, packages)
        return
    above = re.fullmatch(rf"(.*)/{RESULTS}(?:/[^/]+){{0,4}}", write_slashes(os.path.abspath(path)), re.DOTALL)
    if above:
        root = above[1] or "/"
        package = _read_package(root)
        inside = os.path.realpath(path)
        package.part = "" if inside == os.path.realpath(posixpath.join(root, RESULTS)) else path
        package.sets = [layout for layout in package.sets if _is_within(os.path.realpath(layout.folder), inside)]
        package.unexpected = [pair for pair in package.unexpected if _is_within(os.path.realpath(pair[0]), inside)]
        if package.sets:
            places.packages.append(package)
            return
    places.folders += list(_log_folders(path, places.unread)) or [SetPlace(path)]


def find_submission(path: str) -> str:
    """Return the submission in one of whose folders a path lies, "" without one."""
    place = rf"(.*)/(?:{RESULTS}|{SYSTEMS}|{BENCHMARKS})(?:/.*)?"
    above = re.fullmatch(place, write_slashes(os.path.abspath(path)), re.DOTALL)
    return above[1] if above and os.path.isdir(posixpath.join(above[1], RESULTS)) else ""


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep) or folder.startswith(path + os.sep)


def _has_logs(results: str) -> bool:
    """Tell whether a folder has logs in folders below it; source code, too, is in folders named `results`."""
    below = (names for folder, _, names in _walk_sorted(results) if folder != results)
    return any(re.fullmatch(LOG_NAME, name) for names in below for name in names)


def _read_package(root: str) -> PackagePlace:
    tree = Tree.at(root)
    results, systems = posixpath.join(root, RESULTS), posixpath.join(root, SYSTEMS)
    existing = subfolders(root, tree)
    layout = PackagePlace(
        root,
        os.path.basename(os.path.abspath(root)),
        systems=[path for path in _sorted_files(systems) if path.endswith(".json")] if systems in existing else [],
        missing=[folder for folder in (results, systems) if folder not in existing],
        tree=tree,
    )
    if results in existing:
        _read_results(results, layout)
    return layout


def _read_results(results: str, layout: PackagePlace) -> None:
    tree = layout.tree
    folders = [(system, folder) for system in subfolders(results, tree) for folder in subfolders(system, tree)]
    scaled = any(os.path.basename(folder) in (STRONG, WEAK) for _, folder in folders)
    layout.flat = not scaled and any(list_results(folder) for _, folder in folders)
    for system, folder in folders:
        name = os.path.basename(folder)
        benchmarks = [folder] if layout.flat else subfolders(folder, tree)
        scaling = WEAK if name == WEAK else STRONG
        layout.sets += [_read_set(benchmark, system, scaling, tree) for benchmark in benchmarks]
        if not layout.flat and name not in (STRONG, WEAK):
            layout.unexpected.append((folder, "strong or weak"))


def _read_set(folder: str, system: str, scaling: str, tree: Tree) -> SetPlace:
    logs, pruned = list_results(folder), posixpath.join(folder, PRUNED)
    scaling_file = posixpath.join(folder, SCALING_FILE)
    expected = {*logs, *(posixpath.join(folder, name) for name in (SCALING_FILE, PARAMETERS_FILE, POWER)), pruned}
    return SetPlace(
        folder,
        os.path.basename(system),
        scaling,
        os.path.basename(folder),
        logs,
        list_results(pruned),
        [path for path in list_entries(folder) if path not in expected],
        scaling_file if os.path.lexists(scaling_file) else "",
        _read_power_folders(folder, tree),
        tree,
    )


def _read_power_folders(folder: str, tree: Tree = ANYWHERE) -> dict[str, PowerPlace] | None:
    power = posixpath.join(folder, POWER)
    if not os.path.exists(power):
        return None
    return {os.path.basename(run): power_files(run) for run in subfolders(power, tree)}


def power_files(folder: str) -> PowerPlace:
    """Return the power files in the folder of a run."""
    files = PowerPlace(folder)
    for path in list_entries(folder):
        name = re.fullmatch(POWER_NAME, os.path.basename(path))
        kinds = {"node": files.nodes, "sw": files.switches}
        (kinds[name[1]] if name and _is_file(path) else files.others).append(path)
    return files


def is_judged_file(path: str) -> bool:
    """Tell whether a path below a package has a name of files which rules read, outside of implementations."""
    top, name = path.partition("/")[0], path.rpartition("/")[2]
    judged = name.endswith(".json") or name in (README_FILE, *SCRIPTS, PARAMETERS_FILE) or is_log(path)
    return judged and top in (RESULTS, SYSTEMS, BENCHMARKS) and f"/{IMPLEMENTATIONS}/" not in path


def is_log(path: str) -> bool:
    """Tell whether a path below a package is that of a result log or a power file."""
    name = path.rpartition("/")[2]
    return path.startswith(f"{RESULTS}/") and bool(re.fullmatch(RESULT_NAME, name) or re.fullmatch(POWER_NAME, name))


def is_script(path: str) -> bool:
    """Tell whether a file with this path is a script or a makefile, by its name."""
    return path.endswith((".sh", ".sub", ".slurm", ".sbatch", ".pbs", ".lsf", ".bash", "Makefile"))


def write_slashes(path: str) -> str:
    """Return a path as findings have it, with `/` between the parts on Windows, too; those below it follow."""
    return path.replace(os.sep, "/")


def name_below(root: str | os.PathLike[str], path: str) -> str:
    """Return the name of a path relative to a folder."""
    return write_slashes(os.path.relpath(path, root))


def result_name(path: str) -> str:
    """Return the name of a run's power folder: `result_3` for `…/result_3.txt`."""
    return os.path.basename(path).removesuffix(".gz").removesuffix(".txt")


def _log_folders(path: str, unread: list[str]) -> Iterator[SetPlace]:
    """Yield each folder below that contains logs; in a folder with result_* files only these count.

    The others there go to `unread`.
    """
    for folder, below, names in _walk_sorted(path):
        results = [name for name in names if re.fullmatch(RESULT_NAME, name)]
        others = [name for name in names if re.fullmatch(LOG_NAME, name) and name not in results]
        if logs := results or others:
            layout = SetPlace(folder)
            paths = [posixpath.join(folder, name) for name in sorted(logs, key=natural)]
            layout.logs = [path for path in paths if _is_file(path)]
            if results:
                unread += [posixpath.join(folder, name) for name in others]
                layout.power = _read_power_folders(folder)
                below[:] = [name for name in below if name != POWER]
            yield layout


def _walk_sorted(path: str, most_levels: int = MAX_DEPTH) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, names of folders, of files) like os.walk, sorted, following links but no loops."""
    seen: set[str] = set()
    for folder, below, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen or folder.count(os.sep) - path.count(os.sep) > most_levels:
            below.clear()
        elif len(seen) == MOST_FOLDERS:
            raise UsageError(f"{path}: there are more than {MOST_FOLDERS:,} folders in it; name that of the logs")
        else:
            seen.add(real)
            ACTIVITY.text = f"looking for logs in {folder}"
            below.sort(key=natural)
            yield write_slashes(folder), below, sorted(names, key=natural)


@lru_cache(maxsize=10_000)
def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which result_2 comes before result_10."""
    return [
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
    ]


def list_entries(folder: str) -> list[str]:
    """Return the paths of what is in a folder, in natural order of names; none if it cannot be read."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [posixpath.join(folder, name) for name in sorted(names, key=natural)]


def subfolders(folder: str, tree: Tree = ANYWHERE) -> list[str]:
    """Return the folders in a folder, without links that lead out of the tree; none if it cannot be read."""
    folders = [path for path in list_entries(folder) if os.path.isdir(path)]
    return [path for path in folders if not (os.path.islink(path) and tree.leads_out(path))]


def _sorted_files(folder: str) -> list[str]:
    return [path for path in list_entries(folder) if _is_file(path)]


def _is_file(path: str) -> bool:
    """Tell whether it is a file to read or a broken link to report, but not a pipe, which would block."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def list_results(folder: str) -> list[str]:
    """Return the files in a folder that have the name of a result log; none if it cannot be read."""
    return [path for path in _sorted_files(folder) if re.fullmatch(RESULT_NAME, os.path.basename(path))]
