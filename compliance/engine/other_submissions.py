"""Read the runs of other submissions, with which those that are checked are compared; nothing judges them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec.structs import replace

from common.errors import UsageError
from compliance.engine.inputs import open_paths
from compliance.engine.log_checker import LogTask
from compliance.engine.options import Options
from compliance.engine.parallel import examine_all
from compliance.model.judged_run import JudgedRun
from compliance.model.result_set import ResultSet


def read_others(tree: str, options: Options, checked: Iterable[LogTask]) -> list[ResultSet]:
    """Return the results below a tree, without the logs that are checked.

    Raises UsageError if there is no log below it.
    """
    if not os.path.lexists(tree):
        raise UsageError(f"--against {tree}: no such file or folder")
    inputs = open_paths([tree], replace(options, round=None, division=None, benchmark=None, waivers={}))
    if not inputs.tasks:
        raise UsageError(f"--against {tree}: no logs below it; expected a submission, a repository or a folder of logs")
    mine = {os.path.realpath(task.path) for task in checked}
    runs = examine_all([replace(task, judged=False) for task in inputs.tasks], options, "comparing with")
    opened = [*(result for _, sets in inputs.packages for result in sets), *inputs.folders]
    results = [
        replace(
            result,
            runs=_without_checked([next(runs) for _ in counted], mine),
            pruned=_without_checked([next(runs) for _ in pruned], mine),
        )
        for result, counted, pruned in opened
    ]
    return [*results, *map(alone_in_its_result, _without_checked(list(runs), mine))]


def _without_checked(runs: list[JudgedRun], mine: set[str]) -> list[JudgedRun]:
    return [run for run in runs if os.path.realpath(run.path) not in mine]


def alone_in_its_result(run: JudgedRun) -> ResultSet:
    """Return a result for a log that is judged individually."""
    return ResultSet(run.path, run.case, runs=[run], loose=True)
