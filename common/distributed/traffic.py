"""What the ranks send to average their gradients: bytes, and the time in which there was nothing else to do."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor


class Traffic:
    """Measures the messages of a step. A rank's communication is hidden until its last message is ready to be sent.

    Untested on accelerators, where the stamps are events of the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ready: Any = None
        self._done: Any = None
        self._bytes = 0
        self.own_s = 0.0
        """CPU time in these methods."""

    def begins(self, message: Tensor) -> None:
        """Note that a message is ready to be sent."""
        begin = time.thread_time()
        self._ready = self._stamp()
        self._bytes += message.nbytes
        self.own_s += time.thread_time() - begin

    def ends(self) -> None:
        """Note that a message has arrived everywhere; messages end in the order in which they began."""
        begin = time.thread_time()
        self._done = self._stamp()
        self.own_s += time.thread_time() - begin

    def taken(self) -> tuple[float, int]:
        """Return the exposed seconds and the bytes since the last call; the device has finished its work."""
        ready, done, sent = self._ready, self._done, self._bytes
        self._ready, self._done, self._bytes = None, None, 0
        if ready is None:
            return 0.0, sent
        return (done - ready if self._device.type == "cpu" else ready.elapsed_time(done) / 1000), sent

    def _stamp(self) -> Any:
        """Return the time now: in seconds, or as an event that the device will reach."""
        if self._device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event
