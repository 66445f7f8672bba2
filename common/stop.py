"""Stop a run when its job ends: SIGTERM, SIGUSR1 and Ctrl-C, at any moment from the imports to the last clean-up.

Batch systems send SIGTERM, or the signal that `sbatch --signal` names, some time before they end a job. A signal is
remembered. What can be ended at once (making data, connecting, staging) runs inside `STOP.interrupting()`, where it
raises StopAsked; the training loop looks at `STOP.number` between two steps, saves, and ends by itself.

Python may run the handler of a signal between the taking of a lock and the `with` that releases it. An exception there
would leave the lock taken for good, and a thread that needs it, such as one that stages, would never end. So StopAsked
is raised a moment later if the signal comes in the code of locks. It is raised again if Python drops it, as it drops
what is raised in callbacks of weak references and in `__del__`.

No torch here: the signals are caught before it is imported, which takes seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final

from common.ending import STOPPED, Ending, EndingError

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
SAME_S: Final = 1.0
"""A terminal and mpirun both pass on one Ctrl-C: a second one within this time is the same."""
MOMENT_S: Final = 0.005
"""After so long, the code of locks is looked at once more."""
LOCKS: Final = ("threading", "multiprocessing.synchronize")
"""Modules whose functions take locks."""
WAITS: Final = ("wait", "join", "_wait_for_tstate_lock")
"""Their functions that may take long, and give back their locks if they are interrupted."""


def signal_name(number: int) -> str:
    """Return the name of a signal, "" for 0."""
    return signal.Signals(number).name if number else ""


class StopAsked(EndingError):
    """A signal asks the run to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(Ending(STOPPED, signal_name(number)))


class Stop:
    """The stop signals that this process got. number: the first one, 0 if there was none."""

    def __init__(self) -> None:
        self.number = 0
        self._at = 0.0
        self._raises = False
        self._former: dict[signal.Signals, Any] = {}
        self._former_hook = sys.unraisablehook

    @property
    def listens(self) -> bool:
        """Whether the signals are caught."""
        return bool(self._former)

    def listen(self) -> None:
        """Catch the signals until the process ends; when it is ending, they come too late and are ignored."""
        self._catch()
        atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in self._former])

    def _catch(self) -> None:
        """Catch the signals; only in the main thread, where Python allows it."""
        if not self._former and threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._caught) for number in SIGNALS}
            self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._moment_later)
            self._former_hook, sys.unraisablehook = sys.unraisablehook, self._dropped

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Catch the signals inside the `with`, and forget them at its end, unless they are caught anyhow."""
        if self._former:
            yield
            return
        self._catch()
        raises = self._raises
        try:
            yield
        finally:
            self._raises = raises  # contexts of a training may end in another order than they began
            if self._former:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in self._former.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: not set by Python
            if self._former:
                sys.unraisablehook = self._former_hook
            self.number, self._former = 0, {}

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise StopAsked inside the `with` when a signal comes, at once if it came before."""
        with self._raising(True):
            if self.number:
                raise StopAsked(self.number)
            yield

    def deferring(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a signal is only remembered; only a second Ctrl-C raises StopAsked."""
        return self._raising(False)

    def defer(self) -> None:
        """Only remember a signal from here to the end of the `interrupting` around it.

        For work that is done, but whose clean-up the caller has yet to register.
        """
        self._raises = False

    @contextlib.contextmanager
    def _raising(self, raises: bool) -> Iterator[None]:
        former, self._raises = self._raises, raises
        try:
            yield
        finally:
            self._raises = former

    def _caught(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.number:
            # The first signal is enough; only a person who presses Ctrl-C again does not want to wait for the end.
            if number == signal.SIGINT and now - self._at > SAME_S:
                raise StopAsked(number)
            return
        self.number, self._at = number, now
        self._raise_unless(_in_lock(frame))

    def _moment_later(self, _number: int, frame: FrameType | None) -> None:
        self._raise_unless(_in_lock(frame, WAITS))

    def _dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise StopAsked again a moment later where Python cannot pass it on; tell other exceptions as ever."""
        if isinstance(unraisable.exc_value, StopAsked):
            self._raises = True
            signal.setitimer(signal.ITIMER_REAL, MOMENT_S)
        else:
            self._former_hook(unraisable)

    def _raise_unless(self, later: bool) -> None:
        if self._raises and later:
            signal.setitimer(signal.ITIMER_REAL, MOMENT_S)
        elif self._raises:
            self._raises = False  # once: cleaning up is not interrupted
            raise StopAsked(self.number)


def _in_lock(frame: FrameType | None, without: Sequence[str] = ()) -> bool:
    """Tell whether the function that a signal interrupted may just have taken a lock. without: functions to ignore."""
    if frame is None or frame.f_code.co_name in without:
        return False
    return frame.f_globals.get("__name__") in LOCKS


STOP: Final = Stop()
"""The signals of this process."""
