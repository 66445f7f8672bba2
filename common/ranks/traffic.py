"""What the ranks send to average their gradients: bytes, and the time in which there was nothing else to do."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """A time on a device between two stamps, which are seconds or, of an accelerator, events."""

    begin: Any
    end: Any

    @property
    def seconds(self) -> float:
        """How long it took; the device has finished its work."""
        if isinstance(self.begin, float):
            return float(self.end - self.begin)
        return float(self.begin.elapsed_time(self.end)) / 1000


def stamp(device: torch.device) -> Any:
    """Return the time now: in seconds, or as an event that the device will reach."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event


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
        self._ready = stamp(self._device)
        self._bytes += message.nbytes
        self.own_s += time.thread_time() - begin

    def ends(self) -> None:
        """Note that a message has arrived everywhere; messages end in the order in which they began."""
        begin = time.thread_time()
        self._done = stamp(self._device)
        self.own_s += time.thread_time() - begin

    def taken(self) -> tuple[Span, int]:
        """Return the exposed time and the bytes since the last call."""
        exposed, sent = Span(self._ready, self._done), self._bytes
        self._ready, self._done, self._bytes = None, None, 0
        return (exposed if exposed.begin is not None else Span(0.0, 0.0)), sent
