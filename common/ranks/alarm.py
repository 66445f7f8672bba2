"""Stop all ranks when one fails, whatever launched them and whatever they are waiting for, and say which one it was.

The failing rank leaves a note in the store of the ranks. On each other rank a thread waits for it (in the store: nobody
asks again and again), cuts the connections of the collectives, so that calls that wait for the failed rank end, and
lets the main thread raise `Stopped` at its next `STOP.check`: `with` and `finally` blocks run, and the result log gets
its run_stop. The note says how the run ends by the failure, so that all ranks end with the same exit status, and one
rank shows one message. All exit together, since a launcher kills the rest as soon as one process ends with an error; a
process that is stuck for GRACE_S is ended.

A rank that was killed, or hangs, leaves no note: then the collectives of others find the connection lost, or time out.
One of them calls the roll: each rank that lives says at once what it is doing, and the note names those that do not
answer, with the last sign of life that each rank leaves every LIFE_S.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import FrameType, TracebackType
from typing import Final, Self

import torch.distributed as td

from common.command import list_some
from common.ending import DIVERGED, FAILED, STOPPED, Ending, EndingError, classify_error
from common.errors import LaunchError
from common.network import open_sockets
from common.processes import call_in_thread
from common.ranks.groups import end_collectives, is_late, is_lost
from common.ranks.meeting import MOST_LISTED, AnsweringStore, first_line
from common.stop import SIGNALS, STOP

LOOK_EVERY_S: Final = 0.5
GRACE_S: Final = 10.0
"""Seconds for a rank to unwind, and to wait for the others to do so."""
PART_GRACE_S: Final = 30.0
"""The same where the process goes on, such as from a step of training."""
PULSE_S: Final = 1.0
LIFE_S: Final = 10.0
LOOKS_PER_S: Final = 5000.0
"""Of all ranks together, at rank 0's store, which answers ten times as many."""
ROLL_S: Final = 3.0
"""For the ranks to answer the roll call; a living one takes a moment."""
STORE_S: Final = 5.0
"""For the ranks' store to answer a call that waits for nothing."""
LONGEST_CAUSE: Final = 10_000
UNLIMITED: Final = timedelta(days=20)  # gloo and the store count milliseconds in 32 bits
ROLL: Final = "roll call of rank"
STOP_BY: Final = "stop by signal"
PASSING: Final = (ROLL, STOP_BY)
"""News after which there is room for one more, once for each kind; after OVER, or the note of a failure, none."""
NEWS: Final = ("news/0", "news/1", "news/2")
UNREADABLE: Final = "unreadable note"
OVER: Final = "over"
"""The work has ended well."""


class Stopped(EndingError):
    """Another rank has failed, or was asked to stop."""


class Alarm:
    """Within `with alarm:`, a failure of one rank becomes an exception on all ranks.

    rank: in the job; the alarm is that of a part of `world_size` consecutive ranks of it, or of all. Made before these
    connect, since it ends the collectives that begin after it. expected: the errors that are shown by their message
    alone. outer: for a part, whose process goes on after a failure, the alarm of all ranks, which goes first.
    all_unwound: whether all ranks had unwound after a failure. progress: what the training is at, in words; for the
    signs of life. work: what its ranks do, before an error that is shown. pulse: what else is to be done every PULSE_S;
    it gets the number of the beat. speaks: whether this rank says that rank 0 is lost, one on each node. has_lost_main:
    whether it is. server: host and port of the store; port 0: it is one of this process, which has no connections to
    other ranks.
    """

    progress = work = ""
    speaks, has_lost_main = True, False
    server = ("this host", 0)
    pulse: Callable[[int], None] | None = None

    def __init__(
        self,
        store: td.Store,
        rank: int,
        world_size: int,
        expected: tuple[type[BaseException], ...] = (),
        outer: Alarm | None = None,
    ) -> None:
        self.store, self._store, self._former = store, AnsweringStore(store, STORE_S), open_sockets()
        self._rank, self._world_size, self._outer = rank, world_size, outer
        self._grace_s, self.all_unwound = PART_GRACE_S if outer else GRACE_S, False
        first_rank = rank - rank % world_size
        self._ranks = range(first_rank, first_rank + world_size)
        self._expected = (*expected, EndingError, LaunchError)
        if outer:
            self.speaks, self.server = outer.speaks, outer.server
        self._unwound = threading.Event()
        self._watcher = threading.Thread(target=self._watch_news, name="alarm", daemon=True)
        self._life = threading.Thread(target=self._show_life, name="life", daemon=True)
        self._first: Ending | None = None
        self._failure: Stopped | None = None

    def __enter__(self) -> Self:
        self._watcher.start()
        self._life.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not kind:
            self._leave_note(OVER)  # ends the waiting of all
        self._unwound.set()
        # A process that ends while a thread is inside a call of torch is aborted, whatever its exit code.
        for thread in (self._watcher, self._life):
            thread.join(LOOK_EVERY_S if kind else GRACE_S)
        if STOP.failure is self._failure:  # that of the job ends what is around a part, too
            STOP.failure = None

    def end_job(self, ending: Ending) -> None:
        """End the job on all ranks as if this one had failed."""
        _print_lines(self._rank, ending.cause)
        self._leave_note(self._write_note(ending))

    def check_job(self) -> None:
        """Raise what ends the job of this part, if it ends: then an error of the part is only a consequence."""
        if self._outer and self._outer._first:
            self._leave_note(OVER)  # ends the waiting of this rank's thread
            self._watcher.join(LOOK_EVERY_S)
            raise Stopped(self._outer._first)

    @contextlib.contextmanager
    def first_failure(self) -> Iterator[None]:
        """Within the `with`, raise the failure of another rank instead of an error that follows from it here.

        The others lose their connections to a failed rank, perhaps before their watchers have seen its note.
        """
        try:
            yield
        except Exception as error:
            cause = self._find_cause(error)
            if cause is not error:
                raise cause from error
            raise

    def report_error(self, error: BaseException) -> Ending:
        """Show the error and notify all ranks; return how the work ends when they have unwound, or after the grace.

        If another rank failed first, `error` is only a consequence and is not shown.
        """
        error = self._find_cause(error)
        ending = classify_error(error)
        note, first = self._write_note(ending), self._first
        winner = self._leave_note(note)
        if winner in (None, OVER):  # the store ended with rank 0, or the others have left in order
            if self.speaks or not self.has_lost_main:
                _print_lines(self._rank, f"stopped because of {first.cause}" if first else self._format_error(error))
        else:
            first = _read_note(str(winner))
            if first.cause.startswith(UNREADABLE) and self._rank == self._ranks.start:  # no rank has shown it
                _print_lines(self._rank, f"stopped because of an {first.cause}")
            if winner == note:
                _print_lines(self._rank, self.work + self._format_error(error))
                first = ending if ending.how == STOPPED else replace(ending, cause=f"rank {self._rank}: {ending.cause}")
        with contextlib.suppress(RuntimeError):
            self._store.add("unwound", 1)
            end = time.monotonic() + self._grace_s
            while time.monotonic() < end and not self.all_unwound and not self._job_ends:
                time.sleep(max(LOOK_EVERY_S / 5, self._world_size / LOOKS_PER_S))
                self.all_unwound = self._store.add("unwound", 0) >= self._world_size
        self._unwound.set()
        return ending if ending.how == DIVERGED else first or ending  # what this rank has seen is no hearsay

    @property
    def _job_ends(self) -> bool:
        """Whether the job of this part ends, whose alarm gives each process less time."""
        return self._outer is not None and self._outer._first is not None

    def _write_note(self, ending: Ending) -> str:
        return json.dumps([ending.how, ending.cause, self._rank])

    def pass_on_stop(self, number: int) -> None:
        """Have all ranks stop as if each had got the signal."""
        self._leave_note(f"{STOP_BY} {int(number)}")

    def _leave_note(self, note: str) -> str | None:
        """Leave news unless there are such or final ones; return those that are there, None if there is no store."""
        with contextlib.suppress(RuntimeError):
            for key in NEWS:
                winner = self._store.compare_set(key, "", note).decode(errors="replace")  # it may be open to others
                if not winner.startswith(PASSING) or winner.split()[0] == note.split()[0]:
                    return winner
        return None

    def _find_failure(self) -> Ending | None:
        """Return the failure of which there is a note in the store."""
        for key in itertools.takewhile(lambda key: self._store.check([key]), NEWS):
            news = self._store.get(key).decode(errors="replace")
            if news != OVER and not news.startswith(PASSING):
                return _read_note(news)
        return None

    def _format_error(self, error: BaseException) -> str:
        if isinstance(error, self._expected):
            return f"{error}" if isinstance(error, EndingError) else f"error: {error}"
        if isinstance(error, SystemExit | KeyboardInterrupt):
            return "".join(traceback.format_exception_only(error))
        return "".join(traceback.format_exception(error))

    # -- who is lost, who hangs ---------------------------------------------------------------------------

    def _find_cause(self, error: BaseException) -> BaseException:
        """Return the failure of another rank if `error` follows from it, or which ranks are lost or late; else it."""
        if isinstance(error, EndingError | FloatingPointError):
            return error
        with contextlib.suppress(RuntimeError):  # the store ended with rank 0
            if failure := self._find_failure():
                return Stopped(failure)
        if not (is_lost(error) or is_late(error)):
            return error
        with contextlib.suppress(RuntimeError):
            own_call = f"{ROLL} {self._rank}"
            if self._leave_note(own_call) == own_call:
                cause = self._call_roll(error)
                return EndingError(Ending(FAILED, cause), f"error: {cause}")
            for _ in STOP.poll(2 * ROLL_S, first_pause_s=0.1):  # until the rank that called has left its note
                if failure := self._find_failure():
                    return Stopped(failure)
            return error
        self.has_lost_main = True
        cause = (
            f"lost the store of the ranks at {self.server[0]}, where rank 0 is, or the network to it; see rank 0's "
            f"output, and its node's kernel log ({self._explain_wait(error)})"
        )
        return EndingError(Ending(FAILED, cause), f"error: {cause}")

    def _call_roll(self, error: BaseException) -> str:
        """Return which ranks do not answer, or what those do that wait for none."""
        any(self._store.add("answers", 0) >= self._world_size for _ in STOP.poll(ROLL_S))
        answers = [self._read_life(f"answer/{rank}", rank) for rank in self._ranks]
        reason = self._explain_wait(error)
        if silent := [rank for rank, answer in zip(self._ranks, answers, strict=True) if answer is None]:
            lives = [self._read_life(f"life/{rank}", rank) or (f"rank {rank}", False) for rank in silent[:MOST_LISTED]]
            lost = list_some([*(text for text, _ in lives), *silent[MOST_LISTED:]], MOST_LISTED)
            return (
                f"no answer from {lost}: killed, perhaps because it ran out of memory, stopped, or cut off; see its "
                f"output, the launcher's, and its node's kernel log ({reason})"
            )
        if busy := [text for text, waits in filter(None, answers) if not waits]:
            return f"all ranks live, but not all came to the same point: {list_some(busy, MOST_LISTED)} ({reason})"
        return (
            f"all ranks live and wait for each other: the network between them failed ({reason}; {first_line(error)})"
        )

    def _explain_wait(self, error: BaseException) -> str:
        reason = "lost a connection" if is_lost(error) else "waited longer than dist.timeout_s"
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        return f"rank {self._rank} on {socket.gethostname()} {reason} in {_describe_frame(frame)[0]}"

    def _read_life(self, key: str, rank: int) -> tuple[str, bool] | None:
        """Return a sign of life, in words, and whether the rank waited for others.

        None if there is none, or no readable one, since a store may be open to others.
        """
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            if self._store.check([key]):
                host, at, progress, doing, waits = json.loads(self._store.get(key))
                ago = f"{max(0.0, time.time() - at):.0f} s ago"
                return f"rank {rank} on {host} ({', '.join(filter(None, (ago, progress, doing)))})", bool(waits)
        return None

    def _describe_life(self) -> str:
        return json.dumps([socket.gethostname(), time.time(), self.progress, *describe_main_thread()])

    def _show_life(self) -> None:
        for beat in itertools.count():
            with contextlib.suppress(RuntimeError):  # if the store ended with rank 0, the other thread finds that
                if beat % (LIFE_S // PULSE_S) == 0:
                    self._store.set(f"life/{self._rank}", self._describe_life())
                if self.pulse:
                    self.pulse(beat)
            if self._unwound.wait(PULSE_S):
                return

    def _read_news(self) -> str:
        """Wait for a note, or for OVER; answer a roll call, and heed a signal that another rank got, before it."""
        store = self.store.clone()  # connects once more, since a thread that waits keeps others from its store
        for key in NEWS:
            store.wait([key], UNLIMITED)
            news = store.get(key).decode(errors="replace")
            if news.startswith(ROLL):
                store.set(f"answer/{self._rank}", self._describe_life())
                store.add("answers", 1)
            elif news.startswith(STOP_BY):  # of a store that may be open to others
                STOP.ask_to_stop(next((number for number in SIGNALS if f"{STOP_BY} {int(number)}" == news), 0))
            else:
                break
        return news

    def _watch_news(self) -> None:
        try:
            news = self._read_news()
            if news == OVER:
                return
            self._first = _read_note(news)
        except RuntimeError:
            # Either rank 0 is lost, or it has finished and this rank is about to; of a part, the outer alarm finds it.
            if self._outer or self._unwound.wait(self._grace_s):
                return
            self.has_lost_main = True
            self._first = Ending(
                FAILED,
                f"rank 0 at {self.server[0]}: lost without an error message; see its output and the launcher's",
            )
        if self._unwound.is_set() or self._job_ends:
            return
        self._failure = STOP.failure = Stopped(self._first)
        if self.server[1]:
            cut = call_in_thread(partial(end_collectives, self._former, self.server[1]))
            wait([cut], LOOK_EVERY_S)  # it may hang as well
        if not self._unwound.wait(self._grace_s):
            STOP.end_process(self._first, f"rank {self._rank}: ended, since it was stuck after {self._first.cause}")


def describe_main_thread() -> tuple[str, bool]:
    """Return what the main thread does, in words, and whether it waits for other ranks, as far as that can be seen."""
    return _describe_frame(sys._current_frames()[threading.main_thread().ident or 0])


def _describe_frame(innermost: FrameType) -> tuple[str, bool]:
    call, waits = "", False
    for frame, line in traceback.walk_stack(innermost):
        module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        package = module.partition(".")[0]
        # In this module when its collective has failed.
        if module.startswith("torch.distributed") or module in (__name__, "common.ranks.control"):
            call, waits = name, True
        elif module == "torch.autograd.graph":  # a backward pass, in which gradients are averaged
            call, waits = "backward", True
        elif module.startswith(f"{__package__}."):
            call = call if name.startswith("_") else name
        elif package != "torch" and package not in sys.stdlib_module_names and module != "common.processes":
            where = f"{frame.f_code.co_qualname} ({os.path.basename(frame.f_code.co_filename)}:{line})"
            return f"{call} in {where}" if call else where, waits
    return call or "the end of the program", waits


def _read_note(news: str) -> Ending:
    """Return the ending in a note, which may be anything if the store is open to others, and so is never a result."""
    try:
        how, cause, rank = json.loads(news)
        cause = "".join(filter(lambda letter: letter.isprintable() or letter == "\n", str(cause)))[:LONGEST_CAUSE]
        return Ending(STOPPED, cause) if how == STOPPED else Ending(FAILED, f"rank {int(rank)}: {cause}")
    except (ValueError, TypeError, RecursionError):
        return Ending(FAILED, f"{UNREADABLE} {news[:200]!r}")


def _print_lines(rank: int, text: str) -> None:
    # One write, so that the lines of several ranks do not mix.
    lines = "".join(f"rank {rank}: {line}\n" for line in text.rstrip().splitlines())
    print(lines, end="", file=sys.stderr, flush=True)
