"""Stop a run at a safe point: SIGTERM, SIGUSR1 and Ctrl-C set a flag that the loop checks between steps.

Batch systems send SIGTERM, or the signal that `sbatch --signal` names, some time before they end a job.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """The signal that asked to stop, in `number`, 0 without one; handlers are set only inside the `with`."""

    def __init__(self) -> None:
        self.number = 0
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python sets handlers nowhere else
            self._former = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.number:  # asked twice: the safe point may never come
            raise KeyboardInterrupt(f"second signal: {self.name_of(number)}")
        self.number = number

    @staticmethod
    def name_of(number: int) -> str:
        """Return the name of a signal, "" for 0."""
        return signal.Signals(number).name if number else ""
