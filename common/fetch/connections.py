"""Work in a few threads, one for each connection, that Ctrl-C ends at once, whatever the network does."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

GRACE_S: Final = 2.0
"""How long threads that were asked to stop may take; one that waits for the network may take longer, and is left."""


class Stopped(Exception):
    """The work was asked to stop; what is there is kept."""


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
    todo = deque(items)
    if connections == 1 or len(todo) <= 1:
        for item in todo:
            work(item)
            done(item)
        return
    _threaded(work, todo, min(connections, len(todo)), stop, done)


def _threaded(
    work: Callable[[T], object], todo: deque[T], count: int, stop: threading.Event, done: Callable[[T], object]
) -> None:
    told: SimpleQueue[tuple[T, BaseException | None] | None] = SimpleQueue()  # None: a thread has ended

    def run() -> None:
        while todo and not stop.is_set():
            with suppress(IndexError):  # another thread took the last one
                item = todo.popleft()
                told.put((item, _error(work, item, stop)))
        told.put(None)

    # Daemons: the process need not wait for one that waits for the network.
    threads = [threading.Thread(target=run, name=f"connection-{one}", daemon=True) for one in range(count)]
    for thread in threads:
        thread.start()
    try:
        for item, error in _told(told, count):
            if error is None:
                done(item)
            elif not isinstance(error, Stopped):
                raise error
        if stop.is_set():
            raise Stopped
    except BaseException:
        stop.set()
        deadline = time.monotonic() + GRACE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        raise


def _told(
    told: SimpleQueue[tuple[T, BaseException | None] | None], threads: int
) -> Iterator[tuple[T, BaseException | None]]:
    """Yield what threads tell until all have ended."""
    while threads:
        if (one := told.get()) is None:
            threads -= 1
        else:
            yield one


def _error(work: Callable[[T], object], item: T, stop: threading.Event) -> BaseException | None:
    """Do the work; return its error, which stops the others, or None."""
    try:
        work(item)
    except BaseException as error:
        stop.set()
        return error
    return None
