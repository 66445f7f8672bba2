"""Stop all ranks when one fails, whatever launched them and whatever they are waiting for.

The failing rank leaves a note in the store of the ranks. On each other rank a thread looks for it twice a second, cuts
the connections of the collectives (so that calls that wait for the failed rank end) and raises `Stopped` in the main
thread by a signal (so that sleeping or computing Python code ends): `with` and `finally` blocks run, and the result log
gets its run_stop. The note says how the run ends by the failure, so that all ranks end with the same exit status, and
one rank shows one message. All exit together, since a launcher kills the rest as soon as one process ends with an
error; a process that is stuck for GRACE_S is ended. A killed rank leaves no note: then the launcher stops the others
(srun: with --kill-on-bad-exit), or their collectives find the connection lost.
"""

from __future__ import annotations

import contextlib
import json
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
from typing import Any, Final, NamedTuple, Self

from common.distributed.rendezvous import is_lost
from common.ending import FAILED, STOPPED, Ending, EndingError, classify_error

LOOK_EVERY_S: Final = 0.5
GRACE_S: Final = 10.0
"""Seconds for a rank to unwind, and to wait for the others to do so."""
SIGNAL: Final = signal.SIGURG
"""Ignored by a process that does not handle it, and sent by no scheduler."""


class Stopped(EndingError):
    """Another rank has failed, or was asked to stop."""


class Alarm:
    """Within `with alarm:`, a failure of one rank becomes an exception on all ranks.

    store: a connection to the store of the ranks that no main thread waits on; cut: ends the collectives of this
    process; expected: the errors that are shown by their message alone. all_unwound: whether all ranks had unwound
    after a failure.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        cut: Callable[[], None],
        expected: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._outer: Alarm | None = None
        self._grace_s, self._work, self.all_unwound = GRACE_S, "", False
        self._store, self._rank, self._world_size, self._cut = store, rank, world_size, cut
        self._expected = (*expected, EndingError)
        self._armed = False
        self._unwound = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="alarm", daemon=True)
        self._first: Ending | None = None
        self._stack = contextlib.ExitStack()

    def of_part(self, outer: Alarm | None, grace_s: float, work: str) -> Self:
        """Make this the alarm of a part of the ranks, whose process goes on after a failure, and return it.

        outer: the alarm of all ranks, which goes first. grace_s: for a rank to unwind. work: what ends by the failure.
        """
        self._outer, self._grace_s, self._work = outer, grace_s, f"{work}: "
        return self

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

    def fail(self, error: BaseException) -> int:
        """Do as `report` before this process exits; return its exit status."""
        ending = self.report(error)
        if self._rank == 0:
            time.sleep(LOOK_EVERY_S)  # the others still use its store
        return ending.exit_status

    def trip(self, ending: Ending) -> None:
        """End the job on all ranks as if this one had failed."""
        _show(self._rank, ending.cause)
        self._store.compare_set("failure", "", json.dumps([ending.how, ending.cause, self._rank]))

    def check(self) -> None:
        """Raise Stopped if a rank has failed."""
        if self._first:
            raise Stopped(self._first)

    @contextlib.contextmanager
    def first_failure(self) -> Iterator[None]:
        """Within the `with`, raise the failure of another rank instead of an error that follows from it here.

        The others lose their connections to a failed rank, perhaps before their watchers have seen its note.
        """
        try:
            yield
        except Exception as error:
            with contextlib.suppress(RuntimeError):  # the store ended with rank 0
                if self._store.check(["failure"]):
                    raise Stopped(_read(self._store.get("failure"))) from error
            raise

    def report(self, error: BaseException) -> Ending:
        """Show the error and notify all ranks; return how the work ends when they have unwound, or after the grace.

        If another rank failed first, `error` is only a consequence and is not shown.
        """
        ending = classify_error(error)
        note = json.dumps([ending.how, ending.cause, self._rank])
        first = self._first
        try:
            winner = self._store.compare_set("failure", "", note).decode()
            first = _read(winner)
            if winner == note:
                _show(self._rank, self._work + self._text(error))
        except RuntimeError:  # the store ended with rank 0
            _show(self._rank, f"stopped because of {first.cause}" if first else self._text(error))
        with contextlib.suppress(RuntimeError):
            self._store.add("unwound", 1)
            end = time.monotonic() + self._grace_s
            while time.monotonic() < end and not self.all_unwound and not self._job_ends:
                time.sleep(LOOK_EVERY_S / 5)
                self.all_unwound = self._store.add("unwound", 0) >= self._world_size
        return first or ending

    @property
    def _job_ends(self) -> bool:
        """Whether the job of this part ends, whose alarm gives each process less time."""
        return self._outer is not None and self._outer._first is not None

    def _text(self, error: BaseException) -> str:
        if isinstance(error, self._expected):
            return f"{error}" if isinstance(error, EndingError) else f"error: {error}"
        if isinstance(error, SystemExit | KeyboardInterrupt):
            return "".join(traceback.format_exception_only(error))
        if is_lost(error):
            return (
                "error: lost the connection to another rank: it was killed, perhaps because it ran out of memory, or "
                f"the network failed; see its output, the launcher's, and its node's kernel log ({error})"
            )
        return "".join(traceback.format_exception(error))

    def _watch(self) -> None:
        while not self._unwound.wait(LOOK_EVERY_S):
            try:
                if not self._store.check(["failure"]):
                    continue
                self._first = _read(self._store.get("failure"))
            except RuntimeError:
                if self._outer:
                    return  # it finds the same
                # Either rank 0 is lost, or it has finished and this rank is about to.
                if self._unwound.wait(self._grace_s):
                    return
                self._first = Ending(FAILED, "rank 0: lost without an error message; see its output and the launcher's")
            break
        else:
            return
        # Cut first: under a tracer, such as coverage's, Python 3.11 runs no other thread between a signal and its
        # handling by the main thread, which may be waiting in a collective.
        cut = threading.Thread(target=self._cut, daemon=True)
        cut.start()
        cut.join(LOOK_EVERY_S)  # it may hang as well
        signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
        if not self._unwound.wait(self._grace_s):
            _show(self._rank, f"killed because it was stuck after {self._first.cause}")
            sys.stdout.flush()
            os._exit(self._first.exit_status)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._outer and not self._first:
            self._outer._stop(number, frame)
        # Once, and not if this rank is already unwinding (its collective found a connection cut by another rank).
        if self._armed and self._first and sys.exception() is None:
            self._armed = False
            raise Stopped(self._first)


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


class OpenSocket(NamedTuple):
    """A socket of this process. inode: tells it from a later one with the same file descriptor."""

    descriptor: int
    inode: int


def open_sockets() -> set[OpenSocket]:
    """Return the sockets of this process."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add(OpenSocket(int(name), status.st_ino))
    return found


def cut_connections(former: set[OpenSocket], store_port: int) -> None:
    """Shut the TCP connections that this process opened after `former`, except those to the ranks' store."""
    for number, _ in open_sockets() - former:
        with contextlib.suppress(OSError):
            connection = socket.socket(fileno=number)
            try:
                ports = connection.getsockname()[1], connection.getpeername()[1]
                if connection.family in (socket.AF_INET, socket.AF_INET6) and store_port not in ports:
                    connection.shutdown(socket.SHUT_RDWR)
            finally:
                connection.detach()


def _read(note: bytes | str) -> Ending:
    """Return the ending in a note; the store may be open to others, so that a note may be anything."""
    try:
        how, cause, rank = json.loads(note)
        return Ending(how, str(cause) if how == STOPPED else f"rank {rank}: {cause}")
    except (ValueError, TypeError):
        return Ending(FAILED, f"unreadable note {note!r}")


def _show(rank: int, text: str) -> None:
    # One write, so that the lines of several ranks do not mix.
    sys.stderr.write("".join(f"rank {rank}: {line}\n" for line in text.rstrip().splitlines()))
    sys.stderr.flush()
