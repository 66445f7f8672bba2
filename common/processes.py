"""Worker processes that end when their parent does."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class ProcessKilledError(RuntimeError):
    """A process ended without a Python error, most likely killed for lack of memory."""


def bound_cores() -> frozenset[int]:
    """Return the cores to which this process is bound, all without a binding."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(bound_cores())


def in_processes(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[tuple[T, R]]:
    """Yield items with their results as they finish; a single worker is this process itself.

    An error of the function ends all processes and is raised here, as is ProcessKilledError. Function and items must
    be picklable.
    """
    if workers == 1:
        yield from ((item, function(item)) for item in items)
        return
    others = set(multiprocessing.active_children())
    # spawn: a fork would copy locks that threads of libraries such as HDF5 hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(items)), context, initializer=_begin)
    try:
        futures = {pool.submit(function, item): item for item in items}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
    except BrokenProcessPool as error:
        raise ProcessKilledError("a process was killed, most likely for lack of memory: use fewer workers") from error
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a worker process: it ends with its parent, however that ends, and leaves Ctrl-C to it."""
    _keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _keep_freed_memory() -> None:
    """Let new arrays reuse freed memory; fetching it from the system again took a quarter of the time."""
    trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(mmap_threshold, 32 * 2**20)  # the largest that glibc takes
    mallopt(trim_threshold, 256 * 2**20)
