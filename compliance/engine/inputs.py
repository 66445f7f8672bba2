"""Open the packages, result sets and single logs below the paths, and determine what each log is judged by."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from common.reference import FIRST_RUNS_MS, ROUNDS
from common.rounds import HPC, TRAINING, Round, find_usage
from common.tree import ANYWHERE, Tree
from compliance.benchmarks import REFERENCES, read_name
from compliance.engine.judging import Judging
from compliance.engine.log_checker import AUTO, LogTask, Options
from compliance.logs.log import EARLIEST_MS, NAMED_BENCHMARK
from compliance.model.grouping import group_runs, label_groups
from compliance.model.judging import STRICT, Case, JudgedRun
from compliance.model.layout import (
    DATED,
    FLAT,
    NAMED,
    NEWEST,
    SetPlace,
    discover,
    result_name,
    round_of_path,
)
from compliance.model.result_set import ResultSet
from compliance.model.waivers import waiver_name

if TYPE_CHECKING:
    from compliance.model.package import Package

OpenedSet = tuple[ResultSet, list[LogTask], list[LogTask]]
"""A result without its runs, and the logs that are to be judged: those that count, and the pruned ones."""


LooseGroups = list[tuple[str, list[int]]]
"""Of the logs in a loose folder: what tells a group from the others, and the numbers of its logs."""


class Inputs(Struct, frozen=True):
    """What is below the paths, before any log is read.

    packages: without their results, beside these. folders: of logs outside packages. logs: that the user names.
    """

    packages: list[tuple[Package, list[OpenedSet]]]
    folders: list[OpenedSet]
    logs: list[LogTask]

    @property
    def tasks(self) -> list[LogTask]:
        """All logs to judge: of packages, of folders, and those that the user names."""
        sets = chain(*(sets for _, sets in self.packages), self.folders)
        return [*chain.from_iterable((*counted, *pruned) for _, counted, pruned in sets), *self.logs]

    def sort_loose(self, runs: Mapping[int, JudgedRun]) -> list[LooseGroups]:
        """Return the groups of loose logs that may be of one result each, for each folder.

        runs: by the identities of the tasks. In the profile official there are none: it judges such logs one by one.
        """
        groups: list[LooseGroups] = []
        for results, counted, _ in self.folders:
            loose = [runs[id(task)] for task in counted]
            numbers = {id(run): number for number, run in enumerate(loose)}
            parts = group_runs([run for run in loose if not run.only_rule] if results.strict else [])
            labelled = zip(label_groups(parts), parts, strict=True)
            groups.append([(label, [numbers[id(run)] for run in part]) for label, part in labelled])
        return groups

    def regroup(self, groups: Sequence[LooseGroups]) -> Inputs:
        """Return the inputs with a result for each group of loose logs.

        Logs in no group are judged as logs; a folder without logs stays.
        """
        folders, alone = [folder for folder in self.folders if not folder[1]], []
        for (results, counted, _), parts in zip(self.folders, groups, strict=True):
            inside = {number for _, numbers in parts for number in numbers}
            alone += [task for number, task in enumerate(counted) if number not in inside]
            folders += [(replace(results, label=label), [counted[n] for n in numbers], []) for label, numbers in parts]
        return Inputs(self.packages, folders, [*alone, *self.logs])


def open_paths(paths: Iterable[str | os.PathLike[str]], judging: Judging) -> Inputs:
    """Return what is below the paths; read descriptions and parameters, but no logs.

    The report notes by which round each input is judged, and the files with the name of a log that are not judged.
    """
    places = discover([os.fspath(path) for path in paths])
    judging.report.unread.extend(places.unread)

    def open_case(path: str, kind: str, logs: Iterable[str], tree: Tree, flat: bool = False) -> Case:
        case = initial_case(path, judging.options, logs, tree, flat)
        judging.report.rounds.append((path, case.round, case.round_why, kind))
        return case

    packages = []
    for package in places.packages:
        from compliance.engine.packages import open_package  # only packages pay for it

        logs = [log for results in package.sets for log in results.logs]
        kind = "result" if package.part else "package"
        case = open_case(package.part or package.root, kind, logs, package.tree, package.flat)
        opened, sets = open_package(package, case)
        layouts = zip(sets, package.sets, strict=True)
        packages.append((opened, [_with_logs(results, layout, judging) for results, layout in layouts]))
    folders = []
    for layout in places.folders:
        case = open_case(layout.folder, "result", layout.logs, layout.tree)
        results = ResultSet(layout.folder, case, power=layout.power, loose=True)
        folders.append(_with_logs(results, layout, judging))
    tasks = [LogTask(path, open_case(path, "log", [path], ANYWHERE), judging.options) for path in places.logs]
    return Inputs(packages, folders, tasks)


HEAD_BYTES = 128 << 10
"""Of a log: some begin with 90 KB of text before their first record."""


class _Heads(NamedTuple):
    """What the first bytes of logs say: the newest time in ms, 0 without any, and a benchmark, "" without any."""

    newest_ms: int
    benchmark: str


def _read_heads(logs: Iterable[str], tree: Tree, has_round: bool) -> _Heads:
    """Return what the logs begin with, as far as it tells by which round they are judged; has_round: a path does."""
    newest_ms, benchmark = 0, ""
    for log in logs:
        head = tree.begin(log, HEAD_BYTES) if os.path.isfile(log) else b""
        times = re.search(rb'"time_ms": *([0-9]{13})\b', head)
        newest_ms = max(newest_ms, int(times[1]) if times else 0)
        if not benchmark and (named := re.search(NAMED_BENCHMARK, head)):
            benchmark = read_name(named[1].decode("utf-8", "replace"))
        if benchmark in REFERENCES and (has_round or newest_ms >= FIRST_RUNS_MS[ROUNDS[-1]]):
            break  # further logs change nothing
    return _Heads(newest_ms, benchmark)


def _find_dated_round(newest_ms: int) -> str | None:
    """Return the round in whose time the newest of the logs was written; None if no log states a time."""
    begun = [round_ for round_, first_ms in FIRST_RUNS_MS.items() if newest_ms >= first_ms]
    return [ROUNDS[0], *begun][-1] if newest_ms > EARLIEST_MS else None


def initial_case(
    path: str, options: Options, logs: Iterable[str] = (), tree: Tree = ANYWHERE, flat: bool = False
) -> Case:
    """Return what an input is judged by as far as the user, its path and the dates of its logs say.

    flat: the path is that of a package with the layout of round 0.7, which counts unless its logs are of a later time.
    """
    in_path = round_of_path(path) if path != "-" else None
    needless = options.round or (options.usage == HPC and in_path)
    heads = _Heads(0, "") if needless else _read_heads(logs, tree, in_path is not None)
    usage = find_usage(options.round) if options.round else options.usage
    if usage == TRAINING or (usage == AUTO and _is_of_training(heads.benchmark, options)):
        return _training_case(path, options, heads.newest_ms)
    dated = None if options.round or in_path else _find_dated_round(heads.newest_ms)
    is_first = flat and (options.profile != STRICT or dated in (None, ROUNDS[0]))
    choices = (
        (options.round, "as asked for"),
        (in_path, NAMED),
        (ROUNDS[0] if is_first else None, FLAT),
        (dated if dated != ROUNDS[-1] else None, DATED),
        (ROUNDS[-1], NEWEST),
    )
    round_, why = next((round_, why) for round_, why in choices if round_)
    return Case(
        round_, options.profile, options.division, options.benchmark, allow_mini=options.allow_mini, round_why=why
    )


def _is_of_training(benchmark: str, options: Options) -> bool:
    """Tell whether a benchmark that logs name is one of MLPerf Training."""
    if benchmark in REFERENCES or not benchmark:
        return False
    from compliance.committee.rounds import is_of_training  # HPC's logs do not pay for it

    return is_of_training(benchmark, options.committee_rules)


def _training_case(path: str, options: Options, newest_ms: int) -> Case:
    """Return what an input is judged by if it is of MLPerf Training, as `initial_case` does."""
    from compliance.committee.rounds import find_dated_round, require_rules  # HPC's logs do not pay for it
    from compliance.committee.rule_files import find_rules

    version = round_of_path(path, TRAINING) if path != "-" else None
    in_path = Round(TRAINING, version).name if version else None
    choices = (
        (options.round, "as asked for"),
        (in_path, NAMED),
        (find_dated_round(newest_ms, options.committee_rules), DATED if newest_ms else NEWEST),
    )
    round_, why = next((round_, why) for round_, why in choices if round_)
    return Case(
        round_,
        options.profile,
        options.division,
        options.benchmark,
        allow_mini=options.allow_mini,
        round_why=why,
        rules_folder=require_rules(find_rules(options.committee_rules), round_),
    )


def _with_logs(results: ResultSet, layout: SetPlace, judging: Judging) -> OpenedSet:
    power = results.power or {}
    task = LogTask("", results.case, judging.options, tree=layout.tree)
    waiver = judging.waivers.get(waiver_name(results))
    return (
        replace(results, waiver=waiver.reason if waiver else ""),
        [replace(task, path=path, power=power.get(result_name(path))) for path in layout.logs],
        [replace(task, path=path) for path in layout.pruned],
    )
