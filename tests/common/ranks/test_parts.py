"""The signs of life of ranks that work in parts; what the parts do together is in test_dist.py."""

import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

import torch.distributed as td

from common.ending import Ending
from common.ranks import parts
from common.ranks.alarm import Alarm, Stopped, Stores
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


def parts_of(rank, world_size, store, name_of_alarm, job_alarm=None):
    """Return parts of two ranks whose connections are those of a store."""

    def watch(name):
        own = td.PrefixStore(f"{name_of_alarm}/{name}", store)
        return Stores(own, lambda: own), lambda: None

    class Connected:
        def barrier(self):
            pass

    return Parts(Job(rank, world_size, store, lambda *_: Connected(), watch, lambda: None, job_alarm, ()), 2)


def test_the_ranks_of_a_part_meet_before_they_connect():
    store, order = td.HashStore(), []
    first, second = (parts_of(rank, 2, store, f"rank {rank}") for rank in range(2))

    def join(found, number):
        with found.together("piece"):
            order.append(number)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(join, first, 0)
        time.sleep(0.1)
        assert not order
        join(second, 1)
        waiting.result(30)
    assert sorted(order) == [0, 1]
    first.close()
    second.close()


def test_no_thread_waits_for_news_of_a_part_when_the_job_ends(monkeypatch):
    """A process that ended then would be aborted."""
    store = td.HashStore()
    job_alarm = Alarm(Stores(store, lambda: store), 0, 1, lambda: None)
    job_alarm._first = Ending("failed", "rank 3: no space")
    found = parts_of(0, 1, store, "alarm", job_alarm)
    monkeypatch.setattr(found, "size", 1)
    with pytest.raises(Stopped, match="no space"), found.together("piece"):
        raise RuntimeError("a consequence")
    assert "alarm" not in {thread.name for thread in threading.enumerate()}
