"""Worker processes that end when their parent does, and threads that end at a stop signal."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar, cast

from common.stop import NAMES, STOP, find_signals

T = TypeVar("T")
R = TypeVar("R")

POLL_S = 0.5
MOST_WORKERS = 60 if sys.platform == "win32" else sys.maxsize
"""For how many processes one call of the system can wait."""
PR_SET_PDEATHSIG = 1  # prctl(2)
OWN_GROUPS = Path("/proc/self/cgroup")
QUOTAS = ("/sys/fs/cgroup", "cpu.max"), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")
"""Where version 2 of cgroup has quota and period, and where version 1 has them."""


class ProcessKilledError(RuntimeError):
    """A process ended without a Python error, most likely killed for lack of memory."""


def bound_cores() -> frozenset[int]:
    """Return the cores to which this process is bound, all without a binding."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Return the number of cores that this process may use: its CPU quotas may allow fewer than it is bound to."""
    return math.ceil(min([len(bound_cores()), *_list_quotas()]))


def _list_quotas() -> Iterator[float]:
    """Yield the CPU quotas, in cores, of the control groups of this process and of those around them.

    A container may see its own groups at the top, and the paths that they have on the host.
    """
    text = OWN_GROUPS.read_text(encoding="utf-8", errors="replace") if OWN_GROUPS.exists() else ""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        top, *names = QUOTAS["cpu" in controllers.split(",")]
        for group in (Path(path), *Path(path).parents):
            with contextlib.suppress(OSError, ValueError):  # no such group, or no limit: max
                texts = [Path(f"{top}{group}/{name}").read_text(encoding="ascii") for name in names]
                quota, period = map(int, " ".join(texts).split())
                yield quota / period if quota > 0 else math.inf  # -1: no limit


def in_processes(
    function: Callable[[T], R], items: Sequence[T], workers: int, *, fork: bool = False
) -> Iterator[tuple[T, R]]:
    """Yield items with their results as they finish; a single worker is this process itself.

    An error of the function ends all processes and is raised here, as is ProcessKilledError. Function, items and
    results must be picklable. Each process has a pipe of its own, so that it is noticed if one is killed, also while
    it sends a result: multiprocessing.Pool and concurrent.futures, where all share one, may then wait forever.

    fork: start the processes as copies of this one, which is quicker; only where this one has a single thread, since
    the copies could wait forever for locks that other threads hold, such as those of HDF5.
    """
    if workers == 1:
        for item in items:
            STOP.check()
            yield item, function(item)
        return
    process_type: type[BaseProcess] = (
        multiprocessing.get_context("fork").Process if fork else multiprocessing.get_context("spawn").Process
    )
    needs_main = fork or b"__main__" in pickle.dumps((function, items[:1]))  # to know the function and the items
    script = contextlib.nullcontext if needs_main else _without_main
    todo = iter(items)
    busy: dict[Connection, T] = {}
    processes: list[BaseProcess] = []
    try:
        for item in itertools.islice(todo, min(workers, MOST_WORKERS)):
            connection, other_end = multiprocessing.Pipe()
            with other_end, _without_interrupts(), script():
                processes.append(process_type(target=_process_items, args=(function, other_end), daemon=True))
                processes[-1].start()
            busy[connection] = item
            _send_item(connection, (item,))
        while busy:
            STOP.check()
            for connection in cast("list[Connection]", wait(busy, POLL_S)):
                done, result = busy.pop(connection), _receive_result(connection)
                more = tuple(itertools.islice(todo, 1))
                _send_item(connection, more)
                if more:
                    (busy[connection],) = more
                yield done, result
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.join()


def in_threads(function: Callable[[T], R], items: Sequence[T], workers: int) -> Generator[R]:
    """Yield the results of the items in their order, from threads; an error, or a stop signal, ends the work."""
    pool = ThreadPoolExecutor(workers)
    try:
        pending = deque(pool.submit(function, item) for item in items)
        while pending:
            STOP.check()
            if wait_for([pending[0]], POLL_S).done:
                yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def call_in_thread(call: Callable[[], R]) -> Future[R]:
    """Return what a call returns or raises, from a thread that is left to itself if it does not end."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _send_item(connection: Connection, item: tuple[T, ...]) -> None:
    with _killed_is_told():
        connection.send(item)


def _receive_result(connection: Connection) -> Any:
    with _killed_is_told():  # by EOFError, or in the middle of a result by a plain OSError
        error, result = connection.recv()
    if error is not None:
        raise error
    return result


@contextlib.contextmanager
def _killed_is_told() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise ProcessKilledError("a process was killed, most likely for lack of memory: use fewer workers") from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold back Ctrl-C; a process that is started meanwhile never gets it, not even before `_begin_worker`.

    Windows cannot: a worker that starts at that moment may show a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep a process that is started meanwhile from importing the main module.

    multiprocessing would have it run a user's script again, which may start a training and has no guard against that.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _process_items(function: Callable[[T], R], connection: Connection) -> None:
    """Send the error, if any, and the result for each item that comes, until none comes."""
    _begin_worker()
    with contextlib.suppress(EOFError, ConnectionError):  # the parent was killed, with which this process ends, too
        while item := connection.recv():
            try:
                connection.send((None, function(*item)))
            except Exception as error:
                error.add_note(f"in another process:\n{traceback.format_exc()}")
                connection.send((_make_picklable(error), None))


def _make_picklable(error: Exception) -> Exception:
    """Return the error, or one with its text if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as reason:  # whatever its __init__ or its parts raise
        return RuntimeError(f"{error!r}, which cannot be pickled ({reason!r}); {' '.join(error.__notes__)}")
    return error


def find_death_signal() -> Callable[[], object] | None:
    """Return the function that lets the system kill the calling process when its parent ends; None except on Linux.

    The C library is looked up here: a process that was just forked should do as little as possible.
    """
    return partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL) if sys.platform == "linux" else None


def _begin_worker() -> None:
    """Prepare a worker process: it ends with its parent, however that ends, and leaves stop signals to it."""
    reuse_freed_memory(mmap_from=32 * 2**20, trim_from=256 * 2**20)
    for number in find_signals(NAMES):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def stop_processes(processes: Sequence[subprocess.Popen[bytes]], grace_s: float) -> None:
    """End the processes and their children with SIGTERM; kill those that are still alive after `grace_s`.

    Each leads a session of its own.
    """
    processes = [process for process in processes if process.poll() is None]
    for process in processes:
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def reuse_freed_memory(mmap_from: int, trim_from: int) -> None:
    """Let new arrays reuse freed memory, if the C library is glibc: fetching it anew took up to half of the time.

    mmap_from, trim_from: bytes of a block, and of what is free at the end, from which they go back to the system.
    """
    trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library, or Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, mmap_from)
        mallopt(trim_threshold, trim_from)


def keep_freed_memory(sharing: int = 1) -> None:
    """Let a step on the CPU reuse the blocks of its activations in the next one.

    Blocks of 1 GiB and more are given back: holes of their size, that smaller ones break, would be too many.
    sharing: how many ranks share a sample, whose blocks are smaller by as much.
    """
    reuse_freed_memory((1 << 30) // sharing, (1 << 31) - 1)
