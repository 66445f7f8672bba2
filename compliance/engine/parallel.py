"""Examine many logs, in this process or, where that is faster, on all cores."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from common.tree import Tree
from compliance.benchmarks import list_judged_paths, refuse_plugins_in
from compliance.engine.log_checker import LogTask, check_log
from compliance.engine.options import Options
from compliance.logs.inflate import MAX_PACKAGE_BYTES, PlainFiles
from compliance.model.judged_run import JudgedRun
from compliance.rules.own_rules import load_rules, sources

PARALLEL_BYTES = 24 << 20
"""Below this, starting processes costs more than it saves."""


def examine_all(tasks: list[LogTask], options: Options, doing: str = "checking") -> Iterator[JudgedRun]:
    """Return an iterator over the runs, in the order of the tasks; use all cores if there is much to read.

    doing: what the progress bar says.
    """
    measured = (path for task in tasks if task.power for path in (*task.power.nodes, *task.power.switches))
    total = sum(map(_file_size, (*(task.path for task in tasks), *measured)))
    jobs = options.jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if len(tasks) < 2 or jobs < 2 or total < PARALLEL_BYTES or not _is_single_threaded():
        return _with_progress(map(Examine(), tasks), len(tasks), total, options, doing)
    runs = _within_budget(_check_parallel(tasks, min(jobs, len(tasks))), tasks)
    return _with_progress(runs, len(tasks), total, options, doing)


def _check_parallel(tasks: list[LogTask], jobs: int) -> Iterator[JudgedRun]:
    from common.processes import ProcessKilledError, in_processes  # only big trees pay for it

    examine = Examine()
    size = max(1, min(32, len(tasks) // (4 * jobs)))
    parts = [(start, tasks[start : start + size]) for start in range(0, len(tasks), size)]
    waiting: dict[int, list[JudgedRun]] = {}
    done = 0
    try:
        for (start, _), part in in_processes(examine.each, parts, jobs, fork=sys.platform == "linux"):
            waiting[start] = part
            while runs := waiting.pop(done, None):
                yield from runs
                done += len(runs)
    except ProcessKilledError:  # for lack of memory: one process needs the least
        yield from map(examine, tasks[done:])


def _is_single_threaded() -> bool:
    """Tell whether this process has no other thread but tqdm's, which sleeps: beside one, it may not fork."""
    if sys.platform != "linux":
        return True
    monitor = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "monitor", None)
    return len(os.listdir("/proc/self/task")) == 1 + (monitor is not None)


def _within_budget(runs: Iterator[JudgedRun], tasks: list[LogTask]) -> Iterator[JudgedRun]:
    """Yield the runs as one process would have found them: each one of the others knows only what itself inflated."""
    examine = Examine()
    for task, run in zip(tasks, runs, strict=True):
        yield examine(task) if run.total_inflated_bytes and examine.exhausted(task) else run
        examine.inflated[task.tree] += run.total_inflated_bytes


def _with_progress(
    runs: Iterator[JudgedRun], count: int, total: int, options: Options, doing: str
) -> Iterator[JudgedRun]:
    if not options.progress or (count < 200 and total < PARALLEL_BYTES):
        return runs
    from tqdm import tqdm  # only terminals with long work pay for it

    return iter(tqdm(runs, total=count, unit=" logs", desc=doing, leave=False, delay=1, file=sys.stderr))


def _file_size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


class Examine:
    """Judge one log; can be sent to another process.

    inflated: bytes of the compressed logs of each package so far.
    """

    def __init__(self) -> None:
        self.rules, self.judged = sources(), list_judged_paths()
        self.inflated: Counter[Tree] = Counter()

    def each(self, part: tuple[int, list[LogTask]]) -> list[JudgedRun]:
        """Examine several logs, to be sent to another process at once; their place is of no matter."""
        return list(map(self, part[1]))

    def __call__(self, task: LogTask) -> JudgedRun:
        if self.judged != list_judged_paths():  # a process that was not forked lacks it, and the rules
            refuse_plugins_in(self.judged)
        load_rules(self.rules)
        run = check_log(replace(task, tree=PlainFiles(task.tree.root)) if self.exhausted(task) else task)
        self.inflated[task.tree] += run.total_inflated_bytes
        return run

    def exhausted(self, task: LogTask) -> bool:
        """Tell whether the package of a log may not inflate more."""
        return bool(task.tree.root) and self.inflated[task.tree] > MAX_PACKAGE_BYTES
