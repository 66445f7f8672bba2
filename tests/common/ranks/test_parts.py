"""The signs of life of ranks that work in parts; what the parts do together is in test_dist.py."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as td

from common.ending import Ending
from common.ranks import parts
from common.ranks.alarm import Alarm, Stopped
from common.ranks.dist import Dist, make_single_dist
from common.ranks.launch import RankPosition
from common.ranks.parts import Parts
from common.stop import STOP


@pytest.mark.parametrize(("number", "after_s"), [(0, 60), (signal.SIGUSR1, 60), (signal.SIGTERM, 15)])
def test_a_silent_rank_is_lost_after_a_time_that_the_signal_sets(monkeypatch, number, after_s):
    """A rank that shows life now and then is not."""
    monkeypatch.setattr(STOP, "number", number)
    store = td.HashStore()
    rolls = [parts.Roll(store, 3) for _ in range(3)]
    for rank, roll in enumerate(rolls):
        roll.answer(rank)
    assert rolls[0].find_lost() is None
    for beat in range(after_s // round(parts.BEAT_S)):
        rolls[0].answer(0)
        if beat % 2 == 0:
            rolls[1].answer(1)
        assert rolls[0].find_lost() is None
    assert rolls[0].find_lost() == 2


def test_ranks_that_answer_are_called_again():
    store = td.HashStore()
    rolls = [parts.Roll(store, 2) for _ in range(2)]
    for number in range(40):
        for rank, roll in enumerate(rolls):
            roll.answer(rank)
        assert rolls[0].find_lost() is None and store.add("call", 0) == number + 1


def test_a_signal_of_one_rank_stops_all(monkeypatch):
    monkeypatch.setattr("common.ranks.alarm.ROLL_S", 0.1)
    store, asked = td.HashStore(), []
    monkeypatch.setattr(STOP, "ask_to_stop", asked.append)
    alarm = Alarm(store, 0, 1)
    with alarm:
        for number in (signal.SIGUSR1, signal.SIGTERM):
            alarm.pass_on_stop(number)
        end = time.monotonic() + 30
        while not asked and time.monotonic() < end:
            time.sleep(0.01)
    assert asked == [signal.SIGUSR1], "the first one counts"
    store.set("news/0", "stop by signal 9")
    with Alarm(store, 0, 1):
        end = time.monotonic() + 30
        while len(asked) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert asked[1] == 0, "a stranger cannot ask by another signal"


class Rank(Dist):
    """A rank of two, whose connections are those of a store."""

    def __init__(self, rank, store):
        super().__init__(RankPosition("test", rank, 2, rank, 2, 0, 1), torch.device("cpu"))
        self.alarm = Alarm(store, rank, 2)

    def rejoin_ranks(self, chosen, store, alarm):
        return make_single_dist()


def test_a_rank_shows_that_it_lives_again_after_a_time_out(monkeypatch):
    monkeypatch.setattr("common.ranks.alarm.PULSE_S", 0.01)
    store, failing = td.HashStore(), [1, 0, 1, 1, 0]
    alarm = Alarm(store, 0, 1)

    def pulse(_):
        if failing and failing.pop():
            raise RuntimeError("wait timeout after 10000ms")
        store.add("pulses", 1)

    alarm.pulse = pulse
    with alarm:
        end = time.monotonic() + 30
        while store.add("pulses", 0) < 5 and time.monotonic() < end:
            time.sleep(0.01)
    assert not failing and store.add("pulses", 0) >= 5


def test_the_ranks_of_a_part_meet_before_they_connect():
    store, order = td.HashStore(), []
    first, second = (Parts(Rank(rank, store), 2) for rank in range(2))

    def join(parts, number):
        with parts.work_together("piece"):
            order.append(number)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(join, first, 0)
        time.sleep(0.1)
        assert not order
        join(second, 1)
        waiting.result(30)
    assert sorted(order) == [0, 1]


def test_no_thread_waits_for_news_of_a_part_when_the_job_ends():
    """A process that ended then would be aborted."""
    rank = Rank(0, td.HashStore())
    rank.alarm._first = Ending("failed", "rank 3: no space")
    with pytest.raises(Stopped, match="no space"), Parts(rank, 1).work_together("piece"):
        raise RuntimeError("a consequence")
    assert "alarm" not in {thread.name for thread in threading.enumerate()}
