"""Stop a run at a safe point: SIGTERM, SIGUSR1 and Ctrl-C set a flag that the loop reads between two steps.

Batch systems send SIGTERM, or the signal that `sbatch --signal` names, some time before they end a job.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Catches the stop signals inside a `with`. number: the signal that was caught, 0 if none was."""

    def __init__(self) -> None:
        self.number = 0
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers there only
            self._former = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.number:  # a second signal: the safe point may never come
            raise KeyboardInterrupt(f"second signal: {self.name_of(number)}")
        self.number = number

    @staticmethod
    def name_of(number: int) -> str:
        """Return the name of a signal, or "" for 0."""
        return signal.Signals(number).name if number else ""
