"""Stop all ranks when one fails, whatever launched them and whatever they are waiting for.

The failing rank leaves a note in the store of the ranks. On each other rank a thread looks for it twice a second, cuts
the connections of the collectives (so that calls that wait for the failed rank end) and raises `Stopped` in the main
thread by a signal (so that sleeping or computing Python code ends): `with` and `finally` blocks run, and the result log
gets its run_stop. All exit together, since a launcher kills the rest as soon as one process ends with an error; a
process that is stuck for GRACE_S is ended. A killed rank leaves no note: then the launcher stops the others (srun: with
--kill-on-bad-exit), or their collectives find the connection lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

LOOK_EVERY_S: Final = 0.5
GRACE_S: Final = 10.0
"""Seconds for a rank to unwind, and to wait for the others to do so."""
SIGNAL: Final = signal.SIGURG
"""Ignored by a process that does not handle it, and sent by no scheduler."""


class Stopped(BaseException):
    """Another rank has failed. Like KeyboardInterrupt not an Exception, so that no code handles it and continues."""


class Alarm:
    """Within `with alarm:`, a failure of one rank becomes an exception on all ranks.

    store: an exclusive connection to the store of the ranks; cut: ends the collectives of this process.
    """

    def __init__(self, store: Any, rank: int, world_size: int, cut: Callable[[], None]) -> None:
        self._store, self._rank, self._world_size, self._cut = store, rank, world_size, cut
        self._armed = False
        self._unwound = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="alarm", daemon=True)
        self._note = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(handling(SIGNAL, self._stop))
        self._armed = True
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._armed = False
        finally:  # even if the signal arrives just before
            self._unwound.set()
            # A process that ends while the watcher is inside a call of torch is aborted, whatever its exit code.
            self._watcher.join(LOOK_EVERY_S if kind else GRACE_S)
            self._stack.close()

    def fail(self, error: BaseException) -> None:
        """Show the error and notify all ranks; return when they have unwound, or after GRACE_S.

        If another rank failed first, `error` is only a consequence and is not shown.
        """
        note = f"rank {self._rank}: {traceback.format_exception_only(error)[-1].strip()}"
        first = self._note
        with contextlib.suppress(RuntimeError):  # the store ended with rank 0
            first = first or self._store.compare_set("failure", "", note).decode()
        _show(self._rank, f"stopped because of {first}" if first not in ("", note) else _text(error))
        with contextlib.suppress(RuntimeError):
            self._store.add("unwound", 1)
            end = time.monotonic() + GRACE_S
            while time.monotonic() < end and self._store.add("unwound", 0) < self._world_size:
                time.sleep(LOOK_EVERY_S / 5)
        if self._rank == 0:
            time.sleep(LOOK_EVERY_S)  # the others still use its store

    def _watch(self) -> None:
        while not self._unwound.wait(LOOK_EVERY_S):
            try:
                if not self._store.check(["failure"]):
                    continue
                self._note = self._store.get("failure").decode()
            except RuntimeError:
                # Either rank 0 is lost, or it has finished and this rank is about to.
                if self._unwound.wait(GRACE_S):
                    return
                self._note = "rank 0: lost without an error message; see its output and the launcher's"
            break
        else:
            return
        # Cut first: under a tracer, such as coverage's, Python 3.11 runs no other thread between a signal and its
        # handling by the main thread, which may be waiting in a collective.
        cut = threading.Thread(target=self._cut, daemon=True)
        cut.start()
        cut.join(LOOK_EVERY_S)  # it may hang as well
        signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
        if not self._unwound.wait(GRACE_S):
            _show(self._rank, f"killed because it was stuck after {self._note}")
            sys.stdout.flush()
            os._exit(1)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        # Once, and not if this rank is already unwinding (its collective found a connection cut by another rank).
        if self._armed and self._note and sys.exception() is None:
            self._armed = False
            raise Stopped(self._note)


@contextlib.contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handler` handle the signal inside the `with`; outside the main thread, where Python cannot, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, former or signal.SIG_DFL)  # None: not set by Python


def open_sockets() -> set[int]:
    """Return the file descriptors of this process that are sockets."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.add(int(name))
    return found


def cut_connections(former: set[int], store_port: int) -> None:
    """Shut the TCP connections that this process opened after `former`, except those to the ranks' store."""
    for number in open_sockets() - former:
        with contextlib.suppress(OSError):
            connection = socket.socket(fileno=number)
            try:
                ports = connection.getsockname()[1], connection.getpeername()[1]
                if connection.family in (socket.AF_INET, socket.AF_INET6) and store_port not in ports:
                    connection.shutdown(socket.SHUT_RDWR)
            finally:
                connection.detach()


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "".join(traceback.format_exception_only(error))
    return "".join(traceback.format_exception(error))


def _show(rank: int, text: str) -> None:
    # One write, so that the lines of several ranks do not mix.
    sys.stderr.write("".join(f"rank {rank}: {line}\n" for line in text.rstrip().splitlines()))
    sys.stderr.flush()
