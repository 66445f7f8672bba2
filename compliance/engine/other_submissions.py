"""Read the runs of other submissions, with which those that are checked are compared; nothing judges them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from common.command import UsageError
from compliance.engine.inputs import open_paths
from compliance.engine.log_checker import LogTask
from compliance.engine.options import Options
from compliance.engine.parallel import examine_all
from compliance.logs.run import Run
from compliance.model.result_set import ResultSet


def read_others(tree: str, options: Options, checked: Iterable[LogTask]) -> list[ResultSet]:
    """Return the results below a tree, without the logs that are checked.

    Raises UsageError if there is no log below it.
    """
    if not os.path.lexists(tree):
        raise UsageError(f"--against {tree}: no such file or folder")
    opened = open_paths([tree], replace(options, round=None, division=None, benchmark=None, waivers={}))
    if not opened.tasks:
        raise UsageError(f"--against {tree}: no logs below it; expected a submission, a repository or a folder of logs")
    mine = {os.path.realpath(task.path) for task in checked}
    runs = examine_all([replace(task, judged=False) for task in opened.tasks], options, "comparing with")
    for results, place in opened.sets:
        results.runs = _others([next(runs) for _ in place.logs], mine)
        results.pruned = _others([next(runs) for _ in place.pruned], mine)
    alone = [alone_in_its_result(run, options.profile) for run in _others(list(runs), mine)]
    return [*(results for results, _ in opened.sets), *alone]


def _others(runs: list[Run], mine: set[str]) -> list[Run]:
    return [run for run in runs if os.path.realpath(run.path) not in mine]


def alone_in_its_result(run: Run, profile: str) -> ResultSet:
    """Return a result for a log that is judged individually."""
    return ResultSet(run.path, run.round, profile, runs=[run], loose=True)
