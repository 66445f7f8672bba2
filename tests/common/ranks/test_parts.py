"""The signs of life of ranks that work in parts; what the parts do together is in test_dist.py."""

import signal
import time
from collections import Counter

import pytest

from common.ranks import parts
from common.ranks.parts import Job, Parts
from common.stop import STOP


class Notes:
    """A store of this process. failing: how many of the next calls fail."""

    def __init__(self):
        self.counts, self.failing = Counter(), 0

    def add(self, key, number):
        if self.failing:
            self.failing -= 1
            raise RuntimeError("wait timeout after 10000ms")
        self.counts[key] += number
        return self.counts[key]

    def check(self, keys):
        return False

    def set(self, key, text):
        pass


def until(done):
    end = time.monotonic() + 5
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    assert done()


def test_a_rank_shows_that_it_lives_again_after_a_time_out(monkeypatch):
    monkeypatch.setattr(parts, "PULSE_S", 0.01)
    notes = Notes()
    found = Parts(Job(1, 2, notes, None, None, None, None, ()), 1)
    for failing in (1, 2):
        notes.failing = failing
        until(lambda: not notes.failing)
        before = notes.counts["alive/1"]
        until(lambda before=before: notes.counts["alive/1"] > before)
    notes.failing = 1000  # the store has ended
    until(lambda: not found._pulse.is_alive())
    assert notes.failing == 1000 - parts.MOST_FAILURES
    found.close()


@pytest.mark.parametrize(("number", "after_s"), [(0, 60), (signal.SIGUSR1, 60), (signal.SIGTERM, 15)])
def test_a_silent_rank_is_lost_after_a_time_that_the_signal_sets(monkeypatch, number, after_s):
    """A rank that shows life now and then is not."""
    monkeypatch.setattr(STOP, "number", number)
    notes, seen = Notes(), dict.fromkeys(range(3), (0, 0))
    for second in range(after_s):
        notes.add("alive/0", 1)
        notes.add("alive/1", second % 10 == 0)
        assert parts._lost(notes, seen) is None
    assert parts._lost(notes, seen) == 2
