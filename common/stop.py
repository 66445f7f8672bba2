"""Stop a run when its job ends: at a signal, at any moment from the imports to the last clean-up.

Batch systems send SIGTERM, or the signal that `sbatch --signal` names, some time before they end a job. A signal sets a
flag and raises nothing. What can be ended at once (making data, meeting the other ranks, staging) runs inside
`STOP.interrupting()`, calls `STOP.check()` in its loops and waits by `STOP.sleep()`: these raise StopAsked. The
training loop looks at `STOP.number` between two steps, saves, and ends by itself.

What does not come to such a point, such as a call of C that waits for a rank that is lost, is ended by a thread:
DEADLINE_S after SIGTERM, and at once after a second Ctrl-C, it records how the run ended and ends the process.

No torch here: the signals are caught before it is imported, which takes seconds. Windows, where nothing is trained, has
few of the signals and no fcntl; commands that read results import this module there, too.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, get_args

from common.ending import STOPPED, Ending, EndingError

SignalName = Literal["TERM", "INT", "USR1", "HUP", "XCPU", "USR2"]
"""Of the signals that the setting `stop.signals` can name."""
NAMES: Final[tuple[SignalName, ...]] = get_args(SignalName)[:-1]
"""Its default."""
STACKS: Final = getattr(signal, "SIGUSR2", 0)
"""Prints the stacks of all threads, unless it is to stop the run."""
SAME_S: Final = 1.0
"""A terminal and mpirun both pass on one Ctrl-C: a second one within this time is the same."""
LOOK_S: Final = 0.2
"""The longest time that a wait goes without a look at the flag."""
DEADLINE_S: Final = 13.0
"""From SIGTERM to the end of the process: launchers kill 30 seconds after it (Slurm's KillWait, torchrun), containers
after 10 or more; the others of several ranks need a part of that for their end."""
LAST_S: Final = 25.0
"""The same for a run that comes to its end: one whose main thread has looked at the flag in the last QUIET_S seconds,
such as between two batches, or that writes its checkpoint."""
QUIET_S: Final = 4.0
RECORDING_S: Final = 2.0
"""Until a record is given up that a thread writes at the deadline, perhaps to a file system that hangs."""


def find_signals(names: Iterable[str]) -> list[signal.Signals]:
    """Return the signals of these names, such as TERM, that the system has."""
    numbers = (getattr(signal, f"SIG{name}", None) for name in names)
    return [number for number in numbers if number is not None]


SIGNALS: Final = (*find_signals(get_args(SignalName)),)
"""Those that `stop.signals` can name."""


def signal_name(number: int) -> str:
    """Return the name of a signal, "" for 0."""
    return signal.Signals(number).name if number else ""


def _keep_off_console(end: socket.socket) -> socket.socket:
    """Return the socket under a number above those of the console, which may be free: it would be taken for stderr."""
    if sys.platform == "win32":  # whose console has no numbers
        return end
    import fcntl

    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class StopAsked(EndingError):
    """A signal asks the run to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(Ending(STOPPED, signal_name(number)))


class Stop:
    """The stop signals that this process got. number: the first one, 0 if there was none.

    failure: what ended the work of another rank and is to end that of this one; raised by the next `check`.
    exit_status: that of the process from now on, however it is ended: what it was to do is done, and recorded.
    """

    def __init__(self) -> None:
        self.number = 0
        self.failure: BaseException | None = None
        self.exit_status: int | None = None
        self._raises = self._finishes = False
        self._looked_at = 0.0
        self._former: dict[int, Any] = {}
        self._wakeup: socket.socket | None = None
        self._outer: BaseException | None = None
        self._recorders: list[Callable[[Ending], Ending]] = []

    @property
    def listens(self) -> bool:
        """Whether the signals are caught."""
        return bool(self._former)

    def listen(self) -> None:
        """Catch the signals until the process ends; when it is ending, they come too late and are ignored."""
        self._catch_signals()
        atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in self._former])

    def _catch_signals(self) -> None:
        """Catch the signals; only in the main thread, where Python allows it."""
        if self._former or not _in_main_thread():
            return
        self._outer = sys.exception()  # a script may train where it handles an error, such as that of a missing run
        self.choose_signals(NAMES)
        # Suppressed: there is no stderr, or it is no file, such as in a notebook.
        with contextlib.suppress(ValueError, OSError, AttributeError, RuntimeError):
            faulthandler.register(STACKS, all_threads=True)
        ours, theirs = map(_keep_off_console, socket.socketpair())
        theirs.setblocking(False)
        former = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        if former != -1:  # of an event loop, such as a notebook's: then signals are heard between two lines of Python
            signal.set_wakeup_fd(former)
            ours.close()
            theirs.close()
            return
        self._wakeup = theirs
        threading.Thread(target=self._watch_signals, args=(ours, theirs), name="stop", daemon=True).start()

    def choose_signals(self, names: Iterable[str]) -> None:
        """Catch these signals, and no others any more; one that was ignored at the start (nohup) stays ignored."""
        if not _in_main_thread():
            return
        chosen = {number for number in find_signals(names) if signal.getsignal(number) != signal.SIG_IGN}
        for number in self._former.keys() - chosen:
            signal.signal(number, self._former.pop(number))
        for number in chosen - self._former.keys():
            if number == STACKS:
                faulthandler.unregister(number)
            # None: not set by Python.
            self._former[number] = signal.signal(number, lambda number, _: self.ask_to_stop(number)) or signal.SIG_DFL

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Catch the signals inside the `with`, and forget them at its end, unless they are caught anyhow."""
        if self._former or not _in_main_thread():
            yield
            return
        self._catch_signals()
        raises = self._raises
        try:
            yield
        finally:
            self._raises = raises  # contexts of a training may end in another order than they began
            if self._wakeup:
                signal.set_wakeup_fd(-1)
                self._wakeup.close()
            if self._former:
                faulthandler.unregister(STACKS)
            for number, handler in self._former.items():
                signal.signal(number, handler)
            self.number, self.exit_status, self._former, self._wakeup, self._outer = 0, None, {}, None, None

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let `check` raise StopAsked inside the `with` after a signal; it is called at both ends of it, too."""
        with self._set_raising(True):
            self.check()
            yield
            self.check()

    def deferring(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a signal is only remembered."""
        return self._set_raising(False)

    def defer(self) -> None:
        """Only remember a signal from here to the end of the `interrupting` around it.

        For work that is done, but whose clean-up the caller has yet to register.
        """
        self._raises = False

    @contextlib.contextmanager
    def _set_raising(self, raises: bool) -> Iterator[None]:
        if not _in_main_thread():
            yield
            return
        former, self._raises = self._raises, raises
        try:
            yield
        finally:
            self._raises = former

    def check(self) -> None:
        """Raise what ended the work of another rank, or StopAsked inside `interrupting`; each once.

        Nothing happens in other threads, and while an exception is being handled: clean-up is not interrupted.
        """
        if not (self.number or self.failure) or not _in_main_thread():
            return
        self._looked_at = time.monotonic()
        if sys.exception() is not self._outer:
            return
        if self.failure:
            error, self.failure = self.failure, None
            raise error
        if self._raises:
            self._raises = False
            raise StopAsked(self.number)

    def sleep(self, seconds: float) -> None:
        """Wait; raise as `check` does."""
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
            self.check()

    def poll(self, timeout_s: float, first_pause_s: float = 0.01, longest_pause_s: float = 1.0) -> Iterator[None]:
        """Yield at once, and then after pauses that grow until the time is over; raise as `check` does.

        A call of torch that waits hears no signal.
        """
        end, pause = time.monotonic() + timeout_s, first_pause_s
        self.check()
        yield
        while (left := end - time.monotonic()) > 0:
            self.sleep(min(pause, left))
            pause = min(1.5 * pause, longest_pause_s)
            yield

    @contextlib.contextmanager
    def allow_finishing(self) -> Iterator[None]:
        """Let the process work longer inside the `with` after SIGTERM: it saves what would be lost."""
        self._finishes = True
        try:
            yield
        finally:
            self._finishes = False

    def ask_to_stop(self, number: int) -> None:
        """Take note of a stop signal that another process got; for any thread."""
        self.number = self.number or number

    @contextlib.contextmanager
    def recording(self, record: Callable[[Ending], Ending]) -> Iterator[None]:
        """Inside the `with`, let `record` write down how the run ended if a thread has to end the process.

        It may return another ending, such as the result that the run has already.
        """
        self._recorders.append(record)
        try:
            yield
        finally:
            self._recorders.remove(record)

    def end_process(self, ending: Ending, message: str) -> None:
        """Record how the run ended, and end the process at once; for other threads than the main one."""
        endings = [ending]

        def write_records() -> None:
            for record in reversed(self._recorders):
                with contextlib.suppress(Exception):  # the process ends in any case
                    endings.append(record(endings[-1]))

        writer = threading.Thread(target=write_records, daemon=True)
        writer.start()
        writer.join(RECORDING_S)
        with contextlib.suppress(OSError, ValueError):
            os.write(2, f"{message}\n".encode())
        os._exit(endings[-1].exit_status if self.exit_status is None else self.exit_status)

    def _watch_signals(self, wakeup: socket.socket, other_end: socket.socket) -> None:
        """Read the numbers of the signals as they come, until the other end is closed; end the process if need be."""
        deadline = last = pressed_at = float("inf")
        while True:
            left = deadline - time.monotonic()
            wakeup.settimeout(None if left == float("inf") else max(left, 0.001))
            try:
                received = wakeup.recv(64)
            except TimeoutError:
                now = time.monotonic()
                if now < last and (self._finishes or now - self._looked_at < QUIET_S):
                    deadline = now + LOOK_S
                    continue
                self.end_process(Ending(STOPPED, "SIGTERM"), f"ended {DEADLINE_S:.0f} s after SIGTERM, as it was stuck")
            if not received or self._wakeup is not other_end:  # others listen by now
                return
            for number in received:
                if number not in self._former:
                    continue
                self.ask_to_stop(number)
                # By the clock of this thread, which hears a signal late if a call of C keeps Python's lock.
                now = time.monotonic()
                if number == signal.SIGINT:
                    if now - pressed_at > SAME_S:
                        self.end_process(Ending(STOPPED, "SIGINT"), "ended at once by a second Ctrl-C")
                    pressed_at = min(pressed_at, now)
                if number == signal.SIGTERM:
                    deadline, last = min(deadline, now + DEADLINE_S), min(last, now + LAST_S)

    def _leave_to_parent(self) -> None:
        """Forget the parent's thread in a process that was forked, whose signals are not the parent's."""
        if self._wakeup:
            signal.set_wakeup_fd(-1)
            self._wakeup = None


STOP: Final = Stop()
"""The signals of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=STOP._leave_to_parent)
