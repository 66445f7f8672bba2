"""Examine many logs, in this process or, where that is faster, on all cores."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from common.tree import Tree
from compliance.examine import LogTask, examine
from compliance.logs.inflate import MAX_PACKAGE_BYTES, PlainFiles
from compliance.logs.run import Run
from compliance.options import Options
from compliance.own_rules import load_rules, sources

PARALLEL_BYTES = 24 << 20
"""Below this, starting processes costs more than it saves."""
POLL_S = 0.5


def examine_all(tasks: list[LogTask], options: Options, doing: str = "checking") -> Iterator[Run]:
    """Return an iterator over the runs, in the order of the tasks; use all cores if there is much to read.

    doing: what the progress bar says.
    """
    measured = (path for task in tasks if task.power for path in (*task.power.nodes, *task.power.switches))
    total = sum(map(_size, (*(task.path for task in tasks), *measured)))
    jobs = options.jobs or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    if len(tasks) < 2 or jobs < 2 or total < PARALLEL_BYTES:
        return _shown(map(Examine(options), tasks), len(tasks), total, options, doing)
    runs = _parallel(tasks, min(jobs, len(tasks)), options)
    return _shown(runs, len(tasks), total, options, doing)


def _parallel(tasks: list[LogTask], jobs: int, options: Options) -> Iterator[Run]:
    import multiprocessing  # only big trees pay for it
    import signal  # as multiprocessing

    method = "fork" if sys.platform == "linux" else None
    chunk = max(1, min(32, len(tasks) // (4 * jobs)))
    # Only the main process handles Ctrl-C: it ends the others, without a traceback from each. They inherit the
    # mask, so that even a starting process is not interrupted.
    unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool = multiprocessing.get_context(method).Pool(jobs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
    chunks = [tasks[start : start + chunk] for start in range(0, len(tasks), chunk)]
    with pool:
        found = _awaited(pool.imap(Examine(options).each, chunks))
        yield from _within_budget(found, tasks, options)


def _within_budget(runs: Iterator[Run], tasks: list[LogTask], options: Options) -> Iterator[Run]:
    """Yield the runs as one process would have found them: each one of the others knows only what itself inflated."""
    examine = Examine(options)
    for task, run in zip(tasks, runs, strict=True):
        yield examine(task) if run.inflated_bytes and examine.exhausted(task) else run
        examine.inflated[task.tree] += run.inflated_bytes


def _awaited(results: Any) -> Iterator[Run]:
    """Yield the runs of a pool's results, never asleep for long: a signal just before a sleep would not end it."""
    from multiprocessing import TimeoutError as NotYet  # only big trees pay for it

    while True:
        try:
            yield from results.next(timeout=POLL_S)
        except NotYet:
            continue
        except StopIteration:
            return


def _shown(runs: Iterator[Run], count: int, total: int, options: Options, doing: str) -> Iterator[Run]:
    if not options.progress or (count < 200 and total < PARALLEL_BYTES):
        return runs
    from tqdm import tqdm  # only terminals with long work pay for it

    return iter(tqdm(runs, total=count, unit=" logs", desc=doing, leave=False, delay=1, file=sys.stderr))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


class Examine:
    """Examine one log and filter its findings; can be sent to another process.

    inflated: bytes of the compressed logs of each package so far.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules = sources()
        self.inflated: Counter[Tree] = Counter()

    def each(self, tasks: list[LogTask]) -> list[Run]:
        """Examine several logs, to be sent to another process at once."""
        return list(map(self, tasks))

    def __call__(self, task: LogTask) -> Run:
        load_rules(self.rules)  # a process that was not forked lacks them
        run = examine(replace(task, tree=PlainFiles(task.tree.root)) if self.exhausted(task) else task)
        self.inflated[task.tree] += run.inflated_bytes
        run.findings, run.ignored = self.options.filter(run.findings)
        return run

    def exhausted(self, task: LogTask) -> bool:
        """Tell whether the package of a log may not inflate more."""
        return bool(task.tree.root) and self.inflated[task.tree] > MAX_PACKAGE_BYTES
