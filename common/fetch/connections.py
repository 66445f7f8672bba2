"""A few threads, one for each connection; Ctrl-C ends them at once, whatever the network does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from multiprocessing.pool import ThreadPool
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The work was stopped; finished parts are kept."""


def in_threads(
    work: Callable[[T], object],
    items: Iterable[T],
    connections: int,
    stop: threading.Event,
    done: Callable[[T], object] = lambda _: None,
) -> None:
    """Call `work` with each item, in threads, and `done` with each that is finished, in this thread.

    The first error, or Ctrl-C, sets `stop`, which `work` must look at before it writes anything, and is raised. A
    single connection is this thread itself.
    """
    todo = list(items)
    if connections == 1 or len(todo) <= 1:
        for item in todo:
            work(item)
            done(item)
        return

    def attempt_item(item: T) -> T:
        if stop.is_set():
            raise Stopped
        try:
            work(item)
        except BaseException:
            stop.set()
            raise
        return item

    pool = ThreadPool(min(connections, len(todo)))
    results = pool.imap_unordered(attempt_item, todo)
    try:
        while True:
            try:
                done(next(results))
            except StopIteration:
                break
            except Stopped:  # because of an error, which follows
                continue
        if stop.is_set():
            raise Stopped
    except BaseException:
        stop.set()
        raise
    finally:
        pool.terminate()  # does not wait for a thread that waits for the network
